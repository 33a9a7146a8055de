//! Commands about the program itself, its language, and what it has left: `runner docs`, `runner doctor`, `runner verify`,
//! `runner man`.

use super::OutputArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The folders of runs
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub runs: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner docs`
#[derive(Debug, Args)]
pub struct DocsArgs {
    /// Names: a key (`lr`), a key after what has it (`optimizer.lr`, `conv2d.stride`), a type (`conv2d`), a section (`train`), a warning, some words of a message (`"unknown key"`), an exit code (`3`)
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
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
