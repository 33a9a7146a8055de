//! The cells of the columns that are used, read once.

use super::super::classes::value;
use super::super::row_names::{Lines, RowNames};
use super::super::sheet::{Place, Sheet};
use super::cell;
use super::codec::{Cells, Read};
use super::names::no_column;
use anyhow::{Result, bail, ensure};
use std::collections::HashMap;
use std::fmt;

/// The cells of the columns that are used.
pub struct Raw {
    columns: HashMap<String, Cells>,
    ids: Option<(String, Vec<String>)>,
    lines: Lines,
    rows: usize,
}

/// There are more rows than may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRows(pub usize);

impl fmt::Display for TooManyRows {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "there are more rows than {}", self.0)
    }
}

impl std::error::Error for TooManyRows {}

/// A column while it is read.
pub(super) struct Reading<'a> {
    pub name: &'a str,
    pub read: Read,
    /// Its place in a row.
    at: usize,
    values: Vec<f64>,
    numbers: Vec<Option<u32>>,
    texts: Vec<String>,
    known: HashMap<String, u32>,
}

impl<'a> Reading<'a> {
    /// Of the column that is `at` in a row.
    pub fn new(name: &'a str, read: Read, at: usize) -> Self {
        let (values, numbers, texts, known) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        Reading { name, read, at, values, numbers, texts, known }
    }

    /// Takes a cell that is a text, or missing.
    pub fn text(&mut self, text: Option<&str>) {
        let number = text.map(|text| self.number(value(text)));
        self.numbers.push(number);
    }

    /// Takes a cell that is a number; NaN where it is missing.
    pub fn value(&mut self, value: f64) {
        self.values.push(value);
    }

    fn take(&mut self, place: Place, text: &str, decimal: char) -> Result<()> {
        let missing = cell::is_missing(text);
        if self.read == Read::Text {
            self.text((!missing).then_some(text));
            return Ok(());
        }
        let value = if missing { Ok(f64::NAN) } else { self.read.value(text, decimal) };
        match value {
            Ok(value) => self.values.push(value),
            Err(expected) => {
                let text: String = text.chars().take(40).collect();
                bail!("{place}: the column `{}` has `{text}`, and {expected} is expected", self.name)
            }
        }
        Ok(())
    }

    /// The number of a text.
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }
}

impl Raw {
    /// Reads these columns of a table, each in its way, and the one that names the rows, if it is there.
    ///
    /// # Errors
    /// A column is not there; a cell is not what is expected, with its line.
    pub fn read(text: &Sheet, reads: &[(&str, Read)], id: Option<&str>, decimal: char) -> Result<Raw> {
        Raw::read_some(text, reads, id, decimal, usize::MAX)
    }

    /// The same of a table that may have `most` rows.
    ///
    /// # Errors
    /// As [`Raw::read`]; [`TooManyRows`], found by `downcast_ref`.
    pub fn read_some(
        text: &Sheet,
        reads: &[(&str, Read)],
        id: Option<&str>,
        decimal: char,
        most: usize,
    ) -> Result<Raw> {
        let path = text.path();
        let missing = reads.iter().map(|(name, _)| *name).filter(|name| text.column(name).is_none());
        let missing: Vec<&str> = missing.collect();
        let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match missing[..] {
            [] => {}
            [name] => {
                let names = text.names().iter().map(String::as_str);
                bail!("`{}`: {}", path.display(), no_column(name, "the model", names))
            }
            _ => {
                let names: Vec<&str> = text.names().iter().map(String::as_str).collect();
                bail!(
                    "`{}` lacks columns that the model takes: {}. Its columns are {}",
                    path.display(),
                    quoted(&missing[..missing.len().min(20)]),
                    quoted(&names[..names.len().min(20)])
                )
            }
        }
        let mut columns = Vec::with_capacity(reads.len());
        for &(name, read) in reads {
            columns.push(Reading::new(name, read, text.column(name).unwrap_or(0)));
        }
        let id = id.and_then(|name| Some((name.to_owned(), text.column(name)?)));
        let (mut ids, mut lines) = (Vec::new(), Lines::default());
        let (mut rows, decimal, several) = (0, text.decimal(decimal), text.paths().count() > 1);
        let wanted: Vec<usize> = columns.iter().map(|column| column.at).chain(id.as_ref().map(|(_, at)| *at)).collect();
        text.each_cells(&wanted, |place, row| {
            rows += 1;
            ensure!(rows <= most, TooManyRows(most));
            for column in &mut columns {
                column.take(place, &row[column.at], decimal)?;
            }
            match &id {
                Some((_, at)) => ids.push(row[*at].to_owned()),
                None => lines.add(place, rows - 1, several),
            }
            Ok(())
        })?;
        Ok(Raw::of(columns, id.map(|(name, _)| (name, ids)), lines, rows))
    }

    /// The cells that columns have taken.
    pub(super) fn of(columns: Vec<Reading>, ids: Option<(String, Vec<String>)>, lines: Lines, rows: usize) -> Raw {
        let done = columns.into_iter().map(|column| {
            let cells = match column.read {
                Read::Text => Cells::Texts(column.numbers, column.texts),
                Read::Number | Read::Truth | Read::Date => Cells::Numbers(column.values),
            };
            (column.name.to_owned(), cells)
        });
        Raw { columns: done.collect(), ids, lines, rows }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cells of a column.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn column(&self, name: &str) -> &Cells {
        &self.columns[name]
    }

    /// What the column that names rows has.
    pub fn ids(&self) -> Option<&[String]> {
        self.ids.as_ref().map(|(_, ids)| &ids[..])
    }

    /// What the rows are called.
    pub fn names(&self) -> RowNames {
        match &self.ids {
            Some((column, ids)) => RowNames::Ids(column.clone(), ids.clone()),
            None => RowNames::Lines(self.lines.clone()),
        }
    }
}
