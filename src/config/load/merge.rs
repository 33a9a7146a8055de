//! One configuration laid over another: what becomes of a base where the other changes the kind of a thing, or takes it away.
//!
//! Tables are merged key by key. Keys of the base that the new kind does not know are left behind; so is the one of two keys that
//! exclude each other. A key that is written together with the new kind is not: it must fit. `unset = true` in a section takes
//! away what the base has.

use crate::config::declare::declaration::Rule;
use crate::config::declare::options::Options;
use crate::config::declare::tagged::Tagged;
use crate::config::language::keys;
use crate::config::language::layers::{CONTAINERS, CommonKeys, Layer, container};
use crate::config::language::sections::{TopKeys, Transform};
use crate::config::text::diagnostics::{Diagnostic, SourceId, SourceKind, Sources, Span};
use crate::config::text::lints::Lint;
use crate::config::text::sink::Sink;
use crate::config::text::spelling::shorten;
use crate::config::text::tree::{Entry, Node, Table, Value};
use crate::config::text::words::UNSET;

/// In `[model]`, new layers also leave behind what the base gives to the file in `use`.
const LAYERS_OVER_WITH: (&str, &str) = ("layers", "with");

/// Something of a base that is not in the configuration.
#[derive(Debug, Clone)]
pub struct LeftBehind {
    /// Its dotted key.
    pub key: String,
    /// Where it is written.
    pub span: Span,
    /// Why it does not count.
    pub reason: Reason,
    /// What lies over it.
    pub over: Span,
}

/// Why something is left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Another kind of thing, this one, does not know it.
    Kind(String),
    /// It excludes this key.
    Rival(String),
    /// It was taken away.
    Unset,
}

impl LeftBehind {
    /// One line: what, where, and why.
    pub fn describe(&self, sources: &Sources) -> String {
        let (at, over) = (sources.place(self.span), sources.place(self.over));
        match &self.reason {
            Reason::Kind(word) => format!("{} ({at}): `{word}` ({over}) does not know it", self.key),
            Reason::Rival(key) => format!("{} ({at}): excluded by `{key}` ({over})", self.key),
            Reason::Unset => format!("{} ({at}): unset ({over})", self.key),
        }
    }
}

/// Whether one text lies under another: a file under those that extend it, which were read before it, and every file
/// under the command line.
pub fn is_below(sources: &Sources, below: SourceId, above: SourceId) -> bool {
    match (sources.get(below).kind, sources.get(above).kind) {
        (SourceKind::File | SourceKind::Program, SourceKind::File | SourceKind::Program) => below > above,
        // A checkpoint's configuration extends nothing.
        (SourceKind::File | SourceKind::Program | SourceKind::Effective, SourceKind::Effective)
        | (SourceKind::Effective, SourceKind::File | SourceKind::Program) => false,
        (SourceKind::File | SourceKind::Program | SourceKind::Effective, SourceKind::Set) => true,
        (SourceKind::Set, _) => false,
    }
}

/// Lays a table over a base. What is left behind is noted.
pub fn lay_over(below: &mut Table, mut over: Table, sources: &Sources, left: &mut Vec<LeftBehind>, sink: &Sink) {
    take_away(below, &mut over, "", left, sink);
    let before = below.clone();
    below.merge(over);
    settle(&before, below, sources, left);
}

/// Does what `unset = true` in the sections of `over` asks for, and removes it.
fn take_away(below: &mut Table, over: &mut Table, path: &str, left: &mut Vec<LeftBehind>, sink: &Sink) {
    over.entries.retain_mut(|entry| {
        let key = join(path, &entry.key);
        let Some(table) = entry.node.as_table_mut() else { return true };
        match table.get(UNSET).map(|node| (node.span, &node.value)) {
            Some((span, Value::Boolean(true))) => {
                match below.remove(&entry.key) {
                    Some(old) => left.push(LeftBehind { key, span: old.key_span, reason: Reason::Unset, over: span }),
                    None => sink.push(
                        Diagnostic::warning(Lint::NoEffect, "there is nothing to unset")
                            .at(span, format!("the base has no `{}`", shorten(&key))),
                    ),
                }
                table.remove(UNSET);
                !table.entries.is_empty()
            }
            // A parameter may have this name.
            _ => {
                if let Some(inner) = below.get_mut(&entry.key).and_then(Node::as_table_mut) {
                    take_away(inner, table, &key, left, sink);
                } else {
                    take_away(&mut Table::default(), table, &key, left, sink);
                }
                true
            }
        }
    });
}

