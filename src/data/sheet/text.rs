//! The text of a sheet: in memory, or left in its file, of which a piece is read, or unpacked, when it is asked for.

use super::super::parallel::parallel;
use super::bytes;
use super::packed::{Opened, PackedText};
use super::packing::Packing;
use super::parts::{HEAD, SMALL, head_of, scan};
use super::quotes::{Begin, PIECE};
use crate::files;
use anyhow::{Context, Result, anyhow, ensure};
use encoding_rs::{Encoding, UTF_8};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The text of a sheet.
pub enum Text {
    /// All of it.
    Memory(String),
    /// A file that is UTF-8 and not packed.
    File(FileText),
    /// One that is packed.
    Packed(PackedText),
}

/// The text that a file has. It is opened to be read and closed again: a table may be of more files than a process may have open.
pub struct FileText {
    path: PathBuf,
    /// How it was when it was looked at.
    stamp: (u64, Option<SystemTime>),
    /// Bytes before the text: a mark that some programs begin it with.
    mark: u64,
    /// What it begins with.
    head: String,
    /// Memory of pieces that are done with: the system hands out new memory a page at a time, which takes longer than to read a piece.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// A piece of a text.
pub enum PieceText<'a> {
    /// Of a text in memory.
    Memory(&'a str),
    /// Read from a file; its memory goes back there.
    File(String, &'a FileText),
    /// Unpacked from a file.
    Unpacked(String),
}

impl Deref for PieceText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            PieceText::Memory(text) => text,
            PieceText::File(text, _) | PieceText::Unpacked(text) => text,
        }
    }
}

impl Drop for PieceText<'_> {
    fn drop(&mut self) {
        if let PieceText::File(text, file) = self {
            file.give_back(std::mem::take(text).into_bytes());
        }
    }
}

impl Text {
    /// The text of the file at `path`, which may have `most` bytes, in `encoding`, if one is given.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn open(path: &Path, most: u64, encoding: Option<&'static Encoding>) -> Result<Text> {
        if encoding.is_none_or(|encoding| encoding == UTF_8) {
            if let Some(file) = FileText::open(path, most) {
                return Ok(Text::File(file));
            }
            match Packing::of(path).map(|packing| PackedText::open(path, packing, most)).transpose()? {
                Some(Opened::Large(text)) => return Ok(Text::Packed(text)),
                Some(Opened::Small(unpacked)) => return Ok(Text::Memory(bytes::text(path, unpacked, encoding)?)),
                Some(Opened::Other) | None => {}
            }
        }
        Ok(Text::Memory(bytes::text(path, bytes::read(path, most)?, encoding)?))
    }

    /// What it begins with.
    pub fn head(&self) -> &str {
        match self {
            Text::Memory(text) => text,
            Text::File(file) => &file.head,
            Text::Packed(packed) => packed.head(),
        }
    }

    /// Hands the text to `look`, in parts if it is in a file, and whether a part is the last one. `look` says how many bytes of the part it is done with;
    /// the others stand before the next part.
    ///
    /// # Errors
    /// It cannot be read, is no text, or `look` fails.
    pub fn scan(&self, mut look: impl FnMut(&str, bool) -> Result<usize>) -> Result<()> {
        match self {
            Text::Memory(text) => look(text, true).map(|_| ()),
            Text::File(file) => file.scan(look),
            Text::Packed(packed) => packed.scan(look),
        }
    }

    /// Where pieces begin, each with a line, and where the last one ends, found by several threads: of a file without quotes whose lines have `most` bytes at
    /// most and all end in `\n`. `None`: it is no such file, or cannot be read, which [`Text::scan`] reports.
    pub fn lines(&self, most: usize, quote: Option<u8>) -> Option<(Vec<Begin>, Begin)> {
        match self {
            Text::Memory(_) | Text::Packed(_) => None,
            Text::File(file) => file.lines(most, quote),
        }
    }

    /// The piece of a number, all of which `begins`; where the last one ends is `end`.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub fn piece(&self, number: usize, begins: &[Begin], end: Begin) -> Result<PieceText<'_>> {
        let (begin, next) = (begins[number].byte, begins.get(number + 1).unwrap_or(&end).byte);
        match self {
            Text::Memory(text) => Ok(PieceText::Memory(&text[begin..next])),
            Text::File(file) => Ok(PieceText::File(file.read(begin as u64, next as u64)?, file)),
            Text::Packed(packed) => Ok(PieceText::Unpacked(packed.piece(number, begins, end)?)),
        }
    }

    /// Closes a file that a reading of some pieces has left open.
    pub fn close(&self) {
        match self {
            Text::Memory(_) | Text::File(_) => {}
            Text::Packed(packed) => packed.close(),
        }
    }
}

