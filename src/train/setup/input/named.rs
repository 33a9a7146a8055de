//! Which keys of the configuration an error of the data is about.

use crate::config::text::diagnostics::Span;
use crate::config::{Diagnostic, Experiment};
use crate::data::{WrongColumn, WrongColumns};
use serde_json::{Value, json};
use std::io;

/// The error with each of its columns at the key, or the element of a list, that names it; `None` if none of them is written.
pub fn at_columns(experiment: &Experiment, error: &anyhow::Error) -> Option<Diagnostic> {
    let WrongColumns { all, .. } = error.downcast_ref()?;
    let placed = all.iter().filter_map(|column| Some((place(experiment, column)?, &column.label)));
    let error = Diagnostic::error(format!("{error:#}"));
    Some(placed.fold(error, |error, (span, label)| error.at(span, label))).filter(|error| !error.labels.is_empty())
}

fn place(experiment: &Experiment, column: &WrongColumn) -> Option<Span> {
    let rules =
        experiment.data.source.table().and_then(|table| table.columns.as_ref()).filter(|_| column.key == "columns");
    if let Some(rules) = rules {
        return rules.0.iter().find(|rule| rule.name == column.name).map(|rule| rule.span);
    }
    let said = json!({ "data": experiment.data.source, "heads": experiment.heads });
    let mut keys = Vec::new();
    strings(&said, String::new(), &column.name, &mut keys);
    let is_of = |path: &&String| column.key.is_empty() || path.split('.').any(|part| part == column.key);
    let own: Vec<&String> = keys.iter().filter(is_of).collect();
    let written = own.iter().find_map(|path| experiment.span_of(path));
    written.or_else(|| experiment.nearest_span(own.first()?))
}

/// The dotted keys of strings that are `text`.
fn strings(value: &Value, path: String, text: &str, found: &mut Vec<String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::String(own) if own == text => found.push(path),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| strings(item, below(&i.to_string()), text, found));
        }
        Value::Object(table) => table.iter().for_each(|(key, item)| strings(item, below(key), text, found)),
        _ => {}
    }
}

/// Whether data is not there whose classes, named, would be all that a model depends on.
pub fn is_elsewhere(experiment: &Experiment, error: &anyhow::Error) -> bool {
    let source = &experiment.data.source;
    let unnamed = source.has_photos() && source.has_classes() == Some(true) && source.named_classes().is_none();
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    unnamed && error.chain().any(|cause| cause.downcast_ref().is_some_and(is_missing))
}
