//! The file through which ranks of one job find the first one: where it listens, and the secret of the job.

use super::handshake::Secret;
use crate::files;
#[cfg(unix)]
use anyhow::ensure;
use anyhow::{Context, Result, anyhow};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Longest that such a file is, in bytes.
const MOST: u64 = 4 << 10;

/// The file, as long as the first rank listens.
pub struct Announced<'a>(&'a Path);

impl Announced<'_> {
    /// Writes it, for this user alone. `secret` is the text of the secret, if it is not known otherwise.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new<'a>(path: &'a Path, at: SocketAddr, secret: Option<&str>) -> Result<Announced<'a>> {
        let part = path.with_extension(format!("part-{}", std::process::id()));
        let mut options = OpenOptions::new();
        // Never through a link that another user has put there.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let text = format!("{at}\n{}\n", secret.unwrap_or_default());
        options
            .open(&part)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("rank 0 cannot say in `{}` where it listens", path.display()))?;
        Ok(Announced(path))
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // It leads nowhere from now on; what is left does no harm.
        fs::remove_file(self.0).ok();
    }
}

/// Where the first rank listens, and the secret of the job if it is there. Never waits for the file.
///
/// # Errors
/// It is not there, is no file, or none that this user alone may have written.
pub fn read(path: &Path) -> Result<(SocketAddr, Option<Secret>)> {
    let opened = files::open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // SAFETY: a plain call.
        let own = unsafe { libc::geteuid() };
        ensure!(opened.metadata.uid() == own, "`{}` belongs to another user", path.display());
        ensure!(opened.metadata.mode() & 0o002 == 0, "`{}` may be written by any user", path.display());
    }
    let mut text = String::new();
    opened.file.take(MOST).read_to_string(&mut text).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut lines = text.lines();
    let at = lines.next().and_then(|at| at.trim().parse().ok());
    let at = at.ok_or_else(|| anyhow!("`{}` does not say where rank 0 listens", path.display()))?;
    Ok((at, lines.next().filter(|secret| !secret.is_empty()).map(Secret::of)))
}
