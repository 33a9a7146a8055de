//! Every file that a fuzzer once found, or that was written to lead one, through the functions that fuzzers call: none may
//! panic, take more memory than such a file is worth, or be lost on its way. `CONTRIBUTING.md` says how the files come about.

mod memory;
mod seeds;
mod targets;
mod truncated;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use targets::{TARGETS, Target};

/// What a file may take at most, whatever it claims. Beside the sizes that the program itself sets, this is what a
/// debug build needs to say no.
const MOST_MIB: [(&str, usize); 23] = [
    // As many layers as a model may have, 100,000, take 75.
    ("config", 96),
    ("check", 96),
    ("pickle", 64),
    ("weights", 64),
    ("safetensors", 64),
    ("checkpoint", 64),
    ("idx", 64),
    // The pixels of the whole training set are reserved before they are read.
    ("tar", 256),
    // The decoders' own limit for one image.
    ("image", 512),
    // A byte of the file may stand for four blocks.
    ("jpeg", 64),
    ("list", 64),
    // A label that is claimed to be a megabyte, and the images that are decoded.
    ("shard", 64),
    // As for images.
    ("mask", 512),
    ("kept", 16),
    ("ranks", 16),
    // A page takes what its column says that it unpacks to, and the values of its dictionary some more.
    ("parquet", 64),
    // A row may be 16 MiB.
    ("table", 64),
    ("text", 64),
    ("labelled", 64),
    ("tags", 64),
    ("tokens", 16),
    ("tokenizer", 64),
    // What requests may have together, and the training of the models.
    ("body", 96),
];

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(kind).join(target)
}

/// The files of a folder, which need not be there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

/// What is wrong with how `target` takes `file`.
fn fault(target: Target, most: usize, file: &Path) -> Option<String> {
    let bytes = fs::read(file).expect("readable");
    memory::subject(file.display().to_string());
    let before = memory::restart();
    let accepted = catch_unwind(AssertUnwindSafe(|| target(&bytes)));
    let peak = memory::peak().saturating_sub(before);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match accepted {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Some(format!("panics: {}", text.chars().take(300).collect::<String>()))
        }
        // The name says what the file is, so that a change of format cannot turn all of them into noise.
        Ok(false) if name.starts_with("ok-") => Some("is refused".into()),
        Ok(true) if name.starts_with("bad-") => Some("is accepted".into()),
        Ok(_) if peak > most << 20 => Some(format!("takes {} MiB; {most} are allowed", peak >> 20)),
        Ok(_) => None,
    }
}

#[test]
fn every_file_that_is_kept() {
    let mut faults = Vec::new();
    for (name, target) in TARGETS {
        let most = MOST_MIB.iter().find(|(of, _)| *of == name).expect("every target has a limit").1;
        let kept = files(&folder("corpus", name));
        assert!(!kept.is_empty(), "no files for `{name}`");
        for file in kept.into_iter().chain(files(&folder("crashes", name))) {
            faults.extend(fault(target, most, &file).map(|what| format!("{}: {what}", file.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What was written by hand is made here, so that it can be read and changed; the fuzzers' own finds have other names.
#[test]
fn the_seeds_are_those_of_the_source() {
    let seeds = seeds::all();
    let update = std::env::var_os("UPDATE_SEEDS").is_some();
    for seed in &seeds {
        let path = folder(seed.kind, seed.target).join(&seed.name);
        if update {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, &seed.bytes).expect("a file");
        }
        let there = fs::read(&path).unwrap_or_default();
        assert!(there == seed.bytes, "{} is another: `UPDATE_SEEDS=1 cargo test --test corpora`", path.display());
    }
    for (kind, (target, _)) in ["corpus", "crashes"].iter().flat_map(|kind| TARGETS.map(|t| (kind, t))) {
        for file in files(&folder(kind, target)) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let ours = seeds.iter().any(|s| s.kind == *kind && s.target == target && s.name == name);
            let theirs = name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
            if update && !ours && !theirs {
                fs::remove_file(&file).expect("removable");
                continue;
            }
            assert!(ours || theirs, "{} is neither a seed nor a find", file.display());
        }
    }
}

#[test]
fn the_files_are_few() {
    let all = ["corpus", "crashes"].iter().flat_map(|kind| TARGETS.map(|(name, _)| folder(kind, name)));
    let bytes: u64 = all.flat_map(|f| files(&f)).map(|f| fs::metadata(f).expect("there").len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes: minimise them (`scripts/fuzz.sh --keep`)");
}

/// Each target can be fuzzed.
#[test]
fn every_target_has_its_binary() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("readable");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "`{name}` is not in the manifest");
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).expect("readable");
        assert!(source.contains(&format!("targets::target(\"{name}\")")), "{source}");
    }
    assert_eq!(files(&fuzz.join("fuzz_targets")).len(), TARGETS.len());
}
