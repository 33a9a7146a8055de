//! Runs whose length is set in steps, and evaluations within epochs. An epoch has ten steps here.

use super::support::{LAYERS, Place, assert_same_runs, digits};
use serde_json::Value;

fn config(train: &str, more: &str) -> String {
    digits(
        "train_transforms = [\"random_horizontal_flip\"]",
        &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\n{train}\n[log]\nevery_steps = 1\n{more}"),
    )
}

const COSINE: &str = "[schedule]\ntype = \"cosine\"\nwarmup_steps = 3\n";

/// The lines with figures: kind, epoch, step, and whether there was an evaluation.
fn rows(place: &Place, run: &str) -> Vec<(String, u64, u64, bool)> {
    let lines = place.metrics(run);
    let row = |line: &Value| {
        let number = |key: &str| line[key].as_u64().unwrap();
        (line["kind"].as_str().unwrap().to_owned(), number("epoch"), number("step"), line["val_loss"].is_f64())
    };
    lines.iter().filter(|line| line["kind"] != "step").map(row).collect()
}

fn row(kind: &str, epoch: u64, step: u64, evaluated: bool) -> (String, u64, u64, bool) {
    (kind.to_owned(), epoch, step, evaluated)
}

#[test]
fn as_many_steps_as_epochs_have_are_the_same_run() {
    let place = Place::with(&config("epochs = 2\naccumulate = 3", COSINE));
    place.ok("train c.toml --quiet --out epochs");
    // Four updates of an epoch, the last of them smaller.
    place.write("c.toml", config("steps = 8\naccumulate = 3", COSINE));
    place.ok("train c.toml --quiet --out steps");
    assert_same_runs((&place, "epochs"), (&place, "steps"));
    assert_eq!(rows(&place, "steps"), [row("epoch", 1, 4, true), row("epoch", 2, 8, true)]);
    // The same again where evaluations are set in steps, too.
    place.ok("train c.toml --quiet --out both --set train.eval_every_steps=4");
    assert_same_runs((&place, "epochs"), (&place, "both"));
}

#[test]
fn the_last_step_ends_the_run_and_its_schedule_within_an_epoch() {
    let place = Place::with(&config("steps = 14", COSINE));
    let done = place.ok("train c.toml --out r");
    assert!(done.err.contains("done: 14 steps"), "{}", done.err);
    assert!(done.out.contains("step") && done.out.contains("10/14") && done.out.contains("14/14"), "{}", done.out);
    assert_eq!(rows(&place, "r"), [row("epoch", 1, 10, true), row("eval", 2, 14, true)]);
    let last = place.checkpoint("r/last.safetensors").meta;
    assert_eq!((last.epoch, last.batch, last.step), (1, 4, 14));
    // A rise of three steps, and half a cosine over the other eleven.
    let rate = |t: f64| match t < 3.0 {
        true => 3e-3 * (1.0 / 3.0 + 2.0 / 3.0 * t / 3.0),
        false => 3e-3 * 0.5 * (1.0 + (std::f64::consts::PI * (t - 3.0) / 11.0).cos()),
    };
    let rates: Vec<f64> = place.metrics("r").iter().filter_map(|line| line["lr"].as_f64()).collect();
    assert_eq!(rates.len(), 14);
    for (t, got) in rates.iter().enumerate() {
        // The factor of the warm-up lies over the cosine, which has not begun.
        assert!((got / rate(t as f64) - 1.0).abs() < 1e-12, "step {}: {got} for {}", t + 1, rate(t as f64));
    }
    let row = place.ok("runs . --json").json()[0].clone();
    assert_eq!((&row["state"], &row["all_steps"], &row["step"]), (&"finished".into(), &14.into(), &14.into()));
    assert_eq!((&row["epochs"], &row["all_epochs"], &row["last"]["step"]), (&1.into(), &Value::Null, &14.into()));
    let done = place.ok("train --resume r");
    assert!(done.err.contains("nothing to do: all 14 steps are done; raise `train.steps`"), "{}", done.err);
    let table = place.read("r/metrics.csv");
    assert!(table.lines().last().unwrap().starts_with("eval,2,14,"), "{table}");
    for command in ["runs .", "compare r r/../r2", "report r --out r.html --no-timing --no-evaluation"] {
        if command.contains("r2") {
            place.ok("train c.toml --quiet --out r2 --set seed=9");
        }
        let done = place.ok(command);
        let text = if command.starts_with("report") { place.read("r.html") } else { done.out };
        assert!(text.contains("1 (14/14 steps)"), "{command}: {text}");
    }
}

