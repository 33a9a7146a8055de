//! How a configuration becomes an [`Experiment`], step by step:
//! 1. `files` reads a file and those that it extends, spells out short forms (`shorthand`), and lays them over one another (`merge`);
//! 2. `overrides` lays `--set` and `--unset` over that; then `files` puts the model of `[model] use` in its place;
//! 3. `resolve` reads the sections, by what is declared of them;
//! 4. `model` unrolls the layers: blocks, repeats, parameters (`expr`), names and who takes whose output;
//! 5. `rules` holds sections against each other.

mod classes;
mod expr;
mod files;
mod merge;
mod model;
pub mod models;
mod overrides;
pub mod paths;
mod pipes;
mod resolve;
mod rules;
mod shorthand;
mod trials;

use std::path::Path;

use self::classes::with_classes;
use self::files::Files;
use self::resolve::Resolved;
use super::experiment::Experiment;
use super::text::diagnostics::{self, Diagnostic, SourceId, SourceKind, Sources, Span};
use super::text::sink::Lost;
use super::text::tree::Table;

pub use self::classes::{Ask, Asked, Counts};
pub use self::files::MAX_EFFECTIVE;
pub use self::merge::LeftBehind;
pub use self::overrides::{SWEEP_OPTION, UNSET_OPTION};
pub use self::trials::{Assigned, Trials};

/// A configuration that is whole and consistent in itself.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub experiment: Experiment,
    /// The texts that spans point into.
    pub sources: Sources,
    /// What is probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// What a base says that does not count.
    pub left_behind: Vec<LeftBehind>,
    /// Whether the model depends on the number of classes of the data.
    pub classes: Option<Asked>,
}

/// What is wrong with a configuration.
#[derive(Debug)]
pub struct Failure {
    /// The texts that spans point into.
    pub sources: Sources,
    /// At least one error, and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The rest of the configuration, if its data and its model could be read: their other mistakes can be found in it.
    pub rest: Option<Box<Rest>>,
}

/// What of a configuration with mistakes could be read.
#[derive(Debug)]
pub struct Rest {
    /// Where a section could not be read, something else stands in for it.
    pub experiment: Experiment,
    /// Whether the loss could be read: it can be held against the model and the data.
    pub loss: bool,
    /// Whether nothing is wrong with how it learns, so that heads can be held against the data, too.
    pub learns: bool,
    /// Whether the model depends on the number of classes of the data.
    pub classes: Option<Asked>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(diagnostics::render(&self.sources, &self.diagnostics, false).trim_end())
    }
}

impl std::error::Error for Failure {}

/// Reads a configuration file, what it extends and uses, and the options `KEY=VALUE` (without their `--set`) and
/// `--unset KEY`.
///
/// # Errors
/// Everything that is wrong in itself. Only a file that is not there has an error without a place.
pub fn load(path: &Path, sets: &[String]) -> Result<Loaded, Failure> {
    load_asking(path, sets, &classes::of_configuration)
}

/// The same, where `ask` says how many classes the data has, if the model depends on that.
///
/// # Errors
/// As for [`load`]; `ask` cannot say it, and `$classes` is in the model.
pub fn load_asking(path: &Path, sets: &[String], ask: Ask) -> Result<Loaded, Failure> {
    let read = |classes| {
        let mut files = Files { classes, ..Files::default() };
        let read = files.read(path);
        finish(&name_of(path), files, read, sets)
    };
    with_classes(&read, ask)
}

/// The name of an experiment whose configuration is the file at `path`.
pub fn name_of(path: &Path) -> String {
    path.file_stem().map_or_else(|| "config".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Reads a configuration from text, such as a checkpoint carries. Paths in it are taken from the current directory.
///
/// # Errors
/// As for [`load`].
pub fn load_str(name: &str, text: &str, sets: &[String]) -> Result<Loaded, Failure> {
    let read = |classes| {
        let mut files = Files { classes, ..Files::default() };
        let read = files.read_text(name, text);
        finish(name, files, read, sets)
    };
    with_classes(&read, &classes::of_configuration)
}

/// Reads the effective configuration that a checkpoint carries. It is not trusted: it names no other file to
/// read text from, and its paths are taken as they are written, without looking whether there is something. `name` is
/// what messages call it. Its own warnings are left out, as they were shown when the run was started; one is added for
/// every path that is not absolute.
///
/// # Errors
/// As for [`load`]; it has `extends` or `use`, or more text than [`MAX_EFFECTIVE`].
pub fn load_effective(name: &str, text: &str, sets: &[String]) -> Result<Loaded, Failure> {
    let mut files = Files::default();
    let read = files.read_effective(name, text);
    let mut loaded = finish(name, files, read, sets)?;
    let typed = |d: &Diagnostic| d.span().is_some_and(|s| loaded.sources.get(s.source).kind == SourceKind::Set);
    let relative = files::relative_paths(&loaded.experiment, &loaded.sources);
    loaded.warnings = loaded.warnings.iter().filter(|d| typed(d)).cloned().chain(relative).collect();
    Ok(loaded)
}

fn finish(name: &str, mut files: Files, read: Option<(SourceId, Table)>, sets: &[String]) -> Result<Loaded, Failure> {
    let read = read.map(|(source, mut root)| {
        files.complete(&mut root, sets);
        (source, root)
    });
    understand(name, files, read)
}

/// From the whole tree, which begins with a source, to what it says.
fn understand(name: &str, files: Files, read: Option<(SourceId, Table)>) -> Result<Loaded, Failure> {
    let resolved = read.map(|(source, root)| {
        let start = Span { source, start: 0, end: 0 };
        let classes = files.asked(&root);
        (resolve::resolve(name, (&root, start), &files), classes, root)
    });
    let Files { sources, sink, left, .. } = files;
    let (wrong, whole) = (sink.has_errors(), ![Lost::Base, Lost::Layers].iter().any(|part| sink.has_lost(*part)));
    let mut diagnostics = sink.into_vec();
    diagnostics::sort(&mut diagnostics);
    match resolved {
        Some((Resolved { experiment, .. }, classes, _)) if !wrong => {
            let warnings = experiment.lint.without_allowed(diagnostics);
            Ok(Loaded { experiment, sources, warnings, left_behind: left, classes })
        }
        Some((Resolved { experiment, unread }, classes, root)) => {
            let readable = whole && ["data", "model"].iter().all(|section| !unread.contains(section));
            let places = || diagnostics.iter().flat_map(|diagnostic| &diagnostic.labels).map(|label| label.span);
            let wrong = |section: &&str| root.entry(section).is_some_and(|entry| places().any(|span| entry.has(span)));
            let loss = !unread.contains(&"loss") && !wrong(&"loss");
            let learns = loss && !["data", "heads"].iter().any(wrong);
            let diagnostics = experiment.lint.without_allowed(diagnostics);
            let rest = readable.then(|| Box::new(Rest { experiment, loss, learns, classes }));
            Err(Failure { sources, diagnostics, rest })
        }
        None => Err(Failure { sources, diagnostics, rest: None }),
    }
}
