//! Characters that have no token, as an error says them.

use anyhow::{Error, anyhow};
use std::collections::HashMap;

/// How many different characters an error names.
const NAMED: usize = 5;

/// The error for a text, which `called` names: where its first character without a token stands, and all that there are.
pub(super) fn no_token(text: &str, at: usize, has_token: impl Fn(char) -> bool, called: &str) -> Error {
    let before = &text[..at];
    // The text may be a cell or a line, so that its first line is not that of a file.
    let line = match text.contains('\n') {
        true => format!("line {} of the text, ", before.matches('\n').count() + 1),
        false => String::new(),
    };
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let mut counts: Vec<(char, usize)> = Vec::new();
    // A text in another script has thousands.
    let mut places: HashMap<char, usize> = HashMap::new();
    for c in text[at..].chars().filter(|c| !has_token(*c)) {
        let place = *places.entry(c).or_insert(counts.len());
        match counts.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => counts.push((c, 1)),
        }
    }
    let first = counts.first().map_or(char::REPLACEMENT_CHARACTER, |(c, _)| *c);
    anyhow!(
        "{called}, {line}column {column}: the character {first:?} (U+{:04X}) is not in the text that the model was trained on, so \
         it has no token; {}",
        u32::from(first),
        advice(&counts)
    )
}

/// What to do about such characters, which are counted in the order in which they come.
fn advice(counts: &[(char, usize)]) -> String {
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    let bytes = "or train with `tokenizer = \"bytes\"`";
    if all < 2 {
        return format!("leave it out, {bytes}");
    }
    let named = counts.iter().take(NAMED).map(|(c, count)| format!("{c:?} {count}×"));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if counts.len() > NAMED {
        named += &format!(" and {} other characters", counts.len() - NAMED);
    }
    format!("the text has {all} without one ({named}): leave them out, {bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let has_token = |c: char| c.is_ascii_lowercase() || c == '\n';
        let at = text.find(|c| !has_token(c)).unwrap();
        no_token(text, at, has_token, "`a.txt`").to_string()
    }

    #[test]
    fn all_characters_without_a_token_are_counted() {
        let why = "is not in the text that the model was trained on, so it has no token";
        assert_eq!(
            message("abü"),
            format!(
                "`a.txt`, column 3: the character 'ü' (U+00FC) {why}; leave it out, or train with `tokenizer = \"bytes\"`"
            )
        );
        assert_eq!(
            message("ab\ncZd\n€Z"),
            format!(
                "`a.txt`, line 2 of the text, column 2: the character 'Z' (U+005A) {why}; the text has 3 without one ('Z' 2×, '€' 1×): \
                 leave them out, or train with `tokenizer = \"bytes\"`"
            )
        );
        let many = message("ABCDEFGA");
        assert!(
            many.contains("the text has 8 without one ('A' 2×, 'B' 1×, 'C' 1×, 'D' 1×, 'E' 1× and 2 other"),
            "{many}"
        );
    }
}
