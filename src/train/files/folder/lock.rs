//! One run at a time in a folder: a lock that the kernel takes back when its holder ends, however it ends.

use crate::system;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file that is locked. It exists while a run is active, and after one that was killed.
pub const LOCK: &str = ".lock";
/// The most bytes that are read of a holder's description of itself.
const MAX_TEXT: u64 = 1 << 14;
/// How often the file may vanish between being opened and being locked.
const ATTEMPTS: usize = 100;

/// How often a lock is tried, and with which pauses: a process that tests the lock holds it for an instant.
const TRIES: usize = 4;
const BETWEEN: Duration = Duration::from_millis(2);

/// Who holds a lock, as the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub process: u32,
    /// The machine that it runs on; empty if that is not known.
    pub host: String,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// Its command line.
    pub command: String,
}

/// Another process is active in the folder.
#[derive(Debug)]
pub struct InUse {
    /// Its folder.
    pub folder: PathBuf,
    /// Who; `None` if that cannot be read.
    holder: Option<Holder>,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another run is at work in `{}`", self.folder.display())?;
        if let Some(Holder { process, host, since, command }) = &self.holder {
            write!(f, ": process {process}")?;
            if !host.is_empty() {
                write!(f, " on {host}")?;
            }
            write!(f, ", {}: `{command}`", ago(now().saturating_sub(*since)))?;
        }
        write!(f, "\nhelp: wait for it, stop it, or choose another folder with --out")
    }
}

impl std::error::Error for InUse {}

/// Why a folder could not be locked.
#[derive(Debug)]
pub enum Refused {
    /// Another holds the lock.
    InUse(InUse),
    /// The file system has no locks.
    NoLocks(io::Error),
    /// The file cannot be made or written.
    Failed(io::Error),
}

/// A lock on a folder, for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Locks `folder`, which must be there.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(folder: &Path) -> Result<Lock, Refused> {
        let path = folder.join(LOCK);
        for _ in 0..ATTEMPTS {
            let file = open(&path).map_err(Refused::Failed)?;
            match patiently(&file) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Refused::InUse(InUse { folder: folder.to_path_buf(), holder: read(&path) }));
                }
                Err(TryLockError::Error(e)) => {
                    return Err(if has_none(&e) { Refused::NoLocks(e) } else { Refused::Failed(e) });
                }
            }
            // The one before may have removed the file on its way out; the next to come makes a new one.
            if is_at(&file, &path).map_err(Refused::Failed)? {
                let lock = Lock { path, file };
                lock.write_holder().map_err(Refused::Failed)?;
                return Ok(lock);
            }
        }
        Err(Refused::Failed(io::Error::other("the file is replaced again and again")))
    }

    /// Writes down who holds the lock.
    fn write_holder(&self) -> io::Result<()> {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let mut command = words.collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = command.char_indices().nth(500) {
            command.truncate(end);
            command.push('…');
        }
        let holder = Holder { process: std::process::id(), host: host(), since: now(), command };
        self.file.set_len(0)?;
        (&self.file).write_all(serde_json::to_string(&holder)?.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked: a process that has opened it meanwhile sees that it is no longer in its place.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Tries to lock a file, more than once.
fn patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN),
            other => return other,
        }
    }
    file.try_lock()
}

/// Whether a process is at work in `folder`. Nothing is changed there; where it cannot be found out, the answer is no.
pub fn is_held(folder: &Path) -> bool {
    let mut options = OpenOptions::new();
    options.read(true);
    never_elsewhere(&mut options);
    let Ok(file) = options.open(folder.join(LOCK)) else { return false };
    // Others that only look do not see each other. It is given back when the file is closed.
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn read(path: &Path) -> Option<Holder> {
    let mut text = String::new();
    let mut options = OpenOptions::new();
    options.read(true);
    never_elsewhere(&mut options);
    options.open(path).ok()?.take(MAX_TEXT).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Opens the file to be locked, or makes it. A link, which could lead anywhere, is replaced.
fn open(path: &Path) -> io::Result<File> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => fs::remove_file(path)?,
        Ok(meta) if !meta.is_file() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "in the place of the file to lock is something else"));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    never_elsewhere(&mut options);
    options.open(path)
}

/// Whether the open file is the one that has the name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    // An open file cannot be removed there.
    path.try_exists()
}

/// Whether an error says that there is no such thing as a lock.
fn has_none(error: &io::Error) -> bool {
    #[cfg(unix)]
    if matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL)) {
        return true;
    }
    error.kind() == ErrorKind::Unsupported
}

/// Follows no link and waits at no pipe.
pub fn never_elsewhere(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    #[cfg(not(unix))]
    let _ = options;
}

fn host() -> String {
    system::host_name().chars().take(255).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time span as messages show it.
fn ago(seconds: u64) -> String {
    let (n, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("for {n} {unit}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(folder: &Path) -> Result<Lock, Refused> {
        Lock::take(folder)
    }

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = taken(dir.path()).unwrap();
        let Err(Refused::InUse(error)) = taken(dir.path()) else { panic!("it is held") };
        let text = error.to_string();
        assert!(text.contains(&format!("process {}", std::process::id())) && text.contains("--out"), "{text}");
        assert!(is_held(dir.path()));
        drop(first);
        assert!(!dir.path().join(LOCK).exists(), "nothing is left");
        assert!(!is_held(dir.path()));
        drop(taken(dir.path()).unwrap());
    }

    #[test]
    fn the_lock_of_a_killed_run_stops_no_other_run() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK), "{\"process\":1,").unwrap();
        let lock = taken(dir.path()).unwrap();
        assert_eq!(read(&lock.path).unwrap().process, std::process::id());
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_on_a_file_that_is_gone_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let first = taken(dir.path()).unwrap();
        fs::remove_file(&first.path).unwrap();
        let second = taken(dir.path()).unwrap();
        drop(first);
        assert!(second.path.exists(), "it is the second one's");
        assert!(taken(dir.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_its_target_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("mine");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join(LOCK)).unwrap();
        let lock = taken(dir.path()).unwrap();
        assert!(!lock.path.is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        drop(lock);
        fs::create_dir(dir.path().join(LOCK)).unwrap();
        assert!(matches!(taken(dir.path()), Err(Refused::Failed(_))));
    }

    #[test]
    fn times_are_shown_in_their_unit() {
        assert_eq!(
            [1, 59, 60, 7200, 200_000].map(ago).join(", "),
            "for 1 second, for 59 seconds, for 1 minute, for 2 hours, for 2 days"
        );
    }
}
