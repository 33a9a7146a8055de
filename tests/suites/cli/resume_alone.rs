//! A run goes on with what it was started with, without options.

use super::support::{LAYERS, Place, assert_same_runs, digits, plain};
use std::fs;

const STARTED: &str = "--set optimizer.lr=1e-3 --set seed=9 --device cpu --without fuse";

/// A run that was started with options and stopped after `steps`, and one that was not stopped.
fn stopped(steps: u64) -> Place {
    let place = Place::with(&plain());
    place.ok(&format!("train c.toml --quiet --out whole {STARTED}"));
    place.ok(&format!("train c.toml --quiet --out r {STARTED} --set train.max_steps={steps}"));
    place
}

#[test]
fn every_form_goes_on_with_the_options_of_the_start() {
    let place = stopped(2);
    fs::create_dir(place.path("far")).unwrap();
    let forms = [
        "train --resume r",
        "train r --resume",
        "train --resume r/last.safetensors",
        "train r/last.safetensors --resume",
        "train --resume --out r",
        "train c.toml --resume r",
        "train --resume c.toml --out r",
        "train c.toml --resume --out r",
        "train c.toml --resume r/last.safetensors",
        "train r/config.toml --resume",
    ];
    for (i, form) in forms.iter().enumerate() {
        let steps = 3 + i;
        place.ok(&format!("{form} --quiet --set train.max_steps={steps}"));
        let last = place.checkpoint("r/last.safetensors");
        assert_eq!(last.meta.step, steps as u64, "{form}");
        assert!(last.meta.config.contains("\nlr = 0.001\n") && last.meta.config.starts_with("seed = 9\n"), "{form}");
    }
    let done = place.run_in("far", "train --resume ../r --quiet --set train.max_steps=14");
    assert_eq!(done.code, Some(0), "{done:?}");
    // The file is not needed.
    fs::remove_file(place.path("c.toml")).unwrap();
    let done = place.ok("train --resume r");
    assert!(
        done.err.contains("stopped at step 14, as `max_steps` says") && done.err.contains("--unset"),
        "{}",
        done.err
    );
    place.ok("train --resume r --quiet --unset train.max_steps");
    assert_same_runs((&place, "whole"), (&place, "r"));
    assert!(place.run("train c.toml --resume --out r").err.contains("cannot read `c.toml`"));
}

#[test]
fn the_newest_run_of_a_configuration_goes_on() {
    let place = Place::with(&plain());
    place.ok(&format!("train c.toml --quiet --out whole {STARTED}"));
    place.ok("train c.toml --quiet");
    place.ok(&format!("train c.toml --quiet {STARTED} --set train.max_steps=3"));
    let done = place.ok("train c.toml --resume --unset train.max_steps");
    assert!(!done.err.contains("--set train.max_steps"), "{}", done.err);
    assert!(done.err.contains("as when the run was started: --set optimizer.lr=1e-3"), "{}", done.err);
    assert_same_runs((&place, "whole"), (&place, "runs/c/2"));
}

#[test]
fn the_learning_rate_never_changes_unasked() {
    let place = stopped(7);
    place.write("plain.toml", plain());
    place.ok("train plain.toml --quiet --out p --set train.max_steps=7");
    // The file has another one now.
    place.write("plain.toml", plain().replace("lr = 3e-3", "lr = 1e-2"));
    let before = place.read("p/metrics.jsonl");
    for form in ["train plain.toml --resume p", "train plain.toml --resume --out p --set train.max_steps=9"] {
        let err = place.fails(form, 2);
        assert!(err.contains("optimizer.lr: was 0.003, is 0.01"), "{err}");
        assert!(err.contains("runner train --resume p") && err.contains("--set optimizer.lr=0.01"), "{err}");
    }
    assert_eq!(place.read("p/metrics.jsonl"), before);
    let rate = |run: &str| place.metrics(run).iter().rfind(|l| l["kind"] == "step").unwrap()["lr"].clone();
    place.ok("train --resume p --quiet --set train.max_steps=8");
    assert_eq!(rate("p"), 0.003);
    // As the message says; and then it stays.
    let done = place.ok("train plain.toml --resume p --set optimizer.lr=0.01 --set train.max_steps=9");
    assert!(done.err.contains("optimizer.lr: was 0.003, is 0.01"), "{}", done.err);
    assert_eq!(rate("p"), 0.01);
    let done = place.ok("train plain.toml --resume p --set train.max_steps=10");
    assert!(!done.err.contains("optimizer.lr: was"), "{}", done.err);
    // One of the start's wins over the file's.
    place.ok("train c.toml --resume r --quiet --set train.max_steps=8");
    assert_eq!(rate("r"), 0.001);
    // What changes no number may be edited.
    place.write("c.toml", plain().replace("epochs = 2", "epochs = 3"));
    let done = place.ok("train c.toml --resume r --set train.max_steps=25");
    assert!(done.err.contains("train.epochs: was 2, is 3"), "{}", done.err);
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 25);
}

