//! A table as text: CSV and its relatives, whole in memory, with the place of every fault.

use super::super::quotes::{self, Lines};
use crate::files;
use anyhow::{Context, Result, anyhow, bail, ensure};
use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest table that is read, in bytes of text.
const MAX_FILE: u64 = 16 << 30;
/// Longest row, in bytes. More is a quote that is not closed, or no table.
const MAX_ROW: usize = 16 << 20;
/// Most columns of a table.
const MAX_COLUMNS: usize = 100_000;
/// What may stand between columns, the likeliest first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// How the text of a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// What stands between columns. `None`: that of `,`, `;`, tab and `|` of which the first line has most.
    pub separator: Option<u8>,
    /// The first line names the columns; else their names are their numbers from 1.
    pub header: bool,
}

/// The text of a table.
pub struct Text {
    path: PathBuf,
    text: String,
    separator: u8,
    header: bool,
    names: Vec<String>,
}

impl Text {
    /// Reads the table in `path`; one whose name ends in `.gz` is unpacked.
    ///
    /// # Errors
    /// It cannot be read, is no UTF-8, has no columns, two of one name, or a quote that is not closed, with its line and column.
    pub fn open(path: &Path, format: Format) -> Result<Self> {
        let place = path.display();
        let mut bytes = files::read(path, MAX_FILE)?;
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            let mut unpacked = Vec::new();
            let read = MultiGzDecoder::new(&bytes[..]).take(MAX_FILE + 1).read_to_end(&mut unpacked);
            read.with_context(|| format!("`{place}` cannot be unpacked"))?;
            ensure!(unpacked.len() as u64 <= MAX_FILE, "`{place}` is larger than {MAX_FILE} bytes once it is unpacked");
            bytes = unpacked;
        }
        Text::of(path, bytes, format)
    }

    /// The table in these bytes; messages call it `path`.
    ///
    /// # Errors
    /// As [`Text::open`].
    pub fn of(path: &Path, bytes: Vec<u8>, format: Format) -> Result<Self> {
        let place = path.display();
        let text = text_of(path, bytes)?;
        let first = text.lines().find(|line| !line.trim().is_empty());
        let first = first.with_context(|| format!("`{place}` is empty: a table has a line that names its columns"))?;
        let separator = format.separator.unwrap_or_else(|| separator_of(first));
        let mut table = Text { path: path.to_owned(), text, separator, header: format.header, names: Vec::new() };
        table.check_quotes()?;
        let mut record = csv::StringRecord::new();
        table.reader().read_record(&mut record).with_context(|| format!("cannot read `{place}`"))?;
        ensure!(
            record.len() <= MAX_COLUMNS,
            "`{place}` has {} columns, and at most {MAX_COLUMNS} are read: is `separator` right?",
            record.len()
        );
        table.names = match format.header {
            true => record.iter().map(str::to_owned).collect(),
            false => (1..=record.len()).map(|number| number.to_string()).collect(),
        };
        table.check_names()?;
        Ok(table)
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the column `name`, if there is one.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands the line of each row and its cells to `take`.
    ///
    /// # Errors
    /// A row has more or fewer cells than there are columns, or `take` fails.
    pub fn each(&self, mut take: impl FnMut(u64, &csv::StringRecord) -> Result<()>) -> Result<()> {
        let place = self.path.display();
        let (mut reader, mut record) = (self.reader(), csv::StringRecord::new());
        let mut lines = Lines::new(&self.text);
        let mut first = self.header;
        while reader.read_record(&mut record).with_context(|| format!("cannot read `{place}`"))? {
            if std::mem::take(&mut first) {
                continue;
            }
            let line = lines.at(record.position().map_or(0, csv::Position::byte));
            ensure!(
                record.len() == self.names.len(),
                "`{place}`, line {line} has {} cells, and the table has {} columns: a cell that contains `{}` stands in quotes, and a \
                 quote that opens is closed",
                record.len(),
                self.names.len(),
                shown(self.separator)
            );
            take(line, &record)?;
        }
        Ok(())
    }

    fn reader(&self) -> csv::Reader<&[u8]> {
        // Rows of another number of cells are reported here, with their line.
        let mut builder = csv::ReaderBuilder::new();
        let builder = builder.delimiter(self.separator).trim(csv::Trim::All).flexible(true).has_headers(false);
        builder.from_reader(self.text.as_bytes())
    }

    fn check_quotes(&self) -> Result<()> {
        let Err(quotes::Fault { line, column, kind }) = quotes::check(&self.text, self.separator, MAX_ROW) else {
            return Ok(());
        };
        let what = match kind {
            quotes::Kind::TooLong => bail!(
                "`{}`, line {line} has more than {MAX_ROW} bytes, and a row of a table has fewer",
                self.path.display()
            ),
            quotes::Kind::Unclosed => {
                "a quote opens here that is not closed: the lines behind it would be a part of this cell"
            }
            quotes::Kind::Behind => {
                "a cell goes on behind the quote that closes it: is a quote before this one not closed? Within quotes, one is written twice"
            }
            quotes::Kind::Space => {
                "a space stands before the quote that opens, which then is a part of the text: leave it out"
            }
        };
        bail!("`{}`, line {line}, column {column}: {what}", self.path.display())
    }

    /// Names that are there, each once.
    fn check_names(&self) -> Result<()> {
        let place = self.path.display();
        let mut seen = HashMap::new();
        for (at, name) in self.names.iter().enumerate() {
            ensure!(
                !name.is_empty(),
                "`{place}`, line 1: column {} has no name; if the table has no line that names its columns, set `header = false`",
                at + 1
            );
            if let Some(before) = seen.insert(name, at) {
                bail!("`{place}`, line 1: columns {} and {} have the same name, `{name}`", before + 1, at + 1);
            }
        }
        Ok(())
    }
}

