//! One entry of a list of layers.

use std::collections::BTreeMap;

use super::{Context, Unroller};
use crate::config::declare::options::Options;
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::language::layers::{CONTAINERS, CommonKeys, JOINS, Layer, PAIRS};
use crate::config::load::expr::INDEX;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::spelling::{did_you_mean, shorten};
use crate::config::text::tree::{Node, Table, Value};
use crate::config::text::words::nearest;

/// No layer has as many keys; more are unknown ones, and not worth keeping at every repetition.
const MAX_FIELDS: usize = 64;

/// What is common to everything that a table in a list of layers can be.
pub(super) struct Common {
    pub name: String,
    pub path: String,
    pub from: Option<Vec<(String, Span)>>,
}

impl Unroller<'_> {
    /// Adds what `node` says to a list of siblings.
    pub(super) fn add(&self, node: &Node, context: &Context, out: &mut Vec<LayerNode>) {
        let first = out.len();
        self.add_right(node, context, out);
        if out.len() == first && !self.is_full() {
            out.push(unknown(node, context, &first.to_string()));
        }
    }

    /// The same, but for what is wrong, which may be left out.
    fn add_right(&self, node: &Node, context: &Context, out: &mut Vec<LayerNode>) {
        match &node.value {
            Value::String(_) => out.extend(self.bare(node, context, &out.len().to_string())),
            Value::Table(table) if table.get("block").is_some() => {
                self.use_of_block(table, context, &out.len().to_string(), out)
            }
            Value::Table(table) => out.extend(self.table(node, table, context, &out.len().to_string())),
            _ => self.not_a_layer(node),
        }
    }

    fn not_a_layer(&self, node: &Node) {
        self.sink.push(
            Diagnostic::error("this is not a layer")
                .at(node.span, format!("expected a table or the name of a type, found {}", node.describe())),
        );
    }

    /// A layer that is only a word.
    fn bare(&self, node: &Node, context: &Context, default: &str) -> Option<LayerNode> {
        let word = context.scope.evaluate(node, self.sink)?;
        let common = Common { path: context.join(default), name: default.to_owned(), from: None };
        self.typed(&word, &Table::default(), common, context)
    }

    /// A layer that is neither a bare word nor a block; `default` is its name if it has none of its own.
    fn table(&self, node: &Node, table: &Table, context: &Context, default: &str) -> Option<LayerNode> {
        let Some(kind) = table.get("type") else {
            if table.get("layers").is_some() {
                return self.group(table, context, default);
            }
            let known: Vec<&str> = Layer::TYPES.iter().copied().chain(["type", "block", "layers", "name"]).collect();
            let near = table.entries.iter().find_map(|e| {
                let near = nearest(&e.key, ["type", "block", "layers"])?;
                (!known.contains(&e.key.as_str())).then_some((e, near))
            });
            let error = Diagnostic::error("this layer has no `type`");
            self.sink.push(match near {
                Some((entry, near)) => error.at(entry.key_span, did_you_mean(near)),
                None => error
                    .at(node.span, "`type` is missing")
                    .help("a layer has a `type`; a group has `layers` instead, and the use of a block has `block`"),
            });
            return None;
        };
        let word = context.scope.evaluate(kind, self.sink)?;
        let container = word.as_str().is_some_and(|word| CONTAINERS.contains(&word));
        // A residual and branches have a level of their own only if they are named.
        let transparent = matches!(word.as_str(), Some("residual" | "branches"));
        let name = self.name(table, context, if transparent { "" } else { default });
        let from = self.from(table);
        // With a bad name, what else is wrong is still to be found.
        let usable = name.is_some() && from.is_some();
        let name = name.unwrap_or_else(|| default.to_owned());
        let common = Common { path: context.join(&name), name, from: from.flatten() };
        let made = match container {
            true => self.container(&word, table, common, context),
            false => self.typed(&word, table, common, context),
        };
        made.filter(|_| usable)
    }

    /// A projection or a branch: any single layer, or a list of layers, which is a group without a name.
    pub(super) fn single(&self, node: &Node, context: &Context, default: &str) -> LayerNode {
        self.right_single(node, context, default).unwrap_or_else(|| unknown(node, context, default))
    }

    fn right_single(&self, node: &Node, context: &Context, default: &str) -> Option<LayerNode> {
        if let Value::Array(layers) = &node.value {
            let path = context.join(default);
            if !self.admit(&path, context, node.span) {
                return None;
            }
            let kind = LayerKind::Group(self.list(layers, &context.inside(&path)));
            return Some(LayerNode {
                name: default.to_owned(),
                path,
                span: node.span,
                fields: BTreeMap::new(),
                from: None,
                from_names: Vec::new(),
                kind,
                doubtful: false,
            });
        }
        match &node.value {
            Value::String(_) => self.bare(node, context, default),
            Value::Table(table) if table.get("block").is_some() => {
                let mut made = Vec::new();
                self.use_of_block(table, context, default, &mut made);
                if made.len() > 1 {
                    self.sink.push(
                        Diagnostic::error("these are several layers, where one is expected")
                            .at(made[0].span, format!("`{{i}}` in the name makes {} of it", made.len()))
                            .help("put it in a list: `[{ block = … }]`"),
                    );
                    return None;
                }
                made.pop()
            }
            Value::Table(table) => self.table(node, table, context, default),
            _ => {
                self.not_a_layer(node);
                None
            }
        }
    }

    /// A layer of one of the plain types.
    fn typed(&self, word: &Node, table: &Table, common: Common, context: &Context) -> Option<LayerNode> {
        let known: Vec<&str> = Layer::TYPES.iter().chain(&CONTAINERS).copied().collect();
        if let Some(text) = word.as_str().filter(|text| !known.contains(text))
            && self.blocks.get(text).is_some()
        {
            let error = Diagnostic::error(format!("`{}` is a block, not a type", shorten(text)));
            self.sink.push(error.at(word.span, format!("write `{{ block = \"{}\" }}`", shorten(text))));
            return None;
        }
        let kind = known_word(word, "type", "a layer", &known, self.sink)?;
        if CONTAINERS.contains(&kind) {
            return self.container(word, table, common, context);
        }
        let what = format!("layer `{kind}`");
        let common_keys = [&[Layer::TAG], CommonKeys::KEYS].concat();
        let (arguments, bad) = context.scope.evaluate_all(table, &common_keys, self.sink);
        let part = Part { table: &arguments, span: word.span, what: &what, bad: &bad, sink: self.sink };
        part.known_keys_among(&[Layer::fields(kind)], &common_keys);
        if !self.admit(&common.path, context, word.span) {
            return None;
        }
        let layer = Layer::read(kind, &part)?;
        let several = JOINS.contains(&kind);
        let inputs = common.from.as_ref().map_or(1, Vec::len);
        if several && inputs < 2 {
            let span = table.get("from").map_or(word.span, |from| from.span);
            self.sink.push(
                Diagnostic::error(format!("{what} needs two inputs or more"))
                    .at(span, "name them: `from = [\"a\", \"b\"]`"),
            );
            return None;
        }
        let most = if PAIRS.contains(&kind) { 2 } else { 1 };
        if !several && !self.few_inputs(table, (inputs, most), &what) {
            return None;
        }
        Some(node(table, word.span, common, LayerKind::Layer(layer)))
    }

    /// Whether no more than one name is in `from`; says so otherwise.
    pub(super) fn one_input(&self, table: &Table, inputs: usize, what: &str) -> bool {
        self.few_inputs(table, (inputs, 1), what)
    }

    /// Whether no more than `most` names are in `from`, one or two; says so otherwise.
    fn few_inputs(&self, table: &Table, (inputs, most): (usize, usize), what: &str) -> bool {
        if inputs > most
            && let Some(from) = table.get("from")
        {
            self.sink.push(
                Diagnostic::error(format!("{what} takes {}", if most == 1 { "one input" } else { "one input or two" }))
                    .at(from.span, format!("{inputs} are named"))
                    .help("join them first, with a layer `add`, `multiply` or `concat`"),
            );
        }
        inputs <= most
    }
}

/// A finished node; `fields` are the places of everything that its table says.
pub(super) fn node(table: &Table, span: Span, common: Common, kind: LayerKind) -> LayerNode {
    let fields = table.entries.iter().take(MAX_FIELDS).map(|entry| (entry.key.clone(), entry.node.span)).collect();
    let from_names = common.from.iter().flatten().map(|(name, _)| name.clone()).collect();
    LayerNode {
        name: common.name,
        path: common.path,
        span,
        fields,
        from: common.from,
        from_names,
        kind,
        doubtful: false,
    }
}

/// What stands for something that is no layer, so that what comes after it and what takes its output by name is judged without it.
fn unknown(node: &Node, context: &Context, default: &str) -> LayerNode {
    let name = node.as_table().and_then(|table| table.get("name")?.as_str());
    let index = context.index.map_or_else(String::new, |index| index.to_string());
    let name = name.map_or_else(|| default.to_owned(), |name| name.replace(INDEX, &index));
    LayerNode {
        path: context.join(&name),
        name,
        span: node.span,
        fields: BTreeMap::new(),
        from: None,
        from_names: Vec::new(),
        kind: LayerKind::Group(Vec::new()),
        doubtful: true,
    }
}
