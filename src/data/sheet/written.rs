//! Rows in a text file: CSV and its relatives, or a JSON object a line. It is looked at as a whole before any row is read, and every fault has its place.

use super::cells::{How, plain, quoted, reader};
use super::object::{Object, scalar};
use super::quotes::{self, Begin, PIECE, Scan};
use super::text::{PieceText, Text};
use super::{Form, Format, Limits, Row, bytes};
use crate::terminal::counted;
use anyhow::{Context, Result, anyhow, ensure};
use memchr::{memchr, memchr_iter};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What may stand between columns, the likeliest first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The rows of a text file.
pub struct Written {
    path: PathBuf,
    text: Text,
    /// Where its pieces begin.
    begins: Vec<Begin>,
    /// Where the last one ends: the byte and the line after it.
    end: Begin,
    form: Form,
    /// What stands between the columns of a row of cells, and what a cell may stand in.
    separator: u8,
    quote: Option<u8>,
    limits: Limits,
    names: Vec<String>,
}

/// The cells of a row.
enum Read<'a> {
    Cells(&'a [&'a str]),
    Record(Vec<String>),
}

/// The name that pandas gives to a first column without one, which is an index that it has written.
pub const INDEX: &str = "Unnamed: 0";

/// The names of columns. The first may lack its own, if no other does.
fn named(record: &csv::StringRecord) -> Vec<String> {
    let mut names: Vec<String> = record.iter().map(str::to_owned).collect();
    if let [first, others @ ..] = &mut names[..]
        && first.is_empty()
        && !others.is_empty()
        && others.iter().all(|name| !name.is_empty() && name != INDEX)
    {
        INDEX.clone_into(first);
    }
    names
}

/// What is wrong with a row that can be left out.
struct Fault {
    what: String,
    help: String,
}

impl Fault {
    fn error(self) -> anyhow::Error {
        anyhow!("{}: {}", self.what, self.help)
    }
}

impl Written {
    /// Reads the file at `path`; one whose name ends in `.gz` or `.zst` is unpacked.
    ///
    /// # Errors
    /// It cannot be read, is no UTF-8, has no columns, a quote that is not closed, or a line that is no object, with its line and column.
    pub fn open(path: &Path, form: Form, limits: Limits) -> Result<Self> {
        Written::new(path, Text::open(path, limits.file, form.encoding())?, form, limits)
    }

    /// The same for bytes that are there; messages call them `path`.
    ///
    /// # Errors
    /// As [`Written::open`].
    pub fn of(path: &Path, bytes: Vec<u8>, form: Form, limits: Limits) -> Result<Self> {
        Written::new(path, Text::Memory(bytes::text(path, bytes, form.encoding())?), form, limits)
    }

    fn new(path: &Path, text: Text, form: Form, limits: Limits) -> Result<Self> {
        let (place, head) = (path.display(), text.head());
        let array = head.trim_start().strip_prefix('[').map(str::trim_start);
        ensure!(
            !array.is_some_and(|rest| rest.starts_with('{') || rest == "]" || rest.starts_with("]\n")),
            "`{place}` is a JSON array, and each row is an object on a line of its own (JSON Lines): `jq -c '.[]'` makes such lines of it"
        );
        let first = head.lines().find(|line| !line.trim().is_empty());
        let first = first.with_context(|| format!("`{place}` is empty: it has no columns"))?;
        ensure!(
            form == Form::Objects || !(first.starts_with("sep=") && first.trim_end().len() <= 5),
            "`{place}`, line 1 is `{}`, which a spreadsheet reads and which is no line of a table: remove it, and set `separator` if the table's is not found",
            first.trim_end()
        );
        let (separator, quote) = match form {
            Form::Cells(Format { separator, quote, .. }) => {
                (separator.unwrap_or_else(|| separator_of(first, quote)), quote)
            }
            Form::Objects => (b',', None),
        };
        let (path, begins, names) = (path.to_owned(), Vec::new(), Vec::new());
        let mut sheet =
            Written { path, text, begins, end: Begin { byte: 0, line: 1 }, form, separator, quote, limits, names };
        sheet.names = match form {
            Form::Cells(Format { header, .. }) => {
                (sheet.begins, sheet.end) = sheet.of_records()?;
                let mut record = csv::StringRecord::new();
                reader(&sheet.piece(0)?.0, sheet.how(false))
                    .read_record(&mut record)
                    .with_context(|| format!("cannot read `{place}`"))?;
                sheet.text.close();
                match header {
                    true => named(&record),
                    false => (1..=record.len()).map(|number| number.to_string()).collect(),
                }
            }
            Form::Objects => {
                (sheet.begins, sheet.end) = sheet.of_lines()?;
                sheet.keys()?
            }
        };
        ensure!(!sheet.names.iter().all(String::is_empty), "`{place}` is empty: it has no columns");
        Ok(sheet)
    }

