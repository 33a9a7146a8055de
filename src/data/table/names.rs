//! Names of columns in messages: of one that is asked for and not there, and of several.

use super::super::held::nearest;
use super::super::sheet::Sheet;
use super::super::{WrongColumn, WrongColumns};
use anyhow::{Result, bail};
use std::collections::HashSet;

/// The message for a column that is not there.
pub fn no_column<'a>(name: &str, key: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = columns.collect();
    let near = nearest(name, all.iter().copied()).map_or(String::new(), |known| format!("; did you mean `{known}`?"));
    // What a model takes has been there: another column is not what is meant.
    let (what, near) = match key {
        "the model" => (format!("the model takes a column `{name}`"), String::new()),
        key => (format!("`{key}` names a column `{name}`"), near),
    };
    let end = if near.is_empty() { "." } else { "" };
    format!("{what}, which the table does not have{near}{end} {}", there(&all))
}

/// The columns that there are, of very many the first.
fn there(all: &[&str]) -> String {
    let names: Vec<String> = all.iter().take(20).map(|name| format!("`{name}`")).collect();
    let more = if all.len() > 20 { format!(" and {} more", all.len() - 20) } else { String::new() };
    format!("Its columns are {}{more}", names.join(", "))
}

/// The columns, or patterns, of these that a table does not have, each with the key that names it; `fits` says whether a column is so called.
///
/// # Errors
/// There are some.
pub fn expect_there<'n>(
    named: impl Iterator<Item = (&'static str, &'n String)>,
    columns: &[&str],
    fits: impl Fn(&str, &str) -> bool,
) -> Result<(), WrongColumns> {
    let missing: Vec<_> = named.filter(|(_, name)| !columns.iter().any(|column| fits(name, column))).collect();
    // Of a single one the message says what it is like.
    let near = |name: &str| if missing.len() > 1 { nearest(name, columns.iter().copied()) } else { None };
    let label = |name: &str| match near(name) {
        Some(near) => format!("did you mean `{near}`?"),
        None if is_pattern(name) => "fits no column".to_owned(),
        None => "the table has no such column".to_owned(),
    };
    let wrong = |(key, name): &(&'static str, &String)| WrongColumn { key, name: (*name).clone(), label: label(name) };
    let missing: Vec<WrongColumn> = missing.iter().map(wrong).collect();
    let message = match &missing[..] {
        [] => return Ok(()),
        [WrongColumn { key, name, .. }] if is_pattern(name) => {
            format!("no column has a name as `{name}` in `{key}` says. {}", there(columns))
        }
        [WrongColumn { key, name, .. }] => {
            let key = if *key == HEADS { "the target of a head" } else { key };
            no_column(name, key, columns.iter().copied())
        }
        several => {
            let names: Vec<String> = several.iter().map(|column| column.name.clone()).collect();
            format!("the table does not have the columns {}. {}", quoted(&names), there(columns))
        }
    };
    Err(WrongColumns::new(missing, message))
}

/// The key of columns that are targets of heads.
pub const HEADS: &str = "heads";

/// Whether a name stands for all columns that are called in some way.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Names for people.
pub fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Which columns to rename: those that are called as ones that are missing, but for case, spaces and marks.
fn renamed(missing: &[&str], others: &[&str]) -> String {
    let letters =
        |name: &str| name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let pair = |name: &&str| {
        let own = letters(name);
        let column = others.iter().find(|column| !own.is_empty() && letters(column) == own)?;
        Some(format!("`{column}` to `{name}`"))
    };
    let pairs: Vec<String> = missing.iter().take(20).filter_map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!(". If they are the same, rename {}", pairs.join(", ")) }
}

/// Refuses a table that lacks columns which the model takes.
///
/// # Errors
/// It lacks some.
pub fn expect_columns<'a>(text: &Sheet, taken: impl Iterator<Item = &'a str>) -> Result<()> {
    let path = text.path();
    let (known, missing): (Vec<&str>, Vec<&str>) = taken.partition(|name| text.column(name).is_some());
    if missing.is_empty() {
        return Ok(());
    }
    let known: HashSet<&str> = known.into_iter().collect();
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let others = text.names().iter().map(String::as_str).filter(|name| !known.contains(name));
    let renamed = renamed(&missing, &others.collect::<Vec<_>>());
    match missing[..] {
        [name] => {
            let names = text.names().iter().map(String::as_str);
            bail!("`{}`: {}{renamed}", path.display(), no_column(name, "the model", names))
        }
        _ => {
            let names: Vec<&str> = text.names().iter().map(String::as_str).collect();
            bail!(
                "`{}` lacks columns that the model takes: {}. Its columns are {}{renamed}",
                path.display(),
                quoted(&missing[..missing.len().min(20)]),
                quoted(&names[..names.len().min(20)])
            )
        }
    }
}
