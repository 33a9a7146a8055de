//! The keys of the language as `--set` and `--unset` name them, and the values that they have.

use super::super::docs::{choosing, place};
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::Source;
use crate::config::schema::reference::{Described, Table, tables};

/// Options of elements of lists, which have no path of their own, or of tables with names of the user.
const OF_LISTS: [&str; 6] =
    ["heads", "layer", "block", "layers rope_scaling", "model weights_rename", "optimizer groups"];

/// Values of keys, `optimizer.type=adam` or `optimizer.lr=` where the value may be any; then keys and sections.
pub fn words() -> (Vec<String>, Vec<String>) {
    let (mut settings, mut keys) = (Vec::new(), Vec::new());
    let mut add = |path: String, values: &[&str], any: bool| {
        if any {
            push(&mut settings, format!("{path}="));
        }
        values.iter().for_each(|value| push(&mut settings, format!("{path}={value}")));
        let sections = path.match_indices('.').map(|(at, _)| path[..at].to_owned());
        sections.for_each(|section| push(&mut keys, section));
        push(&mut keys, path);
    };
    // Some sources have no options, and so no table.
    add("data.source".into(), Source::TYPES, false);
    for table in tables().iter().filter(|table| has_path(table)) {
        let section = match place(table) {
            section if section.is_empty() => section,
            section => section + ".",
        };
        for entry in &table.entries {
            if table.kind.is_some() {
                add(format!("{section}{}", choosing(table)), &entry.words, false);
            }
            for option in &entry.options {
                let (values, any) = values(option);
                add(format!("{section}{}", option.key), &values, any);
            }
        }
    }
    (settings, keys)
}

/// Whether the options of a table are keys of a section, or of a table in one.
fn has_path(table: &Table) -> bool {
    match table.kind {
        Some(kind) => ["source", "loss", "optimizer", "schedule"].contains(&kind),
        None => !OF_LISTS.contains(&&table.name[..]),
    }
}

/// The words that an option may be, and whether it may be something else, too.
fn values(option: &Described) -> (Vec<&str>, bool) {
    let all = option.values.split('`').skip(1).step_by(2);
    let word = |value: &'_ str| match value {
        "true" | "false" => true,
        _ => {
            value.starts_with('"')
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"\"_.:-".contains(&byte))
        }
    };
    let mut words: Vec<&str> = all.filter(|value| word(value)).map(|value| value.trim_matches('"')).collect();
    let mut others = option.values.split('`').step_by(2).flat_map(|text| text.split([' ', ',']));
    if option.values.contains("boolean") {
        words.extend(["true", "false"]);
    }
    let any = others.any(|text| !["", "or", "boolean"].contains(&text)) || words.is_empty();
    (words, any)
}

/// Adds a word, once.
fn push(words: &mut Vec<String>, word: String) {
    if !words.contains(&word) {
        words.push(word);
    }
}
