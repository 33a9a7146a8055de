//! What a run takes along that goes on in another folder than that of its checkpoint: what it had written until then.

use super::super::failure::Failure;
use super::best::known_best;
use crate::files::{self, durable};
use crate::train::files::folder::{Folder, file};
use crate::train::files::state::RunState;
use anyhow::{Context, Result};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The folder of a checkpoint from which a run goes on in another folder.
#[derive(Debug)]
pub struct Past(PathBuf);

impl Past {
    /// Where a run in `folder` goes on from `checkpoint`: the checkpoint's own folder, if it is another one. A run that has saved something in `folder`
    /// has its own past there.
    pub fn of(checkpoint: &Path, folder: &Path) -> Option<Past> {
        let own = durable::folder_of(checkpoint);
        let same = match (own.canonicalize(), folder.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => own == folder,
        };
        (!same && !folder.join(file::LAST).is_file()).then(|| Past(own.to_owned()))
    }

    /// Copies the lines of the metrics that the state counts on, and the best checkpoint, where it is still the one that the state knows of.
    ///
    /// # Errors
    /// A file cannot be read, or not be written.
    pub fn copy(&self, folder: &Folder, state: &RunState) -> Result<(), Failure> {
        self.file(folder, file::METRICS, state.extra.metrics_bytes)?;
        let Some(known) = &state.best else { return Ok(()) };
        // The copy is looked at: a run that is at work there may replace the file meanwhile.
        self.file(folder, file::BEST, u64::MAX)?;
        let copy = folder.file(file::BEST);
        if known_best(&copy, known)?.is_none() {
            durable::remove(&copy).with_context(|| format!("cannot remove `{}`", copy.display()))?;
        }
        Ok(())
    }

    fn file(&self, folder: &Folder, name: &str, most: u64) -> Result<()> {
        let (from, to) = (self.0.join(name), folder.file(name));
        if !files::is_there(&from) {
            return Ok(());
        }
        let opened = files::open(&from)
            .map_err(|error| anyhow::anyhow!("cannot read `{}`: {}", from.display(), error.problem))?;
        durable::replace(&to, |file| io::copy(&mut opened.file.take(most), file).map(drop))
            .with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))
    }
}
