//! Rows that come one by one, with cells that are numbers, truths and texts already: those of JSON.

use super::super::row_names::{Lines, RowNames, Texts};
use super::cell;
use super::codec::{Read, TOO_LARGE};
use super::fitted::TableCodec;
use super::raw::{Raw, Reading};
use anyhow::{Result, bail, ensure};

/// Whole numbers below it are written with all digits.
const MOST_WHOLE: f64 = 1e15;

/// A cell as JSON has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// `null`.
    Missing,
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// `true`, `false`.
    Truth(bool),
    /// A text, which is read as the cell of a file is.
    Text(String),
}

/// Rows for a model that is trained, as they come.
pub struct Given<'a> {
    codec: &'a TableCodec,
    columns: Vec<Reading<'a>>,
    ids: Option<Texts>,
    /// Where what names a row is among the columns, if it is one of them.
    id_at: Option<usize>,
    rows: usize,
}

impl<'a> Given<'a> {
    /// No rows yet.
    pub fn new(codec: &'a TableCodec) -> Self {
        let reads = codec.reads(false).into_iter().enumerate();
        let columns: Vec<Reading> = reads.map(|(at, (name, read))| Reading::new(name, read, at)).collect();
        let id_at = columns.iter().position(|column| Some(column.name) == codec.row_id());
        Given { codec, columns, ids: codec.row_id().map(|_| Texts::default()), id_at, rows: 0 }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes a row: a cell for each of the columns of the codec, in their order, and what the row is called.
    ///
    /// # Errors
    /// A cell is not there, or not what it was in training. Then the rows are of no use any more.
    pub fn add(&mut self, cells: &[Option<Cell>], id: Option<&Cell>) -> Result<()> {
        ensure!(
            cells.len() == self.columns.len(),
            "there are {} cells, and the model takes {} columns",
            cells.len(),
            self.columns.len()
        );
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            let Some(cell) = cell else {
                bail!("the column `{}` is not there: where its value is not known, it is `null`", column.name)
            };
            take(column, cell, self.codec.decimal)?;
        }
        let id = id.or_else(|| cells[self.id_at?].as_ref());
        if let Some(ids) = &mut self.ids {
            ids.push(&match id {
                Some(Cell::Text(text)) => text.clone(),
                Some(Cell::Whole(number)) => number.to_string(),
                Some(Cell::Number(number)) => number.to_string(),
                Some(Cell::Truth(truth)) => truth.to_string(),
                Some(Cell::Missing) | None => String::new(),
            });
        }
        self.rows += 1;
        Ok(())
    }

    /// The cells of all rows.
    pub fn raw(self) -> Raw {
        // As a table without that column, if no row has it.
        let ids = self.ids.filter(|ids| ids.iter().any(|id| !id.is_empty()));
        let name = self.codec.row_id().unwrap_or_default().to_owned();
        let names = ids.map_or_else(|| RowNames::Lines(Lines::default()), |ids| RowNames::Ids(name, ids));
        Raw::of(self.columns, names, self.rows)
    }
}

fn take(column: &mut Reading, cell: &Cell, decimal: char) -> Result<()> {
    let text = match cell {
        Cell::Text(text) => Some(text.trim()),
        _ => None,
    };
    let missing = *cell == Cell::Missing || text.is_some_and(cell::is_missing);
    let value = match (column.read, cell, text) {
        (read, _, _) if read.is_text() && missing => {
            column.text(None);
            return Ok(());
        }
        (read, _, Some(text)) if read.is_text() => {
            column.text(Some(text));
            return Ok(());
        }
        (read, Cell::Whole(number), _) if read.is_text() => {
            column.text(Some(&number.to_string()));
            return Ok(());
        }
        (read, Cell::Truth(truth), _) if read.is_text() => {
            column.text(Some(&truth.to_string()));
            return Ok(());
        }
        (read, Cell::Number(number), _) if read.is_text() && number.fract() == 0.0 && number.abs() < MOST_WHOLE => {
            column.text(Some(&format!("{number:?}")));
            return Ok(());
        }
        // There are several ways to write such a number, and the training has seen one of them.
        (Read::Text | Read::Hash { .. }, _, _) => Err("a text in quotes"),
        _ if missing => Ok(f64::NAN),
        (read, _, Some(text)) => read.value(text, decimal),
        (Read::Number, Cell::Whole(number), _) => Ok(*number as f64),
        (Read::Number, Cell::Number(number), _) if (*number as f32).is_finite() => Ok(*number),
        (Read::Truth, Cell::Truth(truth), _) => Ok(f64::from(*truth)),
        (Read::Truth, Cell::Whole(number), _) => Ok(f64::from(*number != 0)),
        (Read::Truth, Cell::Number(number), _) => Ok(f64::from(*number != 0.0)),
        (Read::Number, Cell::Number(_), _) => Err(TOO_LARGE),
        (Read::Number, _, _) => Err("a number"),
        (Read::Truth, _, _) => Err("true or false"),
        (Read::Date(None), _, _) => Err("a date in quotes, as \"2026-11-26\""),
        (Read::Date(_), _, _) => Err("a date in quotes, as the `format` of the column says,"),
    };
    match value {
        Ok(value) => {
            column.clock(text.unwrap_or_default());
            column.value(value);
        }
        Err(expected) => {
            let has: String = match cell {
                Cell::Text(text) => text.chars().take(40).collect(),
                Cell::Whole(number) => number.to_string(),
                // With its point, as it was given.
                Cell::Number(number) => format!("{number:?}"),
                Cell::Truth(truth) => truth.to_string(),
                Cell::Missing => "null".into(),
            };
            bail!("the column `{}` has `{has}`, and {expected} is expected", column.name)
        }
    }
    Ok(())
}
