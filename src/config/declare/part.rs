//! A table that is read as one or more plain structs, all its problems at once.

use super::de::Reason;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::spelling::{did_you_mean, list, plain, shorten};
use crate::config::text::tree::{Entry, Node, Table, Value};
use crate::config::text::words::{self, nearest};

/// A table, and how to speak of it.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The keys and values.
    pub table: &'a Table,
    /// What to point at if a key is missing.
    pub span: Span,
    /// What it is in messages: `` layer `conv2d` ``, `` `[data]` ``.
    pub what: &'a str,
    /// Keys whose values are bad, which has been said.
    pub bad: &'a [String],
    /// Where problems go.
    pub sink: &'a Sink,
}

impl<'a> Part<'a> {
    /// The value of a key. If it is missing, the value of a misspelt key that was reported with this one as its suggestion: so its value is
    /// checked, too.
    pub fn node(&self, key: &str) -> Option<&'a Node> {
        self.table.get(key).or_else(|| Some(&self.sink.suggested(key, self.table)?.node))
    }

    /// Reports a value that serde could not read.
    pub fn report(&self, key: &str, node: &Node, error: super::de::Error) {
        let span = error.span.unwrap_or(node.span);
        let wrong = Diagnostic::error(format!("wrong value for `{key}` in {}", self.what));
        self.sink.push(match &error.reason {
            Reason::Variant(word, known) => with_choices(wrong, self.what, span, word, known),
            Reason::Message(message) => wrong.at(span, message.as_str()),
        });
    }

    /// Reports a value of another type: `expected` is "expected a list".
    pub fn wrong_value(&self, key: &str, node: &Node, expected: &str) {
        self.sink.push(
            Diagnostic::error(format!("wrong value for `{key}` in {}", self.what))
                .at(node.span, format!("{expected}, found {}", node.describe())),
        );
    }

    /// Whether a missing key is to be reported: not if a misspelt one was taken for it, or if it may be in a file that cannot be read.
    pub fn is_missed(&self, key: &str) -> bool {
        !self.sink.has_suggested(key, self.table) && !self.sink.has_lost(Lost::Base)
    }

    /// Reports a key that must be there, unless another one was taken for it.
    pub fn missing(&self, key: &str, example: Option<&str>) {
        if !self.is_missed(key) {
            return;
        }
        let error = Diagnostic::error(format!("{} needs `{key}`", self.what));
        let error = error.at(self.span, format!("`{key}` is missing"));
        self.sink.push(match example {
            Some(toml) => error.help(format!("for example `{key} = {toml}`")),
            None => error,
        });
    }

    /// Reports a value at a place that breaks a rule: "must be at least 1".
    pub fn out_of_range(&self, key: &str, span: Span, rule: &str) {
        self.sink.push(Diagnostic::error(format!("`{key}` in {} is out of range", self.what)).at(span, rule));
    }

    /// Reports the keys that are in none of the lists.
    pub fn known_keys(&self, lists: &[&[&str]]) {
        self.known_keys_among(lists, &[]);
    }

    /// The same where other keys, already taken out of the table, could have been meant.
    pub fn known_keys_among(&self, lists: &[&[&str]], taken: &[&str]) {
        let known: Vec<&str> =
            lists.iter().flat_map(|list| list.iter().copied()).chain(taken.iter().copied()).collect();
        for entry in &self.table.entries {
            if !known.contains(&entry.key.as_str()) {
                self.sink.push(self.unknown_key(entry, &known));
            }
        }
    }

    /// The error for a key that is not read.
    pub fn unknown_key(&self, entry: &Entry, known: &[&str]) -> Diagnostic {
        let remarked = words::remark(self.what, &entry.key).is_some();
        let same = known.iter().any(|known| plain(known) == plain(&entry.key));
        let elsewhere = if remarked || same { None } else { self.sink.elsewhere(self.what, &entry.key) };
        let error = Diagnostic::error(format!("unknown key `{}` in {}", shorten(&entry.key), self.what));
        match elsewhere {
            Some(text) => error.at(entry.key_span, text),
            None => match self.sink.nearly(self.what, &entry.key) {
                Some(text) if !remarked && nearest(&entry.key, known.iter().copied()).is_none() => {
                    error.at(entry.key_span, text)
                }
                _ => with_keys(error, self.what, entry.key_span, &entry.key, known),
            },
        }
    }

    /// The place of a key's value, or of the whole table if it is not written.
    pub fn span_of(&self, key: &str) -> Span {
        self.table.get(key).map_or(self.span, |node| node.span)
    }

    /// Reports the value of a key unless it keeps a rule that its declaration cannot say: "must be rising numbers".
    pub fn require(&self, key: &str, holds: bool, rule: &str) {
        if holds {
            return;
        }
        // Only numbers have a range.
        let is_number = |node: &Node| matches!(node.value, Value::Integer(_) | Value::Float(_));
        let numbers =
            |node: &Node| node.as_array().map_or_else(|| is_number(node), |items| items.iter().all(is_number));
        if self.table.get(key).is_none_or(numbers) {
            self.out_of_range(key, self.span_of(key), rule);
        } else {
            let error = Diagnostic::error(format!("wrong value for `{key}` in {}", self.what));
            self.sink.push(error.at(self.span_of(key), rule));
        }
    }

    /// Reports two keys that exclude each other, if both are there.
    pub fn conflict(&self, a: &str, b: &str, why: &str) {
        if let (Some(first), Some(second)) = (self.table.entry(a), self.table.entry(b)) {
            self.sink.push(
                Diagnostic::error(format!("`{a}` and `{b}` in {} exclude each other", self.what))
                    .at(second.key_span, why)
                    .context(first.key_span, ""),
            );
        }
    }

    /// Reports a table that has none of the keys, of which it needs one.
    pub fn one_of(&self, a: &str, b: &str) {
        let missed = |key: &str| self.table.get(key).is_none() && self.is_missed(key);
        if missed(a) && missed(b) {
            self.sink.push(
                Diagnostic::error(format!("{} needs `{a}` or `{b}`", self.what)).at(self.span, "neither is there"),
            );
        }
    }
}

