//! Errors about columns that the configuration names.

use std::fmt;

/// A column that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongColumn {
    /// The key that names it; empty: any that has the name.
    pub key: &'static str,
    /// Its name, or the pattern that should fit it.
    pub name: String,
    /// What is wrong with it, in a few words for the place where it is named.
    pub label: String,
}

/// What is wrong with such columns.
#[derive(Debug)]
pub struct WrongColumns {
    /// All of them: one at least.
    pub all: Vec<WrongColumn>,
    message: String,
}

impl WrongColumns {
    /// An error of some columns.
    pub(super) fn new(all: Vec<WrongColumn>, message: String) -> Self {
        WrongColumns { all, message }
    }

    /// An error of the column, or the pattern, that `key` names.
    pub(super) fn of(key: &'static str, name: &str, label: &str, message: String) -> Self {
        WrongColumns { all: vec![WrongColumn { key, name: name.to_owned(), label: label.to_owned() }], message }
    }
}

impl fmt::Display for WrongColumns {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WrongColumns {}
