//! Brackets and strings that are not closed. TOML's parser reports them where it has to stop, many lines further down. The user has to mend them where
//! they begin.

use std::ops::Range;

use super::diagnostics::{Diagnostic, SourceId, Span};

/// How a value ended before what is open in it was closed.
struct Unclosed {
    /// The bracket, or the quotes.
    open: Range<usize>,
    /// Where that shows, and how. Of a string it is clear where it begins.
    shown: Option<(Range<usize>, &'static str)>,
}

/// What is open and never closed in a text that is not TOML, in its order.
pub fn unclosed(source: SourceId, text: &str) -> Vec<Diagnostic> {
    let mut scanner = Scanner { text, at: 0 };
    let mut found = Vec::new();
    while scanner.at < text.len() {
        if let Err(unclosed) = scanner.line() {
            found.push(error(source, text, unclosed));
            // Where a new line showed it, that is one of its own. Of other lines it is not clear.
            if !text[..scanner.at].ends_with('\n') {
                scanner.next_section();
            }
        }
    }
    found
}

fn error(source: SourceId, text: &str, Unclosed { open, shown }: Unclosed) -> Diagnostic {
    let span = |range: Range<usize>| Span { source, start: range.start, end: range.end };
    let (written, place) = (&text[open.clone()], span(open.clone()));
    let close = match written {
        "[" => "]",
        "{" => "}",
        quotes => quotes,
    };
    let error = match written {
        "[" | "{" => Diagnostic::error(format!("this `{written}` is not closed"))
            .help(format!("write `{close}` after the last element")),
        _ if written.len() == 1 => Diagnostic::error("this string is not closed")
            .help(format!("write `{close}` after its last character: a string ends in the line in which it begins")),
        _ => Diagnostic::error("this string is not closed")
            .help(format!("write `{close}` after its last character: the rest of the file is a part of it")),
    };
    let error = error.at(place, format!("its `{close}` is missing"));
    match shown {
        Some((range, how)) => error.context(span(range), how),
        None => error,
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// What is left of the line, without spaces around it and without its end.
    fn line_here(&self) -> &str {
        self.rest().split('\n').next().unwrap_or_default().trim()
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
    }

    /// Goes to the next line that is the header of a section.
    fn next_section(&mut self) {
        self.skip_line();
        while self.at < self.text.len() && !is_header(self.line_here()) {
            self.skip_line();
        }
    }

    /// A line that begins outside of all values, with the lines that its value goes on in.
    fn line(&mut self) -> Result<(), Unclosed> {
        let value = after_key(self.line_here()).map(|value| value.as_ptr() as usize - self.text.as_ptr() as usize);
        match value {
            Some(at) => {
                self.at = at;
                self.value()
            }
            None => {
                self.skip_line();
                Ok(())
            }
        }
    }

    /// A value, and the rest of its last line.
    fn value(&mut self) -> Result<(), Unclosed> {
        // Brackets that are open, and whether a key may come next in the innermost.
        let mut open: Vec<usize> = Vec::new();
        let mut key_next = false;
        while let Some(c) = self.rest().chars().next() {
            let here = self.at..self.at + c.len_utf8();
            let innermost = open.last().map(|&at| (at..at + 1, &self.text[at..=at]));
            let fail =
                |open: &Range<usize>, how| Err(Unclosed { open: open.clone(), shown: Some((here.clone(), how)) });
            match c {
                '"' | '\'' => {
                    self.string()?;
                    key_next = false;
                    continue;
                }
                '#' => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                    continue;
                }
                '[' | '{' => {
                    if let Some((open, "{")) = &innermost
                        && key_next
                    {
                        return fail(open, "here a key should stand");
                    }
                    open.push(self.at);
                    key_next = c == '{';
                }
                ']' | '}' => {
                    let Some((bracket, written)) = innermost else {
                        self.skip_line();
                        return Ok(());
                    };
                    if (written == "[") != (c == ']') {
                        return fail(&bracket, "closes another one");
                    }
                    open.pop();
                    key_next = false;
                }
                ',' => key_next = innermost.is_some_and(|(_, written)| written == "{"),
                '\n' => {
                    self.at += 1;
                    let Some((bracket, written)) = innermost else { return Ok(()) };
                    let line = self.line_here();
                    let start = self.at + (self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len());
                    let shown =
                        |how| Err(Unclosed { open: bracket.clone(), shown: Some((start..start + line.len(), how)) });
                    if is_header(line) {
                        return shown("a new section begins");
                    }
                    if written == "[" && after_key(line).is_some() {
                        return shown("a new key begins");
                    }
                    continue;
                }
                c if c.is_whitespace() => {}
                _ => key_next = false,
            }
            self.at = here.end;
        }
        match open.last() {
            Some(&at) => Err(Unclosed { open: at..at + 1, shown: None }),
            None => Ok(()),
        }
    }

    /// A string, from its quotes to behind those that close it.
    fn string(&mut self) -> Result<(), Unclosed> {
        let quote = &self.rest()[..1];
        let long = self.rest().starts_with(&quote.repeat(3));
        let width = if long { 3 } else { 1 };
        let unclosed = Unclosed { open: self.at..self.at + width, shown: None };
        let (quotes, escapes) = (quote.repeat(width), quote == "\"");
        self.at += width;
        while let Some(c) = self.rest().chars().next() {
            if self.rest().starts_with(&quotes) {
                self.at += width;
                // A long string may end with two quotes of its own.
                while long && self.rest().starts_with(&quotes[..1]) {
                    self.at += 1;
                }
                return Ok(());
            }
            if c == '\n' && !long {
                break;
            }
            let next = self.rest()[c.len_utf8()..].chars().next();
            let escaped = next.filter(|next| escapes && c == '\\' && *next != '\n').map_or(0, char::len_utf8);
            self.at += c.len_utf8() + escaped;
        }
        Err(unclosed)
    }
}

/// A bare key, also one of several parts: what is read of a line that may belong to a list just as well is strict.
fn is_key(text: &str) -> bool {
    let part = |part: &str| {
        let part = part.trim();
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && part.chars().all(bare)
            || part.len() > 2 && part.starts_with('"') && part.ends_with('"')
    };
    !text.trim().is_empty() && text.split('.').all(part)
}

/// Whether a line is the header of a section, and no list with a string in it.
fn is_header(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or(line).trim();
    let Some(inner) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else { return false };
    let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(inner);
    is_key(inner) && !inner.trim_start().starts_with('"') && !["true", "false", "inf", "nan"].contains(&inner.trim())
}

/// What stands after a key and its `=`.
fn after_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    is_key(key).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of a text: the line and column of what is open, and the line where that shows.
    fn open(text: &str) -> Vec<(usize, usize, Option<usize>)> {
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let column = |at: usize| at - text[..at].rfind('\n').map_or(0, |end| end + 1) + 1;
        let place = |error: Diagnostic| {
            let at = error.span().unwrap().start;
            let shown = error.labels.iter().find(|label| !label.primary).map(|label| line(label.span.start));
            (line(at), column(at), shown)
        };
        unclosed(SourceId(0), text).into_iter().map(place).collect()
    }

