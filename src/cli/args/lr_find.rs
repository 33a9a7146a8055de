//! `runner lr-find`.

use super::{OutputArgs, Overrides, Passes, threads};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner lr-find`
#[derive(Debug, Args)]
pub struct LrFindArgs {
    /// The configuration (TOML)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// The first learning rate
    #[arg(long, value_name = "LR", default_value_t = 1e-7, value_parser = rate)]
    pub from: f64,
    /// The last learning rate, unless the loss grows out of bounds before
    #[arg(long, value_name = "LR", default_value_t = 10.0, value_parser = rate)]
    pub to: f64,
    /// How many learning rates to try, each for one step
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    pub tries: u32,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// A learning rate.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected a number above 0, such as 1e-5".into()),
    }
}
