//! What `runner explain` is given.

use super::{OutputArgs, Overrides, SplitName, threads, whole};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Rows that a model is asked about, by default.
pub const ROWS: usize = 10_000;
/// Times that a column is shuffled.
pub const REPEATS: usize = 5;
/// Values of a column that a curve has.
pub const POINTS: usize = 10;

/// `runner explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A checkpoint (.safetensors), a run's folder (its best checkpoint, else its last), or a configuration (.toml) with `[model] weights`
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    /// Show what the model answers by the values of this column, in the place of the importance of all (repeatable)
    ///
    /// A mean over the rows, of which all get the value: partial dependence. Probabilities of classes, or numbers.
    #[arg(long, value_name = "NAME")]
    pub column: Vec<String>,
    /// Which rows
    #[arg(long, value_enum, default_value_t = SplitName::Val)]
    pub split: SplitName,
    /// At most so many rows, which are drawn
    #[arg(long, value_name = "N", default_value_t = ROWS, value_parser = positive)]
    pub rows: usize,
    /// How often the cells of a column are shuffled
    #[arg(long, value_name = "N", default_value_t = REPEATS, value_parser = positive, conflicts_with = "column")]
    pub repeats: usize,
    /// At most so many values of a column
    #[arg(long, value_name = "N", default_value_t = POINTS, value_parser = points, requires = "column")]
    pub points: usize,
    /// Draws and shuffles are made from this
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// A number from 1 on.
fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "expected a number from 1 on".into())
}

/// A number of points of a curve.
fn points(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 1).ok_or_else(|| "expected a number from 2 on".into())
}
