//! `runner sweep`.

use super::{OutputArgs, Overrides, Passes, Suggest, threads};
use crate::config::SWEEP_OPTION;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// `runner sweep`
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The configuration (TOML), with a section `[sweep]` or options in its place
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// Try values of a key: `KEY=1,2,3`, or a range `KEY=1e-4..1e-1:log` (repeatable)
    ///
    /// A range is linear without `:log`; between whole numbers lie whole numbers. `:log:4` makes four values of it, its ends among them.
    #[arg(long = "sweep", value_name = "KEY=VALUES", value_hint = ValueHint::Other, value_parser = Suggest::settings(), hide_possible_values = true)]
    pub sweep: Vec<String>,
    /// How the values of trials are chosen [default: random]
    #[arg(long, value_enum)]
    pub method: Option<MethodName>,
    /// How many trials [default: 16; of a grid all combinations]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trials: Option<u32>,
    /// The figure by which trials are compared [default: `checkpoint.monitor`]
    #[arg(long, value_name = "FIGURE")]
    pub monitor: Option<String>,
    /// How many trials are trained at a time, or `auto`: as many as memory and cores allow [default: 1]
    ///
    /// Never more than memory allows. The cores are shared among them. Results do not depend on it.
    #[arg(long, value_name = "N or auto", default_value = "1", hide_default_value = true, value_parser = jobs)]
    pub jobs: Jobs,
    /// The folder of the sweep [default: runs/NAME/sweep]
    ///
    /// NAME is the configuration's file name. A sweep that is there goes on where it was.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Start anew in a folder that already holds a sweep: its trials are removed, unless other files are among theirs
    #[arg(long)]
    pub force: bool,
    /// Run the trials again that have failed
    #[arg(long)]
    pub retry: bool,
    /// Compute threads of the CPU, all trials together [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Print nothing but warnings, errors and the table at the end
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

impl SweepArgs {
    /// The options that stand in the place of `[sweep]`, as a configuration takes them, after those of `--set`.
    pub fn sets(&self) -> Vec<String> {
        let mut sets = self.overrides.sets();
        sets.extend(self.method.map(|method| format!("--method {}", method.name())));
        sets.extend(self.trials.map(|trials| format!("--trials {trials}")));
        sets.extend(self.monitor.iter().map(|monitor| format!("--monitor {monitor}")));
        sets.extend(self.sweep.iter().map(|sweep| format!("{SWEEP_OPTION}{sweep}")));
        sets
    }
}

/// How the values of trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MethodName {
    /// All combinations
    Grid,
    /// Drawn, by the seed and the number of the trial
    Random,
    /// Drawn likewise; after some epochs only the best go on
    Halving,
}

impl MethodName {
    fn name(self) -> &'static str {
        match self {
            MethodName::Grid => "grid",
            MethodName::Random => "random",
            MethodName::Halving => "halving",
        }
    }
}

/// How many trials are trained at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// As many as memory and cores allow.
    Auto,
    /// So many.
    Count(usize),
}

fn jobs(text: &str) -> Result<Jobs, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Jobs::Auto),
        (_, Ok(count)) if count > 0 => Ok(Jobs::Count(count)),
        _ => Err("expected a number from 1 on, or `auto`".into()),
    }
}
