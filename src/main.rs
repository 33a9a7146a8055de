//! The `runner` binary.

use clap::Parser;
use runner::cli::{self, args::Cli};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: cli::allocator::Allocator = cli::allocator::Allocator;

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
