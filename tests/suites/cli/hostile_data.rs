//! Data that hurts decoders and readers: it is refused with a word on what it is, and loses nothing else.
#![cfg(unix)]

use super::hostile_files::{run, run_within};
use super::photos;
use super::support::{LAYERS, Place, digits, repository};
use std::fs::{self, File};
use std::io::Write;

/// Files that once did harm: decoders panic on some, and took gigabytes for others.
fn crashes() -> Vec<std::path::PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/crashes/image");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn pictures_that_decoders_do_not_survive_leave_the_others() {
    let train = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 1\n";
    let place = Place::with(&digits("", &format!("{LAYERS}\n{train}")));
    place.ok("train c.toml --quiet --out r");
    image::GrayImage::new(8, 8).save(place.path("good.png")).unwrap();
    let crashes = crashes();
    let files: Vec<String> = crashes.iter().map(|path| path.display().to_string()).collect();
    let done = run(&place, &format!("predict r/last.safetensors {} good.png --json", files.join(" ")));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(done.json().as_array().unwrap().len(), 1, "{done:?}");
    assert_eq!(done.json()[0]["file"], "good.png");
    assert_eq!(done.err.lines().count(), crashes.len() + 1, "a line for each, and how many: {}", done.err);
    assert!(!done.err.contains("panicked") && !done.err.contains("internal error"), "{}", done.err);
}

#[test]
fn training_goes_on_without_a_photo_that_a_decoder_does_not_survive() {
    let place = photos::place("", photos::TRANSFORMS);
    // The first of those that are named by their hash.
    let crash = crashes().into_iter().find(|path| path.file_name().unwrap().len() == 40).unwrap();
    fs::copy(crash, place.path("photos/train/red/x.jpg")).unwrap();
    let done = run(&place, "train c.toml --out r --set train.epochs=1");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("x.jpg") && done.err.contains("cannot be read"), "{}", done.err);
    assert!(!done.err.contains("panicked") && !done.err.contains("internal error"), "{}", done.err);
    let strict = run(&place, "train c.toml --out s --set train.epochs=1 --set data.on_error=fail");
    assert!(strict.code == Some(1) && strict.err.contains("x.jpg"), "{strict:?}");
}

/// A hundred megabytes of commas would be a hundred million fields.
#[test]
fn a_line_without_an_end_takes_no_memory() {
    let place = photos::place("", photos::TRANSFORMS);
    let mut list = File::create(place.path("list.csv")).unwrap();
    list.write_all(b"file_name,label\n").unwrap();
    (0..100).for_each(|_| list.write_all(&vec![b','; 1 << 20]).unwrap());
    let config = place
        .read("c.toml")
        .replace("source = \"image_folder\"\nroot = \"photos\"", "source = \"image_list\"\npath = \"list.csv\"");
    place.write("l.toml", config);
    let done = run(&place, "check l.toml");
    assert!(done.code.is_some_and(|code| code != 0), "{done:?}");
    assert!(done.err.contains("line 2 has more than 1048576 bytes"), "{}", done.err);
}

/// The index of a cache says that a photo has gigabytes of pixels, in a file with holes.
#[test]
fn a_cache_that_claims_gigabytes_is_made_anew() {
    let place = photos::place("cache = \"disk\"\ncache_dir = \"kept\"\n", photos::TRANSFORMS);
    place.ok("train c.toml --quiet --out a --set train.epochs=1");
    let (header, row) = (16, 104);
    for entry in fs::read_dir(place.path("kept")).unwrap() {
        let index = entry.unwrap().path();
        if index.extension().is_none_or(|ending| ending != "index") {
            continue;
        }
        let mut bytes = fs::read(&index).unwrap();
        for row in bytes[header..].chunks_exact_mut(row) {
            // It begins at the begin, with a shape of its own; the hash of the row is right.
            row[32..40].fill(0);
            for (place, side) in row[40..52].chunks_exact_mut(4).zip([30_000u32, 30_000, 3]) {
                place.copy_from_slice(&side.to_le_bytes());
            }
            let hash = blake3::hash(&row[..88]);
            row[88..].copy_from_slice(&hash.as_bytes()[..16]);
        }
        fs::write(&index, bytes).unwrap();
        File::options().write(true).open(index.with_extension("pixels")).unwrap().set_len(2_700_000_000).unwrap();
    }
    let done = run(&place, "train c.toml --quiet --out b --set train.epochs=1");
    assert_eq!(done.code, Some(0), "{done:?}");
    super::support::assert_same_runs((&place, "a"), (&place, "b"));
}

