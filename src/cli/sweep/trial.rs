//! What is known of each trial, from its run's folder and from what it tells while it is at work.

use crate::runs::figure::higher_is_better;
use crate::runs::folder::is_run;
use crate::runs::lines::{Line, Wanted, number, within};
use crate::runs::{Run, State};
use crate::sweep::Course;
use crate::sweep::course::Better;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A trial.
pub struct Trial {
    /// Its run's folder.
    pub folder: PathBuf,
    /// How it has gone.
    pub course: Course,
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
        Trial { folder, course: Course::default(), seconds: BTreeMap::new(), failed: None, early: None }
    }

    /// Takes in what the folder says, and forgets all else. `all` is the epochs of the whole run.
    ///
    /// # Errors
    /// Its metrics cannot be read.
    pub fn look(&mut self, monitor: &str, all: u64) -> Result<()> {
        self.course = Course::default();
        self.seconds.clear();
        self.early = None;
        if !is_run(&self.folder) {
            return Ok(());
        }
        let run = Run::read(&self.folder, Wanted::Epochs)?;
        let whole = matches!(run.state, State::Finished | State::Failed);
        for line in &run.lines.epochs {
            let epoch = line.get("epoch").and_then(serde_json::Value::as_u64).unwrap_or(0);
            // What lies behind the newest checkpoint will be done again.
            if whole || epoch <= run.epochs {
                self.take(line, monitor);
            }
        }
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
        if let Some(value) = number(line, monitor) {
            // Of several evaluations in an epoch the best one counts.
            let better = if higher_is_better(monitor) { Better::Higher } else { Better::Lower };
            let known = self.course.values.entry(epoch).or_insert(value);
            if better.is(value, *known) {
                *known = value;
            }
        }
        if let Some(seconds) = number(line, "seconds").filter(|seconds| seconds.is_finite()) {
            self.seconds.insert(epoch, seconds);
        }
        if !within(line) {
            self.course.epochs = self.course.epochs.max(epoch);
        }
    }
}
