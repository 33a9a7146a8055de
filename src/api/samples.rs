//! The samples of a model or a run that is there already. A figure stands for the data that the configuration names, and
//! a file from elsewhere shall open no connection: so nothing is downloaded, and no other data taken, unless the
//! command line asks for it.

use super::failure::Failure;
use super::progress::Progress;
use crate::config::declare::tagged::Tagged;
use crate::config::{Experiment, UNSET_OPTION};
use crate::data::{Missing, MissingFiles};
use crate::terminal::say;
use crate::train::setup::input::{self, Samples, Take};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// As the configuration says: for a run that begins.
pub fn as_configured(experiment: &Experiment) -> Take {
    Take::Source(input::source(experiment).1)
}

/// As `sets` say, which lie over the configuration.
pub fn as_asked(experiment: &Experiment, sets: &[String], allow_download: bool) -> Take {
    let (_, configured) = input::source(experiment);
    let download = allow_download || (configured.download && gives(sets, "data.download"));
    Take::Source(Missing {
        download,
        mirrors: if download { configured.mirrors } else { Vec::new() },
        fallback_digits: configured.fallback_digits && gives(sets, "data.fallback"),
    })
}

/// Whether one of them gives a value to `key`, or to the table that it is in.
fn gives(sets: &[String], key: &str) -> bool {
    let values = sets.iter().filter(|set| !set.starts_with(UNSET_OPTION)).filter_map(|set| set.split_once('='));
    values
        .map(|(given, _)| given.trim())
        .any(|given| key == given || key.strip_prefix(given).is_some_and(|rest| rest.starts_with('.')))
}

/// Reads the samples, shows the progress of a download, and reports what the user should know of the files.
///
/// # Errors
/// The files are not there or not right.
pub fn load(experiment: &Experiment, take: &Take) -> anyhow::Result<Samples> {
    let mut progress = Progress::default();
    let samples = input::take(experiment, take, &mut |e| progress.show(e))?;
    let mut heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_new = |note: &String| heard.as_mut().is_none_or(|heard| heard.insert(note.clone()));
    samples.notes.iter().filter(|note| is_new(note)).for_each(|note| say(&format!("note: {note}")));
    Ok(samples)
}

/// The notes that were shown, while [`SaidOnce`] is there.
static HEARD: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// While it is there, [`load`] shows no note twice: for models of the same data that are opened one after the other. It holds for the whole process.
pub struct SaidOnce(());

impl SaidOnce {
    /// Begins with no note shown.
    #[must_use]
    pub fn begin() -> SaidOnce {
        *HEARD.lock().unwrap_or_else(PoisonError::into_inner) = Some(HashSet::new());
        SaidOnce(())
    }
}

impl Drop for SaidOnce {
    fn drop(&mut self) {
        *HEARD.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The failure for samples that could not be read: where it is that their files are not there, with what can be done.
/// `because` says why nothing else was taken for them.
pub fn missing(error: anyhow::Error, experiment: &Experiment, because: &str) -> Failure {
    let Some(files) = error.downcast_ref::<MissingFiles>() else { return error.into() };
    let source = experiment.data.source.type_name();
    let folders: Vec<String> = files.folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
    let root = files.folders.first().map(|folder| folder.display().to_string()).unwrap_or_default();
    Failure::Other(anyhow::anyhow!(
        "the files of `{source}` are not there: {}; looked in {}; {because}\nhelp: name their folder with --set data.root=DIR, \
         download them with --allow-download or `runner data fetch {source} --root {root}`",
        files.files.join(", "),
        folders.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_given_by_itself_or_in_a_table() {
        let sets = ["data = { root = \"x\" }", "train.epochs=1"].map(String::from);
        assert!(gives(&sets, "data.root") && gives(&sets, "train.epochs") && !gives(&sets, "train"));
    }
}
