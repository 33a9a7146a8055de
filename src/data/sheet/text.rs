//! The text of a sheet: in memory, or left in its file, of which a piece is read when it is asked for.

use super::bytes;
use super::quotes::{Begin, PIECE};
use crate::files;
use anyhow::{Context, Result, anyhow, ensure};
use encoding_rs::{Encoding, UTF_8};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files up to this size are read whole. Tests have larger ones.
const SMALL: u64 = if cfg!(test) { 256 } else { 16 << 20 };
/// Bytes at the begin of a file in which its first line is looked for.
const HEAD: u64 = 1 << 20;

/// The text of a sheet.
pub enum Text {
    /// All of it.
    Memory(String),
    /// A file that is UTF-8 and not packed.
    File(FileText),
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
}

impl Text {
    /// The text of the file at `path`, which may have `most` bytes, in an encoding, if it is said.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn open(path: &Path, most: u64, encoding: Option<&'static Encoding>) -> Result<Text> {
        match FileText::open(path, most).filter(|_| encoding.is_none_or(|encoding| encoding == UTF_8)) {
            Some(file) => Ok(Text::File(file)),
            None => Ok(Text::Memory(bytes::text(path, bytes::read(path, most)?, encoding)?)),
        }
    }

    /// What it begins with.
    pub fn head(&self) -> &str {
        match self {
            Text::Memory(text) => text,
            Text::File(file) => &file.head,
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        match self {
            Text::Memory(text) => text.len() as u64,
            Text::File(file) => file.len(),
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
        }
    }

    /// What stands from a begin to the next one, or to the end.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub fn between(&self, begin: Begin, next: Option<&Begin>) -> Result<Cow<'_, str>> {
        match self {
            Text::Memory(text) => Ok(Cow::Borrowed(&text[begin.byte..next.map_or(text.len(), |next| next.byte)])),
            Text::File(file) => {
                let end = next.map_or(file.len(), |next| next.byte as u64);
                Ok(Cow::Owned(file.read(begin.byte as u64, end)?))
            }
        }
    }
}

impl FileText {
    /// `None` for a file that is read whole: a small one, one that is packed or in another encoding, or one that cannot be read, which then tells why.
    fn open(path: &Path, most: u64) -> Option<FileText> {
        let opened = files::open(path).ok()?;
        if bytes::is_packed(path) || opened.size <= SMALL || opened.size > most {
            return None;
        }
        let mut head = vec![0; opened.size.min(HEAD) as usize];
        files::read_at(&opened.file, &mut head, 0).ok()?;
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            return None;
        }
        let mark = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        // Bytes that are no UTF-8 end the head. The scan reports them when it reaches them.
        let head = head[mark..].utf8_chunks().next().map_or("", |chunk| chunk.valid()).to_owned();
        let stamp = (opened.size, opened.metadata.modified().ok());
        (!head.trim().is_empty()).then(|| FileText { path: path.to_owned(), stamp, mark: mark as u64, head })
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
        let mut bytes = vec![0; (end - begin) as usize];
        let at = self.mark + begin;
        files::read_at(&self.file()?, &mut bytes, at)
            .with_context(|| format!("cannot read `{}`", self.path.display()))?;
        // It was text before.
        String::from_utf8(bytes).map_err(|_| anyhow!(self.changed()))
    }

    fn scan(&self, mut look: impl FnMut(&str, bool) -> Result<usize>) -> Result<()> {
        let file = self.file()?;
        let (mut buffer, mut at, mut lines) = (Vec::new(), 0, 0);
        loop {
            // More at once each time that a record goes on, so that its begin is not looked at again and again.
            let kept = buffer.len();
            let more = (PIECE.max(kept) as u64).min(self.len() - at);
            buffer.resize(kept + more as usize, 0);
            files::read_at(&file, &mut buffer[kept..], self.mark + at)
                .with_context(|| format!("cannot read `{}`", self.path.display()))?;
            at += more;
            let last = at == self.len();
            // The error names the line.
            let no_text = || bytes::no_text(&self.path, &buffer, lines);
            ensure!(memchr::memchr(0, &buffer[kept..]).is_none(), no_text());
            let whole = match std::str::from_utf8(&buffer) {
                Ok(text) => text.len(),
                // A character goes on in the next part.
                Err(error) if !last && error.error_len().is_none() => error.valid_up_to(),
                Err(_) => return Err(no_text()),
            };
            let text = std::str::from_utf8(&buffer[..whole]).map_err(|_| no_text())?;
            let done = look(text, last)?;
            if last {
                return Ok(());
            }
            lines += memchr::memchr_iter(b'\n', &buffer[..done]).count();
            buffer.drain(..done);
        }
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
        let told = |error: anyhow::Error| format!("{error:#}");
        let sheet = sheet.map_err(told)?;
        let mut all = Vec::new();
        for piece in 0..sheet.pieces() {
            let take = |line: u64, _: Option<&str>, cells: &[&str]| {
                all.push((line, cells.iter().map(|cell| (*cell).to_owned()).collect()));
                Ok(())
            };
            sheet.each_cells(piece, (false, false), take).map_err(told)?;
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
        let (mut told, mut files) = (0, 0);
        for round in 0..600 {
            let mut content: Vec<u8> = if round % 3 == 0 { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
            content.extend(b"a,b\n");
            for _ in 0..10 + draw.below(60) {
                let mut cell = || cells[draw.below(cells.len() as u32) as usize];
                content.extend([cell(), b",", cell()].concat());
                content.extend([&b"\n"[..], b"\r\n", b"\r", b"\n\n"][draw.below(4) as usize]);
            }
            if round % 4 == 1 {
                let at = draw.below(content.len() as u32) as usize;
                let fault = faults[draw.below(faults.len() as u32) as usize];
                content.splice(at..at, fault.iter().copied());
            }
            std::fs::write(&path, &content).unwrap();
            let opened = Written::open(&path, form, LIMITS);
            files += u32::from(matches!(Text::open(&path, LIMITS.file, None), Ok(Text::File(_))));
            let (pieces, whole) = (read(opened), read(Written::of(&path, content.clone(), form, LIMITS)));
            told += u32::from(whole.is_err());
            assert_eq!(pieces, whole, "{:?}", String::from_utf8_lossy(&content));
        }
        assert!(files > 400 && (60..300).contains(&told), "{files} {told}");
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
