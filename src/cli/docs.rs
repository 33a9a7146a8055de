//! `runner docs`.

mod messages;

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::args::DocsArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::config::load::models::built_in;
use crate::config::nearest;
use crate::config::schema::reference::{Described, Entry, Table, page, tables};
use messages::{Explained, explained};

/// The path of the types of columns.
const COLUMNS: &str = "data.columns";

/// A place where a name is described.
enum Found<'t> {
    /// A type: a layer, a loss, a warning.
    Kind(&'t Table, &'t Entry),
    /// A key, and the types that have it in this way.
    Key(&'t Table, &'t Described, Vec<&'static str>),
    /// A section, by its path: what it has.
    Section(String, Vec<&'t Table>),
    /// The key that says which type a section or a layer is of, and the tables of those types.
    Choice(Vec<&'t Table>),
    /// What is no name of the language: a message or an exit code.
    Said(Explained),
}

/// Says what keys, types, warnings, messages and exit codes are.
pub(super) fn run(args: &DocsArgs) -> Result<ExitCode, Failure> {
    let tables = tables();
    let mut found = Vec::new();
    for name in &args.names {
        found.extend(find(&tables, name)?);
    }
    match args.output.json {
        true => print_json(&json!({ "entries": found.iter().map(as_json).collect::<Vec<_>>() }))?,
        false => print(&found.iter().map(as_text).collect::<Vec<_>>().join("\n\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// All places of a name: a word, or a key after what has it, as `optimizer.lr` or `conv2d.stride`.
///
/// # Errors
/// There is none, with the name that was probably meant.
fn find<'t>(tables: &'t [Table], name: &str) -> Result<Vec<Found<'t>>, Failure> {
    let mut found = Vec::new();
    for table in tables {
        let mut keys: Vec<(&Described, Vec<&'static str>)> = Vec::new();
        for entry in &table.entries {
            if entry.words.contains(&name) {
                found.push(Found::Kind(table, entry));
            }
            let fits = |option: &&Described| {
                let before = name.strip_suffix(option.key).and_then(|rest| rest.strip_suffix('.'));
                name == option.key || before.is_some_and(|before| has(table, entry, before))
            };
            let Some(option) = entry.options.iter().find(fits) else { continue };
            match keys.iter_mut().find(|(known, _)| *known == option) {
                Some((_, words)) => words.extend(&entry.words),
                None => keys.push((option, entry.words.clone())),
            }
        }
        found.extend(keys.into_iter().map(|(option, words)| Found::Key(table, option, words)));
    }
    found.extend(choices(tables).into_iter().filter(|of| chosen_by(of, name)).map(Found::Choice));
    let of_section: Vec<&Table> = tables.iter().filter(|table| !name.is_empty() && place(table) == name).collect();
    // A key whose value is a table is followed by what stands in that.
    if !of_section.is_empty() && (name.contains('.') || !found.iter().any(|found| matches!(found, Found::Key(..)))) {
        found.push(Found::Section(name.to_owned(), of_section));
    }
    if found.is_empty() {
        found.extend(explained(name).into_iter().map(Found::Said));
    }
    if found.is_empty() {
        let entries = || tables.iter().flat_map(|table| &table.entries);
        let words = entries().flat_map(|entry| entry.words.iter().copied());
        let keys = entries().flat_map(|entry| entry.options.iter().map(|option| option.key));
        let last = name.rsplit('.').next().unwrap_or(name);
        let help = match nearest(last, words.chain(keys)) {
            _ if built_in(name).is_some() => format!("`{name}` is a model: `runner models --show {name}` prints it"),
            // The name itself, which is a key of something else.
            Some(near) => format!("`runner docs {near}` describes `{near}`"),
            None => "`runner docs SECTION` names all keys of a section: data, model, loss, optimizer, train; of a message of an error \
                     give some words in quotes, as in `runner docs \"unknown key\"`"
                .into(),
        };
        return Err(Failure::Usage(format!("the language has no `{name}`\nhelp: {help}")));
    }
    Ok(found)
}

/// The tables of types, those of one kind together.
fn choices(tables: &[Table]) -> Vec<Vec<&Table>> {
    let mut kinds: Vec<Vec<&Table>> = Vec::new();
    for table in tables.iter().filter(|table| table.kind.is_some_and(|kind| kind != "warning")) {
        match kinds.iter_mut().find(|known| known[0].kind == table.kind) {
            Some(known) => known.push(table),
            None => kinds.push(vec![table]),
        }
    }
    kinds
}

/// The key by which a type is chosen.
pub(super) fn choosing(table: &Table) -> &'static str {
    if table.kind == Some("source") { "source" } else { "type" }
}

/// Whether the key that chooses one of these types is called so: `type`, `optimizer.type`, `layer.type`.
fn chosen_by(of: &[&Table], name: &str) -> bool {
    let key = choosing(of[0]);
    let before = name.strip_suffix(key).and_then(|rest| rest.strip_suffix('.'));
    name == key || before.is_some_and(|before| before == place(of[0]) || Some(before) == of[0].kind)
}

/// Whether what stands before a key names what has it: a section, a table in a section, or a type.
fn has(table: &Table, entry: &Entry, before: &str) -> bool {
    let path = place(table);
    entry.words.contains(&before) || path == before || path.ends_with(&format!(".{before}"))
}

/// The dotted path of the section or of the table that has the options: `optimizer`, `train.early_stopping`. Layers and
/// transforms are in none.
pub(super) fn place(table: &Table) -> String {
    let name = table.name.trim_end_matches(" types");
    match (table.kind, name) {
        (_, "top") => String::new(),
        (Some("source"), _) => "data".into(),
        (Some("layer" | "transform" | "warning"), _) => String::new(),
        _ => name.replace(' ', "."),
    }
}

/// What has a key, in words.
fn owner(table: &Table, words: &[&str]) -> String {
    let path = place(table);
    let of = if words.is_empty() { String::new() } else { format!(" of `{}`", words.join("`, `")) };
    let inside = match &path[..] {
        "" if table.name == "top" => ", before the first section".into(),
        "" => String::new(),
        "layer" => " of every layer".into(),
        "block" => " of the use of a block".into(),
        path => format!(" in {}", in_brackets(path)),
    };
    format!("key{of}{inside}")
}

/// A section or a table in a section, as messages call it. The tables of `columns` have the names of columns.
fn in_brackets(path: &str) -> String {
    if path == COLUMNS { "`columns` of `[data]`".into() } else { format!("`[{path}]`") }
}

/// A line of TOML that has a type.
fn example(table: &Table, entry: &Entry) -> String {
    let word = entry.words.first().copied().unwrap_or_default();
    let required = entry.options.iter().filter(|option| option.default.starts_with("required"));
    let rest: String = required.map(|option| format!(", {}", option.example)).collect();
    match table.kind {
        Some("source") => format!("source = \"{word}\""),
        Some("loss" | "optimizer" | "schedule") => format!("type = \"{word}\""),
        Some("warning") => format!("allow = [\"{word}\"]"),
        _ if place(table) == COLUMNS => format!("columns = {{ name = \"{word}\" }}"),
        _ if rest.is_empty() => format!("\"{word}\""),
        _ => format!("{{ type = \"{word}\"{rest} }}"),
    }
}

/// The words of all types in some tables.
fn types<'t>(tables: &[&'t Table]) -> Vec<&'static str> {
    tables.iter().flat_map(|table: &&'t Table| &table.entries).flat_map(|entry| entry.words.iter().copied()).collect()
}

fn as_text(found: &Found) -> String {
    match found {
        Found::Said(Explained { kind, name, about, page }) => format!("{name}: {kind}\n{about}\n  page       {page}"),
        Found::Kind(table, entry) => {
            let mut text = format!("{}: {}\n{}", entry.words.join(", "), table.kind.unwrap_or("type"), entry.about);
            text += &format!("\n  example    {}", example(table, entry));
            text += &format!("\n  page       docs/config/{}", page(&table.name));
            for option in &entry.options {
                let default = match &option.default[..] {
                    "" => String::new(),
                    required if required.starts_with("required") => format!(", {required}"),
                    default => format!(", default {default}"),
                };
                text += &format!("\n\n  {}: {}{default}\n    {}", option.key, option.values, option.about);
            }
            text
        }
        Found::Key(table, option, words) => {
            let mut text = format!("{}: {}\n{}", option.key, owner(table, words), option.about);
            text += &format!("\n  values     {}", option.values);
            if !option.default.is_empty() {
                text += &format!("\n  default    {}", option.default);
            }
            if table.resumed {
                text += &format!("\n  on resume  {}", option.resume);
            }
            text + &format!("\n  example    {}\n  page       docs/config/{}", option.example, page(&table.name))
        }
        Found::Choice(of) => {
            let (key, words) = (choosing(of[0]), types(of));
            let kind = of[0].kind.unwrap_or_default();
            let whose = match &place(of[0])[..] {
                "" => format!("of every {kind}"),
                path => format!("in {}", in_brackets(path)),
            };
            format!(
                "{key}: key {whose}\nWhich {kind} it is. `runner docs {}` describes one of them.\n  values     {}\n  example    {key} = \"{}\"\n  page       docs/config/{}",
                words[0],
                words.join(", "),
                words[0],
                page(&of[0].name)
            )
        }
        Found::Section(name, tables) => {
            let what = if name.contains('.') { "table" } else { "section" };
            let mut text = format!("{name}: {what} {}", in_brackets(name));
            let entries = || tables.iter().flat_map(|table| &table.entries);
            let types: Vec<&str> = entries().flat_map(|entry| entry.words.iter().copied()).collect();
            let keys = entries().filter(|entry| entry.words.is_empty()).flat_map(|entry| &entry.options);
            let keys: Vec<&str> = keys.map(|option| option.key).collect();
            for (what, names) in [("keys", keys), ("types", types)] {
                if !names.is_empty() {
                    text += &format!("\n  {what:<10} {}", names.join(", "));
                }
            }
            text + &format!("\n  page       docs/config/{}", page(&tables[0].name))
        }
    }
}

fn as_json(found: &Found) -> Json {
    let option = |option: &Described| {
        json!({
            "name": option.key, "about": option.about, "values": option.values, "default": option.default,
            "example": option.example,
        })
    };
    match found {
        Found::Said(Explained { kind, name, about, page }) => {
            json!({ "name": name, "kind": kind, "about": about, "page": page })
        }
        Found::Kind(table, entry) => json!({
            "name": entry.words[0], "kind": table.kind, "about": entry.about, "example": example(table, entry),
            "page": format!("docs/config/{}", page(&table.name)),
            "options": entry.options.iter().map(option).collect::<Vec<_>>(),
        }),
        Found::Key(table, described, words) => {
            let mut json = option(described);
            json["kind"] = "key".into();
            json["of"] = json!(words);
            json["in"] = place(table).into();
            json["on_resume"] = table.resumed.then_some(described.resume).into();
            json["page"] = format!("docs/config/{}", page(&table.name)).into();
            json
        }
        Found::Choice(of) => json!({
            "name": choosing(of[0]), "kind": "key", "in": place(of[0]), "of": of[0].kind, "values": types(of),
            "page": format!("docs/config/{}", page(&of[0].name)),
        }),
        Found::Section(name, tables) => {
            let entries = || tables.iter().flat_map(|table| &table.entries);
            let keys = entries().filter(|entry| entry.words.is_empty()).flat_map(|entry| &entry.options);
            json!({
                "name": name, "kind": if name.contains('.') { "table" } else { "section" }, "page": format!("docs/config/{}", page(&tables[0].name)),
                "options": keys.map(option).collect::<Vec<_>>(),
                "types": entries().flat_map(|entry| entry.words.iter().copied()).collect::<Vec<_>>(),
            })
        }
    }
}
