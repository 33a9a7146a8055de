//! `[model]`, `[blocks]` and `[params]`: blocks and repeats are unrolled, names given, parameters put in.

mod block;
mod container;
mod layer;
mod transformer;
mod wiring;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::classes::{self, Classes};
use super::expr::{CONTEXT, COUNTED, OF_HEAD, Scope};
use crate::config::experiment::LayerNode;
use crate::config::language::layers::MAX_INPUTS;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::lints::Lint;
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::spelling::shorten;
use crate::config::text::tree::{Entry, Node, Table, Value};

/// Layers, and groups of them, that a model may have after unrolling.
const MAX_LAYERS: usize = 100_000;
/// Layers that are unrolled where something is wrong: most mistakes show in the first of those that are alike.
const MAX_WRONG: usize = 10_000;
/// Bytes that all paths together may have.
const MAX_PATHS: usize = 1 << 24;
/// Groups within groups. Written out without blocks, each is a table and a list, and TOML's parser has its limit too.
const MAX_DEPTH: usize = 32;
/// Bytes of one name.
const MAX_NAME: usize = 64;

/// Unrolls the layers of a whole configuration, whose model names these inputs, and puts parameters into the rules by which theirs
/// start. Problems go to `sink`, and what they concern is left out.
pub fn unroll(
    root: &Table,
    layers: &[Node],
    (inputs, init): (&[(String, Span)], Option<&Node>),
    classes: &Classes,
    sink: &Sink,
) -> (Vec<LayerNode>, Option<Node>) {
    let used = RefCell::default();
    let nothing = Table::default();
    let tables = |key: &str, of: &str| match root.get(key) {
        Some(node) => node.as_table().unwrap_or_else(|| {
            sink.push(
                Diagnostic::error(format!("`{key}` must be a table of {of}"))
                    .at(node.span, format!("expected a table, found {}", node.describe())),
            );
            &nothing
        }),
        None => &nothing,
    };
    let params = tables("params", "parameters");
    let blocks = tables("blocks", "blocks");

    // What every model sees, unless a parameter of its own has the name.
    let heads = classes::heads(root);
    let mut outermost = Scope::new(&heads, &used);
    for (name, number) in COUNTED.iter().filter_map(|name| Some((name, classes.value(name)?))) {
        outermost.count((*name).to_owned(), number);
    }
    for (head, number) in heads.iter().filter_map(|head| Some((head, classes.of_head(head)?))) {
        outermost.count(format!("{OF_HEAD}{head}"), number);
    }
    if let Some(context) = classes::context(root) {
        outermost.define(CONTEXT, context.span, context, sink);
    }
    let mut scope = outermost.inner(None);
    scope.define_all(params, |_| None, sink);
    block::check_definitions(blocks, sink);
    let unroller = Unroller {
        sink,
        blocks,
        file_scope: &scope,
        used_blocks: RefCell::default(),
        layers: Cell::new(0),
        path_bytes: Cell::new(0),
    };
    let context = Context { path: String::new(), scope: &scope, index: None, outer: None, depth: 0 };
    let mut nodes = unroller.list(layers, &context);
    wiring::connect(&mut nodes, inputs, sink);
    let init = init.map(|rules| with_values(rules, &scope, sink));

    // What is never read is most often misspelt where it should have been; after errors it may simply not have been
    // reached.
    if !sink.has_errors() {
        let used = used.borrow();
        for entry in params.entries.iter().filter(|entry| !used.contains(&entry.key_span)) {
            sink.push(unused(Lint::UnusedParameter, &entry.key, entry.key_span));
        }
        for entry in &blocks.entries {
            if !unroller.used_blocks.borrow().contains(&entry.key) {
                sink.push(unused(Lint::UnusedBlock, &entry.key, entry.key_span));
                continue;
            }
            let own = entry.node.as_table().and_then(|block| block.get("params")).and_then(Node::as_table);
            for param in own.into_iter().flat_map(|own| &own.entries).filter(|param| !used.contains(&param.key_span)) {
                sink.push(unused(Lint::UnusedParameter, &param.key, param.key_span));
            }
        }
    }
    (nodes, init)
}

/// A node with parameters put into all that is in it.
fn with_values(node: &Node, scope: &Scope, sink: &Sink) -> Node {
    let value = match &node.value {
        Value::Array(items) => Value::Array(items.iter().map(|item| with_values(item, scope, sink)).collect()),
        Value::Table(table) => {
            let entry = |entry: &Entry| Entry { node: with_values(&entry.node, scope, sink), ..entry.clone() };
            Value::Table(Table { entries: table.entries.iter().map(entry).collect() })
        }
        _ => return scope.evaluate(node, sink).unwrap_or_else(|| node.clone()),
    };
    Node { value, span: node.span }
}

