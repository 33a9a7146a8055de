//! The options of `runner sweep` that stand in the place of `[sweep]`: `--sweep KEY=VALUES`, `--method`, `--trials`, `--monitor`.

use super::{Override, parse_key};
use crate::config::text::diagnostics::{Diagnostic, SourceId, Span};
use crate::config::text::parse::parse_value;
use crate::config::text::sink::Sink;
use crate::config::text::syntax::{large_number, plain_value};
use crate::config::text::tree::{Entry, Node, Table, Value};

/// What stands between the ends of a range.
const DOTS: &str = "..";

/// A plain setting of `[sweep]`: a number or a word.
pub fn setting(key: &str, text: &str, source: SourceId) -> Override {
    let span = Span { source, start: 0, end: text.len() };
    Override { keys: keys(&[key], span), span, value: Some(plain(text, span)) }
}

fn keys(names: &[&str], span: Span) -> Vec<(String, Span)> {
    std::iter::once("sweep").chain(names.iter().copied()).map(|name| (name.to_owned(), span)).collect()
}

/// A number or a truth value, else text.
fn plain(text: &str, span: Span) -> Node {
    let value = parse_value(span.source, span.start, text).map(|node| node.value);
    let value = value
        .ok()
        .or_else(|| plain_value(text))
        .or_else(|| large_number(text))
        .unwrap_or_else(|| Value::String(text.to_owned()));
    Node { value, span }
}

/// `KEY=VALUES`: values between commas, which may be TOML, a list of TOML, or a range `A..B`, with `:log` or `:linear` behind it, and `:STEPS`.
pub fn parameter(text: &str, source: SourceId, sink: &Sink) -> Option<Override> {
    let Some((key, values)) = text.split_once('=') else {
        let whole = Span { source, start: 0, end: text.len() };
        let error = Diagnostic::error("`--sweep` needs KEY=VALUES").at(whole, "there is no `=`");
        sink.push(error.help("for example `--sweep optimizer.lr=1e-4..1e-1:log` or `--sweep params.width=32,64,128`"));
        return None;
    };
    let (_, span) = parse_key(key, source, sink)?;
    let start = key.len() + 1;
    let at = |from: usize, part: &str| Span { source, start: start + from, end: start + from + part.len() };
    let whole = at(0, values);
    // A path may begin with them, or have them within.
    let dots = values.find(DOTS).filter(|dots| !values[..*dots].trim().is_empty() && !values.contains('/'));
    let value = if values.trim().is_empty() {
        sink.push(Diagnostic::error("`--sweep` needs KEY=VALUES").at(span, "there are no values"));
        return None;
    } else if let Some(list) = list(values, source, start) {
        list
    } else if let Some(dots) = dots {
        Value::Table(range(values, dots, &at, sink)?)
    } else if values.trim_start().starts_with(['[', '{', '"', '\'']) {
        let problems = parse_value(source, start, values).err().unwrap_or_default();
        problems.into_iter().for_each(|problem| sink.push(problem));
        return None;
    } else {
        let mut items = Vec::new();
        let mut from = 0;
        for part in values.split(',') {
            let lead = part.len() - part.trim_start().len();
            items.push(plain(part.trim(), at(from + lead, part.trim())));
            from += part.len() + 1;
        }
        Value::Array(items)
    };
    let mut keys = keys(&["parameters"], span);
    keys.push((key.trim().to_owned(), span));
    Some(Override { keys, span, value: Some(Node { value, span: whole }) })
}

/// Values that are TOML: a list of them, or what stands between the brackets of one.
fn list(values: &str, source: SourceId, start: usize) -> Option<Value> {
    if let Ok(Node { value: value @ Value::Array(_), .. }) = parse_value(source, start, values) {
        return Some(value);
    }
    // The `=` before them is as long as the bracket.
    parse_value(source, start - 1, &format!("[{values}]")).ok().map(|node| node.value)
}

/// The table that a range stands for.
fn range(values: &str, dots: usize, at: &dyn Fn(usize, &str) -> Span, sink: &Sink) -> Option<Table> {
    let (low, rest) = (&values[..dots], &values[dots + DOTS.len()..]);
    let mut parts = rest.split(':');
    let high = parts.next().unwrap_or_default();
    let mut from = dots + DOTS.len();
    let ends = Value::Array(vec![plain(low.trim(), at(0, low)), plain(high.trim(), at(from, high))]);
    from += high.len() + 1;
    let (mut kind, mut steps) = ("linear", None);
    for part in parts {
        let span = at(from, part);
        from += part.len() + 1;
        match (part.trim(), part.trim().parse::<i64>()) {
            ("log", _) => kind = "log",
            ("linear", _) => kind = "linear",
            (_, Ok(number)) => steps = Some(Node { value: Value::Integer(number), span }),
            _ => {
                let error =
                    Diagnostic::error("this is not a range").at(span, "expected `log`, `linear` or a number of steps");
                sink.push(error.help("for example `1e-4..1e-1:log`, or `1e-4..1e-1:log:4` for four points of it"));
                return None;
            }
        }
    }
    let span = at(0, values);
    let entry = |key: &str, node: Node| Entry { key: key.to_owned(), key_span: node.span, node };
    let mut entries = vec![entry(kind, Node { value: ends, span })];
    entries.extend(steps.map(|node| entry("steps", node)));
    Some(Table { entries })
}
