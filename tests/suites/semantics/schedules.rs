//! The learning rate of every update against PyTorch's schedulers: `tests/golden/learning_rates.json`, which
//! `scripts/golden/schedules.py` makes.

use runner::config::{self, Experiment};
use runner::train::setup::schedule::{PlateauState, Schedule};
use serde_json::Value;

const BATCH: usize = 4;

fn experiment(optimizer: &str, schedule: &str, epochs: usize) -> Experiment {
    let text = format!(
        "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 2\nsamples = 8\nbatch_size = {BATCH}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 2 }}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\n{optimizer}\n[schedule]\n{schedule}\n[train]\nepochs = {epochs}\n"
    );
    config::load_str("c.toml", &text, &[]).unwrap_or_else(|failure| panic!("{failure}")).experiment
}

#[test]
fn rates_are_those_of_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/learning_rates.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut faults = Vec::new();
    for case in &cases {
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let text = case["schedule"].as_str().unwrap();
        let experiment = experiment(&format!("lr = {}", case["lr"]), text, number("epochs"));
        let schedule = Schedule::new(&experiment, BATCH * number("per_epoch"));
        let mut plateau = PlateauState::default();
        let rates = case["rates"].as_array().unwrap();
        assert_eq!(rates.len(), number("epochs") * number("per_epoch"));
        for (update, want) in rates.iter().map(|rate| rate.as_f64().unwrap()).enumerate() {
            let got = schedule.lr(update as u64, update / number("per_epoch")) * plateau.factor;
            // PyTorch adds a rounding error with each update.
            if (got - want).abs() > 1e-9 * want.abs().max(1e-4) {
                faults.push(format!("{text:?}, update {update}: {got}, not {want}"));
                break;
            }
            if let (Some(rule), Some(figure)) = (&schedule.plateau, case["figures"][update].as_f64()) {
                plateau.note(rule, figure, schedule.base);
            }
        }
    }
    assert!(cases.len() > 25, "{}", cases.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A group with another rate falls to the same `min_lr`, and to the same share of its rate where there is none.
#[test]
fn groups_fall_to_the_same_floor() {
    let schedule = |text: &str| Schedule::new(&experiment("lr = 0.1", text, 14), BATCH);
    let group = |s: &Schedule, update: u64| {
        let floor = s.floor(update, update as usize);
        (s.lr(update, update as usize) - floor) * 2.0 + floor
    };
    let cosine = schedule("type = \"cosine\"\nmin_lr = 0.01\nwarmup_steps = 4\nwarmup_start_factor = 0.25");
    assert_eq!(cosine.lr(0, 0), 0.025);
    assert!((cosine.lr(2, 2) - 0.0625).abs() < 1e-12);
    assert_eq!(cosine.lr(4, 4), 0.1);
    assert!((cosine.lr(9, 9) - 0.055).abs() < 1e-12);
    assert!((cosine.lr(14, 14) - 0.01).abs() < 1e-12 && cosine.lr(99, 99) == cosine.lr(14, 14));
    assert_eq!(group(&cosine, 2), 2.0 * cosine.lr(2, 2));
    assert!((group(&cosine, 9) - 0.105).abs() < 1e-12 && (group(&cosine, 14) - 0.01).abs() < 1e-12);
    let restarts = schedule("type = \"cosine_restarts\"\nt_0 = 4\nmin_lr = 0.02");
    assert!((group(&restarts, 6) - 0.11).abs() < 1e-12 && group(&restarts, 8) == 0.2);
    let linear = schedule("type = \"linear\"\nend_factor = 0.5");
    assert_eq!(group(&linear, 7), 2.0 * linear.lr(7, 7));
}

#[test]
fn steps_count_whole_epochs() {
    let schedule = |text: &str| Schedule::new(&experiment("lr = 1", text, 5), BATCH * 9);
    let step = schedule("type = \"step\"\nstep_epochs = 2\ngamma = 0.5");
    assert_eq!([0, 1, 2, 3, 4].map(|e| step.lr(9, e)), [1.0, 1.0, 0.5, 0.5, 0.25]);
    let many = schedule("type = \"step\"\nmilestones = [1, 3]\ngamma = 0.5");
    assert_eq!([0, 1, 2, 3, 4].map(|e| many.lr(9, e)), [1.0, 0.5, 0.5, 0.25, 0.25]);
}

/// Where a course begins within an epoch, by steps, it counts epochs of its own.
#[test]
fn a_course_that_begins_within_an_epoch_counts_from_there() {
    let text = "type = \"sequential\"\nby = \"step\"\nmilestones = [15]\nschedules = [{ type = \"constant\" }, { type = \"step\", step_epochs = 1, gamma = 0.5 }]";
    let schedule = Schedule::new(&experiment("lr = 1", text, 4), BATCH * 10);
    let at = |update: u64| schedule.lr(update, update as usize / 10);
    assert_eq!([14, 15, 24, 25, 34, 35].map(at), [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]);
}

/// A course by epochs begins with the first epoch that has no warm-up in it.
#[test]
fn a_course_by_epochs_waits_for_the_end_of_the_warmup() {
    let text = "type = \"polynomial\"\nby = \"epoch\"\ntotal_iters = 4\nwarmup_steps = 15";
    let schedule = Schedule::new(&experiment("lr = 1", text, 6), BATCH * 10);
    let at = |update: u64| schedule.lr(update, update as usize / 10);
    assert_eq!([15, 19, 20, 29, 30, 45].map(at), [1.0, 1.0, 1.0, 1.0, 0.75, 0.5]);
}

/// While weights are averaged, groups keep their proportions: the floor goes as the rate goes to its own.
#[test]
fn the_floor_goes_while_weights_are_averaged() {
    let optimizer = "lr = 0.1\nswa = { start = 4, lr = 0.05, anneal_epochs = 2, anneal_strategy = \"linear\" }";
    let schedule = Schedule::new(&experiment(optimizer, "type = \"cosine\"\nmin_lr = 0.02", 8), BATCH);
    let floor = |epoch: usize| schedule.floor(epoch as u64, epoch);
    let before = floor(4);
    assert!(before > 0.0 && (floor(5) - before / 2.0).abs() < 1e-12 && floor(6) == 0.0 && floor(7) == 0.0);
    assert_eq!(schedule.lr(6, 6), 0.05);
}

#[test]
fn rates_are_scaled_with_the_batch_on_request() {
    let base = |keys: &str| Schedule::new(&experiment(&format!("lr = 0.4\n{keys}"), "", 1), 8).base;
    assert_eq!(base(""), 0.4);
    assert_eq!(base("lr_base_size = 16"), 0.1);
    assert_eq!(base("lr_base_size = 1\nlr_base_scale = \"sqrt\""), 0.8);
    // An update of several batches has their samples.
    let mut more = experiment("lr = 0.4\nlr_base_size = 16", "", 1);
    more.train.accumulate = 8;
    assert!((Schedule::new(&more, 80).base - 0.8).abs() < 1e-12);
}
