//! What a run says of samples that cannot be read: a line of the metrics for each, when the run first comes to it, a warning at
//! the end of the epoch, and how many they were at the end of the run.

use super::Run;
use crate::data::Unreadable;
use crate::train::files::metrics_file::unreadable_line;
use anyhow::Result;

impl Run<'_> {
    /// Takes note of those that a training batch has met.
    pub(super) fn note_unreadable(&mut self, met: &[Unreadable]) -> Result<()> {
        for sample in self.state.extra.unreadable.note(met, self.samples.train.len())? {
            let line = unreadable_line(sample);
            self.metrics.write(&line)?;
            self.reporter.record(&line);
        }
        Ok(())
    }

    /// Writes down those of an evaluation, which has noted all but the first `before`.
    pub(super) fn note_unreadable_in_evaluation(&mut self, before: usize) -> Result<()> {
        for sample in &self.state.extra.val_unreadable.list()[before..] {
            let line = unreadable_line(sample);
            self.metrics.write(&line)?;
            self.reporter.record(&line);
        }
        Ok(())
    }

    /// How many there were in the whole run; `None` if there were none.
    pub fn unreadable_in_all(&self) -> Option<String> {
        let extra = &self.state.extra;
        let counts = [
            (extra.unreadable.list().len(), self.samples.train.len(), "training"),
            (extra.val_unreadable.list().len(), self.samples.val.len(), "validation"),
        ];
        let parts: Vec<String> =
            counts.iter().filter(|(n, ..)| *n > 0).map(|(n, of, what)| format!("{n} of {of} {what} samples")).collect();
        let named = "`metrics.jsonl` names them";
        (!parts.is_empty()).then(|| format!("{} could not be read; {named}", parts.join(" and ")))
    }
}
