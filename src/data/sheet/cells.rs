//! The cells of rows in a text: with quotes as the crate `csv` reads them, without quotes in a quicker way.

use super::quotes::Lines;
use anyhow::Result;
use memchr::memchr2;

/// How cells are taken apart.
#[derive(Clone, Copy)]
pub struct How {
    /// What stands between them.
    pub separator: u8,
    /// What one may stand in.
    pub quote: Option<u8>,
    /// With the white space around them.
    pub as_they_are: bool,
}

/// Reads cells between which a byte stands.
pub fn reader(text: &str, how: How) -> csv::Reader<&[u8]> {
    // Rows of another number of cells are reported by the caller, with their line.
    let mut builder = csv::ReaderBuilder::new();
    let trim = if how.as_they_are { csv::Trim::None } else { csv::Trim::All };
    let builder = builder.delimiter(how.separator).trim(trim).flexible(true).has_headers(false);
    let builder = builder.quoting(how.quote.is_some()).quote(how.quote.unwrap_or(b'"'));
    builder.from_reader(text.as_bytes())
}

/// Hands the line of each record and its cells to `take`; `line`: the number of the first line.
pub fn quoted(text: &str, how: How, line: u64, mut take: impl FnMut(u64, &[&str]) -> Result<()>) -> Result<()> {
    let (mut reader, mut record) = (reader(text, how), csv::StringRecord::new());
    // The reader counts an end of two bytes where it ends.
    let mut lines = Lines::new(text, line);
    while reader.read_record(&mut record)? {
        let line = lines.at(record.position().map_or(0, csv::Position::byte));
        take(line, &record.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The same where there are no quotes: a line is a record, and what stands between separators is a cell.
pub fn plain<'a>(
    text: &'a str,
    How { separator, as_they_are, .. }: How,
    line: u64,
    mut take: impl FnMut(u64, &[&str]) -> Result<()>,
) -> Result<()> {
    let (bytes, mut cells) = (text.as_bytes(), Vec::new());
    let (mut begin, mut number) = (0, line);
    while begin < bytes.len() {
        let end = memchr2(b'\n', b'\r', &bytes[begin..]).map_or(bytes.len(), |length| begin + length);
        if end > begin {
            let line: &'a str = &text[begin..end];
            let mut from = 0;
            cells.clear();
            let mut cell = |at: usize| {
                let cell = &line[from..at];
                cells.push(if as_they_are { cell } else { trimmed(cell) });
                from = at + 1;
            };
            places(separator, line.as_bytes(), &mut cell);
            cell(line.len());
            take(number, &cells)?;
        }
        let both = bytes.get(end) == Some(&b'\r') && bytes.get(end + 1) == Some(&b'\n');
        (begin, number) = (end + 1 + usize::from(both), number + 1);
    }
    Ok(())
}

/// Hands each place of a byte to `take`. Cells are short: to look for the next one anew each time would take longer than to look at all bytes.
fn places(byte: u8, bytes: &[u8], mut take: impl FnMut(usize)) {
    const BLOCK: usize = 64;
    const LOW: u64 = u64::MAX / 255 * 0x7f;
    let wanted = u64::MAX / 255 * u64::from(byte);
    let mut in_block = |block: &[u8; BLOCK], first: usize, end: usize| {
        let mut found = 0u64;
        for (word, at) in block.as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
            let others = u64::from_le_bytes(*word) ^ wanted;
            // The high bit of each place of the byte, and these bits side by side.
            let is_there = !(((others & LOW) + LOW) | others | LOW) >> 7;
            found |= is_there.wrapping_mul(0x0102_0408_1020_4080) >> 56 << at;
        }
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            if at >= end {
                return;
            }
            take(first + at);
            found &= found - 1;
        }
    };
    let (blocks, rest) = bytes.as_chunks();
    blocks.iter().zip((0..).step_by(BLOCK)).for_each(|(block, first)| in_block(block, first, BLOCK));
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    in_block(&last, bytes.len() - rest.len(), rest.len());
}

/// A cell without the white space around it.
fn trimmed(cell: &str) -> &str {
    let is_dark = |byte: Option<&u8>| byte.is_some_and(|byte| (0x21..0x7f).contains(byte));
    let bytes = cell.as_bytes();
    if is_dark(bytes.first()) && is_dark(bytes.last()) { cell } else { cell.trim() }
}

#[cfg(test)]
mod tests {
    use super::super::quotes::Scan;
    use super::*;
    use crate::random::{Purpose, Stream};

    /// All records, with their lines.
    fn all(
        text: &str,
        how: impl Fn(&str, u64, &mut dyn FnMut(u64, &[&str]) -> Result<()>) -> Result<()>,
    ) -> Vec<(u64, Vec<String>)> {
        let mut all = Vec::new();
        let mut take = |line: u64, cells: &[&str]| {
            all.push((line, cells.iter().map(|cell| (*cell).to_owned()).collect()));
            Ok(())
        };
        how(text, 1, &mut take).unwrap();
        all
    }

    #[test]
    fn records_are_those_of_the_crate_in_one_piece_or_in_many() {
        let mut draw = Stream::new(7, Purpose::Split, 0, 0);
        let plain_parts = ["a", "1.5", ",", ",", " ", "\t", "é\u{a0}", "\n", "\r\n", "\r", "\n\n", "x y"];
        let quoted_parts = ["a", ",", "\n", "\r\n", "\"b,\n c\"", "\"\"", "\" d \"\"e\"", "\n\"f\"\n"];
        for round in 0..2000 {
            let parts: &[&str] = if round % 2 == 0 { &plain_parts } else { &quoted_parts };
            let text: String =
                (0..1 + draw.below(60)).map(|_| parts[draw.below(parts.len() as u32) as usize]).collect();
            let how = How { separator: b',', quote: Some(b'"'), as_they_are: round % 4 > 1 };
            let whole = all(&text, |text, line, take| quoted(text, how, line, take));
            if round % 2 == 0 {
                assert_eq!(all(&text, |text, line, take| plain(text, how, line, take)), whole, "{text:?}");
            }
            let mut scan = Scan::new((b',', Some(b'"')), 1 << 20, 8);
            if scan.look(&text, true).is_err() {
                continue;
            }
            let (begins, end) = scan.begins();
            assert!(end.line > whole.last().map_or(0, |(line, _)| *line), "{text:?} {end:?}");
            let mut pieces = Vec::new();
            for (at, begin) in begins.iter().enumerate() {
                let end = begins.get(at + 1).map_or(text.len(), |next| next.byte);
                pieces.extend(all(&text[begin.byte..end], |text, _, take| quoted(text, how, begin.line, take)));
            }
            assert_eq!(pieces, whole, "{text:?} {begins:?}");
        }
    }
}