/// A run's lines with a hole after them that is larger than the memory of the process.
#[test]
fn lines_of_a_run_are_read_one_by_one() {
    let place = Place::new();
    place.write("runs/a/1/config.toml", "seed = 0\n[train]\nepochs = 1\n");
    let lines = "{\"kind\":\"epoch\",\"epoch\":1,\"step\":10,\"train_loss\":0.5,\"val_loss\":0.25,\"seconds\":1.0}\n";
    let path = place.write("runs/a/1/metrics.jsonl", lines);
    File::options().write(true).open(path).unwrap().set_len(768 << 20).unwrap();
    let done = run_within(&place, "runs --json", 512 << 20);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.json()[0]["run"], "runs/a/1", "{done:?}");
}

/// Rows of numbers with a word each, as text.
fn rows() -> String {
    let row = |i: usize| format!("{},{},{}\n", i % 97, i * i % 1009, ["one", "two", "three"][i % 3]);
    "a,b,c\n".chars().chain((0..60_000).flat_map(|i| row(i).chars().collect::<Vec<_>>())).collect()
}

/// Tables, packed ones, weights and tokenizers, read with less memory than that takes: an error of what is lacking, whatever thread lacks it, and a
/// run that can be had once there is enough.
#[test]
fn what_there_is_no_memory_to_read_is_an_error() {
    let head = "device = \"cpu\"\nseed = 1\n";
    let train = "[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\nmax_steps = 2\n";
    let linear = "{ name = \"l\", type = \"linear\", out_features = 3 }";
    let table = |path: &str, target: &str| {
        format!(
            "{head}[data]\nsource = \"csv\"\npath = \"{path}\"\ntarget = \"{target}\"\nvalidation_split = 0.1\n[model]\nlayers = [{linear}]\n{train}"
        )
    };
    let place = Place::with(&table("a.csv", "c"));
    let text = rows();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    place.write("a.csv.gz", gzip.finish().unwrap());
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    place.write("a.csv.zst", ruzstd::encoding::compress_to_vec(text.as_bytes(), level));
    place.write("a.csv", text);
    let golden = |name: &str| repository("tests/golden").join(name);
    let houses = |name: &str| {
        let path = golden(&format!("parquet/{name}.parquet"));
        table(&path.display().to_string(), "price")
            .replace("cross_entropy", "mse")
            .replace("out_features = 3", "out_features = 1")
    };
    let weights = |file: &str| {
        format!(
            "{head}[data]\nsource = \"synthetic\"\nshape = [3000]\nclasses = 3\nsamples = 16\nval_samples = 4\nbatch_size = 4\n[model]\n{file}\
             layers = [{{ name = \"w\", type = \"linear\", out_features = 900 }}, {linear}]\n{train}"
        )
    };
    place.write("w.toml", weights(""));
    place.ok("train w.toml --quiet --out w");
    let tokenizer = golden("language_models/gpt2/tokenizer.json");
    let tokenizer = if tokenizer.exists() { tokenizer } else { golden("text_classifiers/bert/tokenizer.json") };
    place.write("t.txt", "some words of a text, ".repeat(30_000));
    let language = format!(
        "{head}[data]\nsource = \"text\"\npath = \"t.txt\"\ntokenizer = \"{}\"\ncontext = 8\nvalidation_split = 0.1\n[model]\nlayers = [{{ type = \"embedding\", \
         num_embeddings = \"$vocabulary\", embedding_dim = 4 }}, {{ type = \"linear\", out_features = \"$vocabulary\" }}]\n{train}",
        tokenizer.display()
    );
    let cases = [
        ("csv", table("a.csv", "c")),
        ("gz", table("a.csv.gz", "c")),
        ("zst", table("a.csv.zst", "c")),
        ("snappy", houses("snappy")),
        ("zstd", houses("zstd")),
        ("weights", weights("weights = \"w/last.safetensors\"\n")),
        ("tokenizer", language),
    ];
    let starts = |memory: libc::rlim_t| run_within(&place, "--version", memory).code == Some(0);
    let least = (8..).step_by(8).map(|n| n << 20).find(|memory| starts(*memory)).unwrap();
    for (name, config) in cases {
        place.write("c.toml", config);
        let mut ended = [0; 2];
        for more in [0, 10, 20, 32, 48, 1024] {
            let done = run_within(&place, "train c.toml --quiet --force --out r --threads 2", least + (more << 20));
            let at = format!("{name} with {} MiB: {done:?}", (least >> 20) + more);
            match done.code {
                Some(0) => ended[0] += 1,
                Some(1..=3) if ["memory", "cannot start", "ulimit -v"].iter().any(|words| done.err.contains(words)) => {
                    ended[1] += 1
                }
                _ => panic!("{at}"),
            }
            assert!(!done.err.contains("panicked") && !done.err.contains("internal error"), "{at}");
            assert!(more < 1024 || done.code == Some(0), "{at}");
        }
        assert!(ended.iter().all(|times| *times > 0), "{name}: {ended:?}");
    }
}
