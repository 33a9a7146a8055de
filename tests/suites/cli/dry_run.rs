//! `train --dry-run`, and `check --time`: what can be known of a run before it begins.

use super::photos::{self, TRANSFORMS, photo};
use super::support::{Place, plain, repository};
use serde_json::Value;
use std::fs;

/// A place with a folder for temporary files of its own.
fn place(config: &str) -> Place {
    let place = Place::with(config);
    fs::create_dir(place.path("tmp")).unwrap();
    place
}

/// Runs with the temporary files in the place's own folder, which must be empty afterwards; so must be what is not named here.
fn dry(place: &Place, args: &str, code: i32) -> super::support::Done {
    let before = entries(place, "");
    let mut command = place.command(&format!("train {args} --dry-run"));
    let done = super::support::Done::of(command.env("TMPDIR", place.path("tmp")).output().unwrap());
    assert_eq!(done.code, Some(code), "{args}: {done:?}");
    assert!(!done.err.contains("panicked"), "{done:?}");
    assert_eq!(entries(place, "tmp"), [""; 0], "{args}");
    assert_eq!(entries(place, ""), before, "{args}");
    done
}

fn entries(place: &Place, folder: &str) -> Vec<String> {
    let all = fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = all.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn stages(done: &Value) -> Vec<(String, Option<u64>)> {
    let all = done["dry_run"].as_array().unwrap();
    all.iter().map(|stage| (stage["stage"].as_str().unwrap().to_owned(), stage["step"].as_u64())).collect()
}

/// One of everything, and what a run would do: losses, figures and the size of a checkpoint are those of the run.
#[test]
fn a_dry_run_does_one_of_everything_and_leaves_nothing() {
    // Samples are drawn once: below, those of the dry run's evaluation are drawn by `limit_val`.
    let config = plain().replace("[train]\n", "[train]\naccumulate = 2\n").replace("limit_val = 100\n", "");
    let place = place(&config);
    let done = dry(&place, "c.toml", 0);
    let room = format!(" in `{}` until its end", place.path("tmp").display());
    assert!(done.err.contains("; a dry run, whose checkpoint takes ") && done.err.contains(&room), "{done:?}");
    let stdout = done.out;
    for word in
        ["prepare", "step 1 ", "a batch of 32", "written", "step 2 ", "  64 samples, loss", "nothing of it is kept"]
    {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    assert_eq!(dry(&place, "c.toml --quiet", 0).out, "");
    let json = dry(&place, "c.toml --json", 0).json();
    let one = |name: &str, step| (name.to_owned(), step);
    let expected = [
        one("prepare", None),
        one("step", Some(1)),
        one("evaluation", None),
        one("save", None),
        one("restore", None),
        one("step", Some(2)),
    ];
    assert_eq!(stages(&json), expected);
    let events = dry(&place, "c.toml --json --set log.tensorboard=true", 0).json();
    assert_eq!(stages(&events)[..6], expected);
    assert_eq!(stages(&events)[6..], [one("events", None)]);
    let stage = |n: usize| json["dry_run"][n].clone();
    assert!((0..6).all(|n| stage(n)["seconds"].as_f64().unwrap() >= 0.0));
    place.ok("train c.toml --quiet --out r --set train.max_steps=2");
    let losses: Vec<f64> = place.metrics("r").iter().filter_map(|line| line["loss"].as_f64()).collect();
    let dry_losses = [1, 5].map(|n| stage(n)["loss"].as_f64().unwrap());
    assert!(losses.iter().zip(dry_losses).all(|(run, dry)| *run as f32 == dry as f32), "{losses:?} {dry_losses:?}");
    place.ok("train c.toml --quiet --out r1 --set train.max_steps=1");
    let limited = place.ok("eval r1/last.safetensors --set data.limit_val=32 --json").json();
    assert_eq!(stage(2)["figures"]["loss"], limited["metrics"]["loss"]);
    assert_eq!(stage(2)["figures"]["accuracy"], limited["metrics"]["accuracy"]);
    let size = fs::metadata(place.path("r1/last.safetensors")).unwrap().len();
    // The configuration in it differs by the steps, and the state by a few digits.
    assert!(stage(3)["bytes"].as_u64().unwrap().abs_diff(size) < 1000, "{} {size}", stage(3));
}

#[test]
fn a_dry_run_fails_as_the_run_would() {
    let place = place(&plain());
    for (args, code, reason) in [
        ("c.toml --set optimizer.lr=1e38", 1, "the loss is"),
        ("c.toml --set data.source=mnist --set data.root=nowhere --set data.download=false", 1, "not found"),
        ("c.toml --set optimizer.lr=-1", 2, "out of range"),
        ("c.toml --device cuda:99", 3, ""),
        ("--resume c.toml", 2, "cannot be used with"),
    ] {
        let err = dry(&place, args, code).err;
        assert!(err.contains(reason), "{args}: {err}");
    }
    place.ok("train c.toml --quiet --out r");
    assert!(dry(&place, "c.toml --out r", 2).err.contains("already holds a run"));
    let before = place.read("r/metrics.jsonl");
    dry(&place, "c.toml --out r --force", 0);
    assert_eq!(place.read("r/metrics.jsonl"), before);
    // No place for its files.
    let mut command = place.command("train c.toml --dry-run");
    let done = super::support::Done::of(command.env("TMPDIR", place.path("nowhere")).output().unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("cannot make a folder in") && done.err.contains("TMPDIR"), "{}", done.err);
}

/// Those that are kept are looked at. None is added, and no folder is made for them. Where none can be kept, the warning is that of the run.
#[test]
fn a_dry_run_leaves_photos_that_are_kept_as_they_are() {
    let place = photos::place("cache = \"disk\"\ncache_dir = \"kept\"\n", TRANSFORMS);
    fs::create_dir(place.path("tmp")).unwrap();
    let found = |done: &Value| {
        [1, 2, 5].map(|n| [&done["dry_run"][n]["loss"], &done["dry_run"][n]["figures"]].map(Value::clone))
    };
    let without = dry(&place, "c.toml --json", 0).json();
    assert!(!place.path("kept").exists());
    place.ok("train c.toml --quiet --out r");
    let kept = || -> Vec<Vec<u8>> {
        let names = entries(&place, "kept");
        names.iter().map(|name| fs::read(place.path(&format!("kept/{name}"))).unwrap()).collect()
    };
    let before = kept();
    assert_eq!(before.len(), 4, "two files for each part");
    let with = dry(&place, "c.toml --json", 0).json();
    assert_eq!(found(&with), found(&without));
    // Of other photos nothing is kept yet.
    fs::remove_file(place.path("photos/train/red/0.png")).unwrap();
    photo(&place, "photos/train/red/90.png", 0, 90);
    dry(&place, "c.toml --set data.batch_size=14", 0);
    assert!(kept() == before, "something was added");
    place.write("taken", "");
    let err = dry(&place, "c.toml --set data.cache_dir=taken/kept", 1).err;
    assert!(err.contains("cannot keep photos in `taken/kept`"), "{err}");
}

/// An epoch of one update, nothing to validate on, and a start from weights.
#[test]
fn odd_runs_have_dry_runs_too() {
    let place = place(&plain());
    let json = dry(&place, "c.toml --json --set data.limit=32 --set data.batch_size=32", 0).json();
    assert_eq!(stages(&json).last().unwrap().1, Some(2));
    let none = "--set data.source=synthetic --set data.shape=[1,8,8] --set data.classes=10 --set data.samples=100";
    let json = dry(&place, &format!("c.toml --json --set data.val_samples=0 {none}"), 0).json();
    assert!(json["dry_run"][2]["samples"].is_null(), "{json}");
    place.ok("train c.toml --quiet --out r");
    place.ok("export r/last.safetensors w.safetensors");
    dry(&place, "c.toml --set model.weights=w.safetensors --set train.steps=1", 0);
}

/// Every configuration that comes with the program, on samples that are made up where its own may not be there.
#[test]
fn every_configuration_has_a_dry_run() {
    let place = place("");
    for number in 0..8 {
        let (part, class) = (["train", "val"][number as usize / 4], ["ants", "bees"][number as usize % 2]);
        photo(&place, &format!("photos/{part}/{class}/{number}.png"), number as u8 % 2, number);
    }
    place.write("input.txt", "To be, or not to be: that is the question.\n".repeat(100));
    let mut n = 0;
    for entry in fs::read_dir(repository("configs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let made_up = |shape: &str| {
            format!("--set data.source=synthetic --set data.shape={shape} --set data.classes=10 --set data.samples=64")
        };
        let source = text.lines().find_map(|line| line.strip_prefix("source = ")).unwrap_or_default();
        let data = match source.trim_matches('"') {
            "mnist" | "fashion_mnist" => made_up("[1,28,28]"),
            "cifar10" => made_up("[3,32,32]"),
            "image_folder" => "--set data.root=photos".into(),
            "text" => "--set data.path=input.txt".into(),
            // Small: a step of the whole model takes a minute.
            "tokens" => {
                place.write("tokens.bin", [7; 4000]);
                let with = "--set model.with.width=24 --set model.with.heads=2 --set model.with.layers=1 --set train.accumulate=1";
                format!(
                    "--set data.path=tokens.bin --set data.val_path=tokens.bin --set data.context=16 --set data.eval_batch_size=2 {with}"
                )
            }
            _ => String::new(),
        };
        let few = "--set data.batch_size=2 --device cpu";
        let json = dry(&place, &format!("{} {data} {few} --json", path.display()), 0).json();
        assert_eq!(stages(&json).last().unwrap().1, Some(2), "{}", path.display());
        n += 1;
    }
    assert!(n >= 10, "{n}");
}

#[test]
fn the_time_of_a_run_is_estimated_before_it_begins() {
    let place = Place::with(&plain());
    let all = "--set train.epochs=7 --set train.eval_every=2";
    let time = place.ok(&format!("check c.toml --time --json {all}")).json()["time"].clone();
    let number = |key: &str| time[key].as_f64().unwrap_or_else(|| panic!("{key}: {time}"));
    // Ten steps of an epoch; evaluations after three pairs of epochs, and the last.
    assert_eq!((number("steps"), number("evaluations")), (70.0, 4.0));
    // What is derived from what was measured.
    assert!(number("step_ms") > 0.0 && number("evaluation_s") > 0.0);
    assert!((number("epoch_s") * number("samples_per_s") - 320.0).abs() < 1e-6, "{time}");
    // After each epoch.
    assert_eq!(number("checkpoints"), 7.0);
    let whole = 7.0 * number("epoch_s") + 4.0 * number("evaluation_s") + 7.0 * number("checkpoint_s");
    assert!((number("run_s") / whole - 1.0).abs() < 1e-6, "{time}");
    let share = number("waited_share");
    assert!((0.0..=1.0).contains(&share));
    assert_eq!(time["waits_for"], if share >= 0.2 { "data" } else { "device" });
    let text = place.ok(&format!("check c.toml --time {all}")).out;
    assert!(text.contains("the largest batch that there is memory for: 320 samples, which are all\n"), "{text}");
    for word in [
        "memory on cpu",
        "time on cpu",
        "an epoch",
        "320 samples",
        "70 steps and 4 evaluations, and 7 checkpoints",
        "a checkpoint",
        "waits for",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(entries(&place, ""), ["c.toml"], "what was written is gone");
    assert!(!place.ok("check c.toml").out.contains("time on"), "it is measured where that is asked for");
    let steps = place.ok("check c.toml --time --json --set train.steps=25 --set train.eval_every_steps=10").json();
    assert_eq!((&steps["time"]["steps"], &steps["time"]["evaluations"]), (&25.into(), &3.into()));
    // At two ends of epochs, and at the end of the run.
    assert_eq!(steps["time"]["checkpoints"], 3);
    place.ok("train c.toml --quiet --out r --set train.max_steps=1");
    let size = fs::metadata(place.path("r/last.safetensors")).unwrap().len();
    assert!(time["checkpoint_bytes"].as_u64().unwrap().abs_diff(size) < 1000, "{time} {size}");
    place.write("runs", "no folder");
    let without = place.ok(&format!("check c.toml --time {all}")).out;
    assert!(without.contains("cannot write in `runs`") && without.contains("without writing checkpoints"), "{without}");
    for (args, code, reason) in [
        ("--time --print", 2, "cannot be used with"),
        ("--time --set data.source=mnist --set data.root=nowhere --set data.download=false", 1, "not found"),
    ] {
        assert!(place.fails(&format!("check c.toml {args}"), code).contains(reason), "{args}");
    }
}
