//! The quotes of a CSV or TSV text (RFC 4180), looked at before any record is made of it: what is not closed swallows the lines after it,
//! and a record without an end takes memory without an end.

use memchr::memchr3;

/// Bytes of a piece of a text: enough work for a thread, and few enough to stay in its cache. Tests have many pieces.
pub const PIECE: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// What is wrong in a text, and where: lines and columns are counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
    /// What is wrong there.
    pub kind: Kind,
}

/// What is wrong in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A quote opens that is not closed.
    Unclosed,
    /// After a closing quote a field goes on.
    Behind,
    /// Before an opening quote a space stands.
    Space,
    /// A record begins that is too long.
    TooLong,
}

/// Where the look at a text is.
enum State {
    /// At the begin of a field; `Some`: after spaces.
    Begin,
    Spaces,
    Plain,
    /// Within quotes, which opened at a line and a column.
    Quoted(u64, u64),
    /// After a quote that closes, or is the first of two that stand for one.
    Closed(u64, u64),
}

/// Where a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// The byte of the text.
    pub byte: usize,
    /// The line, from 1.
    pub line: u64,
}

/// A look at the records of a text, which may come in parts.
pub struct Scan {
    delimiter: u8,
    quote: Option<u8>,
    most: usize,
    every: usize,
    begins: Vec<Begin>,
    /// Where the next part begins: with a record.
    next: Begin,
}

impl Scan {
    /// At the begin of a text whose fields have `delimiter` between them, and stand within a `quote` where they must. A record may have `most` bytes; where the first one begins is kept, and about
    /// every `every` bytes another one.
    pub fn new((delimiter, quote): (u8, Option<u8>), most: usize, every: usize) -> Self {
        let first = Begin { byte: 0, line: 1 };
        Scan { delimiter, quote, most, every, begins: vec![first], next: first }
    }

    /// Where records begin that are kept, and where the last one ends: the byte and the line after it.
    pub fn begins(self) -> (Vec<Begin>, Begin) {
        (self.begins, self.next)
    }

    /// Looks at the next part of the text, which begins after the last record that was whole. How many bytes of it whole records have: all, if it is the
    /// `last` part.
    ///
    /// # Errors
    /// The first fault.
    pub fn look(&mut self, text: &str, last: bool) -> Result<usize, Fault> {
        let (base, most) = (self.next.byte, self.most);
        let mut state = State::Begin;
        let (mut line, mut column) = (self.next.line, 0);
        // Where the record begins.
        let (mut begin, mut begin_line) = (0, line);
        let bytes = text.as_bytes();
        // Without a quote no byte is one.
        let is_quote = |byte: u8| Some(byte) == self.quote;
        let quote = self.quote.unwrap_or(b'\n');
        let mut next = 0;
        while let Some(&byte) = bytes.get(next) {
            let at = next;
            // A line feed may follow in the next part.
            let open = |end: usize| !last && end + 1 == bytes.len() && bytes[end] == b'\r';
            if at == begin {
                if self.begins.last().is_none_or(|known| base + at - known.byte >= self.every) {
                    self.begins.push(Begin { byte: base + at, line });
                }
                // A line without a quote has no fault but its length.
                let end = memchr3(b'\n', b'\r', quote, &bytes[at..]).map_or(bytes.len(), |length| at + length);
                if !bytes.get(end).is_some_and(|byte| is_quote(*byte)) {
                    if end - at > most {
                        return Err(Fault { line, column: 1, kind: Kind::TooLong });
                    }
                    if !last && end == bytes.len() || open(end) {
                        break;
                    }
                    let both = bytes.get(end) == Some(&b'\r') && bytes.get(end + 1) == Some(&b'\n');
                    next = end + 1 + usize::from(both);
                    (begin, begin_line, line, column) = (next, line + 1, line + 1, 0);
                    continue;
                }
            }
            if open(at) {
                break;
            }
            next += 1;
            // The other bytes of a character are on its column.
            column += u64::from(byte & 0xc0 != 0x80);
            let fault = |line, column, kind| Err(Fault { line, column, kind });
            let ends = byte == b'\n' || byte == b'\r';
            if at - begin >= most && !ends {
                return match state {
                    State::Quoted(line, column) => fault(line, column, Kind::Unclosed),
                    _ => fault(begin_line, 1, Kind::TooLong),
                };
            }
            state = match state {
                State::Quoted(line, column) if is_quote(byte) => State::Closed(line, column),
                quoted @ State::Quoted(..) => quoted,
                State::Closed(line, column) if is_quote(byte) => State::Quoted(line, column),
                State::Begin if is_quote(byte) => State::Quoted(line, column),
                State::Spaces if is_quote(byte) => return fault(line, column, Kind::Space),
                _ if byte == self.delimiter || ends => State::Begin,
                State::Begin | State::Spaces if byte == b' ' || byte == b'\t' => State::Spaces,
                closed @ State::Closed(..) if byte == b' ' || byte == b'\t' => closed,
                State::Closed(..) => return fault(line, column, Kind::Behind),
                State::Begin | State::Spaces | State::Plain => State::Plain,
            };
            if ends {
                // `\r\n` is one end: a piece that began between them would have one row more than lines.
                let both = byte == b'\r' && bytes.get(at + 1) == Some(&b'\n');
                let is_record = matches!(state, State::Begin);
                next += usize::from(both && is_record);
                if !both || is_record {
                    (line, column) = (line + 1, 0);
                }
                if is_record {
                    (begin, begin_line) = (next, line);
                }
            }
        }
        match state {
            State::Quoted(line, column) if last => Err(Fault { line, column, kind: Kind::Unclosed }),
            _ if last => {
                self.next = Begin { byte: base + bytes.len(), line: line + 1 };
                Ok(bytes.len())
            }
            _ => {
                let begin = begin.min(bytes.len());
                self.next = Begin { byte: base + begin, line: begin_line };
                Ok(begin)
            }
        }
    }
}

