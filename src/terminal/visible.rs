//! Text from outside, made harmless: what would steer a terminal or hide from the eye is written out, and passwords in
//! addresses are masked.

use std::fmt::Write;
use std::ops::Range;

/// What stands for a secret.
const MASK: &str = "***";

/// True for characters that steer a terminal, change the direction of text, or cannot be seen. Line feeds and tabs are
/// none of them.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // C0, DEL and C1: a terminal obeys them.
        _ if c.is_control() => true,
        // Soft hyphen, directions, zero-width marks, separators of lines, joiners, the byte order mark.
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Tags and variation selectors beyond those of emoji: whole texts can hide in them.
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// Writes a hidden character out: `\r`, `\x1b`, `\u{202e}`.
fn escape(c: char, out: &mut String) {
    let _ = match c {
        '\r' => write!(out, "\\r"),
        '\0'..='\u{7f}' => write!(out, "\\x{:02x}", c as u32),
        _ => write!(out, "\\u{{{:x}}}", c as u32),
    };
}

/// A text as it may be shown, and where its parts have gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The text.
    pub text: String,
    /// What was replaced: bytes of the original, bytes of the new text; in order.
    replaced: Vec<(Range<usize>, Range<usize>)>,
}

impl Visible {
    /// Hidden characters written out, secrets masked. The carriage return of a line's end goes away.
    pub fn new(text: &str) -> Self {
        Self::without(text, secrets(text))
    }

    fn without(text: &str, secrets: Vec<Range<usize>>) -> Self {
        let mut out = Visible { text: String::with_capacity(text.len()), replaced: Vec::new() };
        let mut secrets = secrets.into_iter().peekable();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let start = out.text.len();
            let mut end = at + c.len_utf8();
            let secret = secrets.next_if(|secret| secret.start == at);
            match &secret {
                Some(secret) => {
                    end = secret.end;
                    out.text.push_str(MASK);
                }
                None if !is_hidden(c) => out.text.push(c),
                None if text[at..].starts_with("\r\n") => {}
                None => escape(c, &mut out.text),
            }
            if secret.is_some() || is_hidden(c) {
                out.replaced.push((at..end, start..out.text.len()));
            }
            at = end;
        }
        out
    }

    /// Where the bytes `range` of the original are now. What was replaced is taken whole.
    pub fn range(&self, range: Range<usize>) -> Range<usize> {
        let start = self.at(range.start, |new| new.start);
        start..self.at(range.end, |new| new.end).max(start)
    }

    fn at(&self, at: usize, within: impl Fn(&Range<usize>) -> usize) -> usize {
        let before = self.replaced.partition_point(|(old, _)| old.end <= at);
        match self.replaced.get(before) {
            Some((old, new)) if old.start < at => within(new),
            _ => match before.checked_sub(1).map(|i| &self.replaced[i]) {
                Some((old, new)) => new.end + (at - old.end),
                None => at,
            },
        }
    }
}

/// Hidden characters written out, secrets masked.
pub fn visible(text: &str) -> String {
    Visible::new(text).text
}

/// Hidden characters written out; passwords stay.
pub fn written_out(text: &str) -> String {
    Visible::without(text, Vec::new()).text
}

/// As [`visible`], for text that colours and styles of ours have been put into: those pass.
pub fn visible_styled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&visible(&rest[..at]));
        rest = &rest[at..];
        let length = style(rest).unwrap_or(1);
        if length > 1 {
            out.push_str(&rest[..length]);
        } else {
            escape('\u{1b}', &mut out);
        }
        rest = &rest[length..];
    }
    out.push_str(&visible(rest));
    out
}

/// The length of the sequence that sets colours and styles (SGR) at the begin of `text`.
fn style(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let length = parameters.bytes().take_while(|b| b.is_ascii_digit() || *b == b';').count();
    parameters[length..].starts_with('m').then_some(2 + length + 1)
}

/// A JSON text in which no hidden character is left: they can only stand in strings, where `\uXXXX` means the same.
pub fn visible_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A name that stays on its line: the ends of lines and tabs in it are written out. It must not look like a line of ours.
pub fn one_line(name: &str) -> String {
    name.replace('\n', "\\n").replace('\t', "\\t")
}

/// Passwords in addresses masked, and nothing else changed.
pub fn masked(text: &str) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for secret in secrets(text) {
        out.push_str(&text[at..secret.start]);
        out.push_str(MASK);
        at = secret.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Where `user:password` of addresses stands, in order and apart from each other.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if !text.contains('@') {
        return found;
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '<' | '>');
    let mut start = 0;
    for word in text.split(ends) {
        if word.contains('@') {
            in_word(word, start, &mut found);
        }
        // What ends a word is one character, of any length.
        start += word.len() + text[start + word.len()..].chars().next().map_or(0, char::len_utf8);
    }
    found
}

