//! Groups, residuals, gates and branches, and what stands for several layers.

use super::layer::{Common, node};
use super::{Context, Unroller};
use crate::config::declare::options::Options;
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::{Combine, LayerKind, LayerNode};
use crate::config::language::layers::{
    Branches, COMBINES, CommonKeys, DECODER_LAYER, ENCODER_LAYER, Gate, Group, Layer, Residual, SHORTCUTS,
};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::spelling::list;
use crate::config::text::tree::{Node, Table};

impl Unroller<'_> {
    /// A table with `layers` and no `type`.
    pub(super) fn group(&self, table: &Table, context: &Context, default: &str) -> Option<LayerNode> {
        let span =
            table.get("name").map(|name| name.span).or_else(|| table.entry("layers").map(|entry| entry.key_span))?;
        self.keys(table, span, "a group of layers", &[CommonKeys::KEYS, Group::KEYS]);
        let name = self.name(table, context, default);
        let from = self.from(table);
        let path = context.join(name.as_deref().unwrap_or(default));
        if !self.admit(&path, context, span) {
            return None;
        }
        let body = self.body(table, span, "a group of layers", &context.inside(&path));
        let common = Common { name: name?, path, from: from? };
        self.one_input(table, common.from.as_ref().map_or(1, Vec::len), "a group of layers")
            .then(|| Some(node(table, span, common, LayerKind::Group(body?))))?
    }

    /// `residual`, `gate`, `branches`, or a layer of a transformer.
    pub(super) fn container(&self, word: &Node, table: &Table, common: Common, context: &Context) -> Option<LayerNode> {
        let span = word.span;
        if let Some(kind @ (ENCODER_LAYER | DECODER_LAYER)) = word.as_str() {
            return self.transformer_layer(kind, span, table, common, context);
        }
        if !self.admit(&common.path, context, span) {
            return None;
        }
        let inside = context.inside(&common.path);
        let what = format!("layer `{}`", word.as_str()?);
        let kind = match word.as_str()? {
            "residual" => self.residual(table, span, &inside),
            "gate" => {
                self.keys(table, span, &what, &[&[Layer::TAG], CommonKeys::KEYS, Gate::KEYS]);
                self.body(table, span, &what, &inside).map(LayerKind::Gate)
            }
            _ => self.branches(table, span, &inside),
        };
        let fits = self.one_input(table, common.from.as_ref().map_or(1, Vec::len), &what);
        let known = [&[Layer::TAG], CommonKeys::KEYS, Residual::KEYS, Gate::KEYS, Branches::KEYS].concat();
        let doubtful = table.entries.iter().any(|entry| !known.contains(&entry.key.as_str()));
        kind.filter(|_| fits).map(|kind| LayerNode { doubtful, ..node(table, span, common, kind) })
    }

    fn residual(&self, table: &Table, span: Span, inside: &Context) -> Option<LayerKind> {
        let what = "layer `residual`";
        self.keys(table, span, what, &[&[Layer::TAG], CommonKeys::KEYS, Residual::KEYS]);
        let body = self.body(table, span, what, inside);
        let projection = table.get("projection").map(|node| self.single(node, inside, "projection"));
        let shortcut = match table.get("shortcut") {
            Some(node) => {
                let word = inside.scope.evaluate(node, self.sink)?;
                known_word(&word, "shortcut", what, &SHORTCUTS, self.sink)?
            }
            None => "always",
        };
        let if_same_shape = shortcut == "if_same_shape";
        if let (true, Some(entry)) = (if_same_shape, table.entry("projection")) {
            self.sink.push(
                Diagnostic::error("`projection` and `shortcut = \"if_same_shape\"` exclude each other")
                    .at(entry.key_span, "is for shapes that differ")
                    .context(table.get("shortcut")?.span, "leaves the sum out where shapes differ"),
            );
            return None;
        }
        Some(LayerKind::Residual { body: body?, projection: projection.map(Box::new), if_same_shape })
    }

    fn branches(&self, table: &Table, span: Span, inside: &Context) -> Option<LayerKind> {
        let what = "layer `branches`";
        self.keys(table, span, what, &[&[Layer::TAG], CommonKeys::KEYS, Branches::KEYS]);
        let combine = match table.get("combine") {
            Some(node) => inside
                .scope
                .evaluate(node, self.sink)
                .and_then(|word| known_word(&word, "combine", what, &COMBINES, self.sink)),
            None => {
                self.missing(table, span, what, "combine", &format!("it may be {}", list(COMBINES, "or")));
                None
            }
        };
        let items = match table.get("branches") {
            None => {
                self.missing(table, span, what, "branches", "`branches = [{ layers = [ … ] }, { layers = [ … ] }]`");
                return None;
            }
            Some(node) => match node.as_array() {
                Some(items) if !items.is_empty() => items,
                _ => {
                    let error = Diagnostic::error(format!("wrong value for `branches` in {what}"));
                    self.sink.push(error.at(node.span, "expected a list of layers or groups of layers"));
                    return None;
                }
            },
        };
        let items = items.iter().enumerate().take_while(|_| !self.is_full());
        let branches = items.map(|(i, item)| self.single(item, inside, &i.to_string())).collect();
        let combine = match combine? {
            "add" => Combine::Add,
            "multiply" => Combine::Multiply,
            _ => Combine::Concat,
        };
        Some(LayerKind::Branches { branches, combine })
    }

    /// The list in `layers`.
    pub(super) fn body(&self, table: &Table, span: Span, what: &str, inside: &Context) -> Option<Vec<LayerNode>> {
        let Some(node) = table.get("layers") else {
            self.missing(table, span, what, "layers", "a list of layers: `layers = [ … ]`");
            return None;
        };
        let Some(layers) = node.as_array() else {
            self.sink.push(
                Diagnostic::error(format!("wrong value for `layers` in {what}"))
                    .at(node.span, format!("expected a list, found {}", node.describe())),
            );
            return None;
        };
        Some(self.list(layers, inside))
    }

    fn missing(&self, table: &Table, span: Span, what: &str, key: &str, help: &str) {
        if self.sink.has_suggested(key, table) {
            return;
        }
        let error = Diagnostic::error(format!("{what} needs `{key}`"));
        self.sink.push(error.at(span, format!("`{key}` is missing")).help(help));
    }

    pub(super) fn keys(&self, table: &Table, span: Span, what: &str, known: &[&[&str]]) {
        Part { table, span, what, bad: &[], sink: self.sink }.known_keys(known);
    }
}
