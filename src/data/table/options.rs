//! Which table is read, and what of it is learnt.

use super::aside::Room;
use super::codec::Encoding;
use super::dates::DateForm;
use super::division::Division;
use super::fitted::TableCodec;
use super::text::Format;
use super::tokens::TokensOptions;
use crate::graph::op::TargetRange;
use std::path::PathBuf;

/// Most texts of a column that have a place of their own, by default.
pub const MOST_CATEGORIES: usize = 64;
/// Bins of a piecewise linear encoding, by default.
pub const BINS: usize = 16;

/// A table, and what of it is learnt.
#[derive(Debug, Clone, PartialEq)]
pub struct TableOptions {
    /// The file.
    pub path: PathBuf,
    /// A table of the same columns to validate on.
    pub val_path: Option<PathBuf>,
    /// How they are written.
    pub format: Format,
    /// What stands before the fraction of a number.
    pub decimal: char,
    /// The columns that are learnt.
    pub target: Vec<String>,
    /// The target is one of some classes, also where all are numbers.
    pub classes: bool,
    /// The names of the classes, in their order, if they are given.
    pub class_names: Option<Vec<String>>,
    /// Numbers that are learnt are standardised for the loss.
    pub standardize_target: bool,
    /// The numbers that the loss is for, if those are not all.
    pub range: Option<TargetRange>,
    /// What else is learnt.
    pub heads: Vec<HeadOptions>,
    /// How many bins the model cuts each number into, if it does.
    pub bins: Option<usize>,
    /// The fields that the model takes, if it names them.
    pub takes: Vec<String>,
    /// How columns are encoded: the first rule that a name fits.
    pub rules: Vec<Rule>,
    /// Columns that the model does not take.
    pub drop: Vec<String>,
    /// The column that names a row.
    pub id: Option<String>,
    /// The column with what a row weighs in the loss.
    pub sample_weight: Option<String>,
    /// Rows that cannot be read are left out; else they are errors.
    pub skip: bool,
    /// How rows are divided.
    pub division: Division,
    /// Which rows make a sample, if those are several.
    pub windows: Option<WindowsOptions>,
    /// Where it lies.
    pub room: Room,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TableCodec>>,
}

/// What a rule says of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// They are encoded in this way.
    Encode(Encoding),
    /// It becomes tokens.
    Tokens(TokensOptions),
    /// The model does not take them.
    Ignore,
    /// Likewise; its dates, which are written in this form, say the order of the rows.
    Order(DateForm),
}

/// What becomes of the columns of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Their name, with `*` and `?`.
    pub pattern: String,
    /// What becomes of them.
    pub choice: Choice,
}

/// Samples of several rows of a series, in the order of `time_column`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowsOptions {
    /// Rows of a sample.
    pub rows: usize,
    /// Rows after them whose targets are learnt; 0: the target of the last row of the window is.
    pub horizon: usize,
    /// Rows from the begin of a window to that of the next one of its series.
    pub stride: usize,
    /// The column whose values are series of their own.
    pub series: Option<String>,
}

/// A column that is learnt beside the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadOptions {
    /// What it is called.
    pub name: String,
    /// The column.
    pub column: String,
    /// What its loss is called.
    pub loss: &'static str,
    /// Whether that is of classes.
    pub classes: bool,
    /// Its numbers are standardised for the loss.
    pub standardize: bool,
    /// The numbers that its loss is for, if those are not all.
    pub range: Option<TargetRange>,
}

impl TableOptions {
    /// All columns that are learnt: the target's, then those of heads.
    pub fn learnt(&self) -> impl Iterator<Item = &String> {
        self.target.iter().chain(self.heads.iter().map(|head| &head.column))
    }

    /// How the dates of a column are written, if a rule that names it says so.
    pub fn date_form(&self, column: &str) -> Option<DateForm> {
        let rule = self.rules.iter().find(|rule| rule.pattern == column)?;
        match &rule.choice {
            Choice::Encode(Encoding::Date { form, .. }) => *form,
            Choice::Order(form) => Some(*form),
            _ => None,
        }
    }
}
