//! Errors about files, with the key that names each.

use std::fmt;

/// What is wrong with such a file.
#[derive(Debug)]
pub struct WrongFile {
    /// The key that names it.
    pub key: &'static str,
    pub(super) error: anyhow::Error,
}

impl WrongFile {
    /// An error of the file that `key` names.
    pub(super) fn of(key: &'static str) -> impl Fn(anyhow::Error) -> anyhow::Error {
        move |error| WrongFile { key, error }.into()
    }
}

impl fmt::Display for WrongFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for WrongFile {}