/// The secrets of one word, which starts at byte `base` of its text.
fn in_word(word: &str, base: usize, found: &mut Vec<Range<usize>>) {
    let schemes: Vec<usize> = word.match_indices("://").map(|(at, _)| at + 3).collect();
    if schemes.is_empty() {
        // `user:password@host`, without `http://`.
        let start = word.len() - word.trim_start_matches(['\'', '[', '(', '{']).len();
        if let Some(at) = word.rfind('@')
            && word[start..at].contains(':')
            && !word[start..at].contains(['/', '\\'])
        {
            found.push(base + start..base + at);
        }
    }
    for (i, start) in schemes.iter().enumerate() {
        let address = &word[*start..schemes.get(i + 1).map_or(word.len(), |next| next - 3)];
        let authority = &address[..address.find(['/', '?', '#', '\\']).unwrap_or(address.len())];
        let is_port = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let at = match authority.rfind('@') {
            Some(at) => Some(at),
            // A password with a slash that should have been written as %2F.
            None if authority.split_once(':').is_some_and(|(_, port)| !is_port(port))
                && !authority.starts_with('[') =>
            {
                address.rfind('@')
            }
            None => None,
        };
        if let Some(at) = at.filter(|at| *at > 0) {
            found.push(base + start..base + start + at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_or_hides_is_written_out() {
        let cases = [
            ("plain äöü 漢字 🦀\n\tnext", "plain äöü 漢字 🦀\n\tnext"),
            ("\u{1b}]0;title\u{7}", "\\x1b]0;title\\x07"),
            ("\u{1b}[31mred", "\\x1b[31mred"),
            ("a\u{9b}31mb\u{85}\u{7f}", "a\\u{9b}31mb\\u{85}\\x7f"),
            ("a\rb\r\nc\0", "a\\rb\nc\\x00"),
            ("x\u{202e}y\u{2066}z\u{200f}\u{61c}", "x\\u{202e}y\\u{2066}z\\u{200f}\\u{61c}"),
            ("\u{feff}a\u{200b}\u{2028}\u{2029}\u{e0041}", "\\u{feff}a\\u{200b}\\u{2028}\\u{2029}\\u{e0041}"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
            assert_eq!(visible(shown), shown, "once is enough");
        }
    }

    #[test]
    fn nothing_hidden_is_left_of_any_character() {
        for c in ('\0'..=char::MAX).filter(|c| is_hidden(*c)) {
            assert!(!visible(&format!("a{c}b")).contains(is_hidden), "{:x}", c as u32);
            assert!(!visible_styled(&format!("a{c}b")).contains(is_hidden), "{:x}", c as u32);
            let json = serde_json::Value::from(format!("a{c}b"));
            let text = visible_json(&json.to_string());
            assert!(!text.contains(is_hidden), "{:x}", c as u32);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), json);
        }
    }

    #[test]
    fn only_styles_pass_where_there_may_be_styles() {
        let ours = "\u{1b}[1m\u{1b}[38;5;9merror\u{1b}[0m: no\u{1b}[m";
        assert_eq!(visible_styled(ours), ours);
        for bad in
            ["\u{1b}[2J", "\u{1b}]0;x\u{7}", "\u{1b}", "\u{1b}[", "\u{1b}[1", "\u{1b}[?25l", "\u{9b}1m", "\u{1b}c"]
        {
            let shown = visible_styled(&format!("{bad}é{ours}"));
            assert!(shown.ends_with(&format!("é{ours}")), "{shown:?}");
            assert!(!shown[..shown.find('é').unwrap()].contains(is_hidden), "{shown:?}");
        }
    }

    #[test]
    fn places_move_with_what_is_written_out() {
        let text = "a\u{1b}b\u{202e}c = \"https://me:pw@host/x\"";
        let shown = Visible::new(text);
        assert_eq!(shown.text, "a\\x1bb\\u{202e}c = \"https://***@host/x\"");
        let same = |part: &str, expected: &str| {
            let start = text.find(part).unwrap();
            assert_eq!(&shown.text[shown.range(start..start + part.len())], expected, "{part:?}");
        };
        for (part, expected) in [
            ("a", "a"),
            ("\u{1b}", "\\x1b"),
            ("b\u{202e}", "b\\u{202e}"),
            ("c", "c"),
            ("me:pw", "***"),
            ("host", "host"),
        ] {
            same(part, expected);
        }
        // A part of what was replaced is all of it.
        same("e:p", "***");
        assert_eq!(shown.range(text.len()..text.len()), shown.text.len()..shown.text.len());
        assert_eq!(shown.range(0..0), 0..0);
    }

    #[test]
    fn passwords_are_masked() {
        for (text, shown) in [
            ("http://user:secret@host:80/a?t=1", "http://***@host:80/a?t=1"),
            ("at `https://token@host/x`: no", "at `https://***@host/x`: no"),
            ("m = [\"https://a:b@c/\", 'https://d:e@f']", "m = [\"https://***@c/\", 'https://***@f']"),
            ("['https://a:b@c','https://d:e@f']", "['https://***@c','https://***@f']"),
            ("http://u:p@ss@host/", "http://***@host/"),
            ("http://u:p/a@host/", "http://***@host/"),
            ("http://u:p\u{1b}w@host/", "http://***@host/"),
            ("u:secret@host/x", "***@host/x"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(masked(text), shown);
        }
        for text in [
            "http://host:8080/pkg@1.2/file",
            "http://[::1]:80/x@y",
            "git@github.com:a/b",
            "me@host",
            "https://host/?q=a:b@c",
            "at 3:4 @ 5",
            "a@\u{2003}b",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
