//! The cells of the columns that are used, read once.

use super::super::classes::value;
use super::super::parallel::parallel;
use super::super::row_names::{Lines, RowNames};
use super::super::sheet::{Place, Sheet};
use super::cell;
use super::codec::{Cells, Read};
use super::names::no_column;
use super::survey::Known;
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

    /// Takes the cells of the rows behind its own.
    fn join(&mut self, next: Reading) {
        self.values.extend(next.values);
        let own: Vec<u32> = next.texts.iter().map(|text| self.number(text)).collect();
        self.numbers.extend(next.numbers.into_iter().map(|number| number.map(|number| own[number as usize])));
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

    /// The same where some cells are `known`.
    ///
    /// # Errors
    /// As [`Raw::read`].
    pub fn read_rest(
        text: &Sheet,
        reads: &[(&str, Read)],
        id: Option<&str>,
        decimal: char,
        mut known: Known,
    ) -> Result<Raw> {
        let is_known = |(name, read): &(&str, Read)| *read == Read::Number && known.numbers.contains_key(*name);
        let (read, left): (Vec<_>, Vec<_>) = reads.iter().copied().partition(is_known);
        let mut raw = if left.is_empty() && id.is_none() {
            Raw { columns: HashMap::new(), ids: None, rows: known.lines.lines.len(), lines: known.lines }
        } else {
            Raw::read(text, &left, id, decimal)?
        };
        let taken = read.into_iter().filter_map(|(name, _)| known.numbers.remove_entry(name));
        raw.columns.extend(taken.map(|(name, values)| (name, Cells::Numbers(values))));
        Ok(raw)
    }

    /// The same of a table that may have `most` rows.
    ///
    /// # Errors
    /// As [`Raw::read`]; [`TooManyRows`], found by `downcast_ref`.
    pub fn read_some<'a>(
        text: &Sheet,
        reads: &[(&'a str, Read)],
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
        let new = |(name, read): &(&'a str, Read)| Reading::new(name, *read, text.column(name).unwrap_or(0));
        let fresh = || -> Vec<Reading<'a>> { reads.iter().map(new).collect() };
        let id = id.and_then(|name| Some((name.to_owned(), text.column(name)?)));
        let (decimal, several) = (text.decimal(decimal), text.paths().count() > 1);
        let mut parts: Vec<Vec<Reading>> = fresh().into_iter().map(|column| vec![column]).collect();
        let wanted: Vec<usize> = parts.iter().map(|part| part[0].at).chain(id.as_ref().map(|(_, at)| *at)).collect();
        type Own<'a> = (Vec<Reading<'a>>, Vec<String>, Lines, usize);
        let read: Vec<Result<Own>> = parallel(text.pieces(), |piece| {
            let (mut columns, mut ids, mut lines, mut rows) = (fresh(), Vec::new(), Lines::default(), 0);
            text.each_cells_of(piece, &wanted, |place, row| {
                rows += 1;
                ensure!(rows <= most, TooManyRows(most));
                for column in &mut columns {
                    column.take(place, row[column.at], decimal)?;
                }
                match &id {
                    Some((_, at)) => ids.push(row[*at].to_owned()),
                    None => lines.add(place, rows - 1, several),
                }
                Ok(())
            })?;
            Ok((columns, ids, lines, rows))
        });
        let (mut ids, mut lines, mut rows) = (Vec::new(), Lines::default(), 0);
        for piece in read {
            let (own, more_ids, more_lines, more) = piece?;
            parts.iter_mut().zip(own).for_each(|(parts, own)| parts.push(own));
            ids.extend(more_ids);
            lines.join(more_lines, rows);
            rows += more;
            ensure!(rows <= most, TooManyRows(most));
        }
        let columns = parallel(parts, |parts| {
            let joined = parts.into_iter().reduce(|mut column, next| {
                column.join(next);
                column
            });
            joined.expect("the first has no cells yet")
        });
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
