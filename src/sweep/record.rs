//! `sweep.json`: which trials a folder holds, and which of them have failed.

use crate::files::{self, durable};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// The file, in the folder of a sweep.
pub const FILE: &str = "sweep.json";
/// The folder of the trials.
pub const TRIALS: &str = "trials";
/// More than any sweep writes.
const MOST: u64 = 256 << 20;

/// What is kept of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The trials, the first first.
    pub trials: Vec<Kept>,
}

/// What is kept of a trial; its run's folder has the rest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What it assigns.
    pub values: Map<String, Value>,
    /// A fingerprint of its whole configuration.
    pub config: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Record {
    /// What is in the folder of a sweep; `None` if no sweep was begun there.
    ///
    /// # Errors
    /// The file cannot be read, or is none of a sweep.
    pub fn read(folder: &Path) -> Result<Option<Record>> {
        let path = folder.join(FILE);
        if !files::is_there(&path) {
            return Ok(None);
        }
        let bytes = files::read(&path, MOST).context("what is known of the sweep")?;
        let record = serde_json::from_slice(&bytes);
        record.map(Some).with_context(|| format!("`{}` is not what a sweep has written", path.display()))
    }

    /// Writes it, so that the old one or the new one is there at any instant.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        durable::write(&path, text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(())
    }

    /// Takes over what is known of the same trials; the number of the first trial that is another one, if there is one.
    pub fn take_over(&mut self, before: &Record) -> Option<usize> {
        for (i, (now, was)) in self.trials.iter_mut().zip(&before.trials).enumerate() {
            if now.config != was.config {
                return Some(i + 1);
            }
            now.failed.clone_from(&was.failed);
        }
        // What a longer sweep has left is not forgotten.
        self.trials.extend(before.trials.iter().skip(self.trials.len()).cloned());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(config: &str) -> Kept {
        Kept { config: config.into(), ..Kept::default() }
    }

    #[test]
    fn known_trials_are_taken_over_and_a_changed_one_is_named() {
        let failed = Kept { failed: Some("why".into()), ..kept("b") };
        let before = Record { trials: vec![kept("a"), failed.clone(), kept("c")] };
        let mut longer = Record { trials: ["a", "b", "c", "d"].map(kept).to_vec() };
        assert_eq!(longer.take_over(&before), None);
        assert_eq!(longer.trials[1], failed);
        let mut shorter = Record { trials: ["a", "b"].map(kept).to_vec() };
        assert_eq!(shorter.take_over(&before), None);
        assert_eq!(shorter, before);
        let mut other = Record { trials: ["a", "x"].map(kept).to_vec() };
        assert_eq!(other.take_over(&before), Some(2));
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(folder.path()).unwrap(), None);
        let record = Record { trials: vec![kept("a")] };
        record.write(folder.path()).unwrap();
        assert_eq!(Record::read(folder.path()).unwrap(), Some(record));
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Record::read(folder.path()).unwrap_err().to_string().contains("sweep.json"));
    }
}