impl FileText {
    /// `None` for a file that is read whole: a small one, one that is packed or in another encoding, or one that cannot be read: reading it gives the error.
    fn open(path: &Path, most: u64) -> Option<FileText> {
        let opened = files::open(path).ok()?;
        if Packing::of(path).is_some() || opened.size <= SMALL || opened.size > most {
            return None;
        }
        let mut head = vec![0; opened.size.min(HEAD) as usize];
        files::read_at(&opened.file, &mut head, 0).ok()?;
        let (mark, head) = head_of(&head)?;
        let stamp = (opened.size, opened.metadata.modified().ok());
        let (path, mark, spare) = (path.to_owned(), mark as u64, Mutex::default());
        Some(FileText { path, stamp, mark, head, spare })
    }

    fn len(&self) -> u64 {
        self.stamp.0 - self.mark
    }

    fn changed(&self) -> String {
        format!("`{}` has changed since it was looked at", self.path.display())
    }

    fn file(&self) -> Result<File> {
        let opened = files::open(&self.path)?;
        ensure!((opened.size, opened.metadata.modified().ok()) == self.stamp, self.changed());
        Ok(opened.file)
    }

    fn read(&self, begin: u64, end: u64) -> Result<String> {
        // It was text before.
        String::from_utf8(self.read_bytes(begin, end)?).map_err(|_| anyhow!(self.changed()))
    }

    fn read_bytes(&self, begin: u64, end: u64) -> Result<Vec<u8>> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = spare.unwrap_or_default();
        bytes.resize((end - begin) as usize, 0);
        files::read_at(&self.file()?, &mut bytes, self.mark + begin)
            .with_context(|| format!("cannot read `{}`", self.path.display()))?;
        Ok(bytes)
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    fn lines(&self, most: usize, quote: Option<u8>) -> Option<(Vec<Begin>, Begin)> {
        let places: Vec<u64> = (0..self.len()).step_by(PIECE).collect();
        let parts = parallel(places.clone(), |begin| {
            // A character may begin before the part, or end after it.
            let (from, end) = (begin.saturating_sub(3), (begin + PIECE as u64).min(self.len()));
            let bytes = self.read_bytes(from, (end + 3).min(self.len())).ok()?;
            let found = Ends::of(&bytes, (begin - from) as usize..(end - from) as usize, quote);
            self.give_back(bytes);
            found
        });
        let (mut begins, mut line, mut open) = (vec![Begin { byte: 0, line: 1 }], 1, 0);
        for (place, part) in places.into_iter().zip(parts) {
            let Ends { size, count, first, last, longest } = part?;
            if count == 0 {
                open += size;
                continue;
            }
            let next = Begin { byte: place as usize + first + 1, line: line + 1 };
            if place > 0 && (next.byte as u64) < self.len() {
                begins.push(next);
            }
            if longest > most || open + first > most {
                return None;
            }
            (line, open) = (line + count, size - last - 1);
        }
        (open <= most).then_some((begins, Begin { byte: self.len() as usize, line: line + 1 }))
    }

    fn scan(&self, look: impl FnMut(&str, bool) -> Result<usize>) -> Result<()> {
        let (file, mut at) = (self.file()?, 0);
        let more = |buffer: &mut Vec<u8>, wanted: usize| {
            let (kept, more) = (buffer.len(), (wanted as u64).min(self.len() - at));
            buffer.resize(kept + more as usize, 0);
            files::read_at(&file, &mut buffer[kept..], self.mark + at)
                .with_context(|| format!("cannot read `{}`", self.path.display()))?;
            at += more;
            Ok(at == self.len())
        };
        scan(&self.path, more, look)
    }
}

/// The ends of lines in a part of a text.
struct Ends {
    /// The bytes of the part.
    size: usize,
    count: u64,
    /// Where the first and the last one are.
    first: usize,
    last: usize,
    /// The bytes of the longest line between them.
    longest: usize,
}

impl Ends {
    /// Those in some of the bytes; `None` if a quote or a carriage return is there, or what is no text.
    fn of(bytes: &[u8], Range { start: begin, end }: Range<usize>, quote: Option<u8>) -> Option<Ends> {
        let part = &bytes[begin..end];
        if memchr::memchr3(quote.unwrap_or(0), b'\r', 0, part).is_some() {
            return None;
        }
        // The begin of the character of which the first byte is a part.
        let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
        let inside = bytes[..=begin].iter().rev().take_while(|byte| is_inside(byte)).count();
        let from = begin.saturating_sub(inside);
        let valid = match std::str::from_utf8(&bytes[from..]) {
            Ok(_) => bytes.len(),
            Err(error) => from + error.valid_up_to(),
        };
        let mut ends = memchr::memchr_iter(b'\n', part);
        let first = ends.next();
        let (mut count, mut last, mut longest) = (u64::from(first.is_some()), first.unwrap_or(0), 0);
        for end in ends {
            longest = longest.max(end - last - 1);
            (count, last) = (count + 1, end);
        }
        (valid >= end).then_some(Ends { size: part.len(), count, first: first.unwrap_or(0), last, longest })
    }
}

#[cfg(test)]
mod tests {
    use super::super::written::Written;
    use super::super::{Form, Format, Limits};
    use super::*;
    use crate::random::{Purpose, Stream};