/// A separator in a message.
pub fn shown(separator: u8) -> String {
    if separator == b'\t' { "a tab".to_owned() } else { char::from(separator).to_string() }
}

/// The separator of which the line has most outside of quotes.
fn separator_of(line: &str) -> u8 {
    let count = |separator: u8| {
        let mut quoted = false;
        let outside = line.bytes().filter(|byte| {
            quoted ^= *byte == b'"';
            !quoted && *byte == separator
        });
        outside.count()
    };
    let most = SEPARATORS.iter().map(|separator| count(*separator)).max().unwrap_or(0);
    SEPARATORS.into_iter().find(|separator| count(*separator) == most).unwrap_or(b',')
}

/// The file as text, without the mark that some programs begin it with. UTF-16 with that mark is read, too.
fn text_of(path: &Path, mut bytes: Vec<u8>) -> Result<String> {
    let place = path.display();
    let wide = |bytes: &[u8], number: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].as_chunks::<2>().0.iter().map(|pair| number(*pair)).collect();
        String::from_utf16(&units).map_err(|_| anyhow!("`{place}` begins as UTF-16 and is none: save it as UTF-8"))
    };
    if bytes.starts_with(&[0xff, 0xfe]) {
        return wide(&bytes, u16::from_le_bytes);
    }
    if bytes.starts_with(&[0xfe, 0xff]) {
        return wide(&bytes, u16::from_be_bytes);
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        bail!("`{place}`, line {line} has a zero byte: it is no text");
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow!("`{place}`, line {line}: the byte 0x{:02x} is not UTF-8: save the table as UTF-8", bytes[at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Format = Format { separator: None, header: true };

    fn opened(content: &[u8], name: &str, format: Format) -> Result<Text> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        Text::open(&path, format)
    }

    fn rows(text: &Text) -> Result<Vec<(u64, Vec<String>)>> {
        let mut all = Vec::new();
        text.each(|line, row| {
            all.push((line, row.iter().map(str::to_owned).collect()));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn separators_quotes_and_marks_are_found() {
        for content in
            [&b"a,b\n1,\"x,y\"\n"[..], b"\xef\xbb\xbfa;b\r\n1;\"x,y\"\r\n", b"a\tb\n\n1\tx,y\n", b"a|b\n1|\"x,y\""]
        {
            let text = opened(content, "t.csv", AUTO).unwrap();
            assert_eq!(text.names(), ["a", "b"]);
            assert_eq!(rows(&text).unwrap()[0].1, ["1", "x,y"]);
        }
        let wide: Vec<u8> = "\u{feff}a,b\n1,ü\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(rows(&opened(&wide, "t.csv", AUTO).unwrap()).unwrap(), [(2, vec!["1".into(), "ü".into()])]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, b"a,b\n3,4\n").unwrap();
        let text = opened(&packed.finish().unwrap(), "t.csv.gz", AUTO).unwrap();
        assert_eq!(rows(&text).unwrap()[0].1, ["3", "4"]);
        let text = opened(b"1,2\n3,4\n", "t.csv", Format { header: false, ..AUTO }).unwrap();
        assert_eq!((text.names(), rows(&text).unwrap().len()), (&["1".to_owned(), "2".to_owned()][..], 2));
    }

    #[test]
    fn faults_have_their_places() {
        let fault = |content: &[u8]| {
            let text = opened(content, "t.csv", AUTO);
            text.and_then(|text| rows(&text)).unwrap_err().to_string()
        };
        for (content, part) in [
            (&b""[..], "is empty"),
            (b"\n \n", "is empty"),
            (b"a,b\n1,2\n\"3,4\n5,6\n", "line 3, column 1: a quote opens here"),
            (b"a,b\n1,2,3\n", "line 2 has 3 cells, and the table has 2 columns"),
            (b"a,b\r\n1,2\r\n3\r\n", "line 3 has 1 cells"),
            (b"a,,b\n1,2,3\n", "column 2 has no name"),
            (b"a,b,a\n1,2,3\n", "columns 1 and 3 have the same name, `a`"),
            (b"a,b\n1,\xff\n", "line 2: the byte 0xff is not UTF-8"),
            (b"a,b\n1,\0\n", "line 2 has a zero byte"),
        ] {
            assert!(fault(content).contains(part), "{part}: {}", fault(content));
        }
    }
}
