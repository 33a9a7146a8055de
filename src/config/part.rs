//! A table that is read as one or more plain structs, all its problems at once.

use serde::de::DeserializeOwned;

use super::de::{Reason, from_table};
use super::diagnostics::{Diagnostic, Span};
use super::sink::{Sink, did_you_mean, list, nearest, plain};
use super::tagged::Tagged;
use super::tree::{Node, Table};
use super::values::Pair;
use super::words;

/// The largest size of anything that a layer makes: sums and products of sizes stay far from overflow.
pub const MAX_SIZE: usize = 1 << 24;

/// A rule for the values of a struct that types cannot express.
pub trait Check {
    /// Reports what is out of range or in conflict; by default nothing is.
    fn check(&self, _: &Part) {}
}

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

impl Part<'_> {
    /// Reads the keys that `T` has. Every bad value is reported, not only the first; `None` if there was any.
    pub fn read<T: DeserializeOwned + Check>(&self) -> Option<T> {
        let mut bad = self.bad.to_vec();
        loop {
            let error = match from_table::<T>(self.table, &bad) {
                Ok(value) if bad.is_empty() => {
                    let before = self.sink.len();
                    value.check(self);
                    return (self.sink.len() == before).then_some(value);
                }
                Ok(_) => return None,
                Err(error) => error,
            };
            if let Reason::Missing(key) = error.reason
                && error.key.is_none()
                && bad.iter().any(|known| known == key)
            {
                // It is there, but bad, which has been said.
                return None;
            }
            let next = error.key.clone();
            self.report(error);
            match next {
                Some(key) if !bad.contains(&key) => bad.push(key),
                _ => return None,
            }
        }
    }

    fn report(&self, error: super::de::Error) {
        let span = error.span.unwrap_or(self.span);
        let key = error.key.as_deref();
        let of = |what: &str| match key {
            Some(key) => format!("{what} for `{key}` in {}", self.what),
            None => format!("{what} in {}", self.what),
        };
        let diagnostic = match &error.reason {
            Reason::Missing(missing) if key.is_none() && self.sink.has_suggested(missing, self.table) => return,
            Reason::Missing(missing) => {
                let who = key.map_or(self.what.to_owned(), |key| format!("`{key}` in {}", self.what));
                Diagnostic::error(format!("{who} needs `{missing}`")).at(span, format!("`{missing}` is missing"))
            }
            Reason::Variant(word, known) => {
                with_choices(Diagnostic::error(of("wrong value")), self.what, span, word, known)
            }
            Reason::Unknown(word, known) => unknown_key(word, &of(""), span, known),
            Reason::Message(message) => Diagnostic::error(of("wrong value")).at(span, message.as_str()),
        };
        self.sink.push(diagnostic);
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
                self.sink.push(unknown_key(&entry.key, &format!(" in {}", self.what), entry.key_span, &known));
            }
        }
    }

    /// The place of a key's value, or of the whole table if it is not written.
    pub fn span_of(&self, key: &str) -> Span {
        self.table.get(key).map_or(self.span, |node| node.span)
    }

    /// Reports the value of a key unless it keeps a rule: "must be at least 1".
    pub fn require(&self, key: &str, holds: bool, rule: &str) {
        if !holds {
            let message = format!("`{key}` in {} is out of range", self.what);
            self.sink.push(Diagnostic::error(message).at(self.span_of(key), rule));
        }
    }

    /// A size from 1 to [`MAX_SIZE`].
    pub fn require_size(&self, key: &str, size: usize) {
        self.require(key, size >= 1, "must be at least 1");
        self.require(key, size <= MAX_SIZE, "must be at most 16777216");
    }

    /// Both sides from 1 to [`MAX_SIZE`].
    pub fn require_sides(&self, key: &str, sides: Pair) {
        sides.0.iter().for_each(|&side| self.require_size(key, side));
    }

    /// Both sides at most [`MAX_SIZE`].
    pub fn require_padding(&self, key: &str, sides: Pair) {
        self.require(key, sides.0.iter().all(|&side| side <= MAX_SIZE), "must be at most 16777216");
    }

    /// A number that is finite and not negative.
    pub fn require_not_negative(&self, key: &str, number: f64) {
        self.require(key, number.is_finite() && number >= 0.0, "must be a finite number of at least 0");
    }

    /// A number that is finite and above zero.
    pub fn require_positive(&self, key: &str, number: f64) {
        self.require(key, number.is_finite() && number > 0.0, "must be a finite number above 0");
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
        let there = |key: &str| self.table.get(key).is_some() || self.sink.has_suggested(key, self.table);
        if !there(a) && !there(b) {
            self.sink.push(
                Diagnostic::error(format!("{} needs `{a}` or `{b}`", self.what)).at(self.span, "neither is there"),
            );
        }
    }

    /// Reads the word that tells what kind of table this is.
    pub fn word<T: Tagged>(&self, default: Option<&'static str>) -> Option<&'static str> {
        let Some(node) = self.table.get(T::TAG) else {
            if default.is_none() && !self.sink.has_suggested(T::TAG, self.table) {
                self.sink.push(
                    Diagnostic::error(format!("{} needs `{}`", self.what, T::TAG))
                        .at(self.span, format!("`{}` is missing", T::TAG))
                        .help(format!("it may be {}", list(T::TYPES.iter().copied(), "or"))),
                );
            }
            return default;
        };
        known_word(node, T::TAG, self.what, T::TYPES, self.sink)
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

/// An error for a key that nobody reads; `place` is ` in …`.
pub fn unknown_key(key: &str, place: &str, span: Span, known: &[&str]) -> Diagnostic {
    let error = Diagnostic::error(format!("unknown key `{}`{place}", shorten(key)));
    let what = place.strip_prefix(" in ").unwrap_or_default();
    let same = known.iter().copied().find(|known| plain(known) == plain(key));
    let remark = words::remark(what, key).or_else(|| same.is_none().then(|| words::elsewhere(what, key))?);
    if let Some(remark) = remark {
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

/// A name for a message, cut if it is long, on one line.
pub fn shorten(name: &str) -> String {
    let mut short: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    if name.chars().count() > 40 {
        short.push('…');
    }
    short
}
