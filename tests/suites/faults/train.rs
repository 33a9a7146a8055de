//! Training: anew, in the place of an earlier run, and going on with a run that was killed.

use crate::faults::Fault;
use crate::library::library;
use crate::place::{Ended, Place};
use crate::run_state::{RunState, all_whole, newest_step};
use crate::sweep::{Case, Sweep};

/// Two epochs of three steps with everything that a run writes, as quickly as that can be.
pub const CONFIG: &str = r#"
device = "cpu"
seed = 3
[data]
source = "digits"
batch_size = 32
limit = 96
limit_val = 32
workers = 1
[model]
layers = ["flatten", { type = "linear", out_features = 4 }, "batch_norm1d", "relu", { type = "dropout", p = 0.3 }, { type = "linear", out_features = 10 }]
[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = 0.1
momentum = 0.9
[train]
epochs = 2
[checkpoint]
every_steps = 2
keep = 1
[log]
every_steps = 1
"#;

/// The command of all tests here, but for what else it is given.
pub const TRAIN: &str = "train c.toml --out run --threads 1 --quiet";

/// What the configuration ends with when nothing is in its way.
pub fn undisturbed(config: &str) -> RunState {
    let place = Place::with("c.toml", config);
    place.ok(TRAIN);
    RunState::read(&place.file("run")).unwrap()
}

/// A run's folder is as it should be when it has ended well.
pub fn finished(place: &Place, expected: &RunState) -> Result<(), String> {
    RunState::read(&place.file("run"))?.same_as(expected)
}

/// From whatever a fault has left, `--resume` leads to the end of a run that was never disturbed; or, if nothing had been
/// saved, says so, and the run can be started anew.
pub fn recovers(place: &Place, expected: &RunState) -> Result<(), String> {
    let run = place.file("run");
    all_whole(&run)?;
    let saved = newest_step(&run);
    let resumed = place.run(&format!("{TRAIN} --resume"));
    if resumed.code == Some(0) {
        return finished(place, expected).map_err(|e| format!("resumed from step {saved:?}: {e}"));
    }
    if let Some(step) = saved {
        return Err(format!("step {step} is saved, but cannot be resumed: {resumed:?}"));
    }
    if !matches!(resumed.code, Some(1 | 2)) || !resumed.err.contains("`run`") {
        return Err(format!("nothing is saved, and no message says so: {resumed:?}"));
    }
    let anew = place.run(&format!("{TRAIN} --force"));
    if anew.code != Some(0) {
        return Err(format!("what is left is in the way: {anew:?}"));
    }
    finished(place, expected).map_err(|e| format!("started anew: {e}"))
}

#[test]
fn a_new_run() {
    let expected = undisturbed(CONFIG);
    Sweep {
        name: "train",
        start: &Place::with("c.toml", CONFIG),
        args: TRAIN,
        every: 73,
        steady: true,
        done: &|place, _| finished(place, &expected),
        after: &|place, _, _| recovers(place, &expected),
    }
    .run();
}

/// Nothing is left of a dry run, unless it was killed or cannot remove anything. If only that fails, a warning says so.
#[test]
fn a_dry_run() {
    let start = Place::with("c.toml", CONFIG);
    std::fs::create_dir(start.file("tmp")).unwrap();
    let args = "train c.toml --dry-run --threads 1";
    let left = |place: &Place| {
        let names = |folder: &str| std::fs::read_dir(place.file(folder)).unwrap().count();
        names("tmp") + names(".") - 2
    };
    // A folder that was made, and of which it was said that it was not, is named.
    let warns = |ended: &Ended| {
        ["warning: cannot remove `", "cannot make a folder in `"].iter().any(|text| ended.err.contains(text))
    };
    Sweep {
        name: "train --dry-run",
        start: &start,
        args,
        every: 73,
        steady: true,
        done: &|place, ended| match ended.out.ends_with("all of it works; nothing of it is kept\n") {
            true if left(place) == 0 || warns(ended) => Ok(()),
            true => Err("something is left".into()),
            false => Err(format!("it says {:?}", ended.out)),
        },
        after: &|place, case, ended| {
            let cannot_tidy = ended.signal.is_some() || [Fault::ReadOnly, Fault::Dead].contains(&case.fault);
            if left(place) > 0 && !cannot_tidy && !warns(ended) {
                return Err("something is left, and no message says so".into());
            }
            place.ok(args);
            Ok(())
        },
    }
    .run();
}

/// A run that was killed when it was about to give its second checkpoint its name, and what that has left.
pub fn killed(config: &str) -> Place {
    let place = Place::with("c.toml", config);
    let (_, operations) = place.copy().recorded(TRAIN, None, false);
    let rename = operations.iter().position(|o| o.name == "rename" && o.other == "run/step-4.safetensors");
    let (ended, _) = place.recorded(TRAIN, Some((rename.unwrap() + 1, Fault::Kill)), false);
    assert_eq!(ended.signal, Some(libc::SIGKILL), "{ended:?}");
    place
}

#[test]
fn a_run_that_goes_on() {
    if library().is_none() {
        return;
    }
    let expected = undisturbed(CONFIG);
    Sweep {
        name: "train --resume",
        start: &killed(CONFIG),
        args: &format!("{TRAIN} --resume"),
        every: 73,
        steady: true,
        done: &|place, _| finished(place, &expected),
        after: &|place, case, ended| goes_on(place, case, ended, &expected),
    }
    .run();
}

/// What was saved before stays saved.
fn goes_on(place: &Place, _: &Case, _: &Ended, expected: &RunState) -> Result<(), String> {
    match newest_step(&place.file("run")) {
        Some(2..) => recovers(place, expected),
        other => Err(format!("step 3 was saved before, and {other:?} is now")),
    }
}

/// The folder of the checkpoint stays as it is. In the new one, what is saved goes on, and where nothing is the command can be given again.
#[test]
fn a_run_that_goes_on_elsewhere() {
    const ELSEWHERE: &str = "train --resume run/last.safetensors --out new --threads 1 --quiet";
    if library().is_none() {
        return;
    }
    let start = killed(CONFIG);
    let tried = start.copy();
    tried.ok(ELSEWHERE);
    let expected = RunState::read(&tried.file("new")).unwrap();
    let before = RunState::read(&start.file("run")).unwrap();
    let ended = |place: &Place| RunState::read(&place.file("new"))?.same_as(&expected);
    Sweep {
        name: "train --resume CHECKPOINT --out",
        start: &start,
        args: ELSEWHERE,
        every: 73,
        steady: true,
        done: &|place, _| ended(place),
        after: &|place, _, _| {
            RunState::read(&place.file("run"))?.same_as(&before).map_err(|e| format!("the old folder: {e}"))?;
            let saved = place.file("new/last.safetensors").exists();
            let again = if saved { "train --resume new --threads 1 --quiet" } else { ELSEWHERE };
            let done = place.run(again);
            if done.code != Some(0) {
                return Err(format!("what is left is in the way of `{again}`: {done:?}"));
            }
            ended(place)
        },
    }
    .run();
}

/// A finished run with `old.toml` in a place with another `c.toml`; what both leave.
pub fn replacement() -> (Place, RunState, RunState) {
    let config = CONFIG.replace("seed = 3", "seed = 4");
    let start = Place::with("c.toml", &config);
    start.ok(TRAIN);
    let old = RunState::read(&start.file("run")).unwrap();
    std::fs::rename(start.file("c.toml"), start.file("old.toml")).unwrap();
    std::fs::write(start.file("c.toml"), CONFIG).unwrap();
    (start, old, undisturbed(CONFIG))
}

#[test]
fn a_run_in_the_place_of_another() {
    let (start, before, expected) = replacement();
    Sweep {
        name: "train --force",
        start: &start,
        args: &format!("{TRAIN} --force"),
        every: 73,
        steady: true,
        done: &|place, _| finished(place, &expected),
        after: &|place, _, _| one_of_two(place, &before, &expected),
    }
    .run();
}

/// The old run is there until the new one can be resumed.
pub fn one_of_two(place: &Place, old: &RunState, new: &RunState) -> Result<(), String> {
    all_whole(&place.file("run"))?;
    let resumed = place.run("train --resume run --threads 1 --quiet");
    if resumed.code != Some(0) {
        return Err(format!("neither run can be resumed: {resumed:?}"));
    }
    if let Err(not_new) = finished(place, new) {
        finished(place, old).map_err(|e| format!("neither the new run ({not_new}) nor the old one ({e})"))?;
    }
    let anew = place.run(&format!("{TRAIN} --force"));
    if anew.code != Some(0) {
        return Err(format!("what is left is in the way: {anew:?}"));
    }
    finished(place, new).map_err(|e| format!("started anew: {e}"))
}
