//! What is known of each trial, from its run's folder and from its messages while it is at work.

use crate::runs::figure::{higher_is_better, loss_beside};
use crate::runs::folder::is_run;
use crate::runs::lines::{Line, Wanted, number, within};
use crate::runs::{Run, State};
use crate::sweep::Course;
use crate::sweep::course::{Better, Measured};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A trial.
pub struct Trial {
    /// Its run's folder.
    pub folder: PathBuf,
    /// How it has gone.
    pub course: Course,
    /// Updates that are done.
    pub step: u64,
    /// Of each epoch that has a value, the updates after which it had the best one.
    pub best_steps: BTreeMap<u64, u64>,
    /// Seconds of each epoch.
    pub seconds: BTreeMap<u64, f64>,
    /// Why it failed.
    pub failed: Option<String>,
    /// Why it is whole before its epochs are done.
    pub early: Option<String>,
}

impl Trial {
    /// A trial that is in that folder, if anything is there yet.
    pub fn new(folder: PathBuf) -> Trial {
        let (course, seconds, best_steps) = (Course::default(), BTreeMap::new(), BTreeMap::new());
        Trial { folder, course, step: 0, best_steps, seconds, failed: None, early: None }
    }

    /// Takes in what the folder says, and forgets all else. `all` is the epochs of the whole run.
    ///
    /// # Errors
    /// Its metrics cannot be read.
    pub fn look(&mut self, monitor: &str, all: u64) -> Result<()> {
        self.course = Course::default();
        self.step = 0;
        self.best_steps.clear();
        self.seconds.clear();
        self.early = None;
        if !is_run(&self.folder) {
            return Ok(());
        }
        let run = Run::read(&self.folder, Wanted::Epochs)?;
        let whole = matches!(run.state, State::Finished | State::Failed);
        for line in &run.lines.epochs {
            let epoch = line.get("epoch").and_then(serde_json::Value::as_u64).unwrap_or(0);
            // What lies after the newest checkpoint will be done again. An evaluation within an epoch has one of its own.
            if whole || epoch <= run.epochs || within(line) && run.all_steps().is_some() {
                self.take(line, monitor);
            }
        }
        self.step = run.step;
        self.course.epochs = run.epochs;
        self.course.ended = whole;
        match run.state {
            State::Failed => self.failed = self.failed.take().or(run.why),
            State::Finished => self.early = run.why.filter(|_| run.epochs < all),
            _ => {}
        }
        Ok(())
    }

    /// Takes in a line of an epoch, or of an evaluation within one.
    pub fn take(&mut self, line: &Line, monitor: &str) {
        let Some(epoch) = line.get("epoch").and_then(serde_json::Value::as_u64) else { return };
        let step = line.get("step").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if let Some(value) = number(line, monitor) {
            // Of several evaluations in an epoch the best one counts.
            let better = if higher_is_better(monitor) { Better::Higher } else { Better::Lower };
            let loss = loss_beside(monitor).and_then(|beside| number(line, &beside)).filter(|loss| loss.is_finite());
            let measured = Measured { value, loss };
            if self.course.values.get(&epoch).is_none_or(|known| better.is_of(measured, *known)) {
                self.course.values.insert(epoch, measured);
                self.best_steps.insert(epoch, step);
            }
        }
        self.step = self.step.max(step);
        if let Some(seconds) = number(line, "seconds").filter(|seconds| seconds.is_finite()) {
            self.seconds.insert(epoch, seconds);
        }
        if !within(line) {
            self.course.epochs = self.course.epochs.max(epoch);
        }
    }
}
