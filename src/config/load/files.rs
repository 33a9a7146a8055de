//! From files and `--set` options to one tree: `extends`, overrides, `use`.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::classes::{self, Asked, Classes, NUM_CLASSES, written};
use super::expr::{CONTEXT, COUNTED};
use super::merge::{self, LeftBehind, Reason};
use super::models;
use super::overrides::Override;
use super::paths::{above, beside, locate};
use super::pipes;
use super::shorthand::spell_out;
use crate::config::declare::options::Options;
use crate::config::declare::part::{Part, unknown_parameter};
use crate::config::experiment::Experiment;
use crate::config::language::keys;
use crate::config::language::sections::ModelKeys;
use crate::config::text::diagnostics::{Diagnostic, Severity, SourceId, SourceKind, Sources, Span};
use crate::config::text::foreign;
use crate::config::text::parse::parse;
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::spelling::{list, shorten};
use crate::config::text::tree::{Entry, Node, Table, Value};
use crate::config::text::words::nearest;
use crate::files;

/// A configuration is by a user, or an effective one of a run: blocks and repeats are written out in that.
const MAX_BYTES: u64 = MAX_EFFECTIVE as u64;
/// The most text that an effective configuration may have: blocks and repeats are written out in it.
pub const MAX_EFFECTIVE: usize = 16 << 20;
/// Files that extend one another.
const MAX_CHAIN: usize = 16;
/// What `[model]` of a file that is used as a model may have.
const MODEL_FILE: [&str; 3] = ["layers", "inputs", "init"];
/// Reads and merges; keeps all texts for the diagnostics.
pub struct Files {
    /// Everything read so far.
    pub sources: Sources,
    /// Problems so far.
    pub sink: Sink,
    /// What of a base is not in the configuration.
    pub left: Vec<LeftBehind>,
    /// What is known of the number of classes.
    pub classes: Classes,
    /// The file in `use` has a number of classes that nothing sets.
    pub unset: bool,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            sources: Sources::default(),
            sink: Sink::new(keys::ELSEWHERE),
            left: Vec::new(),
            classes: Classes::Unknown,
            unset: false,
        }
    }
}

impl Files {
    /// Reads a file and those it extends.
    pub fn read(&mut self, path: &Path) -> Option<(SourceId, Table)> {
        let source = self.open(path, None)?;
        Some((source, self.document(source, &[path.to_owned()])?))
    }

    /// Takes a text for a file; what it extends is looked for in the current directory.
    pub fn read_text(&mut self, name: &str, text: &str) -> Option<(SourceId, Table)> {
        let source = self.sources.add(name, text, SourceKind::File);
        Some((source, self.document(source, &[PathBuf::from(name)])?))
    }

    /// Takes the effective configuration that a checkpoint carries. The author of the checkpoint shall not choose what is
    /// read here, so nothing that it names is opened.
    pub fn read_effective(&mut self, name: &str, text: &str) -> Option<(SourceId, Table)> {
        if text.len() > MAX_EFFECTIVE {
            self.sink.push(Diagnostic::error(format!(
                "{name} has {} bytes: more than {MAX_EFFECTIVE} are too many for a configuration",
                text.len()
            )));
            return None;
        }
        let source = self.sources.add(name, text, SourceKind::Effective);
        let (table, problems) = parse(source, text);
        if !problems.is_empty() {
            problems.into_iter().for_each(|problem| self.sink.push(problem));
            return None;
        }
        let model = table.get("model").and_then(Node::as_table);
        let named = [table.entry("extends"), model.and_then(|model| model.entry("use"))];
        for entry in named.iter().flatten() {
            let error = Diagnostic::error(format!("`{}` in the configuration of a checkpoint", entry.key))
                .at(entry.key_span, "names another file, which is not read")
                .help("a checkpoint that a run has written holds its whole configuration: this one was changed");
            self.sink.push(error);
        }
        (!self.sink.has_errors()).then_some((source, table))
    }

