//! The lines of a file, of which none takes more memory than a line may: a file may have holes of gigabytes.

use std::io::{self, BufRead, ErrorKind, Read};

/// Reads one line after the other.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    most: usize,
    line: Vec<u8>,
}

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// What it holds, with its end; of one that is too long, its first bytes.
    pub bytes: &'a [u8],
    /// Bytes that it has in the file.
    pub length: u64,
    /// It is longer than lines may be.
    pub too_long: bool,
}

impl<R: BufRead> Lines<R> {
    /// Those of `reader`, of at most `most` bytes each.
    pub fn new(reader: R, most: usize) -> Self {
        Lines { reader, most, line: Vec::new() }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let most = self.most as u64;
        let kept = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)? as u64;
        let cut = kept == most && self.line.last() != Some(&b'\n');
        let rest = if cut { self.pass_over()? } else { 0 };
        let line = Line { bytes: &self.line, length: kept + rest, too_long: rest > 0 };
        Ok((kept > 0).then_some(line))
    }

    /// Goes on after the end of a line; bytes until there.
    fn pass_over(&mut self) -> io::Result<u64> {
        let mut passed = 0;
        loop {
            let there = match self.reader.fill_buf() {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                there => there?,
            };
            let end = there.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(there.len(), |end| end + 1);
            self.reader.consume(used);
            passed += used as u64;
            if end.is_some() || used == 0 {
                return Ok(passed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_may() {
        let text = b"ab\n\n123456789\ncdefg\nhijkl";
        for capacity in [1, 3, 100] {
            let mut lines = Lines::new(io::BufReader::with_capacity(capacity, &text[..]), 6);
            let mut found = Vec::new();
            while let Some(Line { bytes, length, too_long }) = lines.read().unwrap() {
                found.push((String::from_utf8(bytes.to_vec()).unwrap(), length, too_long));
            }
            let expected = [
                ("ab\n", 3, false),
                ("\n", 1, false),
                ("123456", 10, true),
                ("cdefg\n", 6, false),
                ("hijkl", 5, false),
            ];
            assert_eq!(found, expected.map(|(text, length, long)| (text.to_owned(), length, long)));
        }
        // One that ends where the file does, as long as it may be.
        let mut lines = Lines::new(&b"123456"[..], 6);
        assert_eq!(lines.read().unwrap().map(|line| (line.length, line.too_long)), Some((6, false)));
        assert_eq!(lines.read().unwrap(), None);
    }
}
