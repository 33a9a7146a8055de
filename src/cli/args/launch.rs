//! `runner launch`.

use clap::Args;
use std::ffi::OsString;

/// `runner launch`
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// How many ranks, a divisor of `distributed.shards`
    ///
    /// They are threads of one process, unless --processes is given. The result is that of one rank, to the bit. Where the device is a GPU, each has one
    /// of its own. Otherwise the cores are divided among them, unless --threads of `train` says how many each has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub ranks: u16,
    /// Each rank is a process, with memory and data of its own; they speak by TCP
    #[arg(long)]
    pub processes: bool,
    /// What to run: `train`, with all its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