    /// What stands between its cells, unless its rows are objects.
    pub fn separator(&self) -> Option<u8> {
        (!self.has_objects()).then_some(self.separator)
    }

    /// Whether its rows are objects.
    pub fn has_objects(&self) -> bool {
        self.form == Form::Objects
    }

    /// The names of the columns: the cells of the first line, or all keys of the objects in the order in which they come.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many bytes the text has.
    pub fn bytes(&self) -> u64 {
        self.end.byte as u64
    }

    /// How many pieces there are that are read apart from each other.
    pub fn pieces(&self) -> usize {
        self.begins.len()
    }

    /// The most rows that a piece has, if it `skips` those that cannot be read: no more than lines. Of rows that can be read, no more than there are bytes for:
    /// each cell has one after it, but for the last of the text.
    pub fn most_rows(&self, piece: usize, skips: bool) -> usize {
        let (begin, next) = (self.begins[piece], self.begins.get(piece + 1).unwrap_or(&self.end));
        let (lines, bytes) = (next.line - begin.line, (next.byte - begin.byte) as u64);
        let least = if skips || self.has_objects() { 1 } else { self.names.len() as u64 };
        usize::try_from(lines.min((bytes + 1) / least)).unwrap_or(usize::MAX)
    }

    /// Hands the line of each row of a piece and the row to `take`. Cells are without the white space around them, unless they are wanted `as_they_are`.
    ///
    /// # Errors
    /// A row has more or fewer cells than there are columns, or `take` fails.
    pub fn each(&self, piece: usize, as_they_are: bool, mut take: impl FnMut(u64, Row) -> Result<()>) -> Result<()> {
        self.each_or_fault(piece, as_they_are, |line, row| take(line, row.map_err(Fault::error)?))
    }

    /// The same, where `take` is also handed what is wrong with a row.
    fn each_or_fault(
        &self,
        piece: usize,
        as_they_are: bool,
        mut take: impl FnMut(u64, Result<Row, Fault>) -> Result<()>,
    ) -> Result<()> {
        let (text, line) = self.piece(piece)?;
        let text: &str = &text;
        let Form::Cells(Format { header, .. }) = self.form else {
            return lines(text, line).try_for_each(|(line, text)| match self.object(line, text) {
                Ok(object) => take(line, Ok(Row::Object(&object))),
                Err(fault) => Err(fault),
            });
        };
        let place = self.path.display();
        let mut first = header && piece == 0;
        let take = |line: u64, cells: &[&str]| {
            if std::mem::take(&mut first) {
                return Ok(());
            }
            if cells.len() == self.names.len() {
                return take(line, Ok(Row::Cells(cells)));
            }
            let what = format!(
                "`{place}`, line {line} has {}, and the table has {}",
                counted(cells.len(), "cell"),
                counted(self.names.len(), "column")
            );
            // A line before the names is taken for them.
            let names = match &self.names[..] {
                [name] if header => format!("if `{name}` in line 1 names no column, remove that line; "),
                _ => String::new(),
            };
            let separator = shown(self.separator);
            // A program that writes one behind each row.
            let ends = cells.len() == self.names.len() + 1 && cells.last().is_some_and(|cell| cell.is_empty());
            let ends = if ends { format!("if each row ends with {separator}, remove that; ") } else { String::new() };
            let help = format!(
                "{names}{ends}a cell that contains {separator} stands in quotes, and a quote that opens is closed"
            );
            take(line, Err(Fault { what, help }))
        };
        match self.quote.and_then(|quote| memchr(quote, text.as_bytes())) {
            Some(_) => quoted(text, self.how(as_they_are), line, take),
            None => plain(text, self.how(as_they_are), line, take),
        }
    }

