//! The lines of a list: CSV, TSV or JSON Lines.

use super::super::quotes::{self, Lines};
use crate::files;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

/// Endings of the names of lists.
pub const ENDINGS: [&str; 4] = ["csv", "tsv", "jsonl", "ndjson"];
/// Largest list that is read, in bytes.
const MAX_FILE: u64 = 1 << 30;
/// Longest line, in bytes. More is a quote that is not closed, or no list.
const MAX_LINE: usize = 1 << 20;

/// What a line has in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing, or an empty text.
    Missing,
    /// A text, or a number as a text.
    Text(String),
    /// A list of those.
    List(Vec<String>),
}

impl Cell {
    fn text(text: &str) -> Cell {
        if text.is_empty() { Cell::Missing } else { Cell::Text(text.to_owned()) }
    }
}

/// A list.
pub struct Table<'a> {
    path: &'a Path,
    text: String,
    format: Format,
    columns: Vec<String>,
}

enum Format {
    /// Columns with this byte between them.
    Columns(u8),
    /// A JSON object a line.
    Objects,
}

impl<'a> Table<'a> {
    /// Reads the list in `path`.
    ///
    /// # Errors
    /// It cannot be read, or is no list.
    pub fn open(path: &'a Path) -> Result<Self> {
        let place = path.display();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        let format = match &ending[..] {
            "csv" => Format::Columns(b','),
            "tsv" => Format::Columns(b'\t'),
            "jsonl" | "ndjson" => Format::Objects,
            _ => bail!("`{place}` is no list that is read: its name must end in .csv, .tsv or .jsonl"),
        };
        let mut table = Table { path, text: text_of(path, files::read(path, MAX_FILE)?)?, format, columns: Vec::new() };
        table.columns = match table.format {
            Format::Columns(delimiter) => {
                table.check_quotes(delimiter)?;
                let mut reader = table.reader(delimiter);
                let names = reader.headers().with_context(|| format!("cannot read `{place}`"))?;
                table.check_delimiter(delimiter, names)?;
                names.iter().map(str::to_owned).collect()
            }
            Format::Objects => match table.lines().next() {
                Some((line, text)) => table.object(line, text)?.keys().cloned().collect(),
                None => Vec::new(),
            },
        };
        ensure!(!table.columns.iter().all(String::is_empty), "`{place}` is empty: it has no columns");
        Ok(table)
    }

    /// The names of the columns: those on the first line or, of JSON, the keys there.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Hands the number of each line and what it has in the columns of these numbers to `take`.
    ///
    /// # Errors
    /// A line is not as it should be, or `take` fails.
    pub fn each(&self, chosen: &[usize], mut take: impl FnMut(u64, &[Cell]) -> Result<()>) -> Result<()> {
        let place = self.path.display();
        if let Format::Columns(delimiter) = self.format {
            let mut reader = self.reader(delimiter);
            let mut record = csv::StringRecord::new();
            // The reader counts an end of two bytes where it ends.
            let mut lines = Lines::new(&self.text);
            while reader.read_record(&mut record).with_context(|| format!("cannot read `{place}`"))? {
                let line = lines.at(record.position().map_or(0, csv::Position::byte));
                ensure!(
                    record.len() == self.columns.len(),
                    "`{place}`, line {line} has {} fields, and the first line names {} columns: a field with {} in it stands in \
                     quotes, and a quote that begins is closed",
                    record.len(),
                    self.columns.len(),
                    if delimiter == b',' { "a comma" } else { "a tab" }
                );
                take(line, &chosen.iter().map(|at| Cell::text(&record[*at])).collect::<Vec<_>>())?;
            }
            return Ok(());
        }
        for (line, text) in self.lines() {
            let object = self.object(line, text)?;
            let cell = |at: &usize| {
                let name = &self.columns[*at];
                let of = || format!("`{place}`, line {line}: `{name}`");
                object.get(name).map_or(Ok(Cell::Missing), |value| cell_of(value).with_context(of))
            };
            take(line, &chosen.iter().map(cell).collect::<Result<Vec<_>>>()?)?;
        }
        Ok(())
    }