/// Counts the lines of a text up to one place after the other.
pub struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    /// Those of `text`, the first of which has the number `line`.
    pub fn new(text: &'a str, line: u64) -> Self {
        Lines { text: text.as_bytes(), at: 0, line }
    }

    /// The line of the first record from byte `byte` on, which is not before the last one that was asked for.
    pub fn at(&mut self, byte: u64) -> u64 {
        let is_end = |byte: u8| byte == b'\n' || byte == b'\r';
        let byte = usize::try_from(byte).unwrap_or(usize::MAX);
        while self.at < self.text.len() && (self.at < byte || is_end(self.text[self.at])) {
            let one = self.text[self.at];
            self.at += 1;
            self.line += u64::from(one == b'\n' || one == b'\r' && self.text.get(self.at) != Some(&b'\n'));
        }
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    fn check(text: &str, delimiter: u8, most: usize, every: usize) -> Result<Vec<Begin>, Fault> {
        let mut scan = Scan::new((delimiter, Some(b'"')), most, every);
        scan.look(text, true)?;
        Ok(scan.begins().0)
    }

    /// The same of a text that comes in parts of so many bytes.
    fn in_parts(text: &str, most: usize, every: usize, part: usize) -> Result<Vec<Begin>, Fault> {
        let mut scan = Scan::new((b',', Some(b'"')), most, every);
        let (mut begin, mut end) = (0, 0);
        loop {
            end = (end + part).min(text.len());
            let whole = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap();
            begin += scan.look(&text[begin..whole], end == text.len())?;
            if end == text.len() {
                return Ok(scan.begins().0);
            }
        }
    }

    #[test]
    fn parts_of_a_text_are_looked_at_as_the_whole() {
        let mut draw = Stream::new(5, Purpose::Split, 0, 0);
        let parts = ["a", "é", ",", "\n", "\r\n", "\r", "\"b,\n\r c\"", "\"\"", " \"", "\"\r\n\"", "x\"y", "\n\n"];
        let mut faults = 0;
        for _ in 0..20_000 {
            let text: String =
                (0..1 + draw.below(20)).map(|_| parts[draw.below(parts.len() as u32) as usize]).collect();
            let (most, every) = (8 + draw.below(20) as usize, 1 + draw.below(12) as usize);
            let whole = check(&text, b',', most, every);
            faults += u32::from(whole.is_err());
            for part in [1, 2, 3, 7, 100] {
                assert_eq!(in_parts(&text, most, every, part), whole, "{text:?} in parts of {part}, {most}");
            }
        }
        assert!((2000..18_000).contains(&faults), "{faults}");
    }

    #[test]
    fn faults_have_their_places() {
        let of = |text: &str| check(text, b',', 30, 1 << 20).err().map(|fault| (fault.line, fault.column, fault.kind));
        for text in
            ["a,b\n1,\"2\"\n", "a\r\n\"1\r\n\"\"2\"\" \" ,\"\"\n", "é\"x,5\" y\n", "", "\"\"", "\n\n\r\n", "a,b\n \"\n"]
        {
            let expected = text.ends_with(" \"\n").then_some((2, 2, Kind::Space));
            assert_eq!(of(text), expected, "{text}");
        }
        assert_eq!(of("a,b\r\n1,\"2\r\n3,4\r\n"), Some((2, 3, Kind::Unclosed)));
        assert_eq!(of("a\ré,\"2"), Some((2, 3, Kind::Unclosed)));
        assert_eq!(of("\"a\"\r\nb,\"2"), Some((2, 3, Kind::Unclosed)));
        assert_eq!(of("a,b\n1,\"2\n3,\"4\"\n"), Some((3, 4, Kind::Behind)));
        assert_eq!(of("a,b\n\"1\"2,3\n"), Some((2, 4, Kind::Behind)));
        assert_eq!(of(&format!("a\n\nb{}", ",".repeat(29))), None);
        assert_eq!(of(&format!("a\n\nb{}", ",".repeat(30))), Some((3, 1, Kind::TooLong)));
        assert_eq!(of(&format!("a\n\"b{}\"", "\n".repeat(40))), Some((2, 1, Kind::Unclosed)));
    }

    #[test]
    fn records_begin_where_lines_do_outside_of_quotes() {
        let text = "a,b\r\n1,\"2\n3\"\r\n\n4,5\r6,7\n8,\"9\"";
        let begins = check(text, b',', 30, 1).unwrap();
        let of = |begin: &Begin| (&text[begin.byte..], begin.line);
        assert_eq!(of(&begins[0]), (text, 1));
        let expected = [("1,\"2\n3\"\r\n", 2), ("\n4", 4), ("4,5", 5), ("6,7", 6), ("8,", 7)];
        assert_eq!(begins.len(), expected.len() + 1);
        for (begin, (start, line)) in begins[1..].iter().zip(expected) {
            let (rest, found) = of(begin);
            assert!(rest.starts_with(start) && found == line, "{rest:?} in line {found}");
        }
        assert_eq!(check(text, b',', 30, 1 << 20).unwrap(), begins[..1]);
    }

    #[test]
    fn lines_are_counted_as_they_end() {
        let text = "a\r\n\r\nb\rc\n\nd";
        let mut lines = Lines::new(text, 1);
        let places = [(0, 1), (2, 3), (3, 3), (6, 4), (8, 6)];
        for (byte, line) in places {
            assert_eq!(lines.at(byte), line, "byte {byte}");
        }
    }
}
