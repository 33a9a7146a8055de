//! Blocks: layers that are written once and used many times.

use super::layer::{Common, node};
use super::{Context, MAX_LAYERS, Unroller};
use crate::config::declare::options::Options;
use crate::config::declare::part::{Part, unknown_parameter, with_suggestion};
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::language::layers::{Block, CommonKeys};
use crate::config::load::expr::{INDEX, Scope};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::spelling::{list, shorten};
use crate::config::text::tree::{Node, Table, Value};

/// The label for the use of a block, in an error inside the block.
const USED_HERE: &str = "used here";

/// Reports what is wrong with the blocks themselves, used or not.
pub(super) fn check_definitions(blocks: &Table, sink: &Sink) {
    for entry in &blocks.entries {
        let what = format!("block `{}`", shorten(&entry.key));
        let Some(table) = entry.node.as_table() else {
            let text = format!("expected a table, found {}", entry.node.describe());
            sink.push(Diagnostic::error(format!("{what} must be a table")).at(entry.node.span, text));
            continue;
        };
        let part = Part { table, span: entry.key_span, what: &what, bad: &[], sink };
        part.known_keys(&[&["params", "layers"]]);
        match table.get("layers") {
            None => {
                sink.push(Diagnostic::error(format!("{what} needs `layers`")).at(entry.key_span, "`layers` is missing"))
            }
            Some(node) if node.as_array().is_none() => sink.push(
                Diagnostic::error(format!("wrong value for `layers` in {what}"))
                    .at(node.span, format!("expected a list, found {}", node.describe())),
            ),
            Some(_) => {}
        }
        if let Some(node) = table.get("params").filter(|node| node.as_table().is_none()) {
            sink.push(
                Diagnostic::error(format!("wrong value for `params` in {what}"))
                    .at(node.span, format!("expected a table with a default for each, found {}", node.describe())),
            );
        }
    }
}

/// Whether `{i}` is in one of the values.
fn has_index(table: &Table) -> bool {
    fn within(node: &Node) -> bool {
        match &node.value {
            Value::String(text) => text.contains(INDEX),
            Value::Array(items) => items.iter().any(within),
            _ => false,
        }
    }
    table.entries.iter().any(|entry| within(&entry.node))
}

/// The use of a block, read.
struct Use<'a> {
    block: &'a str,
    /// What to point at.
    span: Span,
    params: Option<&'a Table>,
    layers: &'a [Node],
    /// Parameters for all, those of the first copy where each has its own, and those for the first alone.
    with: Table,
    first: Table,
    /// What `with` is made of for each copy, where `{i}` is in it.
    by_index: Option<&'a Table>,
}

