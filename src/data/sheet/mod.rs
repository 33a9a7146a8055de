//! Rows with named columns: in text files, CSV and its relatives or a JSON object a line, or in Parquet files, which say what their columns have.
//! Several files with the same columns are one sheet.

mod begins;
mod bytes;
mod cells;
mod columns;
mod format;
mod kept;
mod kinds;
mod object;
mod packed;
mod packing;
mod parts;
mod quotes;
mod text;
mod written;

pub use bytes::file_text;
pub use columns::{ColumnWriter, Copied, Value as ColumnValue};
pub use format::Format;
pub use kept::{Kept, KeptRow, RowForm};
pub use kinds::Kind;
pub use object::scalar;
pub use packing::inner_ending;
pub use written::INDEX;

use crate::files::pattern;
use anyhow::{Result, bail, ensure};
use columns::Columns;
use encoding_rs::Encoding;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use written::Written;

/// Endings of the names of files with a JSON object a line.
pub const OBJECT_ENDINGS: [&str; 2] = ["jsonl", "ndjson"];
/// Endings of the names of Parquet files.
pub const COLUMN_ENDINGS: [&str; 2] = ["parquet", "pq"];

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Cells with a byte between them.
    Cells(Format),
    /// A JSON object on each line.
    Objects,
}

impl Form {
    /// The encoding, if one is given.
    fn encoding(self) -> Option<&'static Encoding> {
        match self {
            Form::Cells(format) => format.encoding,
            Form::Objects => None,
        }
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A text.
    Written(Form),
    /// A Parquet file.
    Columns,
}

/// The largest that is read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the file.
    pub file: u64,
    /// Bytes of a row. More is a quote that is not closed, or no table.
    pub row: usize,
}

/// A row.
pub enum Row<'a> {
    /// Its cells, as many as there are columns.
    Cells(&'a [&'a str]),
    /// Its object. A column that it lacks is missing.
    Object(&'a Map<String, Value>),
}

/// Where a row is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a Path,
    /// The line, or the row of a Parquet file, from 1.
    pub line: u64,
    /// Why the row cannot be read, of a sheet that skips such: its cells are empty.
    pub fault: Option<&'a str>,
    is_row: bool,
}

impl Place<'_> {
    /// The line alone: `line 3`, or `row 3`.
    pub fn line_in_words(&self) -> String {
        format!("{} {}", if self.is_row { "row" } else { "line" }, self.line)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "`{}`, {}", self.path.display(), self.line_in_words())
    }
}

/// Some of the rows of a sheet.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    file: usize,
    number: usize,
}

/// Rows with named columns, of one file or of several.
pub struct Sheet {
    files: Vec<Part>,
    /// The names of the columns, as the first file has them.
    names: Vec<String>,
    /// Where each of them is: a table may have 100,000.
    places: HashMap<String, usize>,
    kinds: Option<Vec<Kind>>,
    skips: bool,
}

/// A file of a sheet.
struct Part {
    path: PathBuf,
    rows: Rows,
    /// Where the columns of the sheet are among its own, if it has another order.
    order: Option<Vec<Option<usize>>>,
}

impl Part {
    fn names(&self) -> &[String] {
        match &self.rows {
            Rows::Written(rows) => rows.names(),
            Rows::Columns(rows) => rows.names(),
        }
    }
}

enum Rows {
    Written(Written),
    Columns(Columns),
}

/// What a file is, by its name: a text that does not end as JSON Lines do is written `otherwise`. A file whose name does not say it is Parquet if
/// it begins as that does.
pub fn kind_of(path: &Path, otherwise: Form) -> FileKind {
    let begins = || {
        let mut begin = [0; 4];
        let file = crate::files::open(path).ok();
        file.is_some_and(|mut opened| opened.file.read_exact(&mut begin).is_ok()) && begin == *columns::MAGIC
    };
    match inner_ending(path).as_str() {
        ending if OBJECT_ENDINGS.contains(&ending) => FileKind::Written(Form::Objects),
        ending if COLUMN_ENDINGS.contains(&ending) => FileKind::Columns,
        "csv" | "tsv" => FileKind::Written(otherwise),
        _ if begins() => FileKind::Columns,
        _ => FileKind::Written(otherwise),
    }
}