#[test]
fn more_steps_go_on_as_if_there_had_been_no_end() {
    let place = Place::with(&config("steps = 27\neval_every_steps = 7", ""));
    place.ok("train c.toml --quiet --out whole");
    // Within an epoch, at the end of one, and where an evaluation would have been in any case.
    place.ok("train c.toml --quiet --out r --set train.steps=13");
    for steps in [20, 21, 27] {
        place.ok(&format!("train --quiet --resume r --set train.steps={steps}"));
    }
    let [whole, other] = ["whole", "r"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    assert!(whole.tensors.iter().all(|(name, tensor)| tensor.data == other.tensors[name].data));
    let [whole, other] = ["whole", "r"].map(|run| rows(&place, run));
    let kept: Vec<_> = whole.iter().map(|row| row.2).collect();
    assert_eq!(kept, [7, 10, 14, 20, 21, 27]);
    assert_eq!(other.iter().map(|row| row.2).collect::<Vec<_>>(), [7, 10, 13, 14, 20, 21, 27]);
    // Fewer than it has made already: it ends where it is.
    let before = place.read("r/metrics.jsonl");
    let done = place.ok("train --resume r --set train.steps=5");
    assert!(done.err.contains("nothing to do: all 5 steps are done"), "{}", done.err);
    assert_eq!(place.read("r/metrics.jsonl"), before);
}

#[test]
fn evaluations_within_epochs_are_lines_of_their_own() {
    let place = Place::with(&config("epochs = 2\neval_every_steps = 5", "[checkpoint]\nmonitor = \"val_loss\"\n"));
    place.ok("train c.toml --quiet --out r");
    let expected =
        [row("eval", 1, 5, true), row("epoch", 1, 10, true), row("eval", 2, 15, true), row("epoch", 2, 20, true)];
    assert_eq!(rows(&place, "r"), expected);
    // What is evaluated is what has been saved, and the training figures are those of the epoch so far.
    let lines = place.metrics("r");
    let line = lines.iter().find(|line| line["kind"] == "eval").unwrap();
    place.ok("train c.toml --quiet --out five --set train.max_steps=5");
    let evaluated = place.ok("eval five/last.safetensors --json").json();
    assert_eq!(evaluated["metrics"]["loss"], line["val_loss"]);
    let losses: f64 = lines.iter().filter_map(|line| line["loss"].as_f64()).take(5).sum();
    assert!((line["train_loss"].as_f64().unwrap() - losses / 5.0).abs() < 1e-5, "{line}");
    // The best of all of them is the one of the checkpoint.
    let all = lines.iter().filter_map(|line| Some((line["val_loss"].as_f64()?, line["step"].as_u64()?)));
    let (value, step) = all.reduce(|best, next| if next.0 < best.0 { next } else { best }).unwrap();
    let best = place.checkpoint("r/best.safetensors").meta;
    assert_eq!((best.best.unwrap().value, best.step), (value, step));
    // They change nothing of what is learnt.
    place.ok("train c.toml --quiet --out plain --unset train.eval_every_steps");
    let [with, without] = ["r", "plain"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    assert!(with.tensors.iter().all(|(name, tensor)| tensor.data == without.tensors[name].data));
    // A shorter distance than an epoch's, and none at an epoch's end.
    place.ok("train c.toml --quiet --out seven --set train.eval_every_steps=7");
    let expected = [(7, true), (10, false), (14, true), (20, true)];
    assert_eq!(rows(&place, "seven").iter().map(|row| (row.2, row.3)).collect::<Vec<_>>(), expected);
}

#[test]
fn a_run_stopped_at_any_step_has_the_same_evaluations() {
    let plateau = "[schedule]\ntype = \"plateau\"\npatience = 0\nthreshold = 0.3\nfactor = 0.5\n";
    let place = Place::with(&config("steps = 23\neval_every_steps = 4", plateau));
    place.ok("train c.toml --quiet --out whole");
    let rates: Vec<f64> = place.metrics("whole").iter().filter_map(|line| line["lr"].as_f64()).collect();
    let drops: Vec<usize> = (1..rates.len()).filter(|i| rates[*i] < rates[*i - 1]).collect();
    assert!(!drops.is_empty() && drops.iter().all(|i| i % 4 == 0), "{drops:?}");
    for stop in 1..23 {
        let resume = if stop == 1 { "" } else { "--resume" };
        place.ok(&format!("train c.toml --quiet --out r {resume} --set train.max_steps={stop}"));
    }
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn early_stopping_counts_evaluations() {
    let early = "early_stopping = { monitor = \"val_loss\", patience = 2, min_delta = 0.4 }";
    let place = Place::with(&config(&format!("steps = 300\neval_every_steps = 3\n{early}"), ""));
    let done = place.ok("train c.toml --out whole");
    let meta = place.checkpoint("whole/last.safetensors").meta;
    assert!(meta.step < 300 && meta.step.is_multiple_of(3), "{}", meta.step);
    assert!(done.err.contains(&format!("stopped early after step {}", meta.step)), "{}", done.err);
    place.ok(&format!("train c.toml --quiet --out r --set train.max_steps={}", meta.step - 1));
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
    let done = place.ok("train --resume r");
    assert!(done.err.contains("nothing to do: the run stopped early after step"), "{}", done.err);
    assert_eq!(place.ok("runs . --json --filter state=finished").json().as_array().unwrap().len(), 2);
    place.ok("train --resume r --quiet --set train.early_stopping.patience=3");
    assert!(place.checkpoint("r/last.safetensors").meta.step > meta.step);
}

#[test]
fn a_length_lies_over_the_one_of_a_base() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out r --set train.steps=4");
    assert_eq!(rows(&place, "r"), [row("eval", 1, 4, true)]);
    let text = place.read("r/config.toml");
    assert!(text.contains("\nsteps = 4\n") && !text.contains("\nepochs = "), "{text}");
    // A run goes on in epochs, too.
    place.ok("train --resume r --quiet --set train.epochs=1");
    assert_eq!(rows(&place, "r"), [row("eval", 1, 4, true), row("epoch", 1, 10, true)]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let place = Place::new();
    let sweep = |more: &str| {
        config("steps = 30", &format!("[sweep]\n{more}parameters = {{ \"optimizer.lr\" = [0.1, 0.2] }}\n"))
    };
    let both = config("epochs = 3\nsteps = 30", "");
    let line = |text: &str, start: &str| 1 + text.lines().position(|line| line.starts_with(start)).unwrap();
    let at = |text: &str, start: &str| format!("c.toml:{}:", line(text, start));
    let halving = sweep("method = \"halving\"\ntrials = 4\n");
    let stop = sweep("method = \"grid\"\nstop = \"median\"\n");
    let two = config("steps = 30\neval_every = 2\neval_every_steps = 3", "");
    for (text, message, place_of, and) in [
        (&both, "`epochs` and `steps` in `[train]` exclude each other", "steps =", "epochs = 3"),
        (&two, "`eval_every` and `eval_every_steps` in `[train]` exclude", "eval_every_steps", "eval_every = 2"),
        (&config("accumulate = 2", ""), "`[train]` needs `epochs` or `steps`", "[train]", "neither is there"),
        (&halving, "`halving` compares trials after whole epochs", "method =", "steps = 30"),
        (&stop, "`stop` compares trials after whole epochs", "stop =", "steps = 30"),
    ] {
        place.write("c.toml", text);
        for command in ["check", "train"] {
            let error = place.fails(&format!("{command} c.toml"), 2);
            assert!(error.contains(message) && error.contains(&at(text, place_of)) && error.contains(and), "{error}");
        }
    }
    place.write("c.toml", config("epochs = 3", ""));
    let message = place.fails("sweep c.toml --sweep train.steps=10,20 --method halving", 2);
    assert!(message.contains("would tell the length of a trial in steps"), "{message}");
    for zero in ["train.steps=0", "train.eval_every_steps=0"] {
        let message = place.fails(&format!("check c.toml --set {zero}"), 2);
        assert!(message.contains("must be at least 1"), "{message}");
    }
}

/// A sweep over lengths, some of which end within an epoch.
#[test]
fn trials_may_end_within_an_epoch() {
    let place = Place::with(&config(
        "epochs = 3",
        "[sweep]\nmethod = \"grid\"\nparameters = { \"train.steps\" = [4, 10, 25] }\n",
    ));
    let found = place.ok("sweep c.toml --out s --quiet --json").json();
    let mut trials: Vec<(u64, u64, String)> = found["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trial| {
            assert!(trial["value"].is_f64(), "{trial}");
            let steps = trial["values"]["train.steps"].as_u64().unwrap();
            (steps, trial["epochs"].as_u64().unwrap(), trial["state"].as_str().unwrap().to_owned())
        })
        .collect();
    trials.sort();
    assert_eq!(trials, [(4, 0, "finished".into()), (10, 1, "finished".into()), (25, 2, "finished".into())]);
}
