//! What a column of a table is.

use super::super::sheet::INDEX;
use std::fmt;

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// All missing.
    Nothing,
    /// Numbers.
    Numbers,
    /// Whole numbers, some of them with zeros before them, as `00062`: they name something.
    Codes,
    /// Truths, in words.
    Truths,
    /// Dates.
    Dates,
    /// Texts.
    Texts,
}

impl CellType {
    /// As a message and `data show` call it.
    pub fn name(self) -> &'static str {
        match self {
            CellType::Nothing => "empty",
            CellType::Numbers => "number",
            CellType::Codes => "code",
            CellType::Truths => "boolean",
            CellType::Dates => "date",
            CellType::Texts => "text",
        }
    }
}

/// A column, looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What its cells are: as the file says, if it does.
    pub cells: CellType,
    /// What they could be taken for, if it is asked for: texts may all be dates or numbers.
    pub readable_as: CellType,
    /// What it has in place of cells, in a file of which such columns are not read.
    pub unread: Option<&'static str>,
    /// Rows in which it has nothing.
    pub missing: usize,
    /// Different values.
    pub distinct: usize,
    /// There are more than that: of numbers with a fraction 1,000 are counted, and 100,000 of others.
    pub more: bool,
    /// All numbers are whole.
    pub whole: bool,
    /// The least and the greatest number, or date in days since 1970.
    pub range: Option<[f64; 2]>,
    /// The first different values.
    pub examples: Vec<String>,
    /// Of a column of texts nearly all of which are meant as something else: why they are not that.
    pub odd: Option<Odd>,
}

/// Why a column that has numbers, dates or truths nearly everywhere is one of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Odd {
    /// Some cells are not what the others are.
    Others {
        /// What nearly all cells are: numbers, dates or truths.
        meant: CellType,
        /// Where the first other cell is: `line 3`, and the file, if there are several.
        line: String,
        /// What it has.
        cell: String,
        /// How many cells of the column are others.
        count: usize,
        /// How many cells it has, those that are missing left out.
        of: usize,
    },
    /// There is a comma before the fraction of numbers, and they are read with a point: the first of them.
    Comma(At),
    /// There are commas between the thousands of numbers: the first of them.
    Thousands(At),
    /// Numbers have a unit or a currency: the first of them, and what stands before and after each.
    Unit(At, [String; 2]),
    /// All are times of day, which no type reads: the first of them.
    Time(At),
    /// The dates are not written as 2026-11-28: the first of them, and their format.
    DateFormat(At, String),
}

/// A cell, and where it is: `line 3`, and the file, if there are several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// What it has.
    pub cell: String,
    /// Its place.
    pub line: String,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.cell, self.line)
    }
}

impl Odd {
    /// For a message.
    pub fn in_words(&self) -> String {
        match self {
            Odd::Others { meant, line, cell, count, of } => {
                let (cells, are) = if *count == 1 { ("cell", "is") } else { ("cells", "are") };
                let what = match meant {
                    CellType::Truths => "neither true nor false",
                    CellType::Dates => "no date of the form 2026-11-28",
                    _ => "no number",
                };
                format!("{count} {cells} of {of} that {are} {what}, the first of them `{cell}` in {line}")
            }
            Odd::Comma(first) => format!(
                "numbers with a comma before the fraction, as {first}, which `decimal = \"comma\"` in `[data]` reads"
            ),
            Odd::Thousands(first) => {
                format!(
                    "numbers with commas between the thousands, as {first}, which are not read: write them without commas"
                )
            }
            Odd::Unit(first, [before, behind]) => {
                let unit = match (before.trim(), behind.trim()) {
                    (before, "") => format!("`{before}` before them"),
                    ("", behind) => format!("`{behind}` after them"),
                    (before, behind) => format!("`{before}` before and `{behind}` after them"),
                };
                format!("numbers with {unit}, as {first}, which are not read: write the numbers alone")
            }
            Odd::Time(first) => {
                format!("times of day, as {first}, which are not read: write the hours as numbers, such as 12.5")
            }
            Odd::DateFormat(first, format) => {
                format!("dates as {first}, which `{{ type = \"date\", format = \"{format}\" }}` in `columns` reads")
            }
        }
    }
}

impl Column {
    /// Makes a column of numbers, or of dates, of one that has these nearly everywhere: its other rows are left out. A column of truths stays
    /// as it is: its other words may be answers, too, as `unknown` is.
    pub fn as_meant(&mut self) {
        if let Some(Odd::Others { meant: meant @ (CellType::Numbers | CellType::Dates), .. }) = self.odd {
            (self.cells, self.readable_as, self.odd) = (meant, meant, None);
        }
    }

    /// Why the column is of no use to a model, if it is not.
    pub fn useless(&self, rows: usize) -> Option<&'static str> {
        match self.cells {
            CellType::Nothing => Some("it is empty"),
            _ if self.name == INDEX => Some("it has no name, as an index that pandas writes"),
            _ if self.distinct == 1 && self.missing == 0 => Some("it has the same value in every row"),
            // A name or a number of the row itself.
            CellType::Texts | CellType::Codes
                if self.odd.is_none() && rows > 20 && self.distinct + self.missing == rows && !self.more =>
            {
                Some(match self.examples.iter().any(|text| text.contains(' ')) {
                    true => {
                        "its text is another one in every row: with `type = \"text\"` in `columns` the model takes its words"
                    }
                    false => "its text is another one in every row, as an identifier is",
                })
            }
            _ => None,
        }
    }
}