fn unused(lint: Lint, name: &str, span: Span) -> Diagnostic {
    let what = if lint == Lint::UnusedBlock { "block" } else { "parameter" };
    let message = format!("the {what} `{}` is not used", shorten(name));
    Diagnostic::warning(lint, message).at(span, "nothing refers to it")
}

struct Unroller<'a> {
    sink: &'a Sink,
    blocks: &'a Table,
    /// What every block sees besides its own parameters.
    file_scope: &'a Scope<'a>,
    used_blocks: RefCell<HashSet<String>>,
    layers: Cell<usize>,
    path_bytes: Cell<usize>,
}

/// Where in the model something stands.
struct Context<'a> {
    /// The path of names that encloses it.
    path: String,
    scope: &'a Scope<'a>,
    /// What `{i}` stands for.
    index: Option<usize>,
    /// The block that it is part of, and the context in which that is used.
    outer: Option<(&'a str, &'a Context<'a>)>,
    depth: usize,
}

impl Context<'_> {
    /// The path of something named `name` in here; the same path if the name is empty.
    fn join(&self, name: &str) -> String {
        match (self.path.as_str(), name) {
            (path, "") => path.to_owned(),
            ("", name) => name.to_owned(),
            (path, name) => format!("{path}.{name}"),
        }
    }

    /// What is inside of something of that path.
    fn inside(&self, path: &str) -> Context<'_> {
        Context {
            path: path.to_owned(),
            scope: self.scope,
            index: self.index,
            outer: self.outer,
            depth: self.depth + 1,
        }
    }
}

impl Unroller<'_> {
    fn list(&self, nodes: &[Node], context: &Context) -> Vec<LayerNode> {
        let mut out = Vec::new();
        for node in nodes {
            self.add(node, context, &mut out);
            if self.is_full() {
                break;
            }
        }
        out
    }

    /// Counts a layer; `false`, after saying so, if there are too many, or too deeply nested ones.
    fn admit(&self, path: &str, context: &Context, span: Span) -> bool {
        if self.is_full() {
            self.sink.lose(Lost::Layers);
            return false;
        }
        self.layers.set(self.layers.get() + 1);
        self.path_bytes.set(self.path_bytes.get() + path.len());
        if self.is_too_large() {
            self.sink.lose(Lost::Layers);
            self.sink.push(
                Diagnostic::error("the model has too many layers").at(
                    span,
                    format!("unrolled up to here, more than {MAX_LAYERS} layers or {MAX_PATHS} bytes of names"),
                ),
            );
            return false;
        }
        if context.depth > MAX_DEPTH {
            self.sink.push(
                Diagnostic::error("the model is nested too deeply").at(span, format!("more than {MAX_DEPTH} levels")),
            );
            return false;
        }
        true
    }

    /// Whether nothing more is unrolled.
    fn is_full(&self) -> bool {
        self.is_too_large() || self.layers.get() > MAX_WRONG && self.sink.has_errors()
    }

    fn is_too_large(&self) -> bool {
        self.layers.get() > MAX_LAYERS || self.path_bytes.get() > MAX_PATHS
    }

    /// The name of a layer: as written, with `{i}` replaced, else `default`.
    fn name(&self, table: &Table, context: &Context, default: &str) -> Option<String> {
        let Some(node) = table.get("name") else { return Some(default.to_owned()) };
        let Some(text) = node.as_str() else {
            self.sink.push(
                Diagnostic::error("wrong value for `name` of a layer")
                    .at(node.span, format!("expected a string, found {}", node.describe())),
            );
            return None;
        };
        let name = match context.index {
            Some(index) => text.replace("{i}", &index.to_string()),
            None if text.contains("{i}") => {
                self.sink.push(
                    Diagnostic::error("`{i}` stands for an index, and there is none here")
                        .at(node.span, "neither `repeat` here nor a repeated block around it"),
                );
                return None;
            }
            None => text.to_owned(),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            self.sink.push(
                Diagnostic::error(format!("`{}` cannot be the name of a layer", shorten(&name)))
                    .at(node.span, format!("use 1 to {MAX_NAME} letters, digits, `_` and `-`")),
            );
            return None;
        }
        Some(name)
    }

    /// The names in `from`, as written.
    fn from(&self, table: &Table) -> Option<Option<Vec<(String, Span)>>> {
        let Some(node) = table.get("from") else { return Some(None) };
        let one = std::slice::from_ref(node);
        let names: Option<Vec<(String, Span)>> =
            node.as_array().unwrap_or(one).iter().map(|item| Some((item.as_str()?.to_owned(), item.span))).collect();
        let names = names.filter(|names| (1..=MAX_INPUTS).contains(&names.len()));
        if names.is_none() {
            self.sink.push(
                Diagnostic::error("wrong value for `from` of a layer").at(
                    node.span,
                    format!("expected the name of an earlier layer, or a list of 1 to {MAX_INPUTS} names"),
                ),
            );
        }
        names.map(Some)
    }
}
