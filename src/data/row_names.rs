//! What the rows of a table are called.

use super::sheet::Place;
use std::fmt;

/// Which row of a table a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowName<'a> {
    /// What a column has there that names the rows: the column, and its cell.
    Id(&'a str, &'a str),
    /// The file, if there are several, and the line in it, from 1; of a file without lines the row.
    Line(Option<&'a str>, u32),
}

impl fmt::Display for RowName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            RowName::Id(column, id) => write!(f, "the row whose `{column}` is `{id}`"),
            RowName::Line(None, line) => write!(f, "row at line {line}"),
            RowName::Line(Some(file), line) => write!(f, "`{file}`, row at line {line}"),
        }
    }
}

/// What the rows of a table are called.
#[derive(Debug)]
pub enum RowNames {
    /// By a column: its name, and its cells.
    Ids(String, Texts),
    /// By their lines.
    Lines(Lines),
}

/// Texts, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    all: String,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Texts {
    /// Takes the next one.
    pub fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.ends.push(self.all.len());
    }

    /// Takes those after its own.
    pub fn join(&mut self, next: &Texts) {
        let before = self.all.len();
        self.all.push_str(&next.all);
        self.ends.extend(next.ends.iter().map(|end| before + end));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// That with a number.
    pub fn at(&self, number: usize) -> &str {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[begin..self.ends[number]]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.at(number))
    }
}

/// The lines of rows.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// That of each row in its file.
    pub lines: Vec<u32>,
    /// Where the rows of each file begin, and what it is called. Empty: there is one file alone.
    pub files: Vec<(u32, String)>,
}

impl Lines {
    /// Takes the place of the next row, before which there are `rows`; with its file, if there are `several`.
    pub(super) fn add(&mut self, place: Place, rows: usize, several: bool) {
        if several && self.files.last().is_none_or(|(_, known)| *known != place.path.to_string_lossy()) {
            self.files.push((rows as u32, place.path.to_string_lossy().into_owned()));
        }
        self.lines.push(u32::try_from(place.line).unwrap_or(u32::MAX));
    }

    /// Takes the places of the next rows, before which there are `rows`.
    pub(super) fn join(&mut self, next: Lines, rows: usize) {
        for (begin, file) in next.files {
            if self.files.last().is_none_or(|(_, known)| *known != file) {
                self.files.push((rows as u32 + begin, file));
            }
        }
        self.lines.extend(next.lines);
    }

    /// Where a row is.
    pub fn at(&self, row: usize) -> RowName<'_> {
        let before = self.files.partition_point(|(begin, _)| *begin as usize <= row);
        let file = before.checked_sub(1).map(|file| self.files[file].1.as_str());
        RowName::Line(file, self.lines[row])
    }

    fn held_bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + self.files.iter().map(|(_, name)| name.len()).sum::<usize>()
    }
}

impl RowNames {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            RowNames::Ids(_, ids) => ids.len(),
            RowNames::Lines(lines) => lines.lines.len(),
        }
    }

    /// That of a row.
    pub fn at(&self, row: usize) -> RowName<'_> {
        match self {
            RowNames::Ids(column, ids) => RowName::Id(column, ids.at(row)),
            RowNames::Lines(lines) => lines.at(row),
        }
    }

    /// Bytes of memory that they take.
    pub fn held_bytes(&self) -> usize {
        match self {
            RowNames::Ids(_, ids) => ids.all.len() + size_of_val(&ids.ends[..]),
            RowNames::Lines(lines) => lines.held_bytes(),
        }
    }
}
