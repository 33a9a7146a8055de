//! Files that end too early: every reader, every kind of file, cut off at every byte.

use super::targets::{Target, file, target};
use super::{files, folder};
use runner::checkpoint;
use runner::data::synthetic::{SyntheticOptions, Task};
use runner::data::text::{Content, TextOptions};
use runner::data::{self, Source};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What a format says of its end.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// How long it is: a file that was cut off is refused.
    Length,
    /// Where the last thing ends that counts: the rest may be missing, and what is read is the same.
    Rest,
    /// Nothing: less is another file.
    Open,
}

/// The files `ok-…` of the targets, whose first bytes say how they are read. The targets check that errors name the file.
const KEPT: [(&str, &[&str], usize, Ends); 14] = [
    ("idx", &["ok-gzip", "ok-images", "ok-labels", "ok-two-members", "ok-gzipped"], 1, Ends::Length),
    ("tar", &["ok-gz"], 1, Ends::Length),
    // Some writers leave out the empty blocks at the end: without them it is read, with a warning.
    ("shard", &["ok-archive"], 1, Ends::Rest),
    ("parquet", &["ok-nested", "ok-required"], 0, Ends::Length),
    ("pickle", &["ok-float", "ok-halves", "ok-longs", "ok-ordered", "ok-within"], 0, Ends::Length),
    ("weights", &["ok-archive"], 0, Ends::Length),
    ("jpeg", &["ok-420", "ok-444", "ok-gre"], 4, Ends::Rest),
    ("tokenizer", &["ok-pairs", "ok-pieces", "ok-split", "ok-unigram", "ok-words"], 0, Ends::Length),
    ("mask", &["ok-grey", "ok-palette"], 0, Ends::Rest),
    ("list", &["ok-csv", "ok-jsonl", "ok-numbers", "ok-quotes", "ok-several-json", "ok-tsv"], 1, Ends::Open),
    ("table", &["ok-classes", "ok-comma", "ok-json", "ok-kinds", "ok-words"], 1, Ends::Open),
    ("text", &["ok-bytes", "ok-characters", "ok-pairs", "ok-words"], 1, Ends::Open),
    ("labelled", &["ok-bytes", "ok-characters", "ok-pairs", "ok-words"], 1, Ends::Open),
    ("config", &["ok-small"], 0, Ends::Open),
];

/// Bytes that stand for the content of a file, equal where the content is; or why the file is refused.
type Found = Result<Vec<u8>, String>;

/// Reads a file.
type Read = fn(&Path) -> Found;

fn message(error: &impl std::fmt::Display) -> String {
    format!("{error:#}")
}

fn image(path: &Path) -> Found {
    let options =
        SyntheticOptions { shape: vec![3, 5, 9], task: Task::Classes(2), samples: 1, val_samples: 1, seed: 0 };
    let field = &data::describe(&Source::Synthetic(options)).expect("no files").fields[0];
    data::image_sample(path, field, true).map_err(|e| message(&e))
}

fn weights(path: &Path) -> Found {
    let loaded = checkpoint::load_tensors(path).map_err(|e| message(&e))?;
    Ok(format!("{:?}", loaded.tensors).into_bytes())
}

fn tokens(path: &Path) -> Found {
    let options = TextOptions {
        path: path.to_owned(),
        val_path: None,
        content: Content::Tokens { vocabulary: Some(1 << 16), tokenizer: None },
        chat: None,
        column: None,
        context: 1,
        end: None,
        apart: None,
        streams: None,
        hold_out: None,
        counts_bytes: false,
        fitted: None,
    };
    let set = data::open(&Source::Text(Box::new(options))).map_err(|e| message(&e))?;
    let all =
        (0..set.train.len()).map(|sample| data::text::tokens_of(&set.train, sample).expect("tokens that are there"));
    Ok(format!("{:?}", all.collect::<Vec<_>>()).into_bytes())
}

