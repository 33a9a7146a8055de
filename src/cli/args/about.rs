//! Commands about the program itself, and about what it has left: `runner doctor`, `runner verify`, `runner man`.

use super::OutputArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The folder of a run
    #[arg(value_hint = ValueHint::DirPath)]
    pub run: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Do not time a training step: say what there is, and compute nothing
    #[arg(long)]
    pub no_timing: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder: pages go into `man/man1` in it, scripts where packages have them below `/usr/share`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}
