//! Tables that do not lie in memory: the same samples, the same models, and nothing that is left.

use super::support::{Place, assert_same_runs, repository};
use super::tables::{houses, place};
use serde_json::Value;
use std::fs;

const DISK: &str = "--set data.cache=disk --set data.cache_dir=kept";

/// Trains with these settings, in memory and from a file: the same run. Nothing is left of the file.
fn same(place: &Place, more: &str) {
    place.ok(&format!("train c.toml --quiet --force --out memory --set train.epochs=2 --set data.cache=memory {more}"));
    place.ok(&format!("train c.toml --quiet --force --out disk --set train.epochs=2 {DISK} {more}"));
    assert_same_runs((place, "memory"), (place, "disk"));
    let fitted = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).meta.extra["sample"].clone();
    assert_eq!(fitted("memory"), fitted("disk"), "{more}");
    assert!(nothing_left(place), "{more}");
}

fn nothing_left(place: &Place) -> bool {
    fs::read_dir(place.path("kept")).unwrap().next().is_none()
}

#[test]
fn a_table_in_a_file_is_the_table_in_memory() {
    let place = place(300);
    let mut table = String::new();
    for (at, line) in houses(300).lines().enumerate() {
        let more = match at {
            0 => "street,day,old,weight,part".to_owned(),
            _ => format!(
                "s{},2026-0{}-1{},{},{},{}",
                at % 37,
                1 + at % 9,
                at % 10,
                ["yes", "no"][at % 2],
                at % 4,
                ["train", "train", "val"][at % 3]
            ),
        };
        table += &format!("{line},{more}\n");
    }
    place.write("houses.csv", table);
    let scalings = "--set data.columns={age={type='number',scaling='quantile'},rooms={type='number',scaling='piecewise_linear',bins=4}}";
    for more in [
        "--set data.drop=[\"part\",\"weight\"]",
        "--set data.sample_weight=weight --set data.drop=[\"part\"]",
        "--set data.group_column=street",
        "--set data.time_column=day",
        "--set data.split_column=part --unset data.validation_split",
        "--unset data.id --set data.folds=3 --set data.fold=2 --unset data.validation_split",
        "--set data.folds=3 --set data.fold=2 --unset data.validation_split --set data.group_column=street",
        "--set data.target=town --set loss.type=cross_entropy --set model.layers.2.out_features=3 --set data.workers=0 --threads 1",
        scalings,
    ] {
        same(&place, more);
    }
    // Names, answers and figures are those of the rows.
    place.ok("train c.toml --quiet --force --out memory --set data.drop=[\"part\"] --set data.cache=memory");
    let answers = |more: &str| {
        let figures = place.ok(&format!("eval memory --json --predictions answers.csv {more}")).json();
        (figures["metrics"].clone(), place.read("answers.csv"))
    };
    let in_memory = answers("");
    assert!(in_memory.1.contains("h3"), "{}", in_memory.1);
    assert_eq!(answers(DISK), in_memory);
    // A run that began in memory goes on from a file.
    place.ok("train c.toml --quiet --out whole --set train.epochs=4 --set data.cache=memory");
    place.ok("train c.toml --quiet --out parts --set train.epochs=2 --set data.cache=memory");
    place.ok(&format!("train --resume parts --quiet --set train.epochs=4 {DISK}"));
    assert_same_runs((&place, "whole"), (&place, "parts"));
    assert!(nothing_left(&place));
}

#[test]
fn parquet_and_folds_lie_in_files_as_well() {
    let place = Place::with(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"parquet\"\npath = \"houses.parquet\"\nbatch_size = 16\ntarget = \"price\"\nfolds = 2\n\
         [model]\nuse = \"linear\"\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 2\n",
    );
    place.write("houses.parquet", fs::read(repository("tests/golden/parquet/zstd.parquet")).unwrap());
    place.ok("train c.toml --quiet --out memory");
    place.ok(&format!("train c.toml --quiet --out disk {DISK}"));
    for fold in ["fold-1", "fold-2"] {
        assert_same_runs((&place, &format!("memory/{fold}")), (&place, &format!("disk/{fold}")));
    }
    assert!(nothing_left(&place));
}

#[test]
fn check_says_what_memory_and_what_disk_a_table_takes() {
    let place = place(200);
    let of = |more: &str| place.ok(&format!("check c.toml --json {more}")).json();
    let (memory, disk) = (of(""), of(DISK));
    assert_eq!(memory["disk"], Value::Null);
    // Rooms, the age and whether it is there, three towns; the price.
    assert_eq!(disk["disk"]["samples"], 200 * (6 + 1) * 4, "{disk}");
    assert!(disk["disk"]["reading"].as_u64().unwrap() >= 200 * 3 * 8, "{disk}");
    assert_eq!(disk["disk"]["folder"], "kept");
    let bytes = |report: &Value| report["memory"]["data"].as_u64().unwrap();
    assert_eq!(bytes(&memory) - bytes(&disk), 200 * (6 + 1) * 4);
    let stdout = place.ok(&format!("check c.toml {DISK}")).out;
    assert!(
        stdout.contains("the table lies on a disk: its samples take 5.5 KiB in `kept`, and its cells another"),
        "{stdout}"
    );
    assert!(!place.ok("check c.toml").out.contains("on a disk"));
    // Warnings name keys that have no effect. A folder that cannot be used is an error.
    assert!(place.ok("check c.toml --set data.cache_size=1GB").err.contains("`cache_size` in `[data]` has no effect"));
    let stderr = place.ok("check c.toml --set data.cache=memory --set data.cache_dir=kept").err;
    assert!(stderr.contains("`cache_dir` in `[data]` has no effect"), "{stderr}");
    assert!(!place.ok("check c.toml --set data.cache_dir=kept").err.contains("no effect"));
    place.write("taken", "a file");
    let error = place.fails("check c.toml --set data.cache=disk --set data.cache_dir=taken/kept", 2);
    assert!(error.contains("cannot make a file in `taken/kept`") && error.contains("`cache_dir`"), "{error}");
}

/// The file has no name, so nothing is left of it however a run ends. A limit on the size of files gives the same error as a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_nothing_is_left() {
    use std::os::unix::process::CommandExt;
    let place = place(4000);
    let mut command = place.command(&format!("check c.toml {DISK}"));
    // SAFETY: both functions may be called between `fork` and `exec`.
    unsafe {
        command.pre_exec(|| {
            let most = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &most);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(())
        });
    }
    let done = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("cannot write to a file in `kept`, where a table lies") && stderr.contains("with more room"),
        "{stderr}"
    );
    assert!(nothing_left(&place));
    let mut run = place.start(&format!("train c.toml --quiet --out r --set train.epochs=1000 {DISK}"));
    assert!(run.until(|| place.path("r/metrics.jsonl").exists()), "it trains");
    assert!(nothing_left(&place), "the file has no name");
    run.signal(libc::SIGKILL);
    run.wait();
    assert!(nothing_left(&place));
}