    const LIMITS: Limits = Limits { file: 1 << 20, row: 1000 };

    /// The names of the columns, and all rows with their lines.
    type Whole = (Vec<String>, Vec<(u64, Vec<String>)>);

    /// The whole sheet, or the text of the error.
    fn read(sheet: Result<Written>) -> Result<Whole, String> {
        let message = |error: anyhow::Error| format!("{error:#}");
        let sheet = sheet.map_err(message)?;
        let mut all = Vec::new();
        for piece in 0..sheet.pieces() {
            let before = all.len();
            let take = |line: u64, _: Option<&str>, cells: &[&str]| {
                all.push((line, cells.iter().map(|cell| (*cell).to_owned()).collect()));
                Ok(())
            };
            sheet.each_cells(piece, (false, false), take).map_err(message)?;
            assert!(all.len() - before <= sheet.most_rows(piece, false), "more rows than there is place for");
        }
        Ok((sheet.names().to_vec(), all))
    }

    #[test]
    fn a_file_is_read_in_pieces_as_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut draw = Stream::new(9, Purpose::Split, 0, 0);
        let form = Form::Cells(Format::default());
        let cells: [&[u8]; 7] =
            [b"1.5", b"\"a,\r\nb\"", "é€".as_bytes(), b"", b"\"say \"\"so\"\"\"", b"x y", b"long long long long"];
        let faults: [&[u8]; 5] = [b"\0", b"\xff", b"\xe2\x82", b"\"", b"1,2,3\n"];
        let (mut refused, mut files, mut plain) = (0, 0, 0);
        for round in 0..900 {
            // Of every other one threads find the lines.
            let is_plain = round % 2 == 0;
            let cells: Vec<&[u8]> = cells.into_iter().filter(|cell| !is_plain || !cell.contains(&b'"')).collect();
            let ends = [&b"\n"[..], b"\n\n", b"\r\n", b"\r"];
            let ends = &ends[..if is_plain { 2 } else { 4 }];
            let mut content: Vec<u8> = if round % 3 == 0 { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
            content.extend(b"a,b\n");
            for _ in 0..10 + draw.below(60) {
                let mut cell = || cells[draw.below(cells.len() as u32) as usize];
                content.extend([cell(), b",", cell()].concat());
                content.extend(ends[draw.below(ends.len() as u32) as usize]);
            }
            if round % 7 == 3 {
                content
                    .extend([b"x,".to_vec(), vec![b'y'; 990 + draw.below(12) as usize], b"\n1,2\n".to_vec()].concat());
            }
            if round % 4 == 1 || round % 8 == 2 {
                let at = draw.below(content.len() as u32) as usize;
                let fault = faults[draw.below(faults.len() as u32) as usize];
                content.splice(at..at, fault.iter().copied());
            }
            std::fs::write(&path, &content).unwrap();
            let opened = Written::open(&path, form, LIMITS);
            let text = Text::open(&path, LIMITS.file, None);
            files += u32::from(matches!(text, Ok(Text::File(_))));
            plain += u32::from(text.is_ok_and(|text| text.lines(LIMITS.row, Some(b'"')).is_some()));
            let (pieces, whole) = (read(opened), read(Written::of(&path, content.clone(), form, LIMITS)));
            refused += u32::from(whole.is_err());
            assert_eq!(pieces, whole, "{:?}", String::from_utf8_lossy(&content));
        }
        assert!(files > 600 && (100..450).contains(&refused) && plain > 200, "{files} {refused} {plain}");
    }

    #[test]
    fn empty_lines_have_no_place_for_rows() {
        let most = |content: &str, skips| {
            let form = Form::Cells(Format::default());
            let sheet = Written::of(Path::new("t.csv"), content.into(), form, LIMITS).unwrap();
            (0..sheet.pieces()).map(|piece| sheet.most_rows(piece, skips)).sum::<usize>()
        };
        assert_eq!(most(&format!("a,b,c\n{}1,2,3\n", "\n".repeat(26)), false), (6 + 26 + 6 + 1) / 3);
        // Lines that are skipped are rows.
        assert!(most(&format!("a,b,c\n{}1,2,3\n", "1\n".repeat(13)), true) >= 14);
    }

    #[test]
    fn objects_are_read_in_pieces_as_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let line = |i: usize| format!("{{\"a\":{i},\"b\":\"é {i}\"{}}}\n", if i == 70 { ",\"late\":true" } else { "" });
        let good: String = (0..100).map(line).collect();
        let contents = [
            good.clone(),
            good.trim_end().to_owned(),
            good.replace("\"a\":50", "\"a\":"),
            format!("{good}{}", "x".repeat(2000)),
        ];
        for content in contents {
            std::fs::write(&path, &content).unwrap();
            assert!(matches!(Text::open(&path, LIMITS.file, None), Ok(Text::File(_))));
            let pieces = read(Written::open(&path, Form::Objects, LIMITS));
            assert_eq!(pieces, read(Written::of(&path, content.into_bytes(), Form::Objects, LIMITS)));
        }
    }
}
