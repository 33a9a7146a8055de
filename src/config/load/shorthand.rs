//! Keys that have a shorter form, before files are laid over one another.

use crate::config::text::tree::{Entry, Node, Table, Value};

/// The keys of `validation_split` as a table, and the keys of `[data]` that they stand for.
const SPLIT: [(&str, &str); 5] = [
    ("fraction", "validation_split"),
    ("count", "validation_split"),
    ("stratify", "stratify_column"),
    ("group", "group_column"),
    ("time", "time_column"),
];

/// Puts the keys of `validation_split = { fraction = 0.2, stratify = "region" }` into `[data]`, each under its own name and at its place. One with other keys stays, and is
/// reported where it is read.
pub fn spell_out(root: &mut Table) {
    let Some(data) = root.get_mut("data").and_then(Node::as_table_mut) else { return };
    let Some(split) = data.get("validation_split").and_then(Node::as_table) else { return };
    let known = |entry: &Entry| SPLIT.iter().find(|(key, _)| *key == entry.key).map(|(_, own)| *own);
    let names: Option<Vec<&str>> = split.entries.iter().map(known).collect();
    let Some(names) = names else { return };
    // A key that is there twice would hide one of its values.
    let taken = |name: &&str| *name != "validation_split" && data.get(name).is_some();
    let twice = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    if !names.contains(&"validation_split") || twice || names.iter().any(taken) {
        return;
    }
    let Some(Entry { node: Node { value: Value::Table(split), .. }, .. }) = data.remove("validation_split") else {
        return;
    };
    for (entry, name) in split.entries.into_iter().zip(names) {
        data.entries.push(Entry { key: name.to_owned(), ..entry });
    }
}