    /// Applies the `--set` and `--unset` options and puts the model of `[model] use` in its place.
    pub fn complete(&mut self, root: &mut Table, sets: &[String]) {
        let overrides: Vec<Override> =
            sets.iter().filter_map(|set| Override::parse(set, &mut self.sources, &self.sink)).collect();
        // What is inside of a model that `use` brings in is there only afterwards.
        let (inside, before): (Vec<_>, Vec<_>) = overrides.into_iter().partition(Override::is_inside_model);
        self.apply(root, before);
        if self.take_in_model(root).is_none() {
            self.sink.lose(Lost::Model);
            ["params", "blocks"].iter().for_each(|key| drop(root.remove(key)));
            if let Some(model) = root.get_mut("model").and_then(Node::as_table_mut) {
                ["use", "with", "layers", "init"].iter().for_each(|key| drop(model.remove(key)));
            }
        }
        self.apply(root, inside);
    }

    /// Applies options of the command line, which together lie over the files: first those that take something away.
    fn apply(&mut self, root: &mut Table, overrides: Vec<Override>) {
        if overrides.is_empty() {
            return;
        }
        let (unsets, sets): (Vec<_>, Vec<_>) = overrides.into_iter().partition(Override::takes_away);
        for one in unsets {
            self.left.extend(one.apply(root, &self.sink));
        }
        let before = root.clone();
        for one in sets {
            one.apply(root, &self.sink);
        }
        spell_out(root);
        merge::settle(&before, root, &self.sources, &mut self.left);
    }

    /// Whether the model depends on the number of classes of the data.
    pub fn asked(&self, root: &Table) -> Option<Asked> {
        let written = written(root);
        match written.is_empty() {
            false => Some(Asked::Written(written)),
            true => self.unset.then_some(Asked::Unset),
        }
    }

    fn open(&mut self, path: &Path, named_at: Option<Span>) -> Option<SourceId> {
        let text = read_bounded(path, named_at.is_some());
        match text {
            Ok(text) => Some(self.sources.add(path.display().to_string(), text, SourceKind::File)),
            Err(reason) => {
                let message = format!("cannot read `{}`", path.display());
                self.sink.push(match named_at {
                    Some(span) => Diagnostic::error(message).at(span, reason),
                    None => {
                        let error = Diagnostic::error(format!("{message}: {reason}"));
                        match near(path) {
                            Some(near) => error.help(format!("did you mean `{}`?", near.display())),
                            None => error,
                        }
                    }
                });
                None
            }
        }
    }

    /// Parses a text and lays it over what it extends; `chain` is the files on the way here.
    fn document(&mut self, source: SourceId, chain: &[PathBuf]) -> Option<Table> {
        let (mut table, problems) = parse(source, &self.sources.get(source).text);
        if !problems.is_empty() {
            let text = &self.sources.get(source).text;
            shortened(problems, text).into_iter().for_each(|problem| self.sink.push(problem));
            return None;
        }
        spell_out(&mut table);
        let Some(extends) = table.remove("extends") else { return Some(table) };
        let Some(mut below) = self.base(&extends.node, chain) else {
            self.sink.lose(Lost::Base);
            return Some(table);
        };
        merge::lay_over(&mut below, table, &self.sources, &mut self.left, &self.sink);
        Some(below)
    }