/// Other files, by what they are called.
fn others() -> Vec<(&'static str, Vec<u8>, Read, Ends)> {
    let golden =
        |path: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)).expect("there");
    let kept = |target: &str, name: &str| fs::read(folder("corpus", target).join(name)).expect("there");
    let sixteen = |tokens: std::ops::Range<u16>| tokens.flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut llm_c = vec![0; 1024];
    for (at, number) in [20_240_520u32, 1, 9].into_iter().enumerate() {
        llm_c[4 * at..][..4].copy_from_slice(&number.to_le_bytes());
    }
    let two = b"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    let mut all: Vec<(&'static str, Vec<u8>, Read, Ends)> = vec![
        ("a.safetensors", file(two), weights, Ends::Length),
        ("tokens.bin", sixteen(0..9), tokens, Ends::Open),
        ("llm_c.bin", [llm_c, sixteen(0..9)].concat(), tokens, Ends::Length),
    ];
    for (name, of) in
        [("a.png", "ok-png"), ("a.jpg", "ok-jpeg"), ("a.gif", "ok-gif"), ("a.bmp", "ok-bmp"), ("a.webp", "ok-webp")]
    {
        all.push((name, kept("image", of), image, Ends::Rest));
    }
    all.push(("legacy.pth", golden(LEGACY), weights, Ends::Length));
    all
}

/// Of the format before archives.
const LEGACY: &str = "pth/legacy.pth";

/// What is wrong with how `read` takes pieces of `whole`: at which bytes, in words.
fn faults(name: &str, whole: &[u8], first: usize, ends: Ends, read: impl Fn(&[u8]) -> Found) -> Vec<String> {
    let complete = read(whole).unwrap_or_else(|e| panic!("{name} is whole: {e}"));
    let mut faults: Vec<(usize, String)> = Vec::new();
    for end in first..whole.len() {
        let what = match catch_unwind(AssertUnwindSafe(|| read(&whole[..end]))) {
            Err(_) => "panics".to_owned(),
            Ok(Ok(_)) if ends == Ends::Length => "is accepted".into(),
            Ok(Ok(less)) if ends == Ends::Rest && less != complete => "is another content".into(),
            Ok(Err(e)) if e.is_empty() => "is refused without a word".into(),
            Ok(_) => continue,
        };
        faults.push((end, what));
    }
    let many = faults.len();
    faults
        .into_iter()
        .take(3)
        .map(|(end, what)| format!("{name}, {end} of {} bytes: {what} ({many} such places)", whole.len()))
        .collect()
}

/// What a target says, and of images what is in them: a target that only says that it has read them is asked no more.
fn by(target: Target, name: &'static str) -> impl Fn(&[u8]) -> Found {
    move |bytes| match (target(bytes), name) {
        (false, _) => Err(format!("{name} refuses it")),
        (true, "mask") => data::read_mask(bytes).map(|mask| mask.pixels).map_err(|e| message(&e)),
        (true, _) => Ok(Vec::new()),
    }
}

#[test]
fn what_was_cut_off_is_never_taken_for_whole() {
    let mut all = Vec::new();
    for (name, kept, first, ends) in KEPT {
        for of in kept {
            let path: PathBuf = folder("corpus", name).join(of);
            assert!(files(&folder("corpus", name)).contains(&path), "{}", path.display());
            let mut whole = fs::read(&path).expect("readable");
            // After a zero stands a text for the tokenizer.
            if let Some(end) = whole.iter().position(|byte| *byte == 0).filter(|_| name == "tokenizer") {
                whole.truncate(end);
            }
            while name == "tokenizer" && whole.last().is_some_and(u8::is_ascii_whitespace) {
                whole.pop();
            }
            all.extend(faults(&format!("{name}/{of}"), &whole, first.max(1), ends, by(target(name), name)));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, whole, read, ends) in others() {
        let read = |bytes: &[u8]| {
            // A file of tokens stays mapped into memory, and what was found in a file is kept: each has a place of its own.
            let place = folder.path().join(bytes.len().to_string());
            fs::create_dir_all(&place).expect("a folder");
            let path = place.join(name);
            fs::write(&path, bytes).expect("a file");
            let answer = read(&path);
            let _ = fs::remove_file(&path);
            if let Err(e) = &answer {
                assert!(e.contains(name), "{name} is not named: {e}");
            }
            answer
        };
        all.extend(faults(name, &whole, 0, ends, read));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
