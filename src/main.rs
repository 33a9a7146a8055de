//! The `runner` binary.

use clap::Parser;
use runner::cli::{self, args::Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
