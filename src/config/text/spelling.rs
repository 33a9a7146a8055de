//! How words are compared, and written in messages.

/// Small letters without `_` and `-`: what remains where styles of writing differ.
pub fn plain(word: &str) -> String {
    word.to_lowercase().replace(['_', '-'], "")
}

/// `` `a`, `b` and `c` ``, with another word for "and".
pub fn list<'a>(words: impl IntoIterator<Item = &'a str>, and: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {and} {last}", rest.join(", ")),
    }
}

/// The label at an unknown word.
pub fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// A name for a message, cut if it is long, on one line.
pub fn shorten(name: &str) -> String {
    let mut short: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    if name.chars().count() > 40 {
        short.push('…');
    }
    short
}
