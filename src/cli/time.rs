//! What `check --time` tells: the time that a run will take, from some steps of it on its data and its device.

use super::failure::Failure;
use super::model::build_run;
use super::samples;
use crate::backend::Backend;
use crate::config::language::sections::Cache;
use crate::config::{Diagnostic, Loaded};
use crate::passes::PassOptions;
use crate::terminal::{Bar, duration, figure, say};
use crate::train::run::pace::{Horizon, Pace, Place};
use crate::train::run::timing::{Timed, time_evaluation, time_training};
use crate::train::setup::balance::balance;
use crate::train::setup::session::Session;
use serde_json::{Value, json};

/// From this share of the time on training is said to wait for its data.
const WAITS: f64 = 0.2;

/// What a run takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// The updates that were measured.
    train: Timed,
    /// The batches of an evaluation; `None`: there is nothing to validate on.
    eval: Option<Timed>,
    /// The parts of the run.
    run: Horizon,
    /// Whether photos were decoded which a run would keep.
    keeps: bool,
}

/// Measures some steps and an evaluation. `known` has been warned of already.
///
/// # Errors
/// The data is not there, or wrong; the device failed.
pub fn measure(
    loaded: &Loaded,
    passes: &PassOptions,
    backend: &dyn Backend,
    known: &[Diagnostic],
) -> Result<Times, Failure> {
    let samples = samples::load(&loaded.experiment, &samples::as_configured(&loaded.experiment))?;
    if let Some(note) = &samples.note {
        say(&format!("warning: {note}"));
    }
    let mut balanced = loaded.clone();
    balance(&mut balanced.experiment, &samples.train, &samples.spec.targets);
    let experiment = &balanced.experiment;
    let programs = build_run(&balanced, &samples.spec, backend, passes, known)?;
    let mut session = Session::new(programs, backend, crate::model::task(experiment), experiment.seed)?;
    let bar = Bar::new("measuring", 2, 0);
    let train = time_training(&mut session, backend, experiment, &samples.train)?;
    if let Some(bar) = &bar {
        bar.set(1);
    }
    let eval = match samples.val.is_empty() {
        true => None,
        false => Some(time_evaluation(&mut session, backend, experiment, &samples.val)?),
    };
    let run = Horizon::new(experiment, samples.train.len(), samples.val.len());
    let keeps = experiment.data.loading.cache != Cache::None;
    Ok(Times { train, eval, run, keeps })
}

/// Samples a second.
fn rate(timed: &Timed) -> f64 {
    if timed.seconds > 0.0 { timed.samples as f64 / timed.seconds } else { 0.0 }
}

impl Times {
    /// Seconds of a whole epoch's training.
    fn epoch(&self) -> f64 {
        self.run.samples as f64 / rate(&self.train)
    }

    /// Seconds of an evaluation.
    fn evaluation(&self) -> Option<f64> {
        Some(self.run.val_samples as f64 / rate(&self.eval?))
    }

    /// Seconds of the whole run, if nothing ends it early; without the writing of checkpoints.
    fn whole(&self) -> Option<f64> {
        let of = |timed: &Timed| (timed.samples, timed.seconds);
        let pace = Pace { trained: of(&self.train), evaluated: self.eval.as_ref().map_or((0, 0.0), of), between: 0.0 };
        pace.left(&self.run, &Place::default())
    }

    /// The share of the time of training in which there was no batch to go on with.
    fn waited(&self) -> f64 {
        if self.train.seconds > 0.0 { (self.train.waited / self.train.seconds).min(1.0) } else { 0.0 }
    }

