//! What TOML's parser refuses, with what to write instead; and spellings of numbers that are plain though not TOML's.

use std::ops::Range;

use super::diagnostics::{Diagnostic, SourceId, Span};
use super::spelling::shorten;
use super::tree::{Entry, Table, Value};

/// Words for "nothing" in other languages.
const NOTHING: [&str; 5] = ["None", "null", "nil", "NULL", "undefined"];

/// Something that the parser refused.
pub struct Refused {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// The parser's reason.
    pub message: String,
}

/// A number or a truth value in a spelling of other languages: `.1`, `1.`, `007`, `True`.
pub fn plain_value(text: &str) -> Option<Value> {
    match text {
        "True" | "TRUE" => return Some(Value::Boolean(true)),
        "False" | "FALSE" => return Some(Value::Boolean(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Value::Integer);
    }
    // Of what Rust takes for a number, `inf` and `nan` do not begin with a digit.
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float)
}

/// A whole number that is too large for TOML, as a fraction: what takes whole numbers refuses it by its value.
pub fn large_number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number: &f64| whole && number.is_finite()).map(Value::Float)
}

/// Whether a word of another language for "nothing".
pub fn is_nothing(text: &str) -> bool {
    NOTHING.contains(&text)
}

/// Errors for what the parser refused; the text starts at byte `offset` of the source, `table` is what could be read of it.
pub fn explain(source: SourceId, offset: usize, text: &str, refused: &[Refused], table: &Table) -> Vec<Diagnostic> {
    let span = |range: &Range<usize>| Span { source, start: range.start + offset, end: range.end + offset };
    let mut out = Vec::new();
    let mut explained: Vec<Range<usize>> = Vec::new();
    // In the second section of a name, every key that the first has too is refused once more.
    let mut second_section: Option<Range<usize>> = None;
    for Refused { range, message } in refused {
        if message.starts_with("duplicate key") {
            if second_section.as_ref().is_some_and(|section| section.contains(&range.start)) {
                continue;
            }
            let header = header_of_line(text, range.start);
            if header.is_some() {
                second_section = Some(range.end..next_header(text, range.end));
            }
            out.push(duplicate(text, range, header, span(range), table, offset));
            continue;
        }
        if let Some(advice) = text.get(range.start..).and_then(|rest| typographic(rest.chars().next()?)) {
            let end = range.start + text[range.start..].chars().next().map_or(0, char::len_utf8);
            out.push(Diagnostic::error("this is not TOML").at(span(&(range.start..end)), advice));
            continue;
        }
        let token = token_at(text, range.start);
        let word = &text[token.clone()];
        // What is right in itself is not what was refused.
        let advice = match plain_value(word).filter(|_| toml::de::DeValue::parse(word).is_err()) {
            Some(Value::Boolean(truth)) => Some(format!("write `{truth}`")),
            Some(Value::Integer(number)) => Some(format!("write `{number}`")),
            Some(Value::Float(number)) => Some(format!("write `{number:?}`")),
            _ if NOTHING.contains(&word) => Some(format!("TOML has no `{word}`: leave the key out")),
            _ if is_unquoted(message, word) => Some(format!("a string needs quotes: `\"{}\"`", shorten(word))),
            _ => None,
        };
        out.push(match advice {
            Some(_) if explained.contains(&token) => continue,
            Some(advice) => {
                let error = Diagnostic::error("this is not TOML").at(span(&token), advice);
                explained.push(token);
                error
            }
            None => {
                let reason = match message.as_str() {
                    // The parser takes nothing for an unquoted string.
                    message if range.is_empty() && message.starts_with("string values must be quoted") => {
                        "a value is missing"
                    }
                    message => message,
                };
                Diagnostic::error("this is not TOML").at(span(range), reason)
            }
        });
    }
    out
}

/// What to write for a character that programs for texts put in the place of one of TOML's.
fn typographic(c: char) -> Option<String> {
    let code = u32::from(c);
    match c {
        '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '‚' => {
            Some(format!("`{c}` is a typographic quote: write `\"`"))
        }
        '–' | '—' | '−' => Some(format!("`{c}` is a dash (U+{code:04X}): write `-`")),
        '\u{a0}' | '\u{2000}'..='\u{200b}' | '\u{202f}' | '\u{3000}' | '\u{feff}' => {
            Some(format!("a space of another kind (U+{code:04X}): write an ordinary one"))
        }
        _ => None,
    }
}

/// Whether a word was refused in the place of a value: the parser guesses by its first letter what it should be.
fn is_unquoted(message: &str, word: &str) -> bool {
    let guesses = ["string values must be quoted", "invalid boolean", "invalid float"];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    guesses.iter().any(|guess| message.starts_with(guess))
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(plain)
}

/// The number or word around a byte.
fn token_at(text: &str, at: usize) -> Range<usize> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    let at = (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    let start = text[..at].rfind(|c| !part(c)).map_or(0, |i| i + text[i..].chars().next().map_or(1, char::len_utf8));
    let end = text[at..].find(|c| !part(c)).map_or(text.len(), |i| at + i);
    start..end
}

/// The line around a byte.
fn line_at(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
    &text[start..end]
}

/// The names in a line that is the header of a section.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.split('#').next().unwrap_or(line).trim();
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(inner);
    (!inner.contains(['[', ']', '{', '}', '=', ','])).then(|| components(inner))
}

