//! The file through which ranks of one job find the first one: where it listens, and the secret of the job.

use super::handshake::Secret;
use crate::failure::SettingError;
use crate::files;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Longest that such a file is, in bytes.
const MOST: u64 = 4 << 10;

/// The file, as long as the first rank listens: its name and its text.
pub struct Announced<'a>(&'a Path, String);

impl Announced<'_> {
    /// Writes it, for this user alone, in the place of one that an earlier job has left. `secret` is the text of the secret, if it is not known otherwise.
    ///
    /// # Errors
    /// It cannot be written; a [`SettingError`] if another file is there.
    pub fn new<'a>(path: &'a Path, at: SocketAddr, secret: Option<&str>) -> Result<Announced<'a>> {
        expect_free(path)?;
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
        Ok(Announced(path, text))
    }
}

/// Refuses a place in which there is something that no rank has written.
fn expect_free(path: &Path) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    if there.is_file()
        && there.len() <= MOST
        && fs::read(path).is_ok_and(|text| parse(&text).is_some() || text.is_empty())
    {
        return Ok(());
    }
    bail!(other_file(path))
}

fn other_file(path: &Path) -> SettingError {
    SettingError(format!(
        "ranks cannot meet through `{}`: it is there, and no rank has written it\nhelp: set `RUNNER_RENDEZVOUS` to a name that is free, the same for \
         all ranks; they make the file, and remove it",
        path.display()
    ))
}

/// What such a file says: where the first rank listens, and the secret, if it is there.
fn parse(text: &[u8]) -> Option<(SocketAddr, &str)> {
    let mut lines = str::from_utf8(text).ok()?.lines();
    let (at, secret) = (lines.next()?.parse().ok()?, lines.next().unwrap_or_default());
    lines.next().is_none().then_some((at, secret))
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // It leads nowhere from now on; what is left does no harm. Another file may be in its place.
        if fs::read_to_string(self.0).is_ok_and(|text| text == self.1) {
            fs::remove_file(self.0).ok();
        }
    }
}

/// Where the first rank listens, and the secret of the job if it is there. Never waits for the file.
///
/// # Errors
/// It is not there, is no file, or none that this user alone may have written; a [`SettingError`] if no rank has written it.
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
    let mut text = Vec::new();
    opened.file.take(MOST).read_to_end(&mut text).with_context(|| format!("cannot read `{}`", path.display()))?;
    ensure!(!text.is_empty(), "`{}` does not say yet where rank 0 listens", path.display());
    let (at, secret) = parse(&text).ok_or_else(|| other_file(path))?;
    Ok((at, Some(secret).filter(|secret| !secret.is_empty()).map(Secret::of)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> SocketAddr {
        ([127, 0, 0, 1], 29500).into()
    }

    #[test]
    fn it_is_there_as_long_as_the_first_rank_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("at");
        // As `mktemp` makes one; one of an earlier job; one that knows no secret.
        for left in ["", "127.0.0.1:1\n0123456789abcdef\n", "127.0.0.1:1\n\n"] {
            fs::write(&path, left).unwrap();
            let announced = Announced::new(&path, at(), Some("a secret of the job")).unwrap();
            let (place, secret) = read(&path).unwrap();
            assert!(place == at() && secret == Some(Secret::of("a secret of the job")));
            drop(announced);
            assert!(!path.exists());
        }
        // What has come into its place stays.
        let announced = Announced::new(&path, at(), None).unwrap();
        fs::write(&path, "mine").unwrap();
        drop(announced);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn what_no_rank_has_written_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.csv");
        let refused = |text: &str| {
            let errors = [Announced::new(&path, at(), None).map(drop), read(&path).map(drop)].map(Result::unwrap_err);
            let words = errors.iter().map(|error| error.to_string()).collect::<Vec<_>>();
            assert!(errors.iter().all(|error| error.is::<SettingError>()), "{words:?}");
            assert!(words.iter().all(|words| words.contains("mine.csv`: it is there")), "{words:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        };
        for text in ["important\n1,2,3\n", "127.0.0.1:1\na\nb\n", "127.0.0.1\n"] {
            fs::write(&path, text).unwrap();
            refused(text);
        }
    }

    /// Not even where it leads to such a file.
    #[cfg(unix)]
    #[test]
    fn a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, "127.0.0.1:1\n\n").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Announced::new(&path, at(), None).map(drop).unwrap_err().is::<SettingError>());
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink() && fs::read(&target).is_ok());
    }
}
