//! Files. Reading untrusted files: data sets, weights, images, configurations from elsewhere; and in
//! [`durable`] and [`output`], writing that never leaves half a file. [`contained`] runs decoders of dependencies.
//!
//! A name may stand for a folder, a pipe without a writer, or a device without an end. Nothing here waits for
//! another program when it is read, and nothing takes more memory than its caller allows: what is opened is a regular file, whose size
//! is known.

pub mod caches;
mod contained;
pub mod durable;
pub mod glob;
pub mod host_memory;
pub mod kind;
mod lines;
pub mod output;
pub mod pattern;
mod unfinished;

use crate::system;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use contained::{Contained, contained};
pub use lines::{Line, Lines};

/// A regular file that is open.
#[derive(Debug)]
pub struct Opened {
    /// The file, at its begin.
    pub file: File,
    /// Its size in bytes when it was opened.
    pub size: u64,
    /// What the system knew of it then.
    pub metadata: Metadata,
}

/// A file that was not read.
#[derive(Debug)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub problem: Problem,
}

/// Why a file was not read.
#[derive(Debug)]
pub enum Problem {
    /// The operating system refused.
    Io(io::Error),
    /// It is something else than a file: what.
    NotAFile(&'static str),
    /// It holds more than its reader takes.
    TooLarge {
        /// Bytes that it holds, as far as that is known.
        bytes: u64,
        /// Bytes that would have been taken.
        limit: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Io(e) => write!(f, "{e}"),
            Problem::NotAFile(what) => write!(f, "it is {what}, not a file"),
            Problem::TooLarge { bytes, limit } => write!(f, "it holds {bytes} bytes, and at most {limit} are read"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::NotAFile(what) => write!(f, "`{}` is {what}, not a file", self.path.display()),
            other => write!(f, "cannot read `{}`: {other}", self.path.display()),
        }
    }
}

// No `source`: the messages have the reason in full, and would say it twice.
impl std::error::Error for Error {}
impl std::error::Error for Problem {}

impl From<io::Error> for Problem {
    fn from(e: io::Error) -> Self {
        Problem::Io(e)
    }
}

impl Error {
    fn new(path: &Path, problem: impl Into<Problem>) -> Self {
        Error { path: path.to_owned(), problem: problem.into() }
    }
}

/// Whether there is something of that name. A name that cannot be examined counts as there: the error of opening it gives the
/// reason, and it is not taken for missing.
pub fn is_there(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(_) => true,
        // A pattern is no name on Windows.
        Err(e) => {
            let is_pattern = cfg!(windows) && e.kind() == io::ErrorKind::InvalidFilename;
            !is_pattern && !names_nothing(&e)
        }
    }
}

/// Whether the system says that there is nothing of a name.
pub fn names_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether an error is that a file to be read is not there.
pub fn is_missing(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let problem = cause.downcast_ref().or_else(|| cause.downcast_ref().map(|e: &Error| &e.problem));
        cause.is::<pattern::Missing>() || matches!(problem, Some(Problem::Io(e)) if names_nothing(e))
    })
}

/// Opens a regular file, or a link to one. Never waits, whatever the name stands for.
///
/// # Errors
/// It is not there, may not be read, or is no regular file.
pub fn open(path: &Path) -> Result<Opened, Error> {
    // Looked at before it is opened: to open a device may already do something.
    let check = |metadata: Metadata| match what_else(&metadata) {
        Some(what) => Err(Error::new(path, Problem::NotAFile(what))),
        None => Ok(metadata),
    };
    check(uninterrupted(|| fs::metadata(path)).map_err(|e| Error::new(path, e))?)?;
    let mut options = File::options();
    options.read(true);
    // The name may stand for something else by now; a pipe would make the opening wait for its other end.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|e| Error::new(path, e))?;
    let metadata = check(uninterrupted(|| file.metadata()).map_err(|e| Error::new(path, e))?)?;
    Ok(Opened { file, size: metadata.len(), metadata })
}

