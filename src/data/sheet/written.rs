//! Rows in a text file: CSV and its relatives, or a JSON object a line. The file is whole in memory, and every fault has its place.

use super::object::{Object, scalar};
use super::quotes::{self, Lines};
use super::{Form, Limits, Row, bytes};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What may stand between columns, the likeliest first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The rows of a text file.
pub struct Written {
    path: PathBuf,
    text: String,
    form: Form,
    /// What stands between the columns of a row of cells.
    separator: u8,
    limits: Limits,
    names: Vec<String>,
}

impl Written {
    /// Reads the file at `path`; one whose name ends in `.gz` or `.zst` is unpacked.
    ///
    /// # Errors
    /// It cannot be read, is no UTF-8, has no columns, a quote that is not closed, or a line that is no object, with its line and column.
    pub fn open(path: &Path, form: Form, limits: Limits) -> Result<Self> {
        Written::of(path, bytes::read(path, limits.file)?, form, limits)
    }

    /// The same for bytes that are there; messages call them `path`.
    ///
    /// # Errors
    /// As [`Written::open`].
    pub fn of(path: &Path, bytes: Vec<u8>, form: Form, limits: Limits) -> Result<Self> {
        let place = path.display();
        let text = bytes::text(path, bytes)?;
        let array = text.trim_start().strip_prefix('[').map(str::trim_start);
        ensure!(
            !array.is_some_and(|rest| rest.starts_with('{') || rest == "]" || rest.starts_with("]\n")),
            "`{place}` is a JSON array, and each row is an object on a line of its own (JSON Lines): `jq -c '.[]'` makes such lines of it"
        );
        let first = text.lines().find(|line| !line.trim().is_empty());
        let first = first.with_context(|| format!("`{place}` is empty: it has no columns"))?;
        let separator = match form {
            Form::Cells { separator, .. } => separator.unwrap_or_else(|| separator_of(first)),
            Form::Objects => b',',
        };
        let mut sheet = Written { path: path.to_owned(), text, form, separator, limits, names: Vec::new() };
        sheet.names = match form {
            Form::Cells { header, .. } => {
                sheet.check_quotes()?;
                let mut record = csv::StringRecord::new();
                sheet.reader().read_record(&mut record).with_context(|| format!("cannot read `{place}`"))?;
                match header {
                    true => record.iter().map(str::to_owned).collect(),
                    false => (1..=record.len()).map(|number| number.to_string()).collect(),
                }
            }
            Form::Objects => sheet.keys()?,
        };
        ensure!(!sheet.names.iter().all(String::is_empty), "`{place}` is empty: it has no columns");
        Ok(sheet)
    }

    /// Whether its rows are objects.
    pub fn has_objects(&self) -> bool {
        self.form == Form::Objects
    }

    /// The names of the columns: the cells of the first line, or all keys of the objects in the order in which they come.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Hands the line of each row and the row to `take`.
    ///
    /// # Errors
    /// A row has more or fewer cells than there are columns, or `take` fails.
    pub fn each(&self, mut take: impl FnMut(u64, Row) -> Result<()>) -> Result<()> {
        let Form::Cells { header, .. } = self.form else {
            return self.lines().try_for_each(|(line, text)| take(line, Row::Object(&self.object(line, text)?)));
        };
        let place = self.path.display();
        let (mut reader, mut record) = (self.reader(), csv::StringRecord::new());
        // The reader counts an end of two bytes where it ends.
        let mut lines = Lines::new(&self.text);
        let mut first = header;
        while reader.read_record(&mut record).with_context(|| format!("cannot read `{place}`"))? {
            if std::mem::take(&mut first) {
                continue;
            }
            let line = lines.at(record.position().map_or(0, csv::Position::byte));
            ensure!(
                record.len() == self.names.len(),
                "`{place}`, line {line} has {} cells, and the table has {} columns: a cell that contains {} stands in quotes, and a quote \
                 that opens is closed",
                record.len(),
                self.names.len(),
                shown(self.separator)
            );
            take(line, Row::Cells(&record))?;
        }
        Ok(())
    }

    /// Hands the line of each row and its cells to `take`; those that an object lacks, or has nothing in, are empty.
    ///
    /// # Errors
    /// As [`Written::each`]; an object has a list or an object in it.
    pub fn each_cells(&self, mut take: impl FnMut(u64, &csv::StringRecord) -> Result<()>) -> Result<()> {
        let mut record = csv::StringRecord::new();
        self.each(|line, row| match row {
            Row::Cells(cells) => take(line, cells),
            Row::Object(object) => {
                record.clear();
                for name in &self.names {
                    let value = object.get(name).unwrap_or(&Value::Null);
                    let nested = value.is_array() || value.is_object();
                    ensure!(
                        !nested,
                        "`{}`, line {line}: `{name}` is a list or an object: a column has a text, a number, a truth or null",
                        self.path.display()
                    );
                    record.push_field(&scalar(value).unwrap_or_default());
                }
                take(line, &record)
            }
        })
    }

    fn reader(&self) -> csv::Reader<&[u8]> {
        // Rows of another number of cells are reported here, with their line.
        let mut builder = csv::ReaderBuilder::new();
        let builder = builder.delimiter(self.separator).trim(csv::Trim::All).flexible(true).has_headers(false);
        builder.from_reader(self.text.as_bytes())
    }

    /// The lines that are not empty, with their numbers.
    fn lines(&self) -> impl Iterator<Item = (u64, &str)> {
        (1..).zip(self.text.lines()).filter(|(_, text)| !text.trim().is_empty())
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
        for (line, text) in self.lines() {
            for (key, _) in self.object(line, text)? {
                if !seen.contains(&key) {
                    names.push(key.clone());
                    seen.insert(key);
                }
            }
        }
        Ok(names)
    }

    fn too_long(&self, line: u64) -> anyhow::Error {
        let what = match self.form {
            Form::Cells { .. } => "a row has fewer",
            Form::Objects => "each object has a line of its own",
        };
        anyhow!("`{}`, line {line} has more than {} bytes: {what}", self.path.display(), self.limits.row)
    }

    fn check_quotes(&self) -> Result<()> {
        let Err(quotes::Fault { line, column, kind }) = quotes::check(&self.text, self.separator, self.limits.row)
        else {
            return Ok(());
        };
        let what = match kind {
            quotes::Kind::TooLong => return Err(self.too_long(line)),
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
