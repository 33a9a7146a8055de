//! Where in a file's object the state dict is.

use super::value::{Memory, Tensor, Value};
use super::{PthError, malformed};
use std::collections::BTreeMap;

type Found<'a> = (Vec<(String, &'a Tensor)>, Vec<String>);

/// The named tensors of the one state dict in the file: the object itself, or the only dict of tensors in it.
pub(super) fn find(memory: &Memory) -> Result<Found<'_>, PthError> {
    let Value::Dict(top) = memory.result else {
        return Err(PthError::NoStateDict(format!("it holds {} instead of a state dict", describe(&memory.result))));
    };
    // Each dict is looked through once, however often a file refers to it.
    let holds_tensors: Vec<bool> = memory.dicts.iter().map(|dict| dict.iter().any(is_named_tensor)).collect();
    if holds_tensors[top] {
        return entries(&memory.dicts[top], Vec::new());
    }
    let mut nested = memory.dicts[top].iter().filter_map(|(key, value)| match (key, value) {
        (Value::Str(key), Value::Dict(at)) if holds_tensors[*at] => Some((key, *at)),
        _ => None,
    });
    match (nested.next(), nested.next()) {
        (Some((key, at)), None) => {
            entries(&memory.dicts[at], vec![format!("took the state dict under the key `{key}`")])
        }
        (Some((first, _)), Some((second, _))) => Err(PthError::NoStateDict(format!(
            "it holds more than one state dict (`{first}`, `{second}`{}), and which one is meant cannot be told",
            if nested.next().is_some() { ", …" } else { "" }
        ))),
        (None, _) if memory.dicts[top].is_empty() => Err(PthError::NoStateDict("the state dict is empty".into())),
        (None, _) => Err(PthError::NoStateDict("it holds no state dict (no dict of tensors by name)".into())),
    }
}

fn is_named_tensor(entry: &(Value, Value)) -> bool {
    matches!(entry, (Value::Str(_), Value::Tensor(_)))
}

fn entries(dict: &[(Value, Value)], mut notes: Vec<String>) -> Result<Found<'_>, PthError> {
    // A key set twice has, as in Python, the later value.
    let mut tensors = BTreeMap::new();
    let mut others = Vec::new();
    for (key, value) in dict {
        let Value::Str(name) = key else { return Err(malformed("the state dict has a key that is no text")) };
        match value {
            Value::Tensor(t) => drop(tensors.insert(name.to_string(), &**t)),
            other => others.push((name, other)),
        }
    }
    if let Some((name, value)) = others.first() {
        let more = match others.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more entries)"),
        };
        notes.push(format!("left out `{name}`{more}: it is {} and no tensor", describe(value)));
    }
    Ok((tensors.into_iter().collect(), notes))
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a truth value",
        Value::Int(_) | Value::Float => "a number",
        Value::Str(_) => "a string",
        Value::List(_) => "a list",
        Value::Dict(_) => "a dict",
        Value::Tensor(_) => "a single tensor",
        Value::Global(_) | Value::Storage(_) | Value::Other => "another object",
    }
}
