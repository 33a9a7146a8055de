//! The folder of a run, as a run finds it and leaves it.

use super::super::failure::Failure;
use super::super::members::Members;
use super::super::model::read_files;
use super::request::Request;
use crate::config::{Experiment, Loaded};
use crate::files::durable;
use crate::terminal::say;
use crate::train::files::folder::{Folder, InUse, Replaces, Taken, file, is_run_file};
use crate::train::files::state::RunState;
use crate::train::run::report::Reporter;
use anyhow::{Context, Result};
use std::path::Path;
use tempfile::TempDir;

/// What is wrong with a run's folder: another's being there is a matter of the command line.
pub fn in_folder(error: anyhow::Error) -> Failure {
    if error.is::<InUse>() || error.is::<Taken>() { Failure::Usage(error.to_string()) } else { error.into() }
}

/// What the new run may find in its folder.
pub fn replaces(request: &Request) -> Replaces {
    let members = |out: &Path| Members::of(out).is_ok_and(|members| members.is_some());
    match request.replace {
        true if request.out.as_deref().is_some_and(members) => Replaces::Runs,
        true => Replaces::Run,
        false => Replaces::Nothing,
    }
}

/// Refuses to replace a run of which the new one reads a file.
///
/// # Errors
/// It reads one.
pub fn expect_not_read(request: &Request, loaded: &Loaded) -> Result<(), Failure> {
    let Some(folder) = request.out.as_deref().filter(|_| request.replace).and_then(|out| out.canonicalize().ok())
    else {
        return Ok(());
    };
    let of_run = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.parent() == Some(&folder) && name.is_some_and(is_run_file)
    };
    let read = read_files(loaded).into_iter().find(|path| path.canonicalize().is_ok_and(|path| of_run(&path)));
    match read {
        Some(path) => Err(Failure::Usage(format!(
            "the new run reads `{}`, a file of the run that it would replace\nhelp: move that file to another folder, or choose another folder \
             with --out",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The folder of a new run, which must not hold another one unless that may be replaced.
pub fn new_folder(request: &Request, name: &str, reporter: &Reporter) -> Result<Folder, Failure> {
    let mut folder = Folder::new(request.out.as_deref(), name, replaces(request)).map_err(in_folder)?;
    report_lock(&mut folder, reporter);
    Ok(folder)
}

/// Warns of a folder that cannot be locked.
pub fn report_lock(folder: &mut Folder, reporter: &Reporter) {
    if let Some(warning) = folder.unlocked() {
        reporter.warn(&warning);
    }
}

/// Takes the folder of a run back to where its state is.
pub fn go_back(folder: &Folder, state: &RunState, experiment: &Experiment, reporter: &Reporter) -> Result<(), Failure> {
    folder.remove_unfinished()?;
    let removed = folder.remove_later(state.epoch, state.batch)?;
    if !removed.is_empty() {
        reporter.warn(&format!("removed what the run had saved later: {}", removed.join(", ")));
    }
    if experiment.checkpoint.every_steps.is_some() {
        // The run may have been killed between writing one and removing another.
        folder.prune(experiment.checkpoint.keep)?;
    }
    let batch = experiment.batches_of(state.batch);
    let at = format!("epoch {}, batch {batch}, step {}", state.epoch + 1, state.step);
    reporter.info(&format!("resumed at {at}"));
    Ok(())
}

/// The text of `config.toml`: a note on the samples before the configuration.
pub fn with_note(effective: &str, note: Option<&str>) -> String {
    let header = note.iter().flat_map(|n| n.lines()).map(|l| format!("# {l}\n")).collect::<String>();
    format!("{header}{effective}")
}

/// Writes `config.toml`.
///
/// # Errors
/// The disk is full, or the like.
pub fn write_config(folder: &Folder, text: &str) -> Result<(), Failure> {
    let path = folder.file(file::CONFIG);
    durable::write(&path, text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(())
}

/// A folder for the files of a dry run. It is removed when this is dropped, also after an error.
pub fn temporary() -> Result<TempDir> {
    let parent = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix("runner-dry-run-").tempdir_in(&parent);
    made.with_context(|| {
        format!("cannot make a folder in `{}` for a dry run (TMPDIR names another place)", parent.display())
    })
}

/// Removes the folder; says if that cannot be done.
pub fn remove(folder: TempDir) {
    let path = folder.path().to_path_buf();
    if let Err(e) = folder.close() {
        say(&format!("warning: cannot remove `{}`, which a dry run has made: {e}", path.display()));
    }
}
