//! A run that is interrupted or killed at any moment goes on to the same bits.

use super::support::{LAYERS, Place, Running, assert_same_runs, digits};
use super::{documents, text};
use runner::checkpoint;
use runner::random::{Purpose, Stream};
use std::time::Duration;

/// Everything that has state: optimizer, running statistics, dropout, augmentation, accumulation, early stopping, best.
fn config() -> String {
    digits(
        "train_transforms = [{ type = \"random_crop\", size = 8, padding = 1 }, \"random_horizontal_flip\", { type = \"mixup\", off_after_epoch = 1 }]",
        &format!(
            "{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[schedule]\ntype = \"cosine\"\n\
             [train]\nepochs = 8\naccumulate = 3\n\
             early_stopping = {{ monitor = \"val_accuracy\", patience = 8 }}\n\
             [log]\nevery_steps = 1\n[checkpoint]\nevery_steps = 3\nmonitor = \"val_accuracy\"\nkeep = 2\n"
        ),
    )
}

/// The same with a length in steps, which ends it within an epoch, and evaluations within epochs.
fn config_by_steps() -> String {
    let train = "steps = 30\neval_every_steps = 4\n";
    config().replace("epochs = 8\n", train).replace("every_steps = 3\nmonitor", "every_steps = 7\nmonitor")
}

/// Steps that the newest checkpoint has; `None` without one.
fn newest(place: &Place) -> Option<u64> {
    checkpoint::read(&place.path("r/last.safetensors")).ok().map(|c| c.meta.step)
}

/// Starts the run, or goes on with it, until `steps` more are saved, and a little longer; `None` if it ended before.
fn advance(place: &Place, steps: u64, longer: Duration) -> Option<Running> {
    let from = newest(place);
    let how = if from.is_some() { "--resume" } else { "--force" };
    let mut run = place.start(&format!("train c.toml --quiet --out r {how}"));
    let target = from.unwrap_or(0) + steps;
    let there = run.until(|| newest(place).is_some_and(|s| s >= target));
    if !there {
        let (status, done) = run.wait();
        assert!(status.success(), "{done:?}");
        return None;
    }
    std::thread::sleep(longer);
    Some(run)
}

/// Stops the run, of so many steps, with `signal` again and again until it ends by itself; how often it was stopped.
fn stop_often(place: &Place, signal: i32, seed: u64, end: u64) -> usize {
    let mut random = Stream::new(seed, Purpose::Synthetic, 0, 0);
    let mut stops = 0;
    loop {
        let (steps, longer) = (1 + random.below(5) as u64, Duration::from_micros(random.below(4000) as u64));
        let Some(run) = advance(place, steps, longer) else { return stops };
        run.signal(signal);
        let (status, done) = run.wait();
        stops += 1;
        match signal {
            libc::SIGKILL => assert!(!status.success() || newest(place) == Some(end), "{done:?}"),
            // It may have been just about to end.
            _ => assert!(matches!(status.code(), Some(130 | 0)), "{status}: {done:?}"),
        }
        assert!(!done.err.contains("panicked"), "{done:?}");
        assert!(stops < 40, "no progress");
    }
}

