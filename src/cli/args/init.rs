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
    /// Of a table: the column that is learnt
    #[arg(long, value_name = "COLUMN")]
    pub target: Option<String>,
    /// Of a table: the target is one of some classes, also where all of its cells are numbers
    #[arg(long, requires = "target")]
    pub classes: bool,
    /// The architecture, one of `runner models` [default: one that fits the source]
    ///
    /// Without SOURCE its samples are made up, to try it with.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
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
