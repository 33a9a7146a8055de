//! Texts that stand in a column of a table, a document in each row, read piece by piece.

use super::super::sheet::{Kind, Piece, Place, Sheet};
use super::super::table::{Format, no_column, open_sheet, quoted};
use super::super::tokenizer::Tokenizer;
use super::text_files::are_tables_alone;
use anyhow::Result;
use std::fmt;
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

/// There is no such column, or it has no texts.
#[derive(Debug)]
pub struct WrongColumn(String);

impl fmt::Display for WrongColumn {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongColumn {}

/// A document.
pub struct Document {
    /// Its file and row, for messages.
    pub place: String,
    /// What it says.
    pub text: String,
}

impl Documents {
    /// Those of the tables that a path stands for, if it names a column or the names of all files are those of tables that make no sense as texts.
    ///
    /// # Errors
    /// As [`Documents::open`].
    pub fn of(path: &Path, name: Option<&str>, key: &str) -> Result<Option<Self>> {
        let is_table = name.is_some() || are_tables_alone(path);
        is_table.then(|| Documents::open(path, name, key)).transpose()
    }

    /// The texts in the column `name` of the tables that `path` stands for; if it names none, in the only one that has texts. All rows are looked at. `key`: what names the column.
    ///
    /// # Errors
    /// A file cannot be read, is no table, or lacks the column; what it has there is no text.
    pub fn open(path: &Path, name: Option<&str>, key: &str) -> Result<Self> {
        let wrong = |why: &str| WrongColumn(format!("`{}`: {why}", path.display()));
        if path.is_dir() {
            let why = format!("it is a folder, and `{key}` is of tables: name a table, or several by a pattern");
            return Err(wrong(&why).into());
        }
        let sheet = open_sheet(path, Format::default())?;
        let column = column_of(&sheet, name, key).map_err(|why| wrong(&why))?;
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

    /// The column.
    pub fn column(&self) -> &str {
        &self.table.sheet.names()[self.table.column]
    }

    /// How many of its rows have a text.
    pub fn count(&self) -> u64 {
        self.rows.end - self.rows.start - self.empty
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

    /// All of its texts, one after the other, and where each ends.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn whole(&self) -> Result<(String, Vec<usize>)> {
        let (mut all, mut ends) = (String::with_capacity(usize::try_from(self.bytes)?), Vec::new());
        for number in 0..self.table.pieces.len() {
            self.of_piece(number, &mut |_, text| {
                all.push_str(text);
                ends.extend((!text.is_empty()).then_some(all.len()));
                Ok(())
            })?;
        }
        Ok((all, ends))
    }

    /// Refuses a text that cannot become tokens, with its place.
    ///
    /// # Errors
    /// One has a character that has no token; a file cannot be read.
    pub fn expect_tokens(&self, tokenizer: &Tokenizer) -> Result<()> {
        for some in self.some() {
            for Document { place, text } in some? {
                tokenizer.encode(&text, &place)?;
            }
        }
        Ok(())
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

/// The column `name` of a table; if none is named, the only one that has texts. The error says what is wrong with it, and what to do. `key`: what names the column.
fn column_of(sheet: &Sheet, name: Option<&str>, key: &str) -> Result<usize, String> {
    let names = sheet.names();
    let kind = |column: usize| sheet.kinds().map(|kinds| &kinds[column]);
    if let Some(name) = name {
        let column = sheet.column(name).ok_or_else(|| no_column(name, key, names.iter().map(String::as_str)))?;
        return match kind(column) {
            Some(Kind::Unread(what)) => Err(format!("the column `{name}` has {what}, and no texts")),
            _ => Ok(column),
        };
    }
    let first = sheet.pieces().first().copied();
    let has_texts = |column: &usize| match (kind(*column), first) {
        (Some(kind), _) => *kind == Kind::Text,
        (None, None) => false,
        (None, Some(piece)) => {
            let mut found = false;
            let read = sheet.each_text_of(piece, *column, |_, text| {
                found |= is_words(text);
                Ok(())
            });
            // A column with a list or an object has no texts.
            read.is_ok() && found
        }
    };
    let found: Vec<usize> = (0..names.len()).filter(has_texts).collect();
    let listed = |columns: &[usize]| {
        let names: Vec<String> = columns.iter().take(MOST_NAMED).map(|column| names[*column].clone()).collect();
        let more = columns.len().saturating_sub(MOST_NAMED);
        quoted(&names) + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    match found[..] {
        [column] => Ok(column),
        [] => {
            let all: Vec<usize> = (0..names.len()).collect();
            Err(format!("it has no column of texts: `{key}` names another one, of {}", listed(&all)))
        }
        _ => Err(format!("it has several columns of texts, {}: `{key}` says which is read", listed(&found))),
    }
}

/// Columns that a message names.
const MOST_NAMED: usize = 20;

/// Whether a cell is neither empty nor a number or a truth.
fn is_words(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.parse::<f64>().is_err() && !["true", "false"].contains(&text)
}