    /// What the file in `extends` says.
    fn base(&mut self, extends: &Node, chain: &[PathBuf]) -> Option<Table> {
        let span = extends.span;
        let Some(base) = extends.as_str() else {
            let text = format!("expected the path of a file, found {}", extends.describe());
            self.sink.push(Diagnostic::error("wrong value for `extends`").at(span, text));
            return None;
        };
        let path = beside(&self.sources, base, span);
        let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
            (Ok(a), Ok(b)) => a == b,
            _ => a == b,
        };
        if chain.iter().any(|file| same(file, &path)) {
            let files: Vec<String> = chain.iter().chain([&path]).map(|p| p.display().to_string()).collect();
            self.sink.push(Diagnostic::error("files extend each other in a circle").at(span, files.join(" extends ")));
            return None;
        }
        if chain.len() >= MAX_CHAIN {
            self.sink.push(
                Diagnostic::error("too many files extend one another").at(span, format!("more than {MAX_CHAIN}")),
            );
            return None;
        }
        let base = self.open(&path, Some(span))?;
        let chain: Vec<PathBuf> = chain.iter().cloned().chain([path]).collect();
        self.document(base, &chain)
    }

    /// Replaces `[model] use = "file"` by the layers, blocks and parameters of that file.
    fn take_in_model(&mut self, root: &mut Table) -> Option<()> {
        let Some(model) = root.get("model").and_then(Node::as_table) else { return Some(()) };
        let Some(used) = model.entry("use").cloned() else {
            if let Some(with) = model.entry("with") {
                self.sink.push(
                    Diagnostic::error("`with` in `[model]` needs `use`")
                        .at(with.key_span, "sets the parameters of the file in `use`")
                        .help("parameters of this file are set in `[params]`"),
                );
            }
            return Some(());
        };
        let clash = model.entry("layers").or(root.entry("params")).or(root.entry("blocks"));
        if let Some(entry) = clash {
            let reason = match entry.key.as_str() {
                "layers" => "the layers come from the file in `use`",
                "params" => "the file in `use` has its own; set them by `with`",
                _ => "the file in `use` has its own and sees no others",
            };
            self.sink.push(
                Diagnostic::error(format!("`use` and `{}` exclude each other", entry.key))
                    .at(entry.key_span, reason)
                    .context(used.key_span, ""),
            );
            return None;
        }
        let with = model.get("with").cloned();
        let Some(written) = used.node.as_str() else {
            let text = format!("expected the path of a file, found {}", used.node.describe());
            self.sink.push(Diagnostic::error("wrong value for `use` in `[model]`").at(used.node.span, text));
            return None;
        };
        let path = locate(&self.sources, written, used.node.span);
        let built_in = models::built_in(written).filter(|_| !path.is_file());
        if built_in.is_none() && !path.exists() {
            let mut help = format!(
                "looked for `{}`, then for `{written}` from the current directory",
                beside(&self.sources, written, used.node.span).display()
            );
            for place in above(&self.sources, written, used.node.span) {
                help += &format!(", then for `{}`", place.display());
            }
            let name = written.rsplit('/').next().unwrap_or(written).trim_end_matches(".toml");
            if let Some(near) = nearest(name, models::MODELS.iter().map(|(name, _)| *name)) {
                help += &format!("; the program has a model `{near}`");
            }
            self.sink.push(
                Diagnostic::error(format!("there is no file `{}`", shorten(written)))
                    .at(used.node.span, "not found")
                    .help(help),
            );
            return None;
        }
        let source = match built_in {
            Some((name, text)) => {
                let name = format!("the model `{name}` of the program");
                self.sources.add(name, text.to_owned(), SourceKind::Program)
            }
            None => self.open(&path, Some(used.node.span))?,
        };
        let (mut file, problems) = parse(source, &self.sources.get(source).text);
        if !problems.is_empty() {
            problems.into_iter().for_each(|problem| self.sink.push(problem));
            return None;
        }
        let start = Span { source, start: 0, end: 0 };
        if !self.check_model_file(&file, start, &used) {
            return None;
        }
        let with_table = with.as_ref().and_then(Node::as_table);
        let unset = |name: &&&str| with_table.is_none_or(|with| with.get(name).is_none());
        let unset_classes: Vec<&str> = NUM_CLASSES.iter().filter(unset).copied().collect();
        let context = classes::context(root).filter(|_| unset(&&CONTEXT)).map(|node| node.value);
        if let Some(with) = with {
            self.set_parameters(&mut file, &with, used.node.span);
        }
        let mut params = file.get_mut("params").and_then(Node::as_table_mut);
        for name in unset_classes {
            let Some(number) = params.as_mut().and_then(|params| params.get_mut(name)) else { continue };
            self.unset = true;
            let counted = if name == NUM_CLASSES[0] { COUNTED[0] } else { COUNTED[1] };
            if let (Classes::Known(_), Some(known)) = (&self.classes, self.classes.value(counted)) {
                number.value = Value::Integer(known as i64);
            }
        }
        if let (Some(own), Some(context)) = (params.and_then(|params| params.get_mut(CONTEXT)), context) {
            own.value = context;
        }
        let within = file.get_mut("model").and_then(Node::as_table_mut);
        let [layers, init, inputs] =
            within.map_or([None, None, None], |model| ["layers", "init", "inputs"].map(|key| model.remove(key)));
        if layers.is_none() {
            self.sink.push(
                Diagnostic::error(format!("`{}` has no layers", path.display()))
                    .at(start, "`[model]` with `layers` is missing")
                    .context(used.node.span, "used here"),
            );
        }
        let params = file.remove("params");
        let blocks = file.remove("blocks");
        let model = root.get_mut("model").and_then(Node::as_table_mut)?;
        model.remove("use");
        model.remove("with");
        model.set(layers?);
        if let Some(inputs) = inputs.filter(|_| model.get("inputs").is_none()) {
            model.set(inputs);
        }
        // The rules of the file come after those of the file that uses it, which so take precedence.
        match (model.get_mut("init").map(|node| &mut node.value), init) {
            (Some(Value::Array(own)), Some(Entry { node: Node { value: Value::Array(rules), .. }, .. })) => {
                own.extend(rules)
            }
            (None, Some(init)) => model.set(init),
            _ => {}
        }
        for entry in [params, blocks].into_iter().flatten() {
            root.set(entry);
        }
        Some(())
    }

    /// A file that is used as a model holds a model and nothing else. `false`, after saying so, if it is more than that.
    fn check_model_file(&self, file: &Table, start: Span, used: &Entry) -> bool {
        let model = file.get("model").and_then(Node::as_table);
        let sections = keys::section_names();
        let above = file.entries.iter().filter(|entry| {
            keys::top().contains(&entry.key.as_str())
                || entry.key == "extends"
                || (entry.key != "model" && sections.contains(&entry.key.as_str()))
        });
        let inside = model.into_iter().flat_map(|model| &model.entries);
        let inside = inside.filter(|entry| {
            entry.key == "use" || !MODEL_FILE.contains(&&*entry.key) && ModelKeys::KEYS.contains(&&*entry.key)
        });
        let foreign: Vec<&Entry> = above.chain(inside).collect();
        if let Some(first) = foreign.first() {
            let mut names: Vec<String> = foreign
                .iter()
                .map(
                    |entry| {
                        if entry.node.as_table().is_some() { format!("[{}]", entry.key) } else { entry.key.clone() }
                    },
                )
                .collect();
            names.dedup();
            self.sink.push(
                Diagnostic::error(format!("`{}` is more than a model", self.sources.get(start.source).name))
                    .at(used.node.span, "used as a model here")
                    .context(first.key_span, format!("it has {}", list(names.iter().map(String::as_str), "and")))
                    .help(
                        "a file for `use` holds `[model]` with `layers`, `inputs` and `init`, `[params]` and `[blocks]`, and nothing else; to take \
                         over a whole configuration, write `extends` before the first section",
                    ),
            );
            return false;
        }
        let part = |table, what| Part { table, span: start, what, bad: &[], sink: &self.sink };
        part(file, "a file that is used as a model").known_keys(&[&["params", "blocks", "model"]]);
        if let Some(model) = model {
            part(model, "`[model]` of a file that is used as a model").known_keys(&[&MODEL_FILE]);
        }
        true
    }

    /// Puts the parameters in `with` into a model's file that was named at `used`.
    fn set_parameters(&mut self, file: &mut Table, with: &Node, used: Span) {
        let Value::Table(values) = &with.value else {
            self.sink.push(
                Diagnostic::error("wrong value for `with` in `[model]`")
                    .at(with.span, format!("expected a table of parameters, found {}", with.describe())),
            );
            return;
        };
        let mut nothing = Table::default();
        let params = file.get_mut("params").and_then(Node::as_table_mut).unwrap_or(&mut nothing);
        for value in &values.entries {
            match params.get_mut(&value.key) {
                Some(param) => *param = value.node.clone(),
                // Written for another model, which this one lies over.
                None if merge::is_below(&self.sources, value.node.span.source, used.source) => {
                    let reason = Reason::Kind(self.sources.text(used).trim_matches(['"', '\'']).to_owned());
                    let key = format!("model.with.{}", value.key);
                    self.left.push(LeftBehind { key, span: value.key_span, reason, over: used });
                }
                None => {
                    let known: Vec<&str> = params.entries.iter().map(|entry: &Entry| entry.key.as_str()).collect();
                    let why = " in `with`: the model has no such parameter";
                    self.sink.push(unknown_parameter(&value.key, why, value.key_span, &known));
                }
            }
        }
    }
}

