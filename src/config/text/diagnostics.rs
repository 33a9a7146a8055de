//! Errors and warnings that point into configuration text, and how they are shown.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};
use std::sync::OnceLock;

use super::lints::Lint;
use crate::terminal::{Visible, masked, visible};

/// A text of [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub usize);

/// A range of bytes of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// Where a text came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A file; its name is its path.
    File,
    /// A model's file that is a part of the program; its name is the model's.
    Program,
    /// The effective configuration that a checkpoint carries. Its name says which; nothing lies beside it.
    Effective,
    /// A `--set KEY=VALUE` of the command line; its name and its text are what was typed there.
    Set,
}

/// One text.
#[derive(Debug, Clone)]
pub struct Source {
    /// What diagnostics call it: a path, or `--set KEY=VALUE`.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// File or command line.
    pub kind: SourceKind,
    /// Where its lines begin, found at the first use: a large file is not gone through for each of its places.
    lines: OnceLock<Vec<usize>>,
}

impl Source {
    fn lines(&self) -> &[usize] {
        self.lines.get_or_init(|| std::iter::once(0).chain(self.text.match_indices('\n').map(|(i, _)| i + 1)).collect())
    }
}

/// All texts that a configuration was put together from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    list: Vec<Source>,
}

impl Sources {
    /// Adds a text.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>, kind: SourceKind) -> SourceId {
        self.list.push(Source { name: name.into(), text: text.into(), kind, lines: OnceLock::new() });
        SourceId(self.list.len() - 1)
    }

    /// Takes all files for what the program has written: effective configurations.
    pub fn are_effective(&mut self) {
        let files = self.list.iter_mut().filter(|source| source.kind == SourceKind::File);
        files.for_each(|source| source.kind = SourceKind::Effective);
    }

    /// The text behind an id.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.list[id.0]
    }

    /// All texts in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        self.list.iter().enumerate().map(|(i, source)| (SourceId(i), source))
    }

    /// The piece of text that a span covers.
    pub fn text(&self, span: Span) -> &str {
        let text = &self.get(span.source).text;
        &text[floor(text, span.start)..floor(text, span.end.max(span.start))]
    }

    /// Line and column of a span's start, both counted from 1; columns count characters.
    pub fn position(&self, span: Span) -> (usize, usize) {
        let source = self.get(span.source);
        let at = floor(&source.text, span.start);
        let line = self.line(span);
        (line, source.text[source.lines()[line - 1]..at].chars().count() + 1)
    }

    /// The line of a span's start, counted from 1.
    fn line(&self, span: Span) -> usize {
        let source = self.get(span.source);
        let at = floor(&source.text, span.start);
        source.lines().partition_point(|start| *start <= at)
    }

    /// `file:line` of a span, or the option of the command line that it is a part of.
    pub fn place(&self, span: Span) -> String {
        let source = self.get(span.source);
        match source.kind {
            SourceKind::File | SourceKind::Program | SourceKind::Effective => {
                format!("{}:{}", source.name, self.line(span))
            }
            SourceKind::Set => source.name.clone(),
        }
    }
}

/// The last character boundary of `text` at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// Whether the configuration can be used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It can not.
    Error,
    /// It can; something in it is probably not what was meant.
    Warning,
}

/// A remark on a piece of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The piece.
    pub span: Span,
    /// The remark; may be empty.
    pub text: String,
    /// The culprit (carets) rather than context (dashes).
    pub primary: bool,
}

/// What is wrong, where, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// One line without a full stop.
    pub message: String,
    /// The places concerned, the culprit first.
    pub labels: Vec<Label>,
    /// More that helps to understand, one remark each.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
    /// The name by which a warning can be silenced.
    pub lint: Option<Lint>,
    /// The text is right, and a file of data or weights that it names is not there.
    pub missing: bool,
}

