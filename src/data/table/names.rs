//! A column that is asked for and not there.

/// The message for a column that is not there.
pub fn no_column<'a>(name: &str, key: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = columns.collect();
    let near = all
        .iter()
        .map(|known| (strsim::normalized_damerau_levenshtein(&known.to_lowercase(), &name.to_lowercase()), *known));
    let near = near.filter(|(likeness, _)| *likeness > 0.6).max_by(|a, b| a.0.total_cmp(&b.0));
    let near = near.map_or(String::new(), |(_, known)| format!("; did you mean `{known}`?"));
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
