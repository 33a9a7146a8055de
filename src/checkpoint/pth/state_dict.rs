//! Where in a file's object the state dict is.

use super::super::unread::Unread;
use super::value::{Memory, Tensor, Value};
use super::{Choose, PthError, malformed};
use std::collections::{BTreeMap, HashSet};

/// A state dict.
pub(super) struct Found<'a> {
    pub tensors: Vec<(String, &'a Tensor)>,
    /// Tensors that are not read, with what each is.
    pub unread: BTreeMap<String, Unread>,
    pub notes: Vec<String>,
}

/// Dicts within one another that are looked through.
const DEEPEST: usize = 4;

/// A dict that has tensors by name.
struct Candidate {
    /// The keys that lead to it, with dots between them; empty for the object itself.
    key: String,
    at: usize,
}

/// The named tensors of the state dict in the file: the one under the key that is chosen, else the one of whose names most fit the model,
/// else, of several that fit alike or where there is no model, the one with most tensors.
pub(super) fn find<'m>(memory: &'m Memory, choose: &Choose) -> Result<Found<'m>, PthError> {
    let top = match &memory.result {
        Value::Dict(top) => *top,
        Value::Object(name) => return Err(PthError::Global(name.to_string())),
        other => {
            return Err(PthError::NoStateDict(format!("it holds {} instead of a state dict", describe(other))));
        }
    };
    let mut all = Vec::new();
    // Each dict is looked through once, however often a file refers to it.
    candidates(memory, String::new(), top, &mut HashSet::new(), &mut all);
    let chosen = match choose.key {
        Some(key) => all.iter().find(|one| one.key == key).ok_or_else(|| {
            PthError::NoStateDict(match &all[..] {
                [] => format!("it has no state dict under the key `{key}`, nor anywhere else"),
                all => format!("it has no state dict under the key `{key}`, but {}", listed(all)),
            })
        })?,
        None => best(memory, &all, choose)?,
    };
    let others = objects(memory, top, &chosen.key);
    let mut notes = Vec::new();
    if !chosen.key.is_empty() {
        notes.push(format!("took the state dict under the key `{}`", chosen.key));
    }
    notes.extend(others);
    entries(&memory.dicts[chosen.at], notes)
}

fn candidates(memory: &Memory, key: String, at: usize, seen: &mut HashSet<usize>, all: &mut Vec<Candidate>) {
    let depth = if key.is_empty() { 0 } else { key.matches('.').count() + 1 };
    let again = !seen.insert(at);
    if memory.dicts[at].iter().any(is_named_tensor) {
        all.push(Candidate { key: key.clone(), at });
    }
    if again || depth >= DEEPEST {
        return;
    }
    for (name, value) in &memory.dicts[at] {
        if let (Value::Str(name), Value::Dict(inner)) = (name, value) {
            let key = if key.is_empty() { name.to_string() } else { format!("{key}.{name}") };
            candidates(memory, key, *inner, seen, all);
        }
    }
}

fn best<'c>(memory: &Memory, all: &'c [Candidate], choose: &Choose) -> Result<&'c Candidate, PthError> {
    let names = |one: &Candidate| -> Vec<&str> {
        let named = memory.dicts[one.at].iter().filter(|entry| is_named_tensor(entry));
        named.filter_map(|(key, _)| if let Value::Str(key) = key { Some(&**key) } else { None }).collect()
    };
    let rated: Vec<((usize, usize), &Candidate)> = all
        .iter()
        .map(|one| {
            let names = names(one);
            ((choose.fits.map_or(0, |fits| fits(&names)), names.len()), one)
        })
        .collect();
    let most = rated.iter().map(|(rate, _)| *rate).max();
    let mut first = rated.iter().filter(|(rate, _)| Some(*rate) == most).map(|(_, one)| *one);
    let Some(chosen) = first.next() else {
        let empty = matches!(memory.result, Value::Dict(top) if memory.dicts[top].is_empty());
        let objects = match memory.result {
            Value::Dict(top) => objects_of(memory, top, ""),
            _ => Vec::new(),
        };
        return Err(PthError::NoStateDict(match &objects[..] {
            _ if empty => "the state dict is empty".into(),
            [] => "it holds no state dict (no dict of tensors by name)".into(),
            all => format!(
                "it holds no state dict but {}, which Python code would have to make, and none is run",
                all.join(", ")
            ),
        }));
    };
    match first.next() {
        None => Ok(chosen),
        Some(_) => Err(PthError::Ambiguous(
            rated.iter().filter(|(rate, _)| Some(*rate) == most).map(|(_, one)| one.key.clone()).collect(),
        )),
    }
}

fn listed(all: &[Candidate]) -> String {
    let shown = |one: &Candidate| if one.key.is_empty() { "as a whole".into() } else { format!("under `{}`", one.key) };
    all.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// The message about objects beside the state dict that Python code would have to make.
fn objects(memory: &Memory, top: usize, chosen: &str) -> Option<String> {
    let found = objects_of(memory, top, chosen);
    (!found.is_empty() && !chosen.is_empty())
        .then(|| format!("left out {}, which Python code would have to make: none is run", found.join(", ")))
}

fn objects_of(memory: &Memory, top: usize, chosen: &str) -> Vec<String> {
    let object = |(key, value): &(Value, Value)| match (key, value) {
        (Value::Str(key), Value::Object(name)) if **key != *chosen => Some(format!("`{key}` (`{name}`)")),
        _ => None,
    };
    memory.dicts[top].iter().filter_map(object).collect()
}

fn is_named_tensor(entry: &(Value, Value)) -> bool {
    matches!(entry, (Value::Str(_), Value::Tensor(_) | Value::Unread(_)))
}

fn entries(dict: &[(Value, Value)], mut notes: Vec<String>) -> Result<Found<'_>, PthError> {
    // A key set twice has, as in Python, the later value.
    let (mut tensors, mut unread) = (BTreeMap::new(), BTreeMap::new());
    let mut others = Vec::new();
    for (key, value) in dict {
        let Value::Str(name) = key else { return Err(malformed("the state dict has a key that is no text")) };
        match value {
            Value::Tensor(t) => drop(tensors.insert(name.to_string(), &**t)),
            Value::Unread(what) => drop(unread.insert(name.to_string(), Unread::clone(what))),
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
    unread.retain(|name, _| !tensors.contains_key(name));
    Ok(Found { tensors: tensors.into_iter().collect(), unread, notes })
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a truth value",
        Value::Int(_) | Value::Float => "a number",
        Value::Str(_) => "a string",
        Value::List(_) => "a list",
        Value::Dict(_) => "a dict",
        Value::Tensor(_) | Value::Unread(_) => "a single tensor",
        Value::Global(_) | Value::Storage(_) | Value::Object(_) | Value::Other => "another object",
    }
}
