//! A configuration of which there are trials: it is read once, and each trial lays its own values over it, as `--set` would.

use std::path::Path;

use serde_json::Value as Json;

use super::classes::{Ask, Classes, with_classes};
use super::files::Files;
use super::{Failure, Loaded, name_of, understand};
use crate::config::text::diagnostics::{self, Diagnostic, SourceId, Sources, Span};
use crate::config::text::tree::Table;

/// A value that a trial has in the place of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// The dotted key, as `--set` takes it.
    pub key: String,
    /// The value.
    pub value: Json,
    /// The value as TOML.
    pub toml: String,
    /// The place of the key in `[sweep]`.
    pub key_span: Span,
    /// The place of the value, or of the range that it is from.
    pub span: Span,
}

impl Assigned {
    /// As `--set` takes it.
    pub fn set(&self) -> String {
        format!("{}={}", self.key, self.toml)
    }
}

/// What trials change.
#[derive(Debug)]
pub struct Trials {
    name: String,
    sources: Sources,
    source: SourceId,
    root: Table,
    sets: Vec<String>,
}

impl Trials {
    /// Reads a configuration file and what it extends, with options as for [`super::load()`] and those of a sweep; and what it is
    /// as a whole.
    ///
    /// # Errors
    /// As for [`super::load()`].
    pub fn read(path: &Path, sets: &[String], ask: Ask) -> Result<(Self, Loaded), Failure> {
        let mut files = Files::default();
        let Some((source, root)) = files.read(path) else { return Err(failed(files)) };
        let trials = Self { name: name_of(path), sources: files.sources.clone(), source, root, sets: sets.to_vec() };
        let again = |classes| trials.finish(trials.files(classes), sets, true);
        let loaded = with_classes(&again, ask)?;
        Ok((trials, loaded))
    }

    /// The configuration of a trial. It has no `[sweep]`.
    ///
    /// # Errors
    /// The mistakes that the values cause, at their places in `[sweep]`.
    pub fn load(&self, values: &[Assigned], ask: Ask) -> Result<Loaded, Failure> {
        let sets: Vec<String> = self.sets.iter().cloned().chain(values.iter().map(Assigned::set)).collect();
        let read = |classes| self.finish(self.files(classes), &sets, false);
        let mut loaded = with_classes(&read, ask).map_err(|mut failure| {
            self.place(values, &mut failure.diagnostics);
            failure
        })?;
        self.place(values, &mut loaded.warnings);
        Ok(loaded)
    }

    /// Moves diagnostics of the values of a trial to the places of these values in `[sweep]`.
    pub fn place(&self, values: &[Assigned], diagnostics: &mut [Diagnostic]) {
        let first = self.sources.iter().count() + self.sets.len();
        for label in diagnostics.iter_mut().flat_map(|diagnostic| &mut diagnostic.labels) {
            // Each option is a text of its own.
            if let Some(value) = label.span.source.0.checked_sub(first).and_then(|i| values.get(i)) {
                label.span = if label.span.start <= value.key.len() { value.key_span } else { value.span };
            }
        }
    }

    fn files(&self, classes: Classes) -> Files {
        Files { sources: self.sources.clone(), classes, ..Files::default() }
    }

    fn finish(&self, mut files: Files, sets: &[String], sweep: bool) -> Result<Loaded, Failure> {
        let mut root = self.root.clone();
        files.complete(&mut root, sets);
        if !sweep {
            root.remove("sweep");
        }
        understand(&self.name, files, Some((self.source, root)))
    }
}

fn failed(files: Files) -> Failure {
    let mut diagnostics = files.sink.into_vec();
    diagnostics::sort(&mut diagnostics);
    Failure { sources: files.sources, diagnostics, rest: None }
}