impl Diagnostic {
    /// An error that has no place yet.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            labels: Vec::new(),
            notes: Vec::new(),
            help: None,
            lint: None,
            missing: false,
        }
    }

    /// A warning that has no place yet.
    pub fn warning(lint: Lint, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, lint: Some(lint), ..Self::error(message) }
    }

    /// Points carets at the culprit.
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: true });
        self
    }

    /// Underlines another place that has to do with it.
    pub fn context(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: false });
        self
    }

    /// Adds a remark below the places.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Says what to do.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Says whether all that is wrong is that a file of data or weights is not there.
    pub fn missing(mut self, missing: bool) -> Self {
        self.missing = missing;
        self
    }

    /// The culprit's place.
    pub fn span(&self) -> Option<Span> {
        self.labels.iter().find(|label| label.primary).or(self.labels.first()).map(|label| label.span)
    }

    /// The diagnostic with nothing in its words that would steer a terminal.
    fn visible(&self) -> Self {
        let label = |label: &Label| Label { text: visible(&label.text), ..label.clone() };
        Diagnostic {
            message: visible(&self.message),
            labels: self.labels.iter().map(label).collect(),
            notes: self.notes.iter().map(|note| visible(note)).collect(),
            help: self.help.as_deref().map(visible),
            ..*self
        }
    }

    /// What is shown of it. `shown` has name and text of each source as they may be shown.
    fn group<'a>(&'a self, sources: &Sources, shown: &'a [(String, Visible)]) -> Group<'a> {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group =
            level.primary_title(self.message.as_str()).elements(None::<Snippet<annotate_snippets::Annotation>>);
        let mut ids: Vec<SourceId> = Vec::new();
        for id in self.span().map(|span| span.source).into_iter().chain(self.labels.iter().map(|l| l.span.source)) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        for id in ids {
            let source = sources.get(id);
            let (name, text) = &shown[id.0];
            let mut snippet = Snippet::source(text.text.as_str()).path(name.as_str());
            for label in self.labels.iter().filter(|label| label.span.source == id) {
                let start = floor(&source.text, label.span.start);
                let end = first_line(&source.text, start, floor(&source.text, label.span.end.max(start)));
                let kind = if label.primary { AnnotationKind::Primary } else { AnnotationKind::Context };
                let words = (!label.text.is_empty()).then_some(label.text.as_str());
                snippet = snippet.annotation(kind.span(text.range(start..end)).label(words));
            }
            group = group.element(snippet);
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(note.as_str()));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        if let Some(lint) = self.lint {
            group = group.element(Level::NOTE.message(format!("silence with `[lint] allow = [\"{}\"]`", lint.name())));
        }
        group
    }
}

/// The end of a span, drawn in to its first line: a caret under a whole table would hide what is meant.
fn first_line(text: &str, start: usize, end: usize) -> usize {
    match text[start..end].find('\n') {
        Some(0) | None => end,
        Some(length) => start + length,
    }
}

/// Sorts by place: source, then position; what has no place comes first.
pub fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by_key(|d| d.span().map(|span| (span.source, span.start)));
}

/// Warnings that are shown at most.
const MOST_WARNINGS: usize = 200;

/// The text that a person reads, sorted by place, a blank line between two diagnostics. What would steer a terminal is
/// written out and passwords in addresses are masked before colours come in, so that all control characters are ours.
pub fn render(sources: &Sources, diagnostics: &[Diagnostic], color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let mut sorted = diagnostics.to_vec();
    sort(&mut sorted);
    let (all, mut room) = (sorted.len(), MOST_WARNINGS);
    sorted.retain(|d| {
        let is_shown = d.severity == Severity::Error || room > 0;
        room = room.saturating_sub(usize::from(d.severity == Severity::Warning));
        is_shown
    });
    let more = all - sorted.len();
    let sorted: Vec<Diagnostic> = sorted.iter().map(Diagnostic::visible).collect();
    let shown = |source: &Source| (visible(&source.name), Visible::new(&source.text));
    let shown: Vec<(String, Visible)> = sources.list.iter().map(shown).collect();
    let mut all: Vec<String> = sorted.iter().map(|d| renderer.render(&[d.group(sources, &shown)]) + "\n").collect();
    if more > 0 {
        all.push(format!("and {more} more warnings\n"));
    }
    all.join("\n")
}

/// The same for programs: a list of `severity`, `message`, `file`, `line`, `column`, `reason`, `notes`, `help`, `lint`
/// (the name of a warning) and `related` (other places: `file`, `line`, `column`, `message`). Passwords in addresses are
/// masked.
pub fn to_json(sources: &Sources, diagnostics: &[Diagnostic]) -> Value {
    let mut sorted = diagnostics.to_vec();
    sort(&mut sorted);
    let place = |span: Option<Span>| match span {
        Some(span) => {
            let (line, column) = sources.position(span);
            let source = sources.get(span.source);
            let name = match source.kind {
                SourceKind::File | SourceKind::Program | SourceKind::Effective => source.name.clone(),
                SourceKind::Set => masked(&source.name),
            };
            (json!(name), json!(line), json!(column))
        }
        None => (Value::Null, Value::Null, Value::Null),
    };
    let one = |d: &Diagnostic| {
        let culprit = d.labels.iter().position(|label| label.primary).unwrap_or(0);
        let (file, line, column) = place(d.span());
        let related = d.labels.iter().enumerate().filter(|(i, _)| *i != culprit).map(|(_, label)| {
            let (file, line, column) = place(Some(label.span));
            json!({ "file": file, "line": line, "column": column, "message": masked(&label.text) })
        });
        json!({
            "severity": match d.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "message": masked(&d.message),
            "file": file,
            "line": line,
            "column": column,
            "reason": d.labels.get(culprit).map(|label| masked(&label.text)),
            "notes": d.notes.iter().map(|note| masked(note)).collect::<Vec<_>>(),
            "help": d.help.as_deref().map(masked),
            "lint": d.lint.map(Lint::name),
            "related": related.collect::<Vec<_>>(),
        })
    };
    sorted.iter().map(one).collect()
}