/// A warning for every path in an effective configuration that is not absolute, as those of earlier versions are.
pub fn relative_paths(experiment: &Experiment, sources: &Sources) -> Vec<Diagnostic> {
    let place = |key: &String| experiment.span_of(key);
    let written = |span: &Span| {
        let text = sources.text(*span).trim_matches(['"', '\'']);
        let effective = sources.get(span.source).kind == SourceKind::Effective;
        effective && !Path::new(text).is_absolute()
    };
    let warning = |span: Span| {
        let message = "a path in the configuration of a checkpoint is not absolute";
        // No lint: the reader of a checkpoint has not written its configuration.
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(message) }
            .at(span, "taken from the current folder, which need not be the one in which the run was started")
    };
    keys::paths().iter().filter_map(place).filter(written).map(warning).collect()
}

/// Mistakes of one file that are all reported. A file with more is taken for no TOML.
const MOST_MISTAKES: usize = 10;

/// The errors of a text that is not TOML: all of them or, if there are very many, what the text looks like instead.
fn shortened(problems: Vec<Diagnostic>, text: &str) -> Vec<Diagnostic> {
    if problems.len() <= MOST_MISTAKES {
        return problems;
    }
    let left = problems.len() - MOST_MISTAKES;
    let mut problems = problems.into_iter();
    if let Some(what) = foreign::language(text) {
        let first = problems.next().and_then(|problem| problem.span());
        let error = Diagnostic::error(format!("this is no configuration: it looks like {what}, not like TOML"))
            .help("a configuration has sections like `[data]` and lines like `source = \"digits\"`");
        let error = match what {
            "a table (CSV)" => {
                error.help("`runner init TABLE --target COLUMN` writes a configuration that learns a column of a table")
            }
            "a text" => error.help("`runner init TEXT` writes a configuration that learns from a text"),
            _ => error,
        };
        return vec![match first {
            Some(span) => error.at(span, "the first of what is not TOML"),
            None => error,
        }];
    }
    let mut shown: Vec<Diagnostic> = problems.by_ref().take(MOST_MISTAKES).collect();
    let rest = Diagnostic::error(format!("{left} more mistakes are not shown"));
    shown.push(match problems.find_map(|problem| problem.span()) {
        Some(span) => rest.at(span, "the first of them"),
        None => rest,
    });
    shown
}