/// A dotted key.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Removes from `after` what was in `before` and does not fit to a kind that is new.
pub fn settle(before: &Table, after: &mut Table, sources: &Sources, left: &mut Vec<LeftBehind>) {
    let mut settler = Settler { sources, left };
    for section in keys::sections() {
        let was = before.get(section.name).and_then(Node::as_table);
        let Some(is) = after.get_mut(section.name).and_then(Node::as_table_mut) else { continue };
        let Some(was) = was else { continue };
        if let Some(tag) = section.tag {
            let known = |word: &str, key: &str| section.knows(word, key);
            settler.table(was, is, tag, section.types, known, section.name);
        }
        for rule in &section.rules {
            let (a, b) = match rule {
                Rule::Excludes(a, b, _) => (a, b),
                Rule::ExcludesWithout(a, b, key, _) if is.get(key).is_none() => (a, b),
                _ => continue,
            };
            settler.rivals(is, a, b, section.name);
            settler.rivals(is, b, a, section.name);
        }
        if section.name == "model" {
            let (upper, lower) = LAYERS_OVER_WITH;
            settler.rivals(is, upper, lower, section.name);
        }
    }
    for rule in TopKeys::RULES {
        if let Rule::Excludes(a, b, _) = rule {
            settler.rivals(after, a, b, "");
            settler.rivals(after, b, a, "");
        }
    }
    // With the layers of another file come its own parameters and blocks.
    let used = after.get("model").and_then(Node::as_table).and_then(|model| model.get("use")).map(|node| node.span);
    if let Some(over) = used {
        for key in ["params", "blocks"] {
            if after.entry(key).is_some_and(|entry| settler.is_under(entry, over)) {
                settler.leave(after, key, key, Reason::Rival("model.use".into()), over);
            }
        }
    }
    for (section, lists) in
        [("data", ["transforms", "train_transforms", "val_transforms"].as_slice()), ("model", &["layers"])]
    {
        let was = before.get(section).and_then(Node::as_table);
        let is = after.get_mut(section).and_then(Node::as_table_mut);
        if let (Some(was), Some(is)) = (was, is) {
            for list in lists {
                settler.list(was.get(list), is.get_mut(list), &format!("{section}.{list}"), section == "model");
            }
        }
    }
    let was = before.get("blocks").and_then(Node::as_table);
    let is = after.get_mut("blocks").and_then(Node::as_table_mut);
    if let (Some(was), Some(is)) = (was, is) {
        for block in &mut is.entries {
            let was = was.get(&block.key).and_then(Node::as_table).and_then(|block| block.get("layers"));
            let path = format!("blocks.{}.layers", block.key);
            settler.list(was, block.node.as_table_mut().and_then(|block| block.get_mut("layers")), &path, true);
        }
    }
}

struct Settler<'a> {
    sources: &'a Sources,
    left: &'a mut Vec<LeftBehind>,
}

impl Settler<'_> {
    /// A table of one of several kinds.
    fn table(
        &mut self,
        was: &Table,
        is: &mut Table,
        tag: &str,
        kinds: &[&str],
        known: impl Fn(&str, &str) -> bool,
        path: &str,
    ) {
        let word = |table: &Table| Some((table.get(tag)?.as_str()?.to_owned(), table.get(tag)?.span));
        let (Some((old, _)), Some((new, over))) = (word(was), word(is)) else { return };
        if old == new || !kinds.contains(&old.as_str()) || !kinds.contains(&new.as_str()) {
            return;
        }
        // A key that the old kind does not know either is a mistake, and reported.
        let stale = |entry: &&Entry| known(&old, &entry.key) && !known(&new, &entry.key) && self.is_under(entry, over);
        let stale: Vec<String> = is.entries.iter().filter(stale).map(|entry| entry.key.clone()).collect();
        for key in stale {
            self.leave(is, &key, &join(path, &key), Reason::Kind(new.clone()), over);
        }
    }

    fn is_under(&self, entry: &Entry, over: Span) -> bool {
        is_below(self.sources, entry.node.span.source, over.source)
    }

    /// Drops `lower` if `upper` lies over it.
    fn rivals(&mut self, table: &mut Table, upper: &str, lower: &str, path: &str) {
        let (Some(over), Some(under)) = (table.entry(upper), table.entry(lower)) else { return };
        // `--set` replaces values, and leaves the keys.
        let over = over.node.span;
        if self.is_under(under, over) {
            self.leave(table, lower, &join(path, lower), Reason::Rival(upper.to_owned()), over);
        }
    }

    fn leave(&mut self, table: &mut Table, key: &str, path: &str, reason: Reason, over: Span) {
        if let Some(entry) = table.remove(key) {
            self.left.push(LeftBehind { key: path.to_owned(), span: entry.key_span, reason, over });
        }
    }

    /// Layers or transforms, element by element; `--set` reaches into lists.
    fn list(&mut self, was: Option<&Node>, is: Option<&mut Node>, path: &str, layers: bool) {
        let (Some(Value::Array(was)), Some(Value::Array(is))) = (was.map(|n| &n.value), is.map(|n| &mut n.value))
        else {
            return;
        };
        for (i, (was, is)) in was.iter().zip(is).enumerate() {
            self.element(was, is, &format!("{path}.{i}"), layers);
        }
    }

    fn element(&mut self, was: &Node, is: &mut Node, path: &str, layers: bool) {
        let (Some(was), Some(is)) = (was.as_table(), is.as_table_mut()) else { return };
        if !layers {
            let known = |word: &str, key: &str| key == "type" || Transform::fields(word).contains(&key);
            self.table(was, is, "type", Transform::TYPES, known, path);
            return;
        }
        let kinds: Vec<&str> = Layer::TYPES.iter().copied().chain(CONTAINERS).collect();
        self.table(was, is, "type", &kinds, layer_knows, path);
        for list in ["layers", "branches"] {
            self.list(was.get(list), is.get_mut(list), &format!("{path}.{list}"), true);
        }
        if let (Some(was), Some(is)) = (was.get("projection"), is.get_mut("projection")) {
            let path = format!("{path}.projection");
            self.element(was, is, &path, true);
            self.list(Some(was), Some(is), &path, true);
        }
    }
}

fn layer_knows(word: &str, key: &str) -> bool {
    let own = container(word).map_or_else(|| Layer::fields(word), |(keys, _)| keys);
    key == Layer::TAG || CommonKeys::KEYS.contains(&key) || own.contains(&key)
}
