//! The arguments of the commands over runs.

use super::{OutputArgs, Overrides, Suggest, threads};
use crate::runs::choose::Condition;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner runs`
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// The folder that is searched, with all folders in it [default: runs]
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// Only runs of which this is true, as in `--filter optimizer.type=adam` or `--filter 'val_accuracy>0.9'` (repeatable)
    ///
    /// Compared by =, !=, <, <=, > or >= is a key of the configuration (its last word is enough where that is clear), a figure of the
    /// last epoch, `best.` and a figure for its best, or `run`, `state`, `epochs`, `step`, `best`, `best_epoch`, `monitor`, `seconds`,
    /// `size`, `modified`. In a shell < and > stand in quotes.
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse)]
    pub filter: Vec<Condition>,
    /// Sort by a key as in `--filter`: figures from the best on, all else upwards [default: run]
    #[arg(long, value_name = "KEY", value_parser = Suggest::run_keys(), hide_possible_values = true)]
    pub sort: Option<String>,
    /// In the opposite order
    #[arg(long)]
    pub reverse: bool,
    /// Only the run whose monitored figure is best or, with `--sort`, the first
    #[arg(long)]
    pub best: bool,
    /// Send the runs of the list to the MLflow server at this address: settings, figures, and where they stand. Those that were sent
    /// before get what is new
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub mlflow: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The folders of runs
    #[arg(required = true, num_args = 2.., value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    /// The figure that is drawn [default: the monitored one]
    #[arg(long, value_name = "FIGURE")]
    pub metric: Option<String>,
    /// Draw with a logarithmic scale
    #[arg(long)]
    pub log: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner plot`
#[derive(Debug, Args)]
pub struct PlotArgs {
    /// The folders of runs
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    /// The figure: `loss`, `val_loss`, `accuracy`, `lr`, `samples_per_s`, or another that `metrics.jsonl` has
    ///
    /// Without `train_` and `val_` it is both of them; of several runs only that of the validation.
    #[arg(long, value_name = "NAME", default_value = "loss")]
    pub metric: String,
    /// Draw with a logarithmic scale
    #[arg(long)]
    pub log: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folders of runs
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    /// The page to write (.html, or `-` for standard output); it needs no other file, and no network [default: RUN/report.html]
    ///
    /// Of several runs it is `report.html` in the current folder by default.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Leave out what the best checkpoint is evaluated for: figures of classes, confusion matrix, pictures of mistakes
    #[arg(long)]
    pub no_evaluation: bool,
    /// Draw which columns a model of a table depends on, and what it answers by their values, as `explain` finds it
    ///
    /// Asked are the rows that training validates on. Bars show the most important columns, and a curve for each shows the answers by its values.
    #[arg(long)]
    pub explain: bool,
    /// Leave out the times of a training step's operations, which are measured
    #[arg(long)]
    pub no_timing: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}
