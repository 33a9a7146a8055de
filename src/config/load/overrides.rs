//! `--set KEY=VALUE` and `--unset KEY`, and the options of a sweep.

mod sweep;

use super::merge::{LeftBehind, Reason, join};
use crate::config::language::keys;
use crate::config::text::diagnostics::{Diagnostic, SourceId, SourceKind, Sources, Span};
use crate::config::text::parse::parse_value;
use crate::config::text::sink::Sink;
use crate::config::text::spelling::{did_you_mean, list, shorten};
use crate::config::text::syntax::{is_nothing, large_number, plain_value};
use crate::config::text::tree::{Entry, Node, Table, Value};
use crate::config::text::words::nearest;

/// Components of a key.
const MAX_KEYS: usize = 64;
/// What an option that takes a key away begins with, among those that set one.
pub const UNSET_OPTION: &str = "--unset ";

/// What options that change the sweep begin with, and the keys that they set.
const SWEEP_OPTIONS: [(&str, &str); 4] =
    [("--method ", "method"), ("--trials ", "trials"), ("--monitor ", "monitor"), (SWEEP_OPTION, "parameters")];
/// What an option begins with that gives a sweep a parameter: `--sweep KEY=VALUES`.
pub const SWEEP_OPTION: &str = "--sweep ";

/// Reports a word of another language for "nothing".
fn nothing(value: &str, key: &str, at: Span, sink: &Sink) -> Option<Override> {
    let error = Diagnostic::error(format!("there is no value `{value}`"));
    sink.push(error.at(at, format!("to take the key away: `--unset {}`", key.trim())));
    None
}

/// One option.
#[derive(Debug)]
pub struct Override {
    /// The components of the key, each with its place.
    keys: Vec<(String, Span)>,
    /// The whole key's place.
    span: Span,
    /// `None` takes the key away.
    value: Option<Node>,
}

impl Override {
    /// Takes an option apart: `KEY=VALUE` as after `--set`, or the whole of `--unset KEY`. A value that is not TOML is
    /// text, `--set device=cpu` needs no quotes; but what is plainly a number or a truth value is one.
    pub fn parse(option: &str, sources: &mut Sources, sink: &Sink) -> Option<Self> {
        if let Some(key) = option.strip_prefix(UNSET_OPTION) {
            let source = sources.add(option, key, SourceKind::Set);
            let (keys, span) = parse_key(key, source, sink)?;
            return Some(Self { keys, span, value: None });
        }
        if let Some((prefix, key)) = SWEEP_OPTIONS.iter().find(|(prefix, _)| option.starts_with(prefix)) {
            let source = sources.add(option, &option[prefix.len()..], SourceKind::Set);
            return match *prefix == SWEEP_OPTION {
                true => sweep::parameter(&option[prefix.len()..], source, sink),
                false => Some(sweep::setting(key, &option[prefix.len()..], source)),
            };
        }
        let source = sources.add(format!("--set {option}"), option, SourceKind::Set);
        let whole = Span { source, start: 0, end: option.len() };
        let Some((key, value)) = option.split_once('=') else {
            sink.push(
                Diagnostic::error("`--set` needs KEY=VALUE")
                    .at(whole, "there is no `=`")
                    .help("`--unset KEY` takes a key away"),
            );
            return None;
        };
        let (keys, span) = parse_key(key, source, sink)?;
        let start = key.len() + 1 + (value.len() - value.trim_start().len());
        let value = value.trim();
        let at = Span { source, start, end: start + value.len() };
        let dotted = keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(".");
        let value = match (parse_value(source, start, value), plain_value(value).or_else(|| large_number(value))) {
            // A folder may be called `2024`.
            (read, _) if !value.starts_with(['[', '{', '"', '\'']) && !value.is_empty() && keys::is_text(&dotted) => {
                match read {
                    Ok(node) if node.as_str().is_some() => node,
                    _ if is_nothing(value) => return nothing(value, key, at, sink),
                    _ => Node { value: Value::String(value.to_owned()), span: at },
                }
            }
            (Ok(node), _) => node,
            (Err(_), Some(value)) => Node { value, span: at },
            // Brackets and quotes are meant as TOML, but for those of a path such as `{a,b}.bin`.
            (Err(problems), _)
                if value.starts_with(['"', '\'']) || value.starts_with(['[', '{']) && !keys::is_text(&dotted) =>
            {
                problems.into_iter().for_each(|problem| sink.push(problem));
                return None;
            }
            (Err(_), _) if is_nothing(value) => {
                return nothing(value, key, at, sink);
            }
            (Err(_), _) => Node { value: Value::String(value.to_owned()), span: at },
        };
        Some(Self { keys, span, value: Some(value) })
    }

    /// Whether it reaches into the layers, blocks or parameters of a model. One that takes all of them away makes room for those of another model.
    pub fn is_inside_model(&self) -> bool {
        let all = match self.keys[0].0.as_str() {
            "params" | "blocks" => 1,
            "model" if self.keys.get(1).is_some_and(|(key, _)| key == "layers") => 2,
            _ => return false,
        };
        !self.takes_away() || self.keys.len() > all
    }

    /// Whether it takes a key away.
    pub fn takes_away(&self) -> bool {
        self.value.is_none()
    }

    /// Changes the tree; what it took away.
    pub fn apply(self, root: &mut Table, sink: &Sink) -> Option<LeftBehind> {
        let problem = match (self.unknown(root), self.value) {
            (Some(problem), _) => Err(problem),
            (None, Some(value)) => put_in_table(root, &self.keys, value).map(|()| None),
            (None, None) => take_away(root, &self.keys, self.span),
        };
        problem.unwrap_or_else(|problem| {
            sink.push(problem);
            None
        })
    }