    #[test]
    fn open_brackets_and_strings_are_errors_where_they_begin() {
        assert_eq!(open("a = [1,\n 2\n\n[b]\nc = 1\n"), [(1, 5, Some(4))]);
        assert_eq!(open("a = [1,\n 2\nc = 1\n"), [(1, 5, Some(3))]);
        assert_eq!(open("a = [\n 'x',\n 2"), [(1, 5, None)]);
        assert_eq!(open("a = [{ b = 1 ]\n[c]\nd = \"x\ne = 2\n"), [(1, 6, Some(1)), (3, 5, None)]);
        assert_eq!(open("a = [\n { b = 1,\n { b = 2 },\n]\n"), [(2, 2, Some(3))]);
        assert_eq!(open("a = \"\"\"x\n[c]\nd = 1\n"), [(1, 5, None)]);
        assert_eq!(open("a = { b = 1\n"), [(1, 5, None)]);
    }

    #[test]
    fn closed_brackets_and_strings_are_no_errors() {
        for text in [
            "a = [1, [2, '[', \"\\\"{\"], { b = [3] }] # [\n[c]\n[[d.e]]\nf = '''\n[x'''\ng = \"\"\"\"a\"\"\"\"\"\n",
            "a = [\n  [true],\n  [1],\n  [\"x\"],\n]\n",
            "a = {\n  b = 1,\n  c = 2,\n}\n",
            "a = 1]\n# it's\nno key\n",
            "a = ]\nb = 'c:\\'\n",
        ] {
            assert_eq!(open(text), [], "{text}");
        }
    }
}
