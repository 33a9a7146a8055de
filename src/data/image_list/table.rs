//! The rows of a list: CSV, TSV, JSON Lines or Parquet.

use super::super::sheet::{
    COLUMN_ENDINGS, FileKind, Form, Format, Limits, OBJECT_ENDINGS, Row, Sheet, inner_ending, scalar,
};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;

/// Endings of the names of lists.
pub const ENDINGS: [&str; 5] = ["csv", "tsv", "jsonl", "ndjson", "parquet"];
/// Largest list, and longest line.
const LIMITS: Limits = Limits { file: 1 << 30, row: 1 << 20 };

/// What a row has in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing, or an empty text.
    Missing,
    /// The object on the line has no such key.
    Absent,
    /// A text, or a number as a text.
    Text(String),
    /// A list of those.
    List(Vec<String>),
}

impl Cell {
    fn text(text: &str) -> Cell {
        if text.is_empty() { Cell::Missing } else { Cell::Text(text.to_owned()) }
    }

    fn of(value: &Value) -> Result<Cell> {
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
}

/// A list.
pub struct Table(Sheet);

impl Table {
    /// Reads the list in `path`.
    ///
    /// # Errors
    /// It cannot be read, or is no list.
    pub fn open(path: &Path) -> Result<Self> {
        let cells =
            |separator| FileKind::Written(Form::Cells(Format { separator: Some(separator), ..Format::default() }));
        let kind = match inner_ending(path).as_str() {
            "csv" => cells(b','),
            "tsv" => cells(b'\t'),
            ending if OBJECT_ENDINGS.contains(&ending) => FileKind::Written(Form::Objects),
            ending if COLUMN_ENDINGS.contains(&ending) => FileKind::Columns,
            _ => bail!(
                "`{}` is no list that is read: its name must end in .csv, .tsv, .jsonl or .parquet",
                path.display()
            ),
        };
        let sheet = Sheet::open(path, kind, LIMITS)?;
        if let FileKind::Written(Form::Cells(Format { separator: Some(separator), .. })) = kind {
            check_separator(path, separator, sheet.names())?;
        }
        Ok(Table(sheet))
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        self.0.names()
    }

    /// Hands the number of each line and what it has in the columns of these numbers to `take`.
    ///
    /// # Errors
    /// A line is not as it should be, or `take` fails.
    pub fn each(&self, chosen: &[usize], mut take: impl FnMut(u64, &[Cell]) -> Result<()>) -> Result<()> {
        if self.0.kinds().is_some() {
            return self.0.each_cells(chosen, |place, row| {
                take(place.line, &chosen.iter().map(|at| Cell::text(row[*at])).collect::<Vec<_>>())
            });
        }
        self.0.each(|place, row| {
            let line = place.line;
            let cell = |at: &usize| match row {
                Row::Cells(cells) => Ok(Cell::text(cells[*at])),
                Row::Object(object) => {
                    let name = &self.columns()[*at];
                    let of = || format!("`{}`, line {line}: `{name}`", self.0.path().display());
                    object.get(name).map_or(Ok(Cell::Absent), |value| Cell::of(value).with_context(of))
                }
            };
            take(line, &chosen.iter().map(cell).collect::<Result<Vec<_>>>()?)
        })
    }
}

/// Refuses columns that something else stands between.
fn check_separator(path: &Path, separator: u8, names: &[String]) -> Result<()> {
    let (expected, others) = match separator {
        b',' => ("commas", [(';', "semicolons"), ('\t', "tabs")]),
        _ => ("tabs", [(';', "semicolons"), (',', "commas")]),
    };
    let [name] = names else { return Ok(()) };
    if let Some((_, found)) = others.iter().find(|(other, _)| name.contains(*other)) {
        bail!(
            "`{}`, line 1: the columns have {found} between them, and {expected} are expected: save the list with commas as .csv, or with \
             tabs as .tsv",
            path.display()
        );
    }
    Ok(())
}