    /// An error if the first name is none of those that a file has at its top.
    fn unknown(&self, root: &Table) -> Option<Diagnostic> {
        let (first, place) = &self.keys[0];
        let tops: Vec<&str> =
            keys::top().iter().copied().chain(keys::section_names()).chain(["params", "blocks"]).collect();
        if tops.contains(&first.as_str()) {
            return None;
        }
        let error = Diagnostic::error(format!("unknown key `{}` in the configuration", shorten(first)));
        if first == "extends" {
            return Some(error.at(*place, "a file extends another before any option is looked at"));
        }
        let near = nearest(first, tops.iter().copied());
        if self.keys.len() > 1
            && let Some(near) = near
        {
            return Some(error.at(*place, did_you_mean(near)));
        }
        let written: Vec<&str> = self.keys.iter().map(|(key, _)| key.as_str()).collect();
        let candidates = keys::ending_with(&written, root);
        Some(match (&candidates[..], near) {
            ([], Some(near)) => error.at(*place, did_you_mean(near)),
            ([], None) => error.at(*place, "no such key").help(format!(
                "a key is written with its section, `train.epochs`; the sections are {}",
                list(keys::section_names(), "and")
            )),
            (all, _) => error.at(self.span, format!("did you mean {}?", list(all.iter().map(String::as_str), "or"))),
        })
    }
}

/// The names of a dotted key, and its whole place.
fn parse_key(key: &str, source: SourceId, sink: &Sink) -> Option<(Vec<(String, Span)>, Span)> {
    let mut keys = Vec::new();
    let mut at = 0;
    for part in key.split('.') {
        let start = at + (part.len() - part.trim_start().len());
        let name = part.trim();
        keys.push((name.to_owned(), Span { source, start, end: start + name.len() }));
        at += part.len() + 1;
    }
    let span = Span { source, start: 0, end: key.len() };
    if keys.iter().any(|(name, _)| name.is_empty()) || keys.len() > MAX_KEYS {
        sink.push(Diagnostic::error("this is not a key").at(span, "expected names with dots between: `train.epochs`"));
        return None;
    }
    Some((keys, span))
}

fn put_in_table(table: &mut Table, keys: &[(String, Span)], value: Node) -> Result<(), Diagnostic> {
    let Some(((key, span), rest)) = keys.split_first() else { return Ok(()) };
    if let Some(entry) = table.entries.iter_mut().find(|entry| entry.key == *key) {
        if rest.is_empty() {
            entry.key_span = *span;
        }
        return put(&mut entry.node, *span, rest, value);
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
        _ => Err(no_keys_below(at, place, &found)),
    }
}

fn no_keys_below(at: Span, place: Span, found: &str) -> Diagnostic {
    Diagnostic::error("this key has no keys below it")
        .at(at, format!("is {found}"))
        .context(place, "written here")
        .help("set all of it: a layer, for example, to `{ type = \"dropout\", p = 0.3 }`")
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

/// Takes a key out of the tree. One that could be there but is not is at its default already: that changes nothing.
fn take_away(root: &mut Table, keys: &[(String, Span)], over: Span) -> Result<Option<LeftBehind>, Diagnostic> {
    let key = keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(".");
    match take_from_table(root, keys, "") {
        Ok(entry) => Ok(Some(LeftBehind { key, span: entry.key_span, reason: Reason::Unset, over })),
        Err(_) if keys::section_names().contains(&key.as_str()) || keys::dotted(root).contains(&key) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Takes the last of `keys` out of the table that the others lead to; `walked` has led here.
fn take_from_table(table: &mut Table, keys: &[(String, Span)], walked: &str) -> Result<Entry, Diagnostic> {
    let found = match keys {
        [] => None,
        [(key, _)] => table.remove(key),
        [(key, at), rest @ ..] => match table.get_mut(key) {
            Some(node) => return take_from(node, *at, rest, &join(walked, key)),
            None => None,
        },
    };
    found.ok_or_else(|| match keys.first() {
        Some((key, at)) => nothing_there(key, *at, walked, table),
        None => Diagnostic::error("this is not a key"),
    })
}

fn take_from(node: &mut Node, at: Span, keys: &[(String, Span)], walked: &str) -> Result<Entry, Diagnostic> {
    let (place, found) = (node.span, node.describe());
    match (&mut node.value, keys) {
        (Value::Table(table), _) => take_from_table(table, keys, walked),
        (Value::Array(_), [(_, at)]) => Err(Diagnostic::error("an element of a list cannot be taken away")
            .at(*at, "those after it would have other numbers")
            .help("set the whole list")),
        (Value::Array(items), [(index, at), rest @ ..]) => {
            take_from(element(items, index, *at)?, *at, rest, &join(walked, index))
        }
        _ => Err(no_keys_below(at, place, &found)),
    }
}

fn nothing_there(key: &str, at: Span, path: &str, table: &Table) -> Diagnostic {
    let error = match path {
        "" => Diagnostic::error(format!("there is no `{}` to unset", shorten(key))),
        path => Diagnostic::error(format!("there is no `{}` in `{}` to unset", shorten(key), shorten(path))),
    };
    let known: Vec<&str> = table.entries.iter().map(|entry| entry.key.as_str()).collect();
    match nearest(key, known.iter().copied()) {
        Some(near) => error.at(at, did_you_mean(near)),
        None if known.is_empty() => error.at(at, "there are no keys"),
        None => error.at(at, "not there").help(format!("there are {}", list(known, "and"))),
    }
}
