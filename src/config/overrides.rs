//! `--set KEY=VALUE`.

use super::diagnostics::{Diagnostic, SourceKind, Sources, Span};
use super::part::shorten;
use super::sink::Sink;
use super::tree::{Entry, Node, Table, Value, parse_value};

/// Components of a key.
const MAX_KEYS: usize = 64;

/// One `--set`.
#[derive(Debug)]
pub struct Override {
    /// The components of the key, each with its place.
    keys: Vec<(String, Span)>,
    value: Node,
}

impl Override {
    /// Takes an option apart. A value that is not TOML is text: `--set device=cpu` needs no quotes.
    pub fn parse(text: &str, sources: &mut Sources, sink: &Sink) -> Option<Self> {
        let source = sources.add(format!("--set {text}"), text, SourceKind::Set);
        let whole = Span { source, start: 0, end: text.len() };
        let Some((key, value)) = text.split_once('=') else {
            sink.push(Diagnostic::error("`--set` needs KEY=VALUE").at(whole, "there is no `=`"));
            return None;
        };
        let mut keys = Vec::new();
        let mut at = 0;
        for part in key.split('.') {
            let start = at + (part.len() - part.trim_start().len());
            let name = part.trim();
            keys.push((name.to_owned(), Span { source, start, end: start + name.len() }));
            at += part.len() + 1;
        }
        if keys.iter().any(|(name, _)| name.is_empty()) || keys.len() > MAX_KEYS {
            let span = Span { end: key.len(), ..whole };
            sink.push(
                Diagnostic::error("this is not a key").at(span, "expected names with dots between: `train.epochs`"),
            );
            return None;
        }
        let start = key.len() + 1 + (value.len() - value.trim_start().len());
        let value = value.trim();
        let value = match parse_value(source, start, value) {
            Ok(node) => node,
            // Brackets and quotes are meant as TOML.
            Err(problems) if value.starts_with(['[', '{', '"', '\'']) => {
                problems.into_iter().for_each(|problem| sink.push(problem));
                return None;
            }
            Err(_) => {
                Node { value: Value::String(value.to_owned()), span: Span { source, start, end: start + value.len() } }
            }
        };
        Some(Self { keys, value })
    }

    /// Whether it reaches into the layers, blocks or parameters of a model.
    pub fn is_inside_model(&self) -> bool {
        match self.keys[0].0.as_str() {
            "params" | "blocks" => true,
            "model" => self.keys.get(1).is_some_and(|(key, _)| key == "layers"),
            _ => false,
        }
    }

    /// Changes the tree.
    pub fn apply(self, root: &mut Table, sink: &Sink) {
        if let Err(problem) = put_in_table(root, &self.keys, self.value) {
            sink.push(problem);
        }
    }
}

fn put_in_table(table: &mut Table, keys: &[(String, Span)], value: Node) -> Result<(), Diagnostic> {
    let Some(((key, span), rest)) = keys.split_first() else { return Ok(()) };
    if let Some(node) = table.get_mut(key) {
        return put(node, *span, rest, value);
    }
    let mut node = Node { value: Value::Table(Table::default()), span: *span };
    put(&mut node, *span, rest, value)?;
    table.set(Entry { key: key.clone(), key_span: *span, node });
    Ok(())
}

/// Puts a value at the end of `keys` below `node`, whose own key is at `at`.
fn put(node: &mut Node, at: Span, keys: &[(String, Span)], value: Node) -> Result<(), Diagnostic> {
    let Some(((key, span), rest)) = keys.split_first() else {
        merge(node, value);
        return Ok(());
    };
    let (place, found) = (node.span, node.describe());
    match &mut node.value {
        Value::Table(table) => put_in_table(table, keys, value),
        Value::Array(items) => put(element(items, key, *span)?, *span, rest, value),
        _ => Err(Diagnostic::error("this key has no keys below it")
            .at(at, format!("is {found}"))
            .context(place, "written here")),
    }
}

fn element<'a>(items: &'a mut [Node], index: &str, span: Span) -> Result<&'a mut Node, Diagnostic> {
    let length = items.len();
    index.parse::<usize>().ok().and_then(|index| items.get_mut(index)).ok_or_else(|| {
        let reason = match length {
            0 => "the list is empty".into(),
            _ => format!("expected a number from 0 to {}", length - 1),
        };
        Diagnostic::error(format!("there is no element `{}` in this list", shorten(index))).at(span, reason)
    })
}

fn merge(slot: &mut Node, value: Node) {
    match (&mut slot.value, value.value) {
        (Value::Table(below), Value::Table(above)) => {
            slot.span = value.span;
            below.merge(above);
        }
        (_, new) => *slot = Node { value: new, span: value.span },
    }
}
