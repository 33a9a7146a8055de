//! Whether two names lead to one file or one folder.

use anyhow::{Context, Result};
use std::fs::{self, Metadata};
use std::path::Path;

/// What a folder or a file is, whatever way leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity(#[cfg(unix)] (u64, u64), #[cfg(not(unix))] std::path::PathBuf);

impl Identity {
    /// That of a folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(folder: &Path) -> Result<Self> {
        fs::metadata(folder)
            .and_then(|metadata| Self::by(folder, &metadata))
            .with_context(|| format!("cannot read the folder `{}`", folder.display()))
    }

    /// By what the system says of it.
    ///
    /// # Errors
    /// There is no way to it.
    #[cfg(unix)]
    pub fn by(_: &Path, metadata: &Metadata) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        Ok(Identity((metadata.dev(), metadata.ino())))
    }

    #[cfg(not(unix))]
    pub fn by(path: &Path, _: &Metadata) -> std::io::Result<Self> {
        Ok(Identity(fs::canonicalize(path)?))
    }
}
