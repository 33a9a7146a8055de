//! The `runner` binary.

use runner::cli::{self, args::Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(Cli::of_process())
}