/// Where each name is; where the first of them is, if some are the same.
fn places_of(names: &[String]) -> HashMap<String, usize> {
    names.iter().enumerate().rev().map(|(at, name)| (name.clone(), at)).collect()
}

impl Sheet {
    /// Reads the file at `path`; a text whose name ends in `.gz` or `.zst` is unpacked.
    ///
    /// # Errors
    /// It cannot be read, is something else than its name says, is no UTF-8, has no columns, a quote that is not closed, or a line that is no object, with its line and
    /// column.
    pub fn open(path: &Path, kind: FileKind, limits: Limits) -> Result<Self> {
        begins::expect_named(path, kind)?;
        let rows = match kind {
            FileKind::Columns => Rows::Columns(Columns::open(path)?),
            FileKind::Written(form) => Rows::Written(Written::open(path, form, limits)?),
        };
        Ok(Sheet::single(path, rows))
    }

    /// The same for the bytes of a text that are there; messages call them `path`.
    ///
    /// # Errors
    /// As [`Sheet::open`].
    pub fn of(path: &Path, bytes: Vec<u8>, form: Form, limits: Limits) -> Result<Self> {
        Ok(Sheet::single(path, Rows::Written(Written::of(path, bytes, form, limits)?)))
    }

    /// Reads all files that `path` stands for, each as `kind` says. They have the same columns, in any order; objects may lack some.
    ///
    /// # Errors
    /// As [`Sheet::open`]; there is none; one has other columns than the first, or what a column has is of another type.
    pub fn open_all(path: &Path, kind: impl Fn(&Path) -> FileKind, limits: Limits) -> Result<Self> {
        // A name that is no pattern is opened, and the error of that says why it cannot be.
        let single = crate::files::is_there(path) || !pattern::is_any_there(path);
        let paths = if single { vec![path.to_owned()] } else { pattern::paths(path)? };
        let mut sheets = paths.iter().map(|path| Sheet::open(path, kind(path), limits)).collect::<Result<Vec<_>>>()?;
        let mut whole = sheets.remove(0);
        for sheet in &sheets {
            whole.expect_like(sheet)?;
        }
        let orders = sheets.iter().map(|sheet| whole.names.iter().map(|name| sheet.column(name)).collect());
        let orders: Vec<Vec<Option<usize>>> = orders.collect();
        let own = whole.files[0].names().len();
        whole.files[0].order =
            (own < whole.names.len()).then(|| (0..whole.names.len()).map(|at| (at < own).then_some(at)).collect());
        for (sheet, order) in sheets.into_iter().zip(orders) {
            let same = order.iter().enumerate().all(|(at, other)| Some(at) == *other);
            whole
                .files
                .extend(sheet.files.into_iter().map(|part| Part { order: (!same).then(|| order.clone()), ..part }));
        }
        Ok(whole)
    }

    fn single(path: &Path, rows: Rows) -> Self {
        let (names, kinds) = match &rows {
            Rows::Written(rows) => (rows.names().to_vec(), None),
            Rows::Columns(rows) => (rows.names().to_vec(), Some(rows.kinds().to_vec())),
        };
        let places = places_of(&names);
        Sheet { files: vec![Part { path: path.to_owned(), rows, order: None }], names, places, kinds, skips: false }
    }

    /// The same where a row with another number of cells, or an object with what is no cell, does not end the reading, if it `skips` those: they come as rows of empty
    /// cells whose place has the fault.
    pub fn skipping(self, skips: bool) -> Self {
        Sheet { skips, ..self }
    }

    /// Whether it skips rows that cannot be read.
    pub fn skips(&self) -> bool {
        self.skips
    }

