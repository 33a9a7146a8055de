//! Tables: rows of a CSV file as vectors of numbers.
//!
//! A table is read in pieces. `survey` looks at what its columns are, `division` says which rows are trained on, and `codec` makes
//! numbers of cells: it is fitted on those rows alone, and travels in the checkpoint ([`TableCodec`]), which is all that is needed to
//! read other tables for the same model. Cells and samples of a large table lie in a file (`aside`), from which the cells of one column are read to fit
//! its codec, and those of some rows to encode them.

mod aside;
mod cell;
mod codec;
mod columns;
mod dates;
mod divide;
mod division;
mod fit_windows;
mod fitted;
mod given;
mod hashed;
mod kinds;
mod leaks;
mod load;
mod look;
mod names;
pub mod normal;
mod numbers;
mod options;
mod quantiles;
mod raw;
mod samples;
mod series;
mod skipped;
mod stored;
mod survey;
mod targets;
mod text;
mod tokens;
mod unseen;
mod weights;
mod windowed;
mod windows;

pub use aside::{Lies, Room};
pub use cell::{MISSING, TRUTHS};
pub use codec::{Cells, Codec, ColumnCodec, Decoded, Encoding, Fill, Scaling, rounded};
pub use columns::matches;
pub use dates::DateForm;
pub use division::{Division, Fold};
pub use fitted::{Head, TableCodec, Target, read_input, read_rows, read_text};
pub use given::{Cell, Given};
pub use hashed::{MOST_BUCKETS, Norm, Words};
pub use kinds::{CellType, Column, Odd};
pub use load::{OfValidation, Shown};
pub use names::{no_column, quoted};
pub use options::{BINS, Choice, HeadOptions, MOST_CATEGORIES, Rule, TableOptions, WindowsOptions};
pub use quantiles::Quantiles;
pub use raw::{Raw, TooManyRows};
pub use survey::odd_columns;
pub use text::{Format, RowsAs, is_parquet, is_table, is_table_name, of_input as input_sheet, open as open_sheet};
pub use tokens::{TokensCodec, TokensOptions};
pub use unseen::Unseen;
pub use windows::{Asked, Windows};

pub use super::sheet::{ColumnValue, ColumnWriter, Copied, Kept, KeptRow, RowForm, Sheet};

use super::dataset::Dataset;
use super::field::DataSpec;
use super::found::Found;
use super::progress::Event;
use super::{Describes, Footprint, Split};
use anyhow::Result;
use load::{Loaded, load};

static FOUND: Found<TableOptions, Loaded> = Found::new();

impl Describes for &TableOptions {
    fn describe(&self) -> Result<DataSpec> {
        FOUND.look(self, || load(self), |loaded| loaded.spec.clone())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Loaded { spec, train, val, test, notes, .. } = FOUND.look(self, || load(self), Loaded::clone)?;
        Ok(Dataset { test, notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        let own = |loaded: &Loaded, bytes: fn(&Split) -> usize| {
            bytes(&loaded.train) + if self.val_path.is_some() { bytes(&loaded.val) } else { 0 }
        };
        let both = |loaded: &Loaded| Footprint {
            held: own(loaded, Split::held_bytes),
            filed: own(loaded, Split::filed_bytes),
            filing: loaded.filing,
            ..Footprint::default()
        };
        FOUND.look(self, || load(self), both).unwrap_or_default()
    }
}

/// The columns of a table, what they are like, and what becomes of them.
///
/// # Errors
/// As for opening it.
pub fn columns(options: &TableOptions) -> Result<Vec<Shown>> {
    FOUND.look(options, || load(options), |loaded| loaded.columns.clone())
}

/// What the user should know of a table.
///
/// # Errors
/// As for opening it.
pub fn notes(options: &TableOptions) -> Result<Vec<String>> {
    FOUND.look(options, || load(options), |loaded| loaded.notes.clone())
}

#[cfg(test)]
mod tests;
