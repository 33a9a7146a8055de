//! Where values were written, by their dotted keys, and problems at these places.

use std::collections::BTreeMap;

use super::diagnostics::{Diagnostic, Span};
use super::sink::Sink;

/// Dotted keys and the places of their values. Keys that are not there have their defaults.
#[derive(Debug, Clone, Default)]
pub struct Origins(pub BTreeMap<String, Span>);

impl Origins {
    /// Where the value of a dotted key (`optimizer.lr`, `data.transforms.0.mean`, `train`) was written; `None` for a
    /// default.
    pub fn span_of(&self, key: &str) -> Option<Span> {
        self.0.get(key).copied()
    }

    /// The place of a key or, where it was not written, of the section around it: there is always something to
    /// point at unless a whole section was left out.
    pub fn nearest_span(&self, key: &str) -> Option<Span> {
        let mut key = key;
        loop {
            match (self.span_of(key), key.rfind('.')) {
                (Some(span), _) => return Some(span),
                (None, Some(dot)) => key = &key[..dot],
                (None, None) => return None,
            }
        }
    }
}

/// Reports values that do not fit together, at the places of dotted keys.
pub struct Reporter<'a> {
    /// Where the keys are.
    pub origins: &'a Origins,
    /// Where problems go.
    pub sink: &'a Sink,
    /// Sections, and keys beside them, that could not be read. Something stands in for them, so rules do not report on them.
    pub unread: &'a [&'static str],
}

impl Reporter<'_> {
    /// Whether a key is of something that was read.
    pub fn is_read(&self, key: &str) -> bool {
        !self.unread.contains(&key.split('.').next().unwrap_or(key))
    }

    /// A problem of one key.
    pub fn at_key(&self, diagnostic: Diagnostic, key: &str, text: &str) {
        if !self.is_read(key) {
            return;
        }
        self.sink.push(match self.origins.nearest_span(key) {
            Some(span) => diagnostic.at(span, text),
            None => diagnostic,
        });
    }

    /// A problem of a key, because of another one.
    pub fn at_keys(&self, diagnostic: Diagnostic, key: &str, text: &str, other: &str, context: &str) {
        if !self.is_read(key) || !self.is_read(other) {
            return;
        }
        let mut diagnostic = diagnostic;
        if let Some(span) = self.origins.nearest_span(key) {
            diagnostic = diagnostic.at(span, text);
        }
        if let Some(span) = self.origins.nearest_span(other) {
            diagnostic = diagnostic.context(span, context);
        }
        self.sink.push(diagnostic);
    }
}