    fn reader(&self, delimiter: u8) -> csv::Reader<&[u8]> {
        // Lines of another number of fields are told here.
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(delimiter).trim(csv::Trim::All).flexible(true).from_reader(self.text.as_bytes())
    }

    /// The lines that are not empty, with their numbers.
    fn lines(&self) -> impl Iterator<Item = (u64, &str)> {
        (1..).zip(self.text.lines()).filter(|(_, text)| !text.trim().is_empty())
    }

    /// The JSON object on a line.
    fn object(&self, line: u64, text: &str) -> Result<Map<String, Value>> {
        ensure!(text.len() <= MAX_LINE, self.too_long(line));
        serde_json::from_str::<Object>(text).map(|object| object.0).map_err(|error| {
            let (column, why) = (error.column(), error.to_string());
            let why = why.split(" at line ").next().unwrap_or_default();
            anyhow!(
                "`{}`, line {line}, column {column}: no JSON object on a line of its own: {why}",
                self.path.display()
            )
        })
    }

    fn too_long(&self, line: u64) -> anyhow::Error {
        let what = match self.format {
            Format::Columns(_) => "a list has a line for each photo",
            Format::Objects => "each object has a line of its own",
        };
        anyhow!("`{}`, line {line} has more than {MAX_LINE} bytes: {what}", self.path.display())
    }

    /// Quotes that are closed, and lines that are no longer than they may be.
    fn check_quotes(&self, delimiter: u8) -> Result<()> {
        let Err(quotes::Fault { line, column, kind }) = quotes::check(&self.text, delimiter, MAX_LINE) else {
            return Ok(());
        };
        let what = match kind {
            quotes::Kind::TooLong => return Err(self.too_long(line)),
            quotes::Kind::Unclosed => {
                "a quote opens here that is not closed: the lines behind it would be a part of this field"
            }
            quotes::Kind::Behind => {
                "a field goes on behind the quote that closes it: is a quote before this one not closed? Within quotes, one is written twice"
            }
            quotes::Kind::Space => {
                "a space stands before the quote that opens, which then is a part of the text: leave it out"
            }
        };
        bail!("`{}`, line {line}, column {column}: {what}", self.path.display())
    }

    /// Columns that something else stands between.
    fn check_delimiter(&self, delimiter: u8, names: &csv::StringRecord) -> Result<()> {
        let (expected, others) = match delimiter {
            b',' => ("commas", [(';', "semicolons"), ('\t', "tabs")]),
            _ => ("tabs", [(';', "semicolons"), (',', "commas")]),
        };
        let [name] = &names.iter().collect::<Vec<_>>()[..] else { return Ok(()) };
        if let Some((_, found)) = others.iter().find(|(other, _)| name.contains(*other)) {
            bail!(
                "`{}`, line 1: the columns have {found} between them, and {expected} are expected: save the list with commas as .csv, or \
                 with tabs as .tsv",
                self.path.display()
            );
        }
        Ok(())
    }
}

/// A JSON object that has each key once.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let mut map = Map::new();
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("the key `{key}` stands in it twice")));
                    }
                    map.insert(key, value);
                }
                Ok(Object(map))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// The file as text, without the mark that some programs begin it with.
fn text_of(path: &Path, mut bytes: Vec<u8>) -> Result<String> {
    let place = path.display();
    ensure!(
        !bytes.starts_with(&[0xff, 0xfe]) && !bytes.starts_with(&[0xfe, 0xff]),
        "`{place}` is UTF-16: save it as UTF-8"
    );
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow!("`{place}`, line {line}: the byte 0x{:02x} is not UTF-8: save the list as UTF-8", bytes[at])
    })
}

fn cell_of(value: &Value) -> Result<Cell> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    match value {
        Value::Null => Ok(Cell::Missing),
        Value::Array(values) => {
            let all: Option<Vec<String>> = values.iter().map(scalar).collect();
            all.map(Cell::List).context("is a list of more than texts and numbers")
        }
        Value::Object(_) => bail!("is an object: a text, a number or a list of them is expected"),
        other => Ok(Cell::text(&scalar(other).unwrap_or_default())),
    }
}