fn header_of_line(text: &str, at: usize) -> Option<Vec<String>> {
    header(line_at(text, at))
}

/// Where the next section begins.
fn next_header(text: &str, from: usize) -> usize {
    let mut at = from;
    for line in text[from..].split_inclusive('\n') {
        // The first is the rest of a line.
        if at > from && header(line).is_some() {
            return at;
        }
        at += line.len();
    }
    text.len()
}

/// The names in a dotted key.
fn components(key: &str) -> Vec<String> {
    key.split('.').map(|part| part.trim().trim_matches(['"', '\'']).to_owned()).collect()
}

/// An error for a key, or a section, that is there already, with both places.
fn duplicate(
    text: &str,
    range: &Range<usize>,
    header: Option<Vec<String>>,
    span: Span,
    table: &Table,
    offset: usize,
) -> Diagnostic {
    let (name, first) = match &header {
        Some(path) => (format!("[{}]", path.join(".")), first_section(text, range.start, path)),
        None => {
            let section = text[..range.start].lines().rev().find_map(self::header).unwrap_or_default();
            let around = below(table, &section).map(|table| innermost(table, range.start + offset));
            // The whole of a dotted key, of which one name was refused.
            let start = text[..range.start].rfind(['\n', '{', ',']).map_or(0, |i| i + 1);
            let key = components(text[start..].split(['=', '\n']).next().unwrap_or_default());
            let name = text.get(range.clone()).unwrap_or_default().trim_matches(['"', '\'']).to_owned();
            let entry = around.and_then(|table| find(table, &key).or_else(|| find(table, &key[..1])));
            (name, entry.map(|entry| entry.key_span))
        }
    };
    let error = Diagnostic::error(format!("`{}` is there twice", shorten(&name))).at(span, "the second");
    let error = match first.filter(|first| first.start < span.start) {
        Some(first) => error.context(Span { source: span.source, ..first }, "the first"),
        None => error,
    };
    match header {
        Some(_) => error.help("put all keys of the section below one header"),
        None => error.help("keep one of them"),
    }
}

/// Where a section is first spoken of before a byte: by its header, or by a dotted key.
fn first_section(text: &str, before: usize, path: &[String]) -> Option<Span> {
    let (mut at, mut section) = (0, Vec::new());
    for line in text[..before].split_inclusive('\n') {
        let start = at + (line.len() - line.trim_start().len());
        at += line.len();
        let (key, start, width) = match header(line) {
            Some(names) => {
                section.clone_from(&names);
                (names, start + 1, line.trim_start().find(']').unwrap_or(1) - 1)
            }
            None => {
                let Some((key, _)) = line.split_once('=') else { continue };
                let names = section.iter().cloned().chain(components(key)).collect();
                (names, start, key.trim().len())
            }
        };
        if key.starts_with(path) {
            return Some(Span { source: SourceId(0), start, end: start + width });
        }
    }
    None
}

fn find<'a>(table: &'a Table, path: &[String]) -> Option<&'a Entry> {
    let (last, around) = path.split_last()?;
    below(table, around)?.entry(last)
}

/// The table at a path; of a list of tables the last.
fn below<'a>(table: &'a Table, path: &[String]) -> Option<&'a Table> {
    path.iter().try_fold(table, |table, name| match &table.get(name)?.value {
        Value::Table(inner) => Some(inner),
        Value::Array(items) => items.last()?.as_table(),
        _ => None,
    })
}

/// The innermost table in braces, within the values of this one, that a byte of the source lies in.
fn innermost(table: &Table, at: usize) -> &Table {
    let mut values: Vec<_> = table.entries.iter().map(|entry| &entry.node).collect();
    while let Some(node) = values.pop() {
        if !(node.span.start..node.span.end).contains(&at) {
            continue;
        }
        match &node.value {
            Value::Table(inner) => return innermost(inner, at),
            Value::Array(items) => values.extend(items),
            _ => {}
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_word_processors() {
        for (c, part) in [
            ('“', "`“` is a typographic quote: write `\"`"),
            ('’', "is a typographic quote"),
            ('−', "is a dash (U+2212): write `-`"),
            ('\u{a0}', "a space of another kind (U+00A0): write an ordinary one"),
        ] {
            assert!(typographic(c).is_some_and(|advice| advice.contains(part)), "{c:?}");
        }
        assert!(['"', '-', ' ', 'ü', '蜂'].iter().all(|c| typographic(*c).is_none()));
    }

    #[test]
    fn spellings_of_other_languages() {
        let float = |text| match plain_value(text) {
            Some(Value::Float(number)) => number,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!([float(".1"), float("1."), float("-.5e-3"), float("+2.")], [0.1, 1.0, -0.5e-3, 2.0]);
        assert!(matches!(plain_value("007"), Some(Value::Integer(7))));
        assert!(matches!(plain_value("-012"), Some(Value::Integer(-12))));
        assert!(matches!(plain_value("True"), Some(Value::Boolean(true))));
        for text in
            ["", ".", "+", "1.2.3", "1e", "e5", "infinity", "nan", "0x", "1,5", "cuda:1", "1/3", "v1.0", "1e999"]
        {
            assert!(plain_value(text).is_none(), "{text}");
        }
    }
}
