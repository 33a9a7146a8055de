//! The ways in which an operation can go wrong.

use crate::operation::Operation;
use libc::{EACCES, EINTR, EIO, EMFILE, ENOLCK, ENOMEM, ENOSPC, EROFS};
use std::fmt;

/// What happens to one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It fails, and has done nothing.
    Error(i32),
    /// It fails, and was done all the same.
    Late(i32),
    /// It and all later ones that take room fail.
    Full,
    /// It and all later ones that change anything fail.
    ReadOnly,
    /// It and all later ones fail.
    Dead,
    /// Half of it is done, and said to be.
    Short,
    /// It takes a while.
    Slow,
    /// Ctrl-C just before.
    Signal,
    /// The process ends just before.
    Kill,
    /// The process ends in the middle of a write.
    Torn,
}

impl Fault {
    /// As `preload.c` takes it, for the operation `n`.
    pub fn for_preload(self, n: usize) -> String {
        let (kind, errno) = match self {
            Fault::Error(e) => ("error", e),
            Fault::Late(e) => ("late", e),
            Fault::Full => ("full", ENOSPC),
            Fault::ReadOnly => ("readonly", EROFS),
            Fault::Dead => ("dead", EIO),
            Fault::Short => ("short", 0),
            Fault::Slow => ("slow", 0),
            Fault::Signal => ("signal", 0),
            Fault::Kill => ("kill", 0),
            Fault::Torn => ("torn", 0),
        };
        format!("{n}:{kind}:{errno}")
    }

    /// The error that the program sees, if it sees one.
    pub fn errno(self) -> Option<i32> {
        match self {
            Fault::Error(e) | Fault::Late(e) => Some(e),
            Fault::Full => Some(ENOSPC),
            Fault::ReadOnly => Some(EROFS),
            Fault::Dead => Some(EIO),
            _ => None,
        }
    }

    /// A program that does as the manual says does not notice it.
    pub fn is_harmless(self) -> bool {
        matches!(self, Fault::Short | Fault::Slow | Fault::Error(EINTR))
    }

    /// The process ends by it.
    pub fn kills(self) -> bool {
        matches!(self, Fault::Kill | Fault::Torn)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error(e) => write!(f, "{}", name(*e)),
            Fault::Late(e) => write!(f, "{} though done", name(*e)),
            other => write!(f, "{other:?}"),
        }
    }
}

fn name(errno: i32) -> &'static str {
    match errno {
        EACCES => "EACCES",
        EINTR => "EINTR",
        EIO => "EIO",
        EMFILE => "EMFILE",
        ENOLCK => "ENOLCK",
        ENOMEM => "ENOMEM",
        ENOSPC => "ENOSPC",
        EROFS => "EROFS",
        _ => "?",
    }
}

/// What can happen to an operation, by the manual of each.
pub fn of(operation: &Operation) -> Vec<Fault> {
    use Fault::{Dead, Error, Full, Kill, Late, ReadOnly, Short, Signal, Slow, Torn};
    let own: &[Fault] = match operation.name.as_str() {
        "open" if operation.opens_to_write() => {
            &[Error(EIO), Error(ENOSPC), Error(EROFS), Error(EINTR), Full, ReadOnly]
        }
        "open" => &[Error(EIO), Error(EACCES), Error(EMFILE), Error(EINTR)],
        "opendir" => &[Error(EIO), Error(EACCES)],
        "stat" => &[Error(EIO), Error(EACCES)],
        "readdir" | "realpath" => &[Error(EIO)],
        "read" => &[Error(EIO), Error(EINTR), Short],
        "write" => &[Error(EIO), Error(ENOSPC), Error(EINTR), Late(EIO), Full, ReadOnly, Short, Torn],
        // A copy in the kernel is done in pieces; nothing says how many.
        "copy" => &[Error(EIO), Error(ENOSPC), Full, Short],
        "fsync" => &[Error(EIO), Error(ENOSPC), Error(EINTR)],
        "rename" => &[Error(EIO), Error(ENOSPC), Error(EROFS), Late(EIO), ReadOnly],
        "link" | "symlink" => &[Error(EIO), Error(ENOSPC), Late(EIO)],
        "unlink" | "rmdir" => &[Error(EIO), Error(EROFS), Late(EIO), ReadOnly],
        "mkdir" => &[Error(EIO), Error(ENOSPC), Error(EROFS), Late(EIO), Full],
        "truncate" | "allocate" => &[Error(EIO), Error(EINTR), Error(ENOSPC)],
        "mmap" => &[Error(ENOMEM)],
        "lock" => &[Error(ENOLCK), Error(EIO)],
        // Closed it is in any case.
        "close" => &[Late(EIO)],
        other => panic!("faults of `{other}` are not known"),
    };
    own.iter().copied().chain([Dead, Kill, Signal, Slow]).collect()
}