impl Unroller<'_> {
    /// Adds a block, or as many as `repeat` says, to a list of siblings; `default` is its name if it has none of its own.
    pub(super) fn use_of_block(&self, table: &Table, context: &Context, default: &str, out: &mut Vec<LayerNode>) {
        let (first, refusals) = (out.len(), self.sink.refusals());
        let Some(used) = self.read_use(table, context) else { return };
        let Some(repeat) = self.repeat(table, context) else { return };
        let Some(from) = self.from(table) else { return };
        if !self.one_input(table, from.as_ref().map_or(1, Vec::len), "a block") {
            return;
        }
        let doubtful = self.sink.refusals() > refusals;
        let before = self.sink.len();
        // With the index in its name, a repeated block is a row of siblings rather than a group.
        let written = table.get("name").and_then(Node::as_str);
        let spread = repeat.is_some() && written.is_some_and(|name| name.contains("{i}"));
        if spread {
            for i in 0..repeat.unwrap_or(1) {
                let here = Context { index: Some(i), ..context.inside(&context.path) };
                let Some(name) = self.name(table, &here, default) else { return };
                let path = context.join(&name);
                let from = from.clone().filter(|_| i == 0);
                let Some(body) = self.instance(&used, &path, i, Some(i), context) else { break };
                out.push(node(table, used.span, Common { name, path, from }, LayerKind::Group(body)));
            }
        } else if let Some(name) = self.name(table, context, default) {
            let path = context.join(&name);
            let body = match repeat {
                None => self.instance(&used, &path, 0, context.index, context),
                Some(count) if self.admit(&path, context, used.span) => Some(
                    (0..count)
                        .map_while(|i| {
                            let name = i.to_string();
                            let path = format!("{path}.{name}");
                            let body = self.instance(&used, &path, i, Some(i), context)?;
                            Some(node(table, used.span, Common { name, path, from: None }, LayerKind::Group(body)))
                        })
                        .collect(),
                ),
                Some(_) => None,
            };
            if let Some(body) = body {
                out.push(node(table, used.span, Common { name, path, from }, LayerKind::Group(body)));
            }
        }
        out[first..].iter_mut().for_each(|made| made.doubtful = doubtful);
        self.sink.amend(before, |diagnostic| {
            if !diagnostic.labels.iter().any(|label| label.span == used.span || label.text == USED_HERE) {
                *diagnostic = diagnostic.clone().context(used.span, USED_HERE);
            }
        });
    }

    fn read_use<'t>(&'t self, table: &'t Table, context: &Context) -> Option<Use<'t>> {
        let node = table.get("block")?;
        let what = "the use of a block";
        if let Some(entry) = table.entry("type").or_else(|| table.entry("layers")) {
            self.sink.push(
                Diagnostic::error(format!("`block` and `{}` exclude each other", entry.key))
                    .at(entry.key_span, "a block brings its own layers")
                    .context(node.span, ""),
            );
            return None;
        }
        self.keys(table, node.span, what, &[CommonKeys::KEYS, Block::KEYS]);
        let word = context.scope.evaluate(node, self.sink)?;
        let Some(name) = word.as_str() else {
            let text = format!("expected a string, found {}", word.describe());
            self.sink.push(Diagnostic::error(format!("wrong value for `block` in {what}")).at(node.span, text));
            return None;
        };
        let Some(entry) = self.blocks.entry(name) else {
            if self.sink.has_lost(Lost::Base) {
                return None;
            }
            let known: Vec<&str> = self.blocks.entries.iter().map(|entry| entry.key.as_str()).collect();
            let error = Diagnostic::error(format!("there is no block `{}`", shorten(name)));
            let error = with_suggestion(error, node.span, "not defined", name, &known);
            self.sink.push(match known[..] {
                [] => error.help("no blocks are defined in this file"),
                _ => error.help(format!("the blocks of this file are {}", list(known, "and"))),
            });
            return None;
        };
        self.used_blocks.borrow_mut().insert(entry.key.clone());
        let mut outer = context.outer;
        while let Some((block, around)) = outer {
            if block == entry.key {
                self.sink.push(
                    Diagnostic::error(format!("the block `{}` uses itself", shorten(name)))
                        .at(node.span, "would never end")
                        .context(entry.key_span, "defined here"),
                );
                return None;
            }
            outer = around.outer;
        }
        let definition = entry.node.as_table()?;
        let params = definition.get("params").and_then(Node::as_table);
        let layers = definition.get("layers").and_then(Node::as_array)?;
        if let (Some(first), None) = (table.entry("first"), table.get("repeat")) {
            self.sink.push(
                Diagnostic::error("`first` without `repeat`")
                    .at(first.key_span, "there is only one; set its parameters by `with`"),
            );
        }
        // What `{i}` stands for here.
        let repeated = table.get("repeat").is_some();
        let index = if repeated { Some(0) } else { context.index };
        let with = self.arguments(table, "with", name, params, index, context)?;
        let first = self.arguments(table, "first", name, params, index, context)?;
        let by_index = table.get("with").and_then(Node::as_table).filter(|with| repeated && has_index(with));
        Some(Use { block: &entry.key, span: node.span, params, layers, with, first, by_index })
    }

    /// The parameters in `with` or `first`, evaluated where the block is used.
    fn arguments(
        &self,
        table: &Table,
        key: &str,
        block: &str,
        params: Option<&Table>,
        index: Option<usize>,
        context: &Context,
    ) -> Option<Table> {
        let Some(node) = table.get(key) else { return Some(Table::default()) };
        let Some(given) = node.as_table() else {
            self.sink.push(
                Diagnostic::error(format!("wrong value for `{key}` in the use of a block"))
                    .at(node.span, format!("expected a table of parameters, found {}", node.describe())),
            );
            return None;
        };
        let known: Vec<&str> = params.map(|p| p.entries.iter().map(|e| e.key.as_str()).collect()).unwrap_or_default();
        for entry in given.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let why = format!(": block `{}` has no such parameter", shorten(block));
            self.sink.push(unknown_parameter(&entry.key, &why, entry.key_span, &known));
        }
        let (values, bad) = context.scope.inner(index).evaluate_all(given, &[], self.sink);
        bad.is_empty().then_some(values)
    }

    fn repeat(&self, table: &Table, context: &Context) -> Option<Option<usize>> {
        let Some(node) = table.get("repeat") else { return Some(None) };
        match context.scope.evaluate(node, self.sink)?.value {
            Value::Integer(count) if (1..=MAX_LAYERS as i64).contains(&count) => Some(Some(count as usize)),
            other => {
                let found = Node { value: other, span: node.span }.describe();
                self.sink.push(
                    Diagnostic::error("wrong value for `repeat` in the use of a block")
                        .at(node.span, format!("expected a whole number from 1 to {MAX_LAYERS}, found {found}")),
                );
                None
            }
        }
    }

    /// The layers of one copy, the `number`th.
    fn instance(
        &self,
        used: &Use,
        path: &str,
        number: usize,
        index: Option<usize>,
        context: &Context,
    ) -> Option<Vec<LayerNode>> {
        if !self.admit(path, context, used.span) {
            return None;
        }
        let own = match used.by_index.filter(|_| number > 0) {
            Some(with) => {
                let (values, bad) = context.scope.inner(index).evaluate_all(with, &[], self.sink);
                bad.is_empty().then_some(())?;
                Some(values)
            }
            None => None,
        };
        let with = own.as_ref().unwrap_or(&used.with);
        let mut scope: Scope = self.file_scope.inner(index);
        if let Some(params) = used.params {
            let first = |key: &str| used.first.get(key).filter(|_| number == 0);
            scope.define_all(params, |key| first(key).or_else(|| with.get(key)).cloned(), self.sink);
        }
        let inside = Context {
            path: path.to_owned(),
            scope: &scope,
            index,
            outer: Some((used.block, context)),
            // A repeated block is a group of groups.
            depth: context.depth + 2,
        };
        Some(self.list(used.layers, &inside))
    }
}
