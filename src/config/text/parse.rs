//! From text to the tree.

use toml::de::{DeTable, DeValue};
use toml::{Spanned, de};

use super::brackets;
use super::diagnostics::{Diagnostic, SourceId, Span};
use super::syntax::{self, Refused};
use super::tree::{Entry, Node, Table, Value};

/// Reads a whole document. With syntax errors, what could be read is still returned.
pub fn parse(source: SourceId, text: &str) -> (Table, Vec<Diagnostic>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { source, offset: 0, problems: Vec::new() };
    let table = reader.table(table.into_inner());
    let mut refused: Vec<Refused> = errors.iter().map(|error| refused(text, error)).collect();
    let unclosed = if refused.is_empty() { Vec::new() } else { brackets::unclosed(source, text) };
    // What is refused after something that is not closed was taken for a part of it.
    if let Some(open) = unclosed.iter().find_map(Diagnostic::span) {
        refused.retain(|refused| refused.range.start < open.start);
        reader.problems.retain(|problem| problem.span().is_none_or(|span| span.start < open.start));
    }
    let mut problems = syntax::explain(source, 0, text, &refused, &table);
    problems.extend(unclosed);
    // A value that was refused was read in part.
    let whole = |span: Span| !refused.iter().any(|r| (span.start..=span.end).contains(&r.range.start));
    problems.extend(reader.problems.into_iter().filter(|problem| problem.span().is_none_or(whole)));
    (table, problems)
}

/// Reads one value that starts at byte `offset` of the source.
pub fn parse_value(source: SourceId, offset: usize, text: &str) -> Result<Node, Vec<Diagnostic>> {
    let value = DeValue::parse(text)
        .map_err(|error| syntax::explain(source, offset, text, &[refused(text, &error)], &Table::default()))?;
    let mut reader = Reader { source, offset, problems: Vec::new() };
    let node = reader.node(value);
    if reader.problems.is_empty() { Ok(node) } else { Err(reader.problems) }
}

fn refused(text: &str, error: &de::Error) -> Refused {
    Refused { range: error.span().unwrap_or(text.len()..text.len()), message: error.message().to_owned() }
}

struct Reader {
    source: SourceId,
    offset: usize,
    problems: Vec<Diagnostic>,
}

impl Reader {
    fn span(&self, range: std::ops::Range<usize>) -> Span {
        Span { source: self.source, start: range.start + self.offset, end: range.end + self.offset }
    }

    fn table(&mut self, table: DeTable) -> Table {
        let mut entries: Vec<Entry> = table
            .into_iter()
            .map(|(key, value)| Entry {
                key_span: self.span(key.span()),
                key: key.into_inner().into_owned(),
                node: self.node(value),
            })
            .collect();
        // The parser sorts by name.
        entries.sort_by_key(|entry| entry.key_span.start);
        Table { entries }
    }

    fn node(&mut self, value: Spanned<DeValue>) -> Node {
        let span = self.span(value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => Value::String(text.into_owned()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => {
                    self.problems
                        .push(Diagnostic::error("this whole number is too large").at(span, "does not fit in 64 bits"));
                    Value::Integer(0)
                }
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() || number.as_str().contains("inf") || value.is_nan() => {
                    Value::Float(value)
                }
                _ => {
                    self.problems
                        .push(Diagnostic::error("this number is too large").at(span, "does not fit in 64 bits"));
                    Value::Float(0.0)
                }
            },
            DeValue::Boolean(truth) => Value::Boolean(truth),
            DeValue::Datetime(time) => Value::Datetime(time.to_string()),
            DeValue::Array(items) => Value::Array(items.into_iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { value, span }
    }
}
