//! Where problems are collected, so that all of a file's are reported at once.

use std::cell::{Cell, RefCell};

use super::diagnostics::{Diagnostic, Severity, Span};
use super::spelling::did_you_mean;
use super::tree::{Entry, Table};

/// The most problems that are kept: more are of no use.
const LIMIT: usize = 200;

/// What the language knows of keys that a place (`` `[data]` ``) does not have.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// Where a key belongs: `` is a key of `[train]` ``.
    pub belongs: fn(place: &str, key: &str) -> Option<String>,
    /// The key of the same section, but of another type, that a misspelt one was probably meant for.
    pub nearly: fn(place: &str, key: &str) -> Option<String>,
}

/// A part of a configuration that cannot be read, so that nothing is known of what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The file in `extends`: what is missing may be there.
    Base,
    /// The file in `use`.
    Model,
    /// Layers: there are too many, and the model is cut off.
    Layers,
}

/// The list of problems to which each reader of a part of a configuration adds.
#[derive(Debug, Default)]
pub struct Sink {
    list: RefCell<Vec<Diagnostic>>,
    /// How many errors were added, repeated ones included.
    refusals: Cell<usize>,
    lost: RefCell<Vec<Lost>>,
    /// Those who read a table know only their own keys.
    elsewhere: Option<Elsewhere>,
}

impl Sink {
    /// An empty one, for messages that also say where a misplaced key belongs.
    pub fn new(elsewhere: Elsewhere) -> Self {
        Self { elsewhere: Some(elsewhere), ..Self::default() }
    }

    /// Where a key belongs that does not belong into this place.
    pub fn elsewhere(&self, place: &str, key: &str) -> Option<String> {
        self.elsewhere.and_then(|elsewhere| (elsewhere.belongs)(place, key))
    }

    /// What a misspelt key was probably meant for, if that is a key of another type of this section.
    pub fn nearly(&self, place: &str, key: &str) -> Option<String> {
        self.elsewhere.and_then(|elsewhere| (elsewhere.nearly)(place, key))
    }

    /// Adds a problem, unless the same is there with the same place: blocks are read at every use.
    pub fn push(&self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.refusals.set(self.refusals.get() + 1);
        }
        let mut list = self.list.borrow_mut();
        let known = list.iter().any(|d| d.message == diagnostic.message && d.span() == diagnostic.span());
        if !known && list.len() < LIMIT {
            list.push(diagnostic);
        }
    }

    /// The key of a table that was reported, and taken for `key`: then `key` need not be missed as well, and its value is that one's.
    pub fn suggested<'t>(&self, key: &str, table: &'t Table) -> Option<&'t Entry> {
        let list = self.list.borrow();
        let mut unknown = list.iter().flat_map(|problem| &problem.labels).peekable();
        unknown.peek()?;
        let text = did_you_mean(key);
        let spans: Vec<Span> = unknown.filter(|label| label.text == text).map(|label| label.span).collect();
        table.entries.iter().find(|entry| spans.contains(&entry.key_span))
    }

    /// Whether there is one.
    pub fn has_suggested(&self, key: &str, table: &Table) -> bool {
        self.suggested(key, table).is_some()
    }

    /// Whether anything but warnings was added.
    pub fn has_errors(&self) -> bool {
        self.list.borrow().iter().any(|d| d.severity == Severity::Error)
    }

    /// How many errors were added so far: where more of them come, something is wrong with what was read in between.
    pub fn refusals(&self) -> usize {
        self.refusals.get()
    }

    /// Notes that a part cannot be read, which was reported: mistakes that follow from that are not.
    pub fn lose(&self, part: Lost) {
        if !self.has_lost(part) {
            self.lost.borrow_mut().push(part);
        }
    }

    /// Whether that part cannot be read.
    pub fn has_lost(&self, part: Lost) -> bool {
        self.lost.borrow().contains(&part)
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
