//! The `runner` binary.

use runner::cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: cli::allocator::Allocator = cli::allocator::Allocator;

fn main() -> ExitCode {
    cli::main(std::env::args_os().collect())
}
