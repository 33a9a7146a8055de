//! `check --time`: the time that a run will take, from some steps of it on its data and its device.

use crate::api::failure::Failure;
use crate::api::model::build_run;
use crate::api::samples;
use crate::backend::Backend;
use crate::config::language::sections::Cache;
use crate::config::{self, Diagnostic, Loaded};
use crate::passes::PassOptions;
use crate::terminal::{Bar, duration, figure, human_bytes, say, thousands};
use crate::train::run::pace::{Horizon, Pace, Place};
use crate::train::run::timing::{Saved, Timed, time_evaluation, time_saving, time_training};
use crate::train::setup::balance::balance;
use crate::train::setup::session::Session;
use anyhow::Context;
use serde_json::{Value, json};
use std::path::Path;

/// From this share of the time on, training counts as waiting for its data.
const WAITS: f64 = 0.2;

/// What a run takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    /// The updates that were measured.
    train: Timed,
    /// The batches of an evaluation; `None`: there is nothing to validate on.
    eval: Option<Timed>,
    /// A checkpoint, or why none could be written.
    saved: Result<Saved, String>,
    /// Checkpoints that the run writes.
    checkpoints: u64,
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
    balance(&mut balanced.experiment, &samples.train, &samples.spec);
    let experiment = &balanced.experiment;
    let programs = build_run(&balanced, &samples.spec, backend, passes, known)?;
    let mut session = Session::new(programs, backend, crate::model::task(experiment), experiment.seed)?;
    let bar = Bar::new("measuring", 3, 0);
    let train = time_training(&mut session, backend, experiment, &samples.train)?;
    if let Some(bar) = &bar {
        bar.set(1);
    }
    let eval = match samples.val.is_empty() {
        true => None,
        false => Some(time_evaluation(&mut session, backend, experiment, &samples.val)?),
    };
    if let Some(bar) = &bar {
        bar.set(2);
    }
    let saved = checkpoint(&mut session, &balanced).map_err(|e| format!("{e:#}"));
    let run = Horizon::new(experiment, samples.train.len(), samples.val.len());
    let checkpoints = run.checkpoints(experiment.checkpoint.every_steps);
    let keeps = experiment.data.loading.cache != Cache::None;
    Ok(Times { train, eval, saved, checkpoints, run, keeps })
}

/// Times the writing of a checkpoint on the disk that the run is to be on. It is gone afterwards.
fn checkpoint(session: &mut Session, loaded: &Loaded) -> anyhow::Result<Saved> {
    let runs = Path::new("runs").join(&loaded.experiment.name);
    let place = runs.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    let folder = tempfile::Builder::new().prefix(".runner-check-").tempdir_in(place);
    let folder = folder.with_context(|| format!("cannot write in `{}`", place.display()))?;
    let saved = time_saving(session, &loaded.experiment, &config::to_toml(loaded), folder.path());
    let path = folder.path().to_path_buf();
    folder.close().with_context(|| format!("cannot remove `{}`", path.display()))?;
    saved
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

    /// Seconds of the whole run, if nothing ends it early; without the writing of checkpoints, if that could not be measured.
    fn whole(&self) -> Option<f64> {
        let of = |timed: &Timed| (timed.samples, timed.seconds);
        let pace = Pace { trained: of(&self.train), evaluated: self.eval.as_ref().map_or((0, 0.0), of), between: 0.0 };
        let saving = self.saved.as_ref().map_or(0.0, |saved| saved.seconds * self.checkpoints as f64);
        Some(pace.left(&self.run, &Place::default())? + saving)
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
            "checkpoint_s": self.saved.as_ref().ok().map(|saved| saved.seconds),
            "checkpoint_bytes": self.saved.as_ref().ok().map(|saved| saved.bytes),
            "checkpoints": self.checkpoints,
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
        let of = thousands(self.run.samples);
        line("an epoch", took(self.epoch()), format!("{of} samples"));
        if let Some(seconds) = self.evaluation() {
            line("an evaluation", took(seconds), format!("{} samples", thousands(self.run.val_samples)));
        }
        match &self.saved {
            Ok(Saved { seconds, bytes }) => {
                let size = human_bytes(usize::try_from(*bytes).unwrap_or(usize::MAX));
                line("a checkpoint", took(*seconds), format!("{size}; as much again for one that is the best so far"));
            }
            Err(why) => line("a checkpoint", "-".into(), why.clone()),
        }
        if let Some(seconds) = self.whole() {
            let most = if self.run.may_stop_early { "at most; " } else { "" };
            let evaluations = match self.eval {
                Some(_) => format!(" and {}", count(self.run.evaluations(), "evaluation")),
                None => String::new(),
            };
            let all = count(self.run.steps, "step");
            let writing = match &self.saved {
                Ok(_) => format!("and {}", count(self.checkpoints, "checkpoint")),
                Err(_) => "without writing checkpoints".into(),
            };
            line("the run", took(seconds), format!("{most}{all}{evaluations}, {writing}"));
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
        let saved = Ok(Saved { seconds: 0.5, bytes: 3 << 20 });
        Times {
            train: timed(5, 500, 2.0, 0.1),
            eval: Some(timed(2, 100, 0.5, 0.0)),
            saved,
            checkpoints: 3,
            run,
            keeps: false,
        }
    }

    #[test]
    fn the_parts_add_up() {
        let times = times();
        // 250 samples a second in training, 200 in evaluation, three checkpoints of half a second.
        assert_eq!((times.epoch(), times.evaluation(), times.whole()), (4.0, Some(1.0), Some(16.5)));
        let json = times.as_json();
        assert_eq!((json["step_ms"].as_f64(), json["run_s"].as_f64()), (Some(400.0), Some(16.5)));
        assert_eq!((json["evaluations"].as_u64(), json["waits_for"].as_str()), (Some(3), Some("device")));
        assert_eq!((json["checkpoint_s"].as_f64(), json["checkpoints"].as_u64()), (Some(0.5), Some(3)));
        let text = times.as_text("CPU");
        for part in
            ["time on CPU, from 5 steps\n", "30 steps and 3 evaluations, and 3 checkpoints\n", "500 ms  3.0 MiB;"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_is_in_the_report() {
        let times = Times { saved: Err("cannot write in `runs`: no".into()), ..times() };
        assert_eq!((times.whole(), &times.as_json()["checkpoint_s"]), (Some(15.0), &Value::Null));
        let text = times.as_text("CPU");
        assert!(text.contains("-  cannot write in `runs`") && text.contains("without writing checkpoints"), "{text}");
    }

    #[test]
    fn the_report_says_what_training_waits_for() {
        let mut times = times();
        times.train.waited = 1.0;
        assert_eq!(times.waits_for(), "data");
        assert!(times.as_text("CPU").contains("waits for its data: 50 %"));
        times = Times { eval: None, run: Horizon { val_samples: 0, ..times.run }, ..times };
        assert_eq!((times.whole(), times.evaluation()), (Some(13.5), None));
        assert!(!times.as_text("CPU").contains("evaluation"));
        assert_eq!(times.as_json()["evaluations"], 0);
    }
}