#[test]
fn a_change_is_kept_as_soon_as_the_run_goes_on_with_it() {
    let place = Place::with(&plain().replace("epochs = 2", "epochs = 100000"));
    place.ok("train c.toml --quiet --out r --set train.max_steps=4");
    let set = "--set train.max_steps=10000000 --set optimizer.lr=1e-4 --set checkpoint.monitor=train_loss";
    // Killed before it could save anything of its own accord: an epoch is far longer.
    let mut run = place.start(&format!("train --resume r --quiet {set} --set data.workers=1"));
    assert!(run.until(|| place.read("r/config.toml").contains("lr = 0.0001")));
    run.signal(libc::SIGKILL);
    run.wait();
    let last = place.checkpoint("r/last.safetensors");
    assert!(last.meta.config.contains("lr = 0.0001"), "{}", last.meta.config);
    // With the file, too.
    let done = place.ok("train c.toml --resume r --set train.max_steps=5");
    assert!(done.err.contains("--set optimizer.lr=1e-4") && !done.err.contains("optimizer.lr: was"), "{}", done.err);
}

#[test]
fn a_folder_is_distinguished_from_a_configuration() {
    let place = stopped(3);
    let err = place.fails("train r", 2);
    assert!(err.contains("runner train --resume r") && err.contains("runner train r/config.toml"), "{err}");
    assert!(place.fails("train r/last.safetensors", 2).contains("runner train --resume r/last.safetensors"));
    assert!(place.fails("train --resume", 2).contains("which run"));
    assert!(place.fails("train --resume nowhere", 1).contains("nowhere"));
    assert!(place.fails("train r --resume --out whole", 2).contains("two folders"));
    assert!(place.fails("train c.toml --out r", 2).contains("`runner train --resume r`"));
}

/// What the evaluation at `max_steps` sees is not a part of a longer run.
#[test]
fn the_best_is_that_of_a_run_that_was_not_stopped() {
    let text = digits(
        "",
        &format!("{LAYERS}\n[optimizer]\ntype = \"sgd\"\nlr = 4.0\n[train]\nepochs = 4\n[log]\nevery_steps = 1\n"),
    );
    let place = Place::with(&text);
    place.ok("train c.toml --quiet --out whole");
    let accuracy =
        |run: &str| -> Vec<f64> { place.metrics(run).iter().filter_map(|l| l["val_accuracy"].as_f64()).collect() };
    let ends = accuracy("whole");
    let mut tempting = 0;
    for steps in (11..40).filter(|s| s % 10 != 0).step_by(2) {
        let run = format!("r{steps}");
        place.ok(&format!("train c.toml --quiet --out {run} --set train.max_steps={steps}"));
        let epoch = steps / 10;
        let before = ends[..epoch].iter().copied().fold(0.0, f64::max);
        let seen = accuracy(&run)[epoch];
        // Better than all before, and than all that a run that goes on will see until the end.
        tempting += usize::from(seen > before && ends[epoch..].iter().all(|later| *later <= before));
        // From the newest, or from the best of an epoch's end, after which everything is done again.
        let from = if steps % 4 == 1 { run.clone() } else { format!("{run}/best.safetensors") };
        place.ok(&format!("train --resume {from} --quiet --set train.max_steps=1000"));
        assert_same_runs((&place, "whole"), (&place, &run));
    }
    assert!(tempting > 0, "no case of what this is about: {ends:?}");
}

#[test]
fn before_the_first_epoch_has_ended_there_is_a_best_that_does_not_count() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --set train.max_steps=4");
    let best = place.checkpoint("r/best.safetensors");
    assert_eq!((best.meta.step, &best.meta.best), (4, &None));
    place.ok("eval r/best.safetensors");
    for from in ["r", "r/best.safetensors"] {
        place.ok(&format!("train --resume {from} --quiet --set train.max_steps=6"));
        assert_eq!(place.checkpoint("r/best.safetensors").meta.step, 6);
    }
    // It is gone where nothing has ended yet, as it would be for a run that was never stopped.
    place.ok("train --resume r --quiet --set train.max_steps=1000 --set data.limit_val=100");
    assert_same_runs((&place, "whole"), (&place, "r"));
}