    /// Refuses a file that has other columns. Of objects all keys are columns.
    fn expect_like(&mut self, other: &Sheet) -> Result<()> {
        let (first, next) = (self.files[0].path.display(), other.files[0].path.display());
        let objects = [&*self, other].iter().all(|sheet| !sheet.has_cells() && sheet.kinds.is_none());
        if objects {
            let new = other.names.iter().filter(|name| self.column(name).is_none());
            let new: Vec<String> = new.cloned().collect();
            self.names.extend(new);
            self.places = places_of(&self.names);
            return Ok(());
        }
        ensure!(
            self.kinds.is_some() == other.kinds.is_some(),
            "`{first}` and `{next}` are one table, and only one of them is Parquet"
        );
        for name in &other.names {
            ensure!(self.column(name).is_some(), "`{next}` has a column `{name}`, which `{first}` does not have");
        }
        for name in &self.names {
            ensure!(other.column(name).is_some(), "`{next}` has no column `{name}`, which `{first}` has");
        }
        for (name, own) in self.names.iter().zip(self.kinds.iter_mut().flatten()) {
            let Some(kind) = other.column(name).and_then(|at| other.kinds.as_ref()?.get(at)) else { continue };
            ensure!(
                own.goes_with(kind),
                "`{next}`: the column `{name}` has {}, and that of `{first}` has {}",
                kind.in_words(),
                own.in_words()
            );
            if *own == Kind::Nothing {
                *own = kind.clone();
            }
        }
        Ok(())
    }

    /// Whether it has texts whose cells have a separator between them.
    pub fn has_cells(&self) -> bool {
        self.files.iter().any(|part| matches!(&part.rows, Rows::Written(rows) if !rows.has_objects()))
    }

    /// What stands between the cells of its first file, if that is a text of cells.
    pub fn separator(&self) -> Option<u8> {
        match &self.files[0].rows {
            Rows::Written(rows) => rows.separator(),
            _ => None,
        }
    }

    /// The names of the columns: the cells of the first line, all keys of the objects in the order in which they come, or as the file says.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What the columns have, where the file says that.
    pub fn kinds(&self) -> Option<&[Kind]> {
        self.kinds.as_deref()
    }

    /// The numbers of the columns that have cells.
    pub fn readable(&self) -> Vec<usize> {
        let unread = |at: &usize| matches!(self.kinds.as_ref().map(|kinds| &kinds[*at]), Some(Kind::Unread(_)));
        (0..self.names.len()).filter(|at| !unread(at)).collect()
    }

    /// The number of the column `name`, if there is one.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The file, or the first of them.
    pub fn path(&self) -> &Path {
        &self.files[0].path
    }

