//! Which files of a folder have been verified before, so that hashing them is not part of every start.
//!
//! A file of that name in the folder remembers what each file looked like to the file system when it was verified. It is
//! believed as long as nothing of that has changed; without it, or where it cannot be written, files are verified again.

use crate::data::known::File;
use crate::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

const NAME: &str = ".verified.json";
/// More is damage.
const MAX_BYTES: u64 = 64 << 10;

/// How a file looks from the outside. A file that is replaced, even by one of the same size and date, has another inode or
/// another time of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Looks {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl Looks {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Option<Looks> {
        use std::os::unix::fs::MetadataExt;
        Some(Looks {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        })
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Option<Looks> {
        let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        let modified = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
        Some(Looks { size: metadata.len(), modified, changed: modified, inode: 0 })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    looks: Looks,
    sha256: String,
}

/// What is remembered of a folder.
pub(super) struct Verified {
    path: PathBuf,
    files: BTreeMap<String, Seen>,
    changed: bool,
}

impl Verified {
    /// The record in the folder; empty if that is not there or not right.
    pub fn of(folder: &Path) -> Self {
        let path = folder.join(NAME);
        let text = files::read(&path, MAX_BYTES).unwrap_or_default();
        Verified { path, files: serde_json::from_slice(&text).unwrap_or_default(), changed: false }
    }

    /// Whether a file that looks like this was found to be `file`.
    pub fn knows(&self, file: &File, metadata: &Metadata) -> bool {
        let seen = self.files.get(file.name).filter(|seen| seen.sha256 == file.sha256);
        seen.is_some_and(|seen| Looks::of(metadata).as_ref() == Some(&seen.looks))
    }

    /// Remembers that a file that looks like this is `file`.
    pub fn add(&mut self, file: &File, metadata: &Metadata) {
        if let Some(looks) = Looks::of(metadata) {
            self.files.insert(file.name.into(), Seen { looks, sha256: file.sha256.into() });
            self.changed = true;
        }
    }

    /// Writes it down, where that can be done.
    pub fn save(&self) {
        if !self.changed {
            return;
        }
        let beside = self.path.with_file_name(format!("{NAME}.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            fs::write(&beside, serde_json::to_vec(&self.files)?)?;
            fs::rename(&beside, &self.path)
        };
        if write().is_err() {
            // Nothing depends on it: the next start hashes again.
            let _ = fs::remove_file(&beside);
        }
    }
}