    /// Hands the text of each object of a piece and the object to `take`.
    ///
    /// # Errors
    /// The file cannot be read, or `take` fails.
    pub fn each_object(
        &self,
        piece: usize,
        mut take: impl FnMut(&str, &Map<String, Value>) -> Result<()>,
    ) -> Result<()> {
        let (text, line) = self.piece(piece)?;
        lines(&text, line).try_for_each(|(line, text)| take(text, &self.object(line, text)?))
    }

    /// Hands the line of each row of a piece and its cells to `take`; those that an object lacks, or has nothing in, are empty. If it `skips` rows
    /// that cannot be read, their cells are empty, and `take` is handed why. White space around cells is left out, unless they are wanted `as_they_are`.
    ///
    /// # Errors
    /// As [`Written::each`]; an object has a list or an object in it.
    pub fn each_cells(
        &self,
        piece: usize,
        (skips, as_they_are): (bool, bool),
        mut take: impl FnMut(u64, Option<&str>, &[&str]) -> Result<()>,
    ) -> Result<()> {
        let mut empty = Vec::new();
        self.each_or_fault(piece, as_they_are, |line, row| {
            let read = row.and_then(|row| match row {
                Row::Cells(cells) => Ok(Read::Cells(cells)),
                Row::Object(object) => self.record(line, object, as_they_are).map(Read::Record),
            });
            match read {
                Ok(Read::Cells(cells)) => take(line, None, cells),
                Ok(Read::Record(record)) => take(line, None, &record.iter().map(String::as_str).collect::<Vec<&str>>()),
                Err(fault) if skips => {
                    empty.resize(self.names.len(), "");
                    take(line, Some(&fault.what), &empty)
                }
                Err(fault) => Err(fault.error()),
            }
        })
    }

    /// The cells of an object.
    fn record(&self, line: u64, object: &Map<String, Value>, as_they_are: bool) -> Result<Vec<String>, Fault> {
        let cell = |name: &String| {
            let value = object.get(name).unwrap_or(&Value::Null);
            if value.is_array() || value.is_object() {
                let what = format!("`{}`, line {line}: `{name}` is a list or an object", self.path.display());
                return Err(Fault { what, help: "a column has a text, a number, a truth or null".to_owned() });
            }
            Ok(match value {
                Value::String(text) if as_they_are => text.clone(),
                value => scalar(value).unwrap_or_default(),
            })
        };
        self.names.iter().map(cell).collect()
    }

    fn how(&self, as_they_are: bool) -> How {
        How { separator: self.separator, quote: self.quote, as_they_are }
    }

    /// A piece of the text, and the number of its first line.
    fn piece(&self, piece: usize) -> Result<(PieceText<'_>, u64)> {
        Ok((self.text.piece(piece, &self.begins, self.end)?, self.begins[piece].line))
    }

    /// The JSON object on a line.
    fn object(&self, line: u64, text: &str) -> Result<Map<String, Value>> {
        ensure!(text.len() <= self.limits.row, self.too_long(line));
        serde_json::from_str::<Object>(text).map(|object| object.0).map_err(|error| {
            let (column, why) = (error.column(), error.to_string());
            let why = why.split(" at line ").next().unwrap_or_default();
            anyhow!(
                "`{}`, line {line}, column {column}: no JSON object on a line of its own: {why}",
                self.path.display()
            )
        })
    }

