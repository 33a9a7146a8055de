//! `runner check`.

use super::{OutputArgs, Overrides, Passes, Suggest, graph_help};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration (TOML)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// Print the effective configuration, with the origin of every value
    #[arg(long)]
    pub print: bool,
    /// Measure some steps, an evaluation and a checkpoint, and tell the time that the run will take, and the largest batch that there is
    /// memory for
    ///
    /// It needs the data, and some seconds. The trained state is thrown away, and so is the checkpoint, which is written where runs are.
    #[arg(long, conflicts_with_all = ["print", "graph"])]
    pub time: bool,
    /// Print the graph of the training step on the device instead, as it is after this pass
    #[arg(long, value_name = "PASS", long_help = graph_help(), value_parser = Suggest::stages(), hide_possible_values = true)]
    pub graph: Option<String>,
    /// Tell the memory of each of so many ranks, a divisor of `distributed.shards`
    ///
    /// Each has the optimizer's state of its share of the parameters.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "time")]
    pub ranks: Option<u16>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}
