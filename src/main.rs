//! The `runner` binary.

use runner::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os().collect())
}
