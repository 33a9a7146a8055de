//! How deep the columns of a Parquet file are nested, looked at before the decoder is: that goes a call deeper for each level, and a level takes some bytes of
//! the file.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Most levels. Those that data has are a few.
const MOST: usize = 100;
/// Levels of other values, as the decoder has it.
const MOST_OF_VALUES: usize = 64;
/// Bytes after the footer: its length, and what a file ends with.
const END: u64 = 8;

/// Refuses a file whose columns are nested too deep. What is no Parquet file at all is left to the decoder, which says so.
///
/// # Errors
/// They are; the footer cannot be read.
pub fn check(file: &File, size: u64) -> Result<()> {
    let Some(at) = size.checked_sub(END) else { return Ok(()) };
    let mut file = file;
    let mut end = [0; END as usize];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut end)?;
    let [a, b, c, d, magic @ ..] = end;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    let Some(begin) = at.checked_sub(length).filter(|_| magic == *super::MAGIC) else { return Ok(()) };
    let mut footer = vec![0; length as usize];
    file.seek(SeekFrom::Start(begin))?;
    file.read_exact(&mut footer)?;
    file.rewind()?;
    let levels = Footer(&footer).levels().context("its footer is damaged")?;
    ensure!(levels <= MOST, "its columns are nested more than {MOST} levels deep");
    Ok(())
}

/// What is left of a footer, in the compact protocol of Thrift.
struct Footer<'a>(&'a [u8]);

impl Footer<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number that may be below 0.
    fn signed(&mut self) -> Option<i64> {
        self.number().map(|number| (number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// The number and the type of the next field, if there is one.
    fn field(&mut self, before: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        let kind = head & 15;
        Some(match (kind, head >> 4) {
            (0, _) => None,
            (_, 0) => Some((self.signed()?, kind)),
            (_, more) => Some((before + i64::from(more), kind)),
        })
    }

    /// How many values a list has, and of which type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let many = match head >> 4 {
            15 => self.number()?,
            few => u64::from(few),
        };
        Some((many, head & 15))
    }

    /// Passes over a value. One of a list takes a byte where one of a field takes none.
    fn skip(&mut self, kind: u8, listed: bool, levels: usize) -> Option<()> {
        let levels = levels.checked_sub(1)?;
        match kind {
            1 | 2 => self.pass(listed.into()),
            3 => self.pass(1),
            4..=6 => self.number().map(drop),
            7 => self.pass(8),
            8 => {
                let bytes = self.number()?;
                self.pass(bytes)
            }
            9 | 10 => {
                let (many, kind) = self.list()?;
                (0..many).try_for_each(|_| self.skip(kind, true, levels))
            }
            11 => {
                let many = self.number()?;
                let kinds = if many > 0 { self.byte()? } else { 0 };
                (0..many).try_for_each(|_| {
                    self.skip(kinds >> 4, true, levels)?;
                    self.skip(kinds & 15, true, levels)
                })
            }
            12 => {
                let mut before = 0;
                while let Some((number, kind)) = self.field(before)? {
                    self.skip(kind, false, levels)?;
                    before = number;
                }
                Some(())
            }
            13 => self.pass(16),
            _ => None,
        }
    }

    /// The levels of the schema, the second field of the footer.
    fn levels(&mut self) -> Option<usize> {
        let (mut before, mut most) = (0, 0);
        while let Some((number, kind)) = self.field(before)? {
            match (number, kind) {
                (2, 9) => most = most.max(self.schema()?),
                _ => self.skip(kind, false, MOST_OF_VALUES)?,
            }
            before = number;
        }
        Some(most)
    }

    /// The levels of a list of groups and columns: each group stands before those that are in it.
    fn schema(&mut self) -> Option<usize> {
        let (many, _) = self.list()?;
        // Of each group that is open, what is still to come.
        let mut open: Vec<i64> = Vec::new();
        for _ in 0..many {
            let (mut before, mut children) = (0, 0);
            while let Some((number, kind)) = self.field(before)? {
                match (number, kind) {
                    (5, 4..=6) => children = self.signed()?,
                    _ => self.skip(kind, false, MOST_OF_VALUES)?,
                }
                before = number;
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            open.push(children);
            if open.len() > MOST + 1 {
                return Some(open.len());
            }
            while open.last().is_some_and(|left| *left <= 0) {
                open.pop();
            }
        }
        // More was not found than may be.
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer whose schema has groups within groups, and a column in the last.
    fn footer(groups: usize) -> Vec<u8> {
        let mut all = vec![0x15, 2, 0x19, 0xfc];
        let mut many = groups + 1;
        while many >= 0x80 {
            all.push(many as u8 | 0x80);
            many >>= 7;
        }
        all.push(many as u8);
        all.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0].repeat(groups));
        all.extend([0x15, 2, 0x25, 0, 0x18, 1, b'b', 0]);
        // No rows, in no groups of rows.
        all.extend([0x16, 0, 0x19, 0x0c, 0]);
        all
    }

    #[test]
    fn levels_are_counted() {
        let fits = |groups: usize| Footer(&footer(groups)).levels().unwrap() <= MOST;
        assert_eq!([1, 90, 100, 101, 102, 8000].map(fits), [true, true, true, false, false, false]);
        // Each cut is noticed.
        let whole = footer(5);
        assert!((0..whole.len()).all(|end| Footer(&whole[..end]).levels().is_none()));
        // Columns side by side are no levels.
        let mut wide = vec![0x19, 0xfc, 0xc9, 1, 0x48, 1, b'r', 0x15, 0x90, 3, 0];
        wide.extend([0x15, 2, 0x25, 0, 0x18, 1, b'b', 0].repeat(200));
        wide.push(0);
        assert_eq!(Footer(&wide[..]).levels(), Some(0), "the first field is no schema");
        wide[0] = 0x29;
        assert_eq!(Footer(&wide[..]).levels(), Some(0));
    }
}
