//! `runner init`.

use super::OutputArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// A folder of photos, a table (CSV and its relatives, JSON Lines; packed, too), a text, or a folder of texts
    #[arg(required_unless_present = "model", value_hint = ValueHint::AnyPath)]
    pub source: Option<PathBuf>,
    /// Of a table, or of a list of photos: the column that is learnt
    #[arg(long, value_name = "COLUMN")]
    pub target: Option<String>,
    /// The target is one of some classes, also where all of its cells are numbers
    #[arg(long, requires = "target")]
    pub classes: bool,
    /// The architecture, one of `runner models` [default: one that fits the source]
    ///
    /// Without SOURCE its samples are made up, to try it with.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Of a table of series, with `--model lstm_forecaster`: the column that says the order of the rows [default: found in the table]
    #[arg(long, value_name = "COLUMN", requires = "target")]
    pub time_column: Option<String>,
    /// Of a table of series: the column that says which series a row is of [default: found in the table]
    #[arg(long, value_name = "COLUMN", requires = "target")]
    pub series_column: Option<String>,
    /// Of a table of series: rows that the model sees at once [default: 28, or fewer for short series]
    #[arg(long, value_name = "ROWS", requires = "target", value_parser = rows::<1>)]
    pub window: Option<usize>,
    /// Of a table of series: rows after a window whose target is learnt [default: a quarter of the window, 1 of classes]
    #[arg(long, value_name = "ROWS", requires = "target", value_parser = rows::<0>)]
    pub horizon: Option<usize>,
    /// Write the configuration to this file [default: the source's name with .toml, in the current folder]
    ///
    /// The paths in it are relative to the file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// So many rows, as `window` and `horizon` of `[data]` may have.
fn rows<const LEAST: usize>(text: &str) -> Result<usize, String> {
    let range = LEAST..=65_536;
    let rows = text.parse().ok().filter(|rows| range.contains(rows));
    rows.ok_or_else(|| format!("expected a number of rows from {LEAST} to 65536"))
}