/// The configuration beside a path at which nothing is that was probably meant.
fn near(path: &Path) -> Option<PathBuf> {
    let (word, folder) = (path.file_name()?.to_str()?, path.parent()?);
    if path.exists() {
        return None;
    }
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = std::fs::read_dir(here).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    names.sort();
    let whole = format!("{word}.toml");
    let name = if names.contains(&whole) { &whole } else { nearest(word, names.iter().map(String::as_str))? };
    Some(folder.join(name))
}

/// The text of a file that is not too long. A configuration may only name `plain` files: a pipe could make the program
/// wait.
fn read_bounded(path: &Path, plain: bool) -> Result<String, String> {
    let bytes = if plain {
        let (file, mut bytes) = (files::open(path).map_err(|error| error.problem.to_string())?.file, Vec::new());
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map(|_| bytes)
    } else {
        pipes::read(path, MAX_BYTES + 1)
    };
    let bytes = bytes.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!(
            "more than {MAX_BYTES} bytes are too many for a configuration; `runner init DATA` writes one for a table, photos or a text"
        ));
    }
    match String::from_utf8(bytes) {
        // UTF-16 may be UTF-8 with zeros in it.
        Ok(text) if text.contains('\0') => foreign::encoding(text.as_bytes()).map_or(Ok(text), Err),
        Ok(text) => Ok(text),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            Err(foreign::encoding(error.as_bytes()).unwrap_or_else(|| format!("not UTF-8 text: byte {at}")))
        }
    }
}