/// Reads a word that must be one of a list; `key` is what it is called in messages, `what` the table around it.
pub fn known_word<'w>(node: &Node, key: &str, what: &str, known: &[&'w str], sink: &Sink) -> Option<&'w str> {
    let Some(word) = node.as_str() else {
        let text = format!("expected a string, found {}", node.describe());
        sink.push(Diagnostic::error(format!("wrong value for `{key}` in {what}")).at(node.span, text));
        return None;
    };
    let found = known.iter().copied().find(|known| *known == word);
    if found.is_none() {
        let error = Diagnostic::error(format!("unknown {key} `{}` in {what}", shorten(word)));
        sink.push(with_choices(error, what, node.span, word, known));
    }
    found
}

/// An error for a parameter that is set and not there; `why` follows its name: ``: block `b` has no such parameter``.
pub fn unknown_parameter(key: &str, why: &str, span: Span, known: &[&str]) -> Diagnostic {
    let error = Diagnostic::error(format!("unknown key `{}`{why}", shorten(key)));
    with_keys(error, "", span, key, known)
}

/// Points at a key that is not known, with what there is to be said of it, the nearest one that is, or all of them; `what` is the
/// table around it.
fn with_keys(error: Diagnostic, what: &str, span: Span, key: &str, known: &[&str]) -> Diagnostic {
    if let Some(remark) = words::remark(what, key) {
        return error.at(span, remark);
    }
    match nearest(key, known.iter().copied()) {
        Some(near) => error.at(span, did_you_mean(near)),
        None if known.is_empty() => error.at(span, "takes no keys"),
        None => error.at(span, "no such key").help(format!("the keys are {}", list(known.iter().copied(), "and"))),
    }
}

/// Points at a word that is not known, with the nearest one that is.
pub fn with_suggestion(error: Diagnostic, span: Span, otherwise: &str, word: &str, known: &[&str]) -> Diagnostic {
    match nearest(word, known.iter().copied()) {
        Some(near) => error.at(span, did_you_mean(near)),
        None => error.at(span, otherwise),
    }
}

/// The same, or else all words that it may be; `what` is the table around it.
fn with_choices(error: Diagnostic, what: &str, span: Span, word: &str, known: &[&str]) -> Diagnostic {
    if let Some(remark) = words::remark(what, word) {
        return error.at(span, remark);
    }
    match nearest(word, known.iter().copied()) {
        Some(near) => error.at(span, did_you_mean(near)),
        None => error.at(span, "no such word").help(format!("it may be {}", list(known.iter().copied(), "or"))),
    }
}
