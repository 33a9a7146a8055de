//! Names of columns in messages: of one that is asked for and not there, and of several.

use super::super::held::nearest;

/// The message for a column that is not there.
pub fn no_column<'a>(name: &str, key: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = columns.collect();
    let near = nearest(name, all.iter().copied()).map_or(String::new(), |known| format!("; did you mean `{known}`?"));
    let names: Vec<String> = all.iter().take(20).map(|name| format!("`{name}`")).collect();
    let more = if all.len() > 20 { format!(" and {} more", all.len() - 20) } else { String::new() };
    // What a model takes has been there: another column is not what is meant.
    let (what, near) = match key {
        "the model" => (format!("the model takes a column `{name}`"), String::new()),
        key => (format!("`{key}` names a column `{name}`"), near),
    };
    let end = if near.is_empty() { "." } else { "" };
    format!("{what}, which the table does not have{near}{end} Its columns are {}{more}", names.join(", "))
}

/// Names for people.
pub fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
