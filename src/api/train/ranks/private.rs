//! Where ranks of this machine meet that are given no place: a folder that no other user can read or put anything into.

use crate::api::failure::Failure;
#[cfg(unix)]
use anyhow::anyhow;
use std::path::PathBuf;

/// A folder that this user alone can read, among the temporary files of all.
///
/// # Errors
/// There is something else in its place.
pub fn private_folder() -> Result<PathBuf, Failure> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt};
        // SAFETY: a plain call.
        let user = unsafe { libc::geteuid() };
        let path = std::env::temp_dir().join(format!("runner-{user}"));
        let cannot = |why: String| {
            Failure::Other(anyhow!(
                "ranks cannot meet in the folder `{}`: {why}\nhelp: set `RUNNER_RENDEZVOUS` to the name of a file in a folder that no other user \
                 can write to, the same for all ranks",
                path.display()
            ))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(cannot(e.to_string())),
            _ => {}
        }
        // Not what a link leads to.
        let found = std::fs::symlink_metadata(&path).map_err(|e| cannot(e.to_string()))?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            return Err(cannot("it is none that this user alone can read".into()));
        }
        Ok(path)
    }
    #[cfg(not(unix))]
    Ok(std::env::temp_dir())
}
