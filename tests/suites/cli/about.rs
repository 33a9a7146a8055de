//! What the program says of itself and of its machine, and whether the files of a run agree.

use super::support::{Place, plain};
use std::fs;

#[test]
fn the_version_says_what_was_built() {
    let place = Place::new();
    let version = place.ok("--version").out;
    let (number, rest) = version.trim().split_once(" (").unwrap();
    assert_eq!(number, format!("runner {}", env!("CARGO_PKG_VERSION")));
    let features = if cfg!(feature = "cust") { "features cust" } else { "no features" };
    assert!(rest.contains(features) && rest.contains(std::env::consts::ARCH), "{version}");
}

#[test]
fn the_machine_is_on_a_page() {
    let place = Place::new();
    let mut command = place.command("doctor");
    command.env("RUNNER_SECRET", "a very secret secret").env("XDG_CACHE_HOME", place.path("caches"));
    let done = super::support::Done::of(command.output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "runner 0.",
        "system\n",
        "limits\n",
        "file systems\n",
        "a training step",
        "  cpu  ",
        "libraries\n",
        "RUNNER_SECRET",
        "cuda\n",
    ] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    assert!(!done.out.contains("very secret"), "{}", done.out);
    let json = place.ok("doctor --json").json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["devices"][0]["name"], "cpu");
    assert!(json["steps"][0]["step_ms"].as_f64().unwrap() > 0.0, "{json}");
    let kinds: Vec<&str> =
        json["file_systems"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["here"]) && kinds.ends_with(&["temporary"]), "{json}");
    assert_eq!(json["file_systems"][0]["writable"], true);
    let short = place.ok("doctor --no-timing --json").json();
    assert_eq!((&short["steps"], &short["mpi"]), (&serde_json::json!([]), &serde_json::json!(false)));
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let place = Place::new();
    place.ok("man --out share");
    let page = place.read("share/man/man1/runner-train.1");
    assert!(page.contains("runner\\-train") && page.contains("\\-\\-resume"), "{page}");
    // What is written shows the values of options; the foot of a page has room for the version alone.
    let page = place.read("share/man/man1/runner-launch.1");
    assert!(page.contains(" \\fB\\-\\-ranks\\fR \\fIN\\fR <\\fICOMMAND...\\fR>"), "{page}");
    assert!(page.contains(concat!("\"runner ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
    let page = place.read("share/man/man1/runner-check.1");
    assert!(page.contains("[\\fB\\-\\-set\\fR \\fIKEY=VALUE\\fR]"), "{page}");
    for file in [
        "man/man1/runner.1",
        "man/man1/runner-data-fetch.1",
        "man/man1/runner-init.1",
        "zsh/site-functions/_runner",
        "fish/vendor_completions.d/runner.fish",
    ] {
        assert!(place.path(&format!("share/{file}")).is_file(), "{file}");
    }
    assert_eq!(place.read("share/bash-completion/completions/runner"), place.ok("completions bash").out);
    let json = place.ok("man --out share --json").json();
    assert!(json["files"].as_array().unwrap().len() > 25, "{json}");
    // Of some arguments there may be several.
    let [serve, train] = ["serve", "train"].map(|name| place.read(&format!("share/man/man1/runner-{name}.1")));
    assert!(serve.matches("MODEL...").count() == 2, "{serve}");
    assert!(train.contains("CONFIG") && !train.contains("CONFIG..."), "{train}");
}

/// A run of two epochs with a checkpoint after ten and after twenty steps.
fn run() -> Place {
    let place = Place::with(&format!("{}[checkpoint]\nevery_steps = 10\nkeep = 2\n", plain()));
    place.ok("train c.toml --quiet --out r");
    place
}

#[test]
fn files_of_a_run_agree_however_it_went_on() {
    let place = run();
    let done = place.ok("verify r");
    assert!(done.out.contains("best.safetensors") && done.out.ends_with("the files of `r` agree\n"), "{}", done.out);
    let json = place.ok("verify r --json").json();
    assert_eq!((&json["agrees"], &json["disagreements"]), (&true.into(), &serde_json::json!([])));
    place.ok("train --resume r --quiet --set train.epochs=4");
    place.ok("verify r");
    place.ok("train c.toml --quiet --out part --pause-after 1");
    place.ok("verify part");
    let last = fs::read(place.path("part/last.safetensors")).unwrap();
    place.ok("train --resume part --quiet");
    place.ok("verify part/last.safetensors");
    // A run that is killed between the two checkpoints of an epoch has the newer `best`, and the file that says that it is at work.
    place.write("part/last.safetensors", last);
    assert!(place.run("verify part").out.contains("wrong: `best.safetensors`"));
    place.write("part/.lock", "");
    let killed = place.ok("verify part").out;
    assert!(killed.contains("note: `best.safetensors` is of step 20, and `last.safetensors` of step 10"), "{killed}");
    // Lengths in steps, evaluations within epochs, an end within one.
    place.ok(
        "train c.toml --quiet --out steps --unset train.epochs --set train.steps=13 --set train.eval_every_steps=4",
    );
    place.ok("verify steps");
    place.ok("train c.toml --quiet --out most --set train.max_steps=3");
    let stdout = place.ok("verify most").out;
    assert!(!stdout.contains("note: "), "{stdout}");
    // Another monitor: `best` stays, and is judged by the new figure.
    place.ok("train c.toml --quiet --out turned --set checkpoint.monitor=val_loss --set optimizer.lr=1e-5");
    let set = "--set checkpoint.monitor=val_accuracy --set train.epochs=4";
    place.ok(&format!("train --resume turned --quiet {set} --set optimizer.lr=0.003"));
    let best = |run: &str| place.checkpoint(&format!("{run}/best.safetensors")).meta.best.unwrap();
    assert_eq!(best("turned").monitor, "val_accuracy");
    let known = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).meta.best.unwrap();
    assert_eq!(known("turned"), best("turned"));
    place.ok("verify turned");
    place.ok("train c.toml --quiet --out worse --set checkpoint.monitor=val_loss");
    place.ok(&format!("train --resume worse --quiet {set} --set optimizer.lr=10"));
    let step = place.checkpoint("worse/best.safetensors").meta.step;
    let figures = place.metrics("worse");
    let at = figures.iter().find(|line| line["step"] == step && line["val_accuracy"].is_f64()).unwrap();
    assert!(step <= 20 && best("worse").monitor == "val_loss", "what came later is worse: {figures:?}");
    assert_eq!(
        (known("worse").monitor.as_str(), at["val_accuracy"].as_f64()),
        ("val_accuracy", Some(known("worse").value))
    );
    let listed = place.ok("runs worse --json").json();
    assert_eq!(listed[0]["best"]["value"], at["val_accuracy"], "{listed}");
    place.ok("verify worse");
    // A run that fails says so in its metrics.
    place.fails("train c.toml --quiet --out failed --set optimizer.lr=1e30 --set optimizer.type=sgd", 1);
    let stdout = place.ok("verify failed").out;
    assert!(stdout.contains("note: it has ended before it could save `last.safetensors`"), "{stdout}");
    assert!(place.fails("verify nowhere", 2).contains("there is no run `nowhere`"));
}

/// What a run leaves that a full disk, or a kill at a bad moment, has ended is nothing that is wrong.
#[test]
fn the_remains_of_a_run_that_was_cut_off_are_noted() {
    let place = run();
    // Lines were written, and no checkpoint after them.
    place.ok("train c.toml --quiet --out full --pause-after 1");
    place.ok("verify full");
    let more = "{\"kind\":\"step\",\"step\":11,\"epoch\":2,\"loss\":0.5,\"lr\":0.1}\n";
    place.write("full/metrics.jsonl", place.read("full/metrics.jsonl") + more);
    let stdout = place.ok("verify full").out;
    assert!(
        stdout.contains("note: its last process ended before it could save: what it wrote after step 10"),
        "{stdout}"
    );
    // A checkpoint was written, and for `last` there was no more room, whether there was any for the reason or not.
    let last = fs::read(place.path("full/last.safetensors")).unwrap();
    place.ok("train --resume full --quiet");
    place.ok("verify full");
    place.write("full/last.safetensors", last);
    fs::remove_file(place.path("full/best.safetensors")).unwrap();
    fs::copy(place.path("full/step-10.safetensors"), place.path("full/best.safetensors")).unwrap();
    let metrics = place.read("full/metrics.jsonl");
    for why in ["", "{\"kind\":\"failed\",\"why\":\"No space left on device\"}\n"] {
        place.write("full/metrics.jsonl", format!("{metrics}{why}"));
        let stdout = place.ok("verify full").out;
        let note = "note: `step-20.safetensors` is of step 20, and `last.safetensors` of step 10";
        assert!(stdout.contains(note), "{stdout}");
    }
    // A state that was saved is not there any more.
    fs::remove_file(place.path("r/last.safetensors")).unwrap();
    assert!(place.run("verify r").out.contains("wrong: `last.safetensors`: is not there"));
    place.ok("train c.toml --quiet --out r --force");
    // A new run is on its way into the place of another: each of the files is in one place or the other.
    place.ok("train c.toml --quiet --out new --set seed=5 --set train.epochs=1");
    let names = ["best.safetensors", "config.toml", "last.safetensors", "metrics.csv", "metrics.jsonl"];
    place.write("r/.new/ready.json", serde_json::json!({ "files": names }).to_string());
    for name in &names[1..] {
        fs::copy(place.path(&format!("new/{name}")), place.path(&format!("r/.new/{name}"))).unwrap();
    }
    fs::copy(place.path("new/best.safetensors"), place.path("r/best.safetensors")).unwrap();
    fs::remove_file(place.path("r/config.toml")).unwrap();
    let stdout = place.ok("verify r").out;
    assert!(
        stdout.contains("note: a new run, which `--force` has begun") && stdout.contains(".new/last.safetensors"),
        "{stdout}"
    );
    place.write("r/.new/last.safetensors", b"cut");
    assert!(place.run("verify r").out.contains("wrong: `.new/last.safetensors`"));
    fs::copy(place.path("new/last.safetensors"), place.path("r/.new/last.safetensors")).unwrap();
    place.ok("train --resume r --quiet");
    let stdout = place.ok("verify r").out;
    assert!(!stdout.contains("note: "), "{stdout}");
}

#[test]
fn several_runs_are_looked_at_one_by_one() {
    let place = run();
    place.ok("train c.toml --quiet --out other --set train.epochs=1");
    let done = place.ok("verify r other").out;
    assert!(done.contains("the files of `r` agree\n") && done.ends_with("the files of `other` agree\n"), "{done}");
    fs::remove_file(place.path("r/metrics.csv")).unwrap();
    let done = place.run("verify r other");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.out.contains("1 disagreement in `r`\n") && done.out.ends_with("the files of `other` agree\n"),
        "{done:?}"
    );
    let json = place.run("verify r other --json").json();
    assert_eq!((&json["agrees"], &json["runs"][0]["agrees"]), (&false.into(), &false.into()));
    assert_eq!((&json["runs"][1]["agrees"], &json["runs"][1]["run"]), (&true.into(), &"other".into()));
    assert!(place.fails("verify r nowhere", 2).contains("there is no run `nowhere`"));
    assert!(place.fails("verify", 2).contains("<RUN>"));
}