    /// All keys of the objects, in the order in which they come.
    fn keys(&self) -> Result<Vec<String>> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        for piece in 0..self.pieces() {
            let (text, first) = self.piece(piece)?;
            for (line, text) in lines(&text, first) {
                for (key, _) in self.object(line, text)? {
                    if !seen.contains(&key) {
                        names.push(key.clone());
                        seen.insert(key);
                    }
                }
            }
        }
        Ok(names)
    }

    fn too_long(&self, line: u64) -> anyhow::Error {
        let what = match self.form {
            Form::Cells(_) => "a row has fewer",
            Form::Objects => "each object has a line of its own",
        };
        anyhow!("`{}`, line {line} has more than {} bytes: {what}", self.path.display(), self.limits.row)
    }

    /// Looks at the quotes; where pieces begin, each with a record, and where the last one ends.
    fn of_records(&self) -> Result<(Vec<Begin>, Begin)> {
        if let Some(begins) = self.text.lines(self.limits.row, self.quote) {
            return Ok(begins);
        }
        let mut scan = Scan::new((self.separator, self.quote), self.limits.row, PIECE);
        self.text.scan(|text, last| scan.look(text, last).map_err(|fault| self.fault(fault)))?;
        Ok(scan.begins())
    }

    /// Where pieces begin, each with a line, and where the last one ends.
    fn of_lines(&self) -> Result<(Vec<Begin>, Begin)> {
        let mut begins = vec![Begin { byte: 0, line: 1 }];
        let (mut base, mut line) = (0, 1);
        self.text.scan(|text, last| {
            let mut done = 0;
            for end in memchr_iter(b'\n', text.as_bytes()) {
                (done, line) = (end + 1, line + 1);
                let ends = last && done == text.len();
                if begins.last().is_none_or(|begin: &Begin| base + done - begin.byte >= PIECE) && !ends {
                    begins.push(Begin { byte: base + done, line });
                }
            }
            ensure!(last || text.len() - done <= self.limits.row, self.too_long(line));
            base += if last { text.len() } else { done };
            Ok(done)
        })?;
        Ok((begins, Begin { byte: base, line: line + 1 }))
    }

    fn fault(&self, quotes::Fault { line, column, kind }: quotes::Fault) -> anyhow::Error {
        let what = match kind {
            quotes::Kind::TooLong => return self.too_long(line),
            quotes::Kind::Unclosed => {
                "a quote opens here that is not closed, or is closed only after more than a row may have: the lines after it would be a part of this cell"
            }
            quotes::Kind::Behind => {
                "a cell goes on after the quote that closes it: is a quote before this one not closed? Within quotes, one is written twice"
            }
            quotes::Kind::Space => {
                "a space stands before the quote that opens, which then is a part of the text: leave it out"
            }
        };
        anyhow!("`{}`, line {line}, column {column}: {what}", self.path.display())
    }
}

/// The lines of a text that are not empty, with their numbers, of which `first` is the first.
fn lines(text: &str, first: u64) -> impl Iterator<Item = (u64, &str)> {
    (first..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty())
}

/// A separator in a message.
fn shown(separator: u8) -> String {
    match separator {
        b',' => "a comma".to_owned(),
        b';' => "a semicolon".to_owned(),
        b'\t' => "a tab".to_owned(),
        other => format!("`{}`", char::from(other)),
    }
}

/// The separator of which the line has most outside of quotes.
fn separator_of(line: &str, quote: Option<u8>) -> u8 {
    let count = |separator: u8| {
        let mut quoted = false;
        let outside = line.bytes().filter(|byte| {
            quoted ^= Some(*byte) == quote;
            !quoted && *byte == separator
        });
        outside.count()
    };
    let most = SEPARATORS.iter().map(|separator| count(*separator)).max().unwrap_or(0);
    SEPARATORS.into_iter().find(|separator| count(*separator) == most).unwrap_or(b',')
}