    /// The files, in their order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|part| part.path.as_path())
    }

    /// About how many bytes its cells are as numbers: as many as the text, of which a cell is some characters, or eight each.
    pub fn bytes_as_numbers(&self) -> u64 {
        let of = |part: &Part| match &part.rows {
            Rows::Written(rows) => rows.bytes(),
            Rows::Columns(rows) => 8 * (rows.rows() as u64).saturating_mul(part.names().len() as u64),
        };
        self.files.iter().map(of).fold(0, u64::saturating_add)
    }

    /// What stands before the fraction of its numbers: those of JSON and Parquet have a point, whatever cells have.
    pub fn decimal(&self, of_cells: char) -> char {
        if self.has_cells() { of_cells } else { '.' }
    }

    /// Hands the place of each row of text files and the row, as it is, to `take`.
    ///
    /// # Errors
    /// A row has more or fewer cells than there are columns, or `take` fails.
    pub fn each(&self, mut take: impl FnMut(Place, Row) -> Result<()>) -> Result<()> {
        for part in &self.files {
            if let Rows::Written(rows) = &part.rows {
                for piece in 0..rows.pieces() {
                    rows.each(piece, false, |line, row| {
                        take(Place { path: &part.path, line, fault: None, is_row: false }, row)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Hands the text of each object and the object to `take`.
    ///
    /// # Errors
    /// A file cannot be read, or `take` fails.
    fn each_object(&self, mut take: impl FnMut(&str, &Map<String, Value>) -> Result<()>) -> Result<()> {
        for part in &self.files {
            if let Rows::Written(rows) = &part.rows {
                (0..rows.pieces()).try_for_each(|piece| rows.each_object(piece, &mut take))?;
            }
        }
        Ok(())
    }

    /// Hands the place of each row and its cells to `take`; those that an object lacks, or has nothing in, are empty. Cells of columns that are not
    /// `wanted` may be empty, too.
    ///
    /// # Errors
    /// As [`Sheet::each`]; an object has a list or an object in it; a column that is wanted has no cells.
    pub fn each_cells(&self, wanted: &[usize], mut take: impl FnMut(Place, &[&str]) -> Result<()>) -> Result<()> {
        self.pieces().into_iter().try_for_each(|piece| self.each_cells_of(piece, wanted, &mut take))
    }

    /// Hands the place of each row of a piece and the text in one of its columns to `take`: as it is, with the white space
    /// around it; an empty one, if it has none. Numbers and truths are texts, too.
    ///
    /// # Errors
    /// A row has more or fewer cells than there are columns; an object has a list or an object there; `take` fails.
    pub fn each_text_of(
        &self,
        piece: Piece,
        column: usize,
        mut take: impl FnMut(Place, &str) -> Result<()>,
    ) -> Result<()> {
        let part = &self.files[piece.file];
        let Rows::Written(rows) = &part.rows else {
            return self.each_row_of(piece, &[column], true, |place, row| take(place, row[column]));
        };
        let own = part.order.as_ref().map_or(Some(column), |order| order[column]);
        rows.each(piece.number, true, |line, row| {
            let place = Place { path: &part.path, line, fault: None, is_row: false };
            let object = match row {
                Row::Cells(cells) => return take(place, own.map_or("", |at| cells[at])),
                Row::Object(object) => object,
            };
            let what = match object.get(&self.names[column]) {
                None | Some(Value::Null) => return take(place, ""),
                Some(Value::String(text)) => return take(place, text),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => return take(place, &value.to_string()),
                Some(Value::Array(_)) => "a list",
                Some(Value::Object(_)) => "an object",
            };
            bail!("{place}: `{}` is {what}, and no text", self.names[column])
        })
    }

    /// What several threads may read apart from each other, in the order of the rows: about a megabyte of a text, some groups of rows of a Parquet file.
    pub fn pieces(&self) -> Vec<Piece> {
        let of = |rows: &Rows| match rows {
            Rows::Written(rows) => rows.pieces(),
            Rows::Columns(rows) => rows.pieces(),
        };
        let all = self.files.iter().enumerate();
        all.flat_map(|(file, part)| (0..of(&part.rows)).map(move |number| Piece { file, number })).collect()
    }

    /// The most rows that a piece may have.
    pub fn most_rows(&self, piece: Piece) -> usize {
        match &self.files[piece.file].rows {
            Rows::Written(rows) => rows.most_rows(piece.number, self.skips),
            Rows::Columns(rows) => rows.rows_of(piece.number),
        }
    }

    /// As [`Sheet::each_cells`], for the rows of a piece.
    ///
    /// # Errors
    /// As [`Sheet::each_cells`].
    pub fn each_cells_of(
        &self,
        piece: Piece,
        wanted: &[usize],
        take: impl FnMut(Place, &[&str]) -> Result<()>,
    ) -> Result<()> {
        self.each_row_of(piece, wanted, false, take)
    }

    fn each_row_of(
        &self,
        piece: Piece,
        wanted: &[usize],
        as_they_are: bool,
        mut take: impl FnMut(Place, &[&str]) -> Result<()>,
    ) -> Result<()> {
        let part = &self.files[piece.file];
        let is_row = matches!(part.rows, Rows::Columns(_));
        let mut take = |line, fault: Option<&str>, row: &[&str]| {
            let place = Place { path: &part.path, line, fault, is_row };
            let Some(order) = &part.order else { return take(place, row) };
            let ordered: Vec<&str> = order.iter().map(|at| at.map_or("", |at| row[at])).collect();
            take(place, &ordered)
        };
        match &part.rows {
            Rows::Written(rows) => rows.each_cells(piece.number, (self.skips, as_they_are), &mut take),
            Rows::Columns(rows) => {
                let own = |at: &usize| part.order.as_ref().map_or(Some(*at), |order| order[*at]);
                let wanted: Vec<usize> = wanted.iter().filter_map(own).collect();
                rows.each(piece.number, &wanted, as_they_are, |line, row| take(line, None, row))
            }
        }
    }
}