    fn waits_for(&self) -> &'static str {
        if self.waited() >= WAITS { "data" } else { "device" }
    }

    /// The same for programs: seconds, and milliseconds of a step.
    pub fn as_json(&self) -> Value {
        json!({
            "step_ms": self.train.seconds * 1e3 / self.train.steps as f64,
            "samples_per_s": rate(&self.train),
            "epoch_s": self.epoch(),
            "evaluation_s": self.evaluation(),
            "evaluations": self.eval.map_or(0, |_| self.run.evaluations()),
            "steps": self.run.steps,
            "run_s": self.whole(),
            "waited_share": self.waited(),
            "waits_for": self.waits_for(),
            "measured_steps": self.train.steps,
        })
    }

    /// As lines.
    pub fn as_text(&self, device: &str) -> String {
        let (steps, s) = (self.train.steps, if self.train.steps == 1 { "" } else { "s" });
        let mut lines = vec![format!("time on {device}, from {steps} step{s}")];
        let mut line = |what: &str, time: String, more: String| lines.push(format!("  {what:<14} {time:>10}  {more}"));
        let each = rate(&self.train);
        let each = figure(each, usize::from(each < 10.0), 9);
        line("a step", took(self.train.seconds / steps as f64), format!("{each} samples/s"));
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let of = super::thousands(self.run.samples);
        line("an epoch", took(self.epoch()), format!("{of} samples"));
        if let Some(seconds) = self.evaluation() {
            line("an evaluation", took(seconds), format!("{} samples", super::thousands(self.run.val_samples)));
        }
        if let Some(seconds) = self.whole() {
            let most = if self.run.may_stop_early { "at most; " } else { "" };
            let evaluations = match self.eval {
                Some(_) => format!(" and {}", count(self.run.evaluations(), "evaluation")),
                None => String::new(),
            };
            let all = count(self.run.steps, "step");
            line("the run", took(seconds), format!("{most}{all}{evaluations}, without writing checkpoints"));
        }
        let share = (self.waited() * 100.0).round();
        lines.push(match self.waits_for() {
            "data" => format!("training waits for its data: {share:.0} % of the time there was no batch to go on with"),
            _ => format!("training waits for the device: {share:.0} % of the time there was no batch to go on with"),
        });
        if self.keeps {
            lines.push("photos were decoded for this; once they are kept (`cache`) batches are made faster".into());
        }
        lines.join("\n") + "\n"
    }
}

/// Milliseconds or seconds where they are few, else hours and minutes.
pub fn took(seconds: f64) -> String {
    match seconds {
        ..0.1 => format!("{} ms", figure(seconds * 1e3, 2, 8)),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..60.0 => format!("{seconds:.1} s"),
        _ => duration(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::language::sections::EvalEvery;

    fn times() -> Times {
        let timed = |steps, samples, seconds, waited| Timed { steps, samples, seconds, waited };
        let run = Horizon {
            epochs: 3,
            counted: ("epoch", 3),
            samples: 1000,
            val_samples: 200,
            eval_every: EvalEvery::Epochs(1),
            steps: 30,
            step_samples: 100,
            may_stop_early: false,
        };
        Times { train: timed(5, 500, 2.0, 0.1), eval: Some(timed(2, 100, 0.5, 0.0)), run, keeps: false }
    }

    #[test]
    fn the_parts_add_up() {
        let times = times();
        // 250 samples a second in training, 200 in evaluation.
        assert_eq!((times.epoch(), times.evaluation(), times.whole()), (4.0, Some(1.0), Some(15.0)));
        let json = times.as_json();
        assert_eq!((json["step_ms"].as_f64(), json["run_s"].as_f64()), (Some(400.0), Some(15.0)));
        assert_eq!((json["evaluations"].as_u64(), json["waits_for"].as_str()), (Some(3), Some("device")));
        let text = times.as_text("CPU");
        assert!(
            text.starts_with("time on CPU, from 5 steps\n") && text.contains("30 steps and 3 evaluations"),
            "{text}"
        );
    }

    #[test]
    fn what_training_waits_for_is_told() {
        let mut times = times();
        times.train.waited = 1.0;
        assert_eq!(times.waits_for(), "data");
        assert!(times.as_text("CPU").contains("waits for its data: 50 %"));
        times = Times { eval: None, run: Horizon { val_samples: 0, ..times.run }, ..times };
        assert_eq!((times.whole(), times.evaluation()), (Some(12.0), None));
        assert!(!times.as_text("CPU").contains("evaluation"));
        assert_eq!(times.as_json()["evaluations"], 0);
    }
}
