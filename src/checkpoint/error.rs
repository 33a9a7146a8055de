//! What can be wrong with a checkpoint or a weight file.

use super::pth::PthError;
use crate::files;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be written or read.
#[derive(Debug)]
pub enum Reason {
    /// The operating system refused.
    Io(io::Error),
    /// It is no file, or larger than the machine's memory.
    File(files::Problem),
    /// The file is no safetensors file, or is cut short; the text says how that shows.
    NotSafetensors(String),
    /// A safetensors file whose header contradicts itself; the text says where.
    Header(String),
    /// A whole safetensors file, but not one that this program wrote as a checkpoint.
    NotACheckpoint,
    /// The checksum or the metadata contradict the content.
    Damaged(String),
    /// Written in a later version of the format than this program reads.
    Newer {
        /// The file's version.
        found: u64,
        /// The latest that is read.
        known: u32,
    },
    /// A tensor has an element type that is not read.
    ElementType {
        /// The tensor.
        name: String,
        /// Its type, as the file calls it.
        dtype: String,
    },
    /// A PyTorch file that cannot be read as a state dict.
    Pth(PthError),
    /// None of the formats that are read.
    UnknownFormat,
    /// What was to be written contradicts itself.
    Invalid(String),
}

/// A file and what is wrong with it.
#[derive(Debug)]
pub struct CheckpointError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: Reason,
}

impl CheckpointError {
    pub(super) fn new(path: &Path, reason: impl Into<Reason>) -> Self {
        CheckpointError { path: path.to_owned(), reason: reason.into() }
    }

    /// Whether the file is not there.
    pub fn is_missing(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if files::names_nothing(e))
    }
}

impl From<io::Error> for Reason {
    fn from(e: io::Error) -> Self {
        Reason::Io(e)
    }
}

impl From<files::output::Refusal> for Reason {
    fn from(e: files::output::Refusal) -> Self {
        Reason::Io(io::Error::other(e.in_words()))
    }
}

impl From<files::Error> for Reason {
    fn from(e: files::Error) -> Self {
        match e.problem {
            files::Problem::Io(e) => Reason::Io(e),
            other => Reason::File(other),
        }
    }
}

impl From<PthError> for Reason {
    fn from(e: PthError) -> Self {
        Reason::Pth(e)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Io(e) => write!(f, "{e}"),
            Reason::File(e) => write!(f, "{e}"),
            Reason::NotSafetensors(why) => write!(f, "no safetensors file, or cut short: {why}"),
            Reason::Header(why) => write!(
                f,
                "a safetensors file whose header is wrong: {why}; download or copy it again, or have its author write it anew"
            ),
            Reason::NotACheckpoint => write!(
                f,
                "a safetensors file but not a checkpoint of a run (its metadata lacks the key `runner`); weights alone \
                 can be used as `[model] weights`"
            ),
            Reason::Damaged(why) => write!(f, "the file is damaged: {why}"),
            Reason::Newer { found, known } => write!(
                f,
                "written by a later version of the program (format {found}; this one reads up to {known}): update it"
            ),
            Reason::ElementType { name, dtype } => {
                write!(f, "tensor `{name}` has the element type {dtype}, which is not supported")
            }
            Reason::Pth(e) => write!(f, "{e}"),
            Reason::UnknownFormat => {
                write!(f, "neither a safetensors file nor a PyTorch state dict (`torch.save(model.state_dict(), …)`)")
            }
            Reason::Invalid(why) => write!(f, "{why}"),
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

// No `source`: the message has the reason in full, and would say it twice.
impl std::error::Error for CheckpointError {}
