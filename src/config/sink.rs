//! Where problems are collected, so that all of a file's are reported at once.

use std::cell::RefCell;

use super::diagnostics::{Diagnostic, Label, Severity};
use super::tree::Table;
use super::words;

/// More than this helps nobody.
const LIMIT: usize = 200;

/// A list of problems that everybody who reads a configuration adds to.
#[derive(Debug, Default)]
pub struct Sink {
    list: RefCell<Vec<Diagnostic>>,
}

impl Sink {
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

/// The known word that was probably meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Quadratic in the length: a long word is no slip of the pen.
    if word.len() > 64 {
        return None;
    }
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(known) = words::translation(word, &known) {
        return Some(known);
    }
    if words::has_no_counterpart(word) {
        return None;
    }
    let score = |candidate: &str| {
        let close = strsim::jaro_winkler(&plain(word), &plain(candidate));
        let edits = strsim::damerau_levenshtein(&plain(word), &plain(candidate));
        (edits * 3 <= word.len().max(candidate.len()) || close > 0.88).then_some((edits, -close))
    };
    known
        .into_iter()
        .filter_map(|candidate| Some((score(candidate)?, candidate)))
        .min_by(|a, b| a.0.0.cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)))
        .map(|(_, candidate)| candidate)
}

/// Small letters without `_` and `-`: what remains where styles of writing differ.
pub fn plain(word: &str) -> String {
    word.to_lowercase().replace(['_', '-'], "")
}

/// `` `a`, `b` and `c` ``, with another word for "and".
pub fn list<'a>(words: impl IntoIterator<Item = &'a str>, and: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {and} {last}", rest.join(", ")),
    }
}

/// What is said at an unknown word.
pub fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}