#[test]
fn each_file_that_does_not_agree_is_named() {
    let place = run();
    let keep: Vec<(String, Vec<u8>)> = fs::read_dir(place.path("r"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    let restore = || {
        fs::remove_dir_all(place.path("r")).unwrap();
        keep.iter().for_each(|(name, content)| drop(place.write(&format!("r/{name}"), content)));
    };
    let found = |file: &str, what: &str| {
        let done = place.run("verify r");
        assert_eq!(done.code, Some(1), "{done:?}");
        let line = format!("wrong: `{file}`: ");
        assert!(done.out.lines().any(|l| l.starts_with(&line) && l.contains(what)), "{file}, {what}: {}", done.out);
        let json = place.run("verify r --json").json();
        assert_eq!(json["agrees"], false);
        assert!(json["disagreements"].as_array().unwrap().iter().any(|one| one["file"] == file), "{json}");
        restore();
    };
    let content = |name: &str| keep.iter().find(|(known, _)| known == name).unwrap().1.clone();
    let steps: Vec<&str> = keep.iter().map(|(name, _)| &name[..]).filter(|name| name.starts_with("step-")).collect();
    let step = steps[0];
    // A byte of each checkpoint, of its tensors and of its header.
    for file in ["last.safetensors", "best.safetensors", step] {
        for at in [20, content(file).len() - 5] {
            let mut bytes = content(file);
            bytes[at] ^= 1;
            place.write(&format!("r/{file}"), bytes);
            found(file, "");
        }
        place.write(&format!("r/{file}"), &content(file)[..content(file).len() / 2]);
        found(file, "cut short");
    }
    fs::remove_file(place.path("r/last.safetensors")).unwrap();
    found("last.safetensors", "is not there");
    fs::remove_file(place.path("r/best.safetensors")).unwrap();
    found("best.safetensors", "is not there, and `last.safetensors` knows of a best");
    fs::rename(place.path(&format!("r/{step}")), place.path("r/step-7.safetensors")).unwrap();
    found("step-7.safetensors", "is called by step 7");
    // Of before the first evaluation; it knows of no best.
    place.ok("train c.toml --quiet --out early --set checkpoint.every_steps=4 --set checkpoint.keep=9");
    fs::copy(place.path("early/step-4.safetensors"), place.path("r/best.safetensors")).unwrap();
    found("best.safetensors", "is of step 4, after which nothing was evaluated");
    // A checkpoint of another run, of another model.
    place.ok("train c.toml --quiet --out other --set seed=4 --set train.epochs=1");
    fs::copy(place.path("other/best.safetensors"), place.path("r/best.safetensors")).unwrap();
    found("best.safetensors", "was made with the seed 4");
    let text = place.read("c.toml").replace("out_features = 24", "out_features = 25");
    place.write("wide.toml", text);
    place.ok("train wide.toml --quiet --out wide --set train.epochs=1");
    fs::copy(place.path("wide/last.safetensors"), place.path(&format!("r/{step}"))).unwrap();
    found(step, "its weights are not those of `last.safetensors`");
    // The configuration.
    let text = place.read("r/config.toml");
    place.write("r/config.toml", text.replace("0.003", "0.004"));
    found("config.toml", "`optimizer.lr` is 0.004, and 0.003 in `last.safetensors`");
    place.write("r/config.toml", "[data\n");
    found("config.toml", "is no TOML");
    fs::remove_file(place.path("r/config.toml")).unwrap();
    found("config.toml", "");
    // The metrics: a line that is none, one that is gone, one that was changed, one that came after.
    let text = place.read("r/metrics.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let write = |lines: &[&str]| place.write("r/metrics.jsonl", lines.join("\n") + "\n");
    write(&[&lines[..3], &["{\"kind\":"], &lines[4..]].concat());
    found("metrics.jsonl", "line 4 cannot be read");
    write(&lines[..lines.len() - 1]);
    found("metrics.jsonl", "lines are lost");
    let best = place.run("verify r --json").json();
    assert_eq!(best["agrees"], true, "restored");
    let changed: Vec<String> =
        lines.iter().map(|line| line.replace("\"val_accuracy\":", "\"val_accuracy\":1")).collect();
    place.write("r/metrics.jsonl", changed.join("\n") + "\n");
    found("metrics.jsonl", "in `best.safetensors`");
    // The figure of an epoch that is not the best is better than it, in both files.
    let best = place.checkpoint("r/best.safetensors").meta;
    let of_epoch = |line: &&&str| line.starts_with("{\"kind\":\"epoch\"");
    let step = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64().unwrap();
    let other = lines.iter().filter(of_epoch).find(|line| step(line) != best.step).unwrap();
    let (_, figure) = other.split_once("\"val_accuracy\":").unwrap();
    let figure = figure.split([',', '}']).next().unwrap();
    let better = format!("0.{}", "9".repeat(figure.len() - 2));
    assert!(best.best.unwrap().value < better.parse().unwrap(), "{better}");
    place.write("r/metrics.jsonl", text.replace(*other, &other.replacen(figure, &better, 1)));
    let table = place.read("r/metrics.csv");
    let row = table.lines().find(|row| row.starts_with("epoch,") && row.contains(figure)).unwrap();
    place.write("r/metrics.csv", table.replace(row, &row.replacen(figure, &better, 1)));
    found("metrics.jsonl", "better than the");
    write(&[&lines[..], &["{\"kind\":\"step\",\"step\":99,\"epoch\":2,\"loss\":0.5,\"lr\":0.1}"]].concat());
    found("metrics.jsonl", "goes on to step 99");
    write(&[&lines[1..2], &lines[..1], &lines[2..]].concat());
    found("metrics.jsonl", "stands after one of step");
    fs::remove_file(place.path("r/metrics.jsonl")).unwrap();
    found("metrics.jsonl", "is not there");
    // The table that follows from them.
    let text = place.read("r/metrics.csv");
    place.write("r/metrics.csv", text.replacen("step,1,", "step,2,", 1));
    found("metrics.csv", "is not as `metrics.jsonl` has it");
    place.write("r/metrics.csv", text.lines().take(4).map(|line| format!("{line}\n")).collect::<String>());
    found("metrics.csv", "a line is missing");
    fs::remove_file(place.path("r/metrics.csv")).unwrap();
    found("metrics.csv", "is not there");
}
