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
