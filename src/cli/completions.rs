//! `runner completions` and `runner schema`.

use super::args::Cli;
use super::failure::Failure;
use crate::config::schema::schema as language_schema;
use clap::CommandFactory;
use std::process::ExitCode;

/// Prints the completion script of a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "runner", &mut text);
    super::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the JSON Schema of the configuration language.
pub(super) fn schema() -> Result<ExitCode, Failure> {
    super::print(&format!("{:#}", language_schema()))?;
    Ok(ExitCode::SUCCESS)
}
