//! What the rows of a table are called.

/// Which row of a table a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowName<'a> {
    /// What a column has there that names the rows: the column, and its cell.
    Id(&'a str, &'a str),
    /// The line of the file, from 1.
    Line(u32),
}

/// What the rows of a table are called.
#[derive(Debug)]
pub enum RowNames {
    /// By a column: its name, and its cells.
    Ids(String, Vec<String>),
    /// By their lines.
    Lines(Vec<u32>),
}

impl RowNames {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            RowNames::Ids(_, ids) => ids.len(),
            RowNames::Lines(lines) => lines.len(),
        }
    }

    /// That of a row.
    pub fn at(&self, row: usize) -> RowName<'_> {
        match self {
            RowNames::Ids(column, ids) => RowName::Id(column, &ids[row]),
            RowNames::Lines(lines) => RowName::Line(lines[row]),
        }
    }

    /// Bytes of memory that they take.
    pub fn held_bytes(&self) -> usize {
        match self {
            RowNames::Ids(_, ids) => ids.iter().map(|id| size_of::<String>() + id.len()).sum(),
            RowNames::Lines(lines) => size_of_val(&lines[..]),
        }
    }
}
