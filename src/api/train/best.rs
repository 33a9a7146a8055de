//! The best checkpoint of a run that goes on with another configuration.

use super::super::failure::Failure;
use crate::checkpoint::{self, Best, Meta, Reason};
use crate::config::language::sections::Monitor;
use crate::runs::figure::loss_beside;
use crate::runs::lines::{Lines, Wanted, number};
use crate::train::files::folder::{Folder, file};
use crate::train::files::state::RunState;
use crate::train::run::report::Reporter;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::path::Path;

/// The best checkpoint at `path`, if it is the one that a state knows of; `None` if it is another, damaged, or not there.
///
/// # Errors
/// The file is there, and the system does not let it be read.
pub fn known_best(path: &Path, known: &Best) -> Result<Option<Meta>> {
    match checkpoint::verify(path) {
        Ok(meta) => Ok(Some(meta).filter(|meta| meta.best.as_ref() == Some(known))),
        Err(error) => match &error.reason {
            Reason::Io(e) if e.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(None),
        },
    }
}

/// Settles what `best` is from here on. Where another figure is watched, the state in its file is judged by that, as the run has measured it: a later
/// one takes its place only if it is better. Where the file is another's than the state knows of, a later evaluation has taken its place before; then the
/// best is chosen anew.
///
/// # Errors
/// The metrics of the run, or its best checkpoint, cannot be read.
pub fn settle_best(
    folder: &Folder,
    state: &mut RunState,
    monitor: &Monitor,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let Some(known) = &state.best else { return Ok(()) };
    let Some(kept) = known_best(&folder.file(file::BEST), known)? else {
        reporter.warn(&format!(
            "`{}` is not there any more as the checkpoint knows it, with `{}` {}: the best is chosen anew from here on",
            file::BEST,
            known.monitor,
            known.value
        ));
        (state.best, state.extra.best_loss, state.extra.best_from) = (None, None, state.step);
        return Ok(());
    };
    if known.monitor == monitor.name() {
        return Ok(());
    }
    let lines = Lines::read(&folder.file(file::METRICS), Wanted::Epochs).context("the metrics of the run")?;
    let at = lines.epochs.iter().find(|line| number(line, "step") == Some(kept.step as f64));
    let figure = |name: &str| at.and_then(|line| number(line, name)).filter(|value| value.is_finite());
    if let Some(value) = figure(monitor.name()) {
        state.best = Some(Best { monitor: monitor.name().to_owned(), value });
        state.extra.best_loss = loss_beside(monitor.name()).and_then(|name| figure(&name));
        state.extra.best_from = state.step;
    }
    Ok(())
}
