//! Where problems are collected, so that all of a file's are reported at once.

use std::cell::RefCell;

use super::diagnostics::{Diagnostic, Label, Severity};
use super::spelling::did_you_mean;
use super::tree::Table;

/// More than this helps nobody.
const LIMIT: usize = 200;

/// What the language knows of keys that a place (`` `[data]` ``) does not have.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// Where a key belongs: `` is a key of `[train]` ``.
    pub belongs: fn(place: &str, key: &str) -> Option<String>,
    /// The key of the same section, but of another type, that a misspelt one was probably meant for.
    pub nearly: fn(place: &str, key: &str) -> Option<String>,
}

/// A list of problems that everybody who reads a configuration adds to.
#[derive(Debug, Default)]
pub struct Sink {
    list: RefCell<Vec<Diagnostic>>,
    /// Those who read a table know only their own keys.
    elsewhere: Option<Elsewhere>,
}

impl Sink {
    /// An empty one, for messages that also say where a misplaced key belongs.
    pub fn new(elsewhere: Elsewhere) -> Self {
        Self { list: RefCell::default(), elsewhere: Some(elsewhere) }
    }

    /// Where a key belongs that does not belong into this place.
    pub fn elsewhere(&self, place: &str, key: &str) -> Option<String> {
        self.elsewhere.and_then(|elsewhere| (elsewhere.belongs)(place, key))
    }

    /// What a misspelt key was probably meant for, if that is a key of another type of this section.
    pub fn nearly(&self, place: &str, key: &str) -> Option<String> {
        self.elsewhere.and_then(|elsewhere| (elsewhere.nearly)(place, key))
    }

    /// Adds a problem, unless the same has been told of the same place: blocks are read at every use.
    pub fn push(&self, diagnostic: Diagnostic) {
        let mut list = self.list.borrow_mut();
        let known = list.iter().any(|d| d.message == diagnostic.message && d.span() == diagnostic.span());
        if !known && list.len() < LIMIT {
            list.push(diagnostic);
        }
    }

    /// Whether one of the keys of a table was reported, and taken for `key`: then `key` need not be missed as well.
    pub fn has_suggested(&self, key: &str, table: &Table) -> bool {
        let text = did_you_mean(key);
        let concerns = |label: &Label| label.text == text && table.entries.iter().any(|e| e.key_span == label.span);
        self.list.borrow().iter().any(|d| d.labels.iter().any(concerns))
    }

    /// Whether anything but warnings was added.
    pub fn has_errors(&self) -> bool {
        self.list.borrow().iter().any(|d| d.severity == Severity::Error)
    }

    /// How many of the problems are more than warnings.
    pub fn errors(&self) -> usize {
        self.list.borrow().iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// How many problems there are.
    pub fn len(&self) -> usize {
        self.list.borrow().len()
    }

    /// Changes the problems that were added since there were `from`.
    pub fn amend(&self, from: usize, change: impl Fn(&mut Diagnostic)) {
        self.list.borrow_mut().iter_mut().skip(from).for_each(change);
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.list.into_inner()
    }
}
