//! Texts that stand in a column of a table, a document in each row, read piece by piece.

use super::super::sheet::{Kind, Piece, Place, Sheet};
use super::super::table::{Format, no_column, open_sheet};
use anyhow::{Context, Result, ensure};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Some of the documents of a table, one after the other.
#[derive(Clone)]
pub struct Documents {
    table: Arc<Table>,
    /// Which of its rows, from 0.
    rows: Range<u64>,
    /// How many bytes their texts have.
    bytes: u64,
    /// How many of them have no text.
    empty: u64,
}

struct Table {
    sheet: Sheet,
    column: usize,
    /// Its pieces, each with its first row.
    pieces: Vec<(u64, Piece)>,
}

/// A document.
pub struct Document {
    /// Its file and row, for messages.
    pub place: String,
    /// What it says.
    pub text: String,
}

impl Documents {
    /// The texts in the column `name` of the tables that `path` stands for. All rows are looked at.
    ///
    /// # Errors
    /// A file cannot be read, is no table, or lacks the column; what it has there is no text.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        let sheet = open_sheet(path, Format::default())?;
        let known = || sheet.names().iter().map(String::as_str);
        let column = sheet.column(name);
        let column =
            column.with_context(|| format!("`{}`: {}", path.display(), no_column(name, "--column", known())))?;
        if let Some(kind) = sheet.kinds().map(|kinds| &kinds[column]) {
            let texts = matches!(kind, Kind::Text | Kind::Nothing);
            ensure!(texts, "`{}`: the column `{name}` has {}, and no texts", path.display(), kind.in_words());
        }
        let (mut rows, mut bytes, mut empty, mut pieces) = (0, 0, 0, Vec::new());
        for piece in sheet.pieces() {
            pieces.push((rows, piece));
            sheet.each_text_of(piece, column, |_, text| {
                rows += 1;
                bytes += text.len() as u64;
                empty += u64::from(text.is_empty());
                Ok(())
            })?;
        }
        Ok(Documents { table: Arc::new(Table { sheet, column, pieces }), rows: 0..rows, bytes, empty })
    }

    /// How many bytes its texts have.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of its rows have no text.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.table.sheet.paths()
    }

    /// The first rows, whose texts have `bytes` or, with the last of them, more; and the others.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn split(&self, bytes: u64) -> Result<[Documents; 2]> {
        let (mut at, mut cut) = (self.rows.start, self.rows.start);
        let (mut sizes, mut empty) = ([0; 2], [0; 2]);
        for number in 0..self.table.pieces.len() {
            self.of_piece(number, &mut |_, text| {
                let part = usize::from(sizes[0] >= bytes);
                sizes[part] += text.len() as u64;
                empty[part] += u64::from(text.is_empty());
                at += 1;
                if part == 0 {
                    cut = at;
                }
                Ok(())
            })?;
        }
        let part = |rows, n: usize| Documents { rows, bytes: sizes[n], empty: empty[n], ..self.clone() };
        Ok([part(self.rows.start..cut, 0), part(cut..self.rows.end, 1)])
    }

    /// Its documents, some megabytes at a time; rows without a text are left out.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn some(&self) -> impl Iterator<Item = Result<Vec<Document>>> {
        (0..self.table.pieces.len()).map(|number| {
            let mut some = Vec::new();
            self.of_piece(number, &mut |place, text| {
                if !text.is_empty() {
                    some.push(Document { place: place.to_string(), text: text.to_owned() });
                }
                Ok(())
            })?;
            Ok(some)
        })
    }

    /// Hands the rows of a piece that are its own to `take`.
    fn of_piece(&self, number: usize, take: &mut dyn FnMut(Place, &str) -> Result<()>) -> Result<()> {
        let Table { sheet, column, pieces } = &*self.table;
        let (first, piece) = pieces[number];
        let ends = pieces.get(number + 1).map_or(u64::MAX, |(next, _)| *next);
        if first >= self.rows.end || ends <= self.rows.start {
            return Ok(());
        }
        let mut at = first;
        sheet.each_text_of(piece, *column, |place, text| {
            at += 1;
            if self.rows.contains(&(at - 1)) { take(place, text) } else { Ok(()) }
        })
    }
}