/// The content of a file of at most `limit` bytes, and of no more than the machine has memory for.
///
/// # Errors
/// As [`open`]; it is larger, or breaks off.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    read_into(path, limit, &mut bytes)?;
    Ok(bytes)
}

/// As [`read`], into memory that is there already, whose content is lost.
///
/// # Errors
/// As [`read`].
pub fn read_into(path: &Path, limit: u64, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let opened = open(path)?;
    let limit = limit.min(machine_memory());
    let too_large = |bytes| Error::new(path, Problem::TooLarge { bytes, limit });
    if opened.size > limit {
        return Err(too_large(opened.size));
    }
    bytes.clear();
    let expected = usize::try_from(opened.size).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(expected).is_err() {
        return Err(Error::new(path, io::Error::from(io::ErrorKind::OutOfMemory)));
    }
    // One byte more than is allowed shows that the file has grown.
    opened.file.take(limit.saturating_add(1)).read_to_end(bytes).map_err(|e| Error::new(path, e))?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(())
}

/// Fills `out` with what the file holds from byte `offset` on. Where the file is at does not matter; on some systems it is another
/// afterwards.
///
/// # Errors
/// It cannot be read, or ends before.
pub fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, out, offset);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < out.len() {
            let read = uninterrupted(|| {
                std::os::windows::fs::FileExt::seek_read(file, &mut out[done..], offset + done as u64)
            })?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }
}

/// Asks again where only a signal kept it from being answered, which some network file systems do.
pub fn uninterrupted<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match ask() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// What stands at a place where a file is expected, if it is none.
fn what_else(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return None;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
    }
    Some(if kind.is_dir() { "a folder" } else { "something else" })
}

/// Bytes of memory that this machine has; as many as can be addressed where that is not known.
pub fn machine_memory() -> u64 {
    // It is asked for with every file, and the system adds much up for the answer.
    static TOTAL: OnceLock<u64> = OnceLock::new();
    *TOTAL.get_or_init(|| system::memory().map_or(isize::MAX as u64, |memory| memory.total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [7; 10]).unwrap();
        assert_eq!(read(&path, 10).unwrap(), [7; 10]);
        assert_eq!(open(&path).unwrap().size, 10);
        let error = read(&path, 9).unwrap_err().to_string();
        assert!(error.contains("holds 10 bytes, and at most 9") && error.contains("`"), "{error}");
        let missing = open(&dir.path().join("b")).unwrap_err();
        assert!(matches!(&missing.problem, Problem::Io(e) if e.kind() == io::ErrorKind::NotFound), "{missing}");
    }

    #[test]
    fn what_is_no_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(dir.path(), 10).unwrap_err().to_string();
        assert_eq!(error, format!("`{}` is a folder, not a file", dir.path().display()));
    }

    /// A sparse file claims much and takes nothing on the disk.
    #[test]
    fn more_than_the_machine_can_hold_is_refused_unread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = File::create(&path).unwrap();
        // Not every file system takes files of this size.
        if file.set_len(1 << 43).is_err() || machine_memory() > 1 << 43 {
            eprintln!("skipped: no file of 8 TiB can be made here");
            return;
        }
        let error = read(&path, u64::MAX).unwrap_err();
        assert!(matches!(error.problem, Problem::TooLarge { bytes, .. } if bytes == 1 << 43), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_sockets_and_devices_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string with an end, alive for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe"),
            (&link, "a pipe"),
            (&socket, "a socket"),
            (Path::new("/dev/zero"), "a device"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let error = read(path, 10).unwrap_err();
            assert!(matches!(error.problem, Problem::NotAFile(found) if found == what), "{error}");
        }
        // A link to a file is as good as the file.
        let file = dir.path().join("file");
        fs::write(&file, "abc").unwrap();
        let link = dir.path().join("link to a file");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 10).unwrap(), b"abc");
    }
}