#[test]
fn a_run_that_is_interrupted_again_and_again() {
    let place = Place::with(&config());
    place.ok("train c.toml --quiet --out whole");
    let stops = stop_often(&place, libc::SIGINT, 1, 32);
    assert!(stops > 1, "{stops}");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn a_run_that_is_killed_again_and_again() {
    let place = Place::with(&config());
    place.ok("train c.toml --quiet --out whole");
    for seed in 1..=3 {
        let stops = stop_often(&place, libc::SIGKILL, seed, 32);
        assert!(stops > 1, "{stops}");
        assert_same_runs((&place, "whole"), (&place, "r"));
        for kept in ["step-27.safetensors", "step-30.safetensors"] {
            let (a, b) = (place.checkpoint(&format!("whole/{kept}")), place.checkpoint(&format!("r/{kept}")));
            assert_eq!(a.tensors, b.tensors, "{kept}");
        }
        let left: Vec<_> = std::fs::read_dir(place.path("r")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 7, "nothing else is left behind: {left:?}");
        std::fs::remove_dir_all(place.path("r")).unwrap();
    }
}

/// Windows of a text, which are drawn; and documents in batches of several lengths.
#[test]
fn texts_that_are_killed_again_and_again() {
    for (place, seed) in [(text::place(), 4), (documents::place(), 5)] {
        let own =
            place.read("c.toml").replace("steps = 150\neval_every_steps = 50", "steps = 30\neval_every_steps = 7");
        place.write("c.toml", own.replace("epochs = 8", "epochs = 4") + "[checkpoint]\nevery_steps = 3\n");
        place.ok("train c.toml --quiet --out whole");
        let end = place.checkpoint("whole/last.safetensors").meta.step;
        let stops = stop_often(&place, libc::SIGKILL, seed, end);
        assert!(end >= 20 && stops > 1, "{stops} of {end}");
        assert_same_runs((&place, "whole"), (&place, "r"));
    }
}

#[test]
fn a_run_by_steps_that_is_stopped_again_and_again() {
    let place = Place::with(&config_by_steps());
    place.ok("train c.toml --quiet --out whole");
    let evaluated: Vec<u64> = place
        .metrics("whole")
        .iter()
        .filter(|line| line["kind"] != "step" && line["val_loss"].is_f64())
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(evaluated, [4, 8, 12, 16, 20, 24, 28, 30]);
    for (signal, seed) in [(libc::SIGINT, 1), (libc::SIGKILL, 2), (libc::SIGKILL, 3)] {
        let stops = stop_often(&place, signal, seed, 30);
        assert!(stops > 1, "{stops}");
        assert_same_runs((&place, "whole"), (&place, "r"));
        std::fs::remove_dir_all(place.path("r")).unwrap();
    }
}

#[test]
fn an_evaluation_within_an_epoch_that_is_interrupted_is_repeated() {
    let place = Place::with(&long_evaluation("steps = 6\neval_every_steps = 3", 3));
    place.ok("train c.toml --quiet --out whole");
    let mut run = place.start("train c.toml --quiet --out r");
    // This checkpoint is written at the step after which the evaluation comes.
    assert!(run.until(|| newest(&place) == Some(3)));
    run.signal(libc::SIGINT);
    let (status, done) = run.wait();
    assert_eq!(status.code(), Some(130), "{done:?}");
    let meta = place.checkpoint("r/last.safetensors").meta;
    assert_eq!((meta.epoch, meta.batch, meta.step), (0, 3, 3));
    assert_eq!(meta.extra["evaluated"], 0);
    assert!(place.metrics("r").iter().all(|l| l["kind"] == "step"));
    place.ok("train c.toml --quiet --out r --resume");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn an_interruption_is_reported_and_saved() {
    let place =
        Place::with(&config().replace("epochs = 8", "epochs = 5000").replace("patience = 8", "patience = 9999"));
    let mut run = place.start("train c.toml --out r");
    assert!(run.until(|| newest(&place).is_some()));
    run.signal(libc::SIGINT);
    let (status, done) = run.wait();
    assert_eq!(status.code(), Some(130), "{done:?}");
    assert!(
        done.err.contains("interrupted at step") && done.err.contains("go on with: runner train --resume r\n"),
        "{}",
        done.err
    );
}

/// Four steps an epoch, and evaluations that take a while; a checkpoint after so many steps.
fn long_evaluation(train: &str, every: u64) -> String {
    format!(
        "seed = 1\n[data]\nsource = \"synthetic\"\nshape = [6]\nclasses = 3\nsamples = 40\nval_samples = 60000\n\
         batch_size = 10\neval_batch_size = 1\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 3 }}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n[train]\n{train}\n\
         [checkpoint]\nevery_steps = {every}\n[log]\nevery_steps = 1\n",
    )
}

#[test]
fn an_evaluation_that_is_interrupted_is_repeated() {
    let place = Place::with(&long_evaluation("epochs = 2", 4));
    place.ok("train c.toml --quiet --out whole");
    let mut run = place.start("train c.toml --quiet --out r");
    // This checkpoint is written at the last step of the epoch; what follows is the evaluation.
    assert!(run.until(|| newest(&place) == Some(4)));
    run.signal(libc::SIGINT);
    let (status, done) = run.wait();
    assert_eq!(status.code(), Some(130), "{done:?}");
    let meta = place.checkpoint("r/last.safetensors").meta;
    assert_eq!((meta.epoch, meta.batch, meta.step), (0, 4, 4));
    assert!(place.metrics("r").iter().all(|l| l["kind"] == "step"));
    place.ok("train c.toml --quiet --out r --resume");
    assert_same_runs((&place, "whole"), (&place, "r"));
}
