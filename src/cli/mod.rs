//! The commands: a file for each, over the library.

pub mod allocator;
pub mod args;
mod bench;
mod cache;
mod check;
mod class_table;
mod completions;
mod data;
mod devices;
mod docs;
mod doctor;
mod error_table;
mod eval;
mod explain;
mod export;
mod failure;
mod generate;
mod import;
mod init;
mod launch;
mod lr_find;
mod man;
mod models;
mod own_image;
mod palette;
mod predict;
mod recompute;
mod report;
mod runs;
mod serve;
mod show;
mod signals;
mod suggest;
mod sweep;
mod time;
mod tokenize;
mod train;
mod usage;
mod verify;
pub mod version;

use crate::api::failure::Failure;
use crate::files::output::Output;
use crate::terminal::{self, human_bytes};
use args::{Cli, Command, DataCommand};
use clap::{CommandFactory, FromArgMatches};

use std::ffi::OsString;
use std::process::ExitCode;

/// The program: reads its arguments, the first of which is its own name, and runs the command; the process's exit code.
pub fn main(args: Vec<OsString>) -> ExitCode {
    terminal::set_panic_hook();
    ignore_file_size_signal();
    allocator::give_back();
    match parse(&args) {
        Ok(cli) => run(cli),
        Err(error) => {
            // What it quotes are the arguments; with those made visible it says the same.
            let shown = args.iter().map(|arg| terminal::visible(&arg.to_string_lossy()).into()).collect::<Vec<_>>();
            failure::refuse(parse(&shown).err().unwrap_or(error), args.iter().any(|arg| arg == "--json"))
        }
    }
}

/// A file that would become longer than a limit allows (`ulimit -f`) is an error of the write, which is reported, instead of
/// the end of the process.
fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: a plain call; nothing else asks for this signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    // Colours are put in by the parser and taken out where they are printed, if there are to be none.
    let mut command = usage::negative_numbers(Cli::command())
        .color(clap::ColorChoice::Always)
        .term_width(terminal::width(terminal::Stream::Out));
    let matches = command.try_get_matches_from_mut(words);
    let read = matches.and_then(|mut m| Cli::from_arg_matches_mut(&mut m).map_err(|e| e.format(&mut command)));
    read.map_err(|error| usage::explain(error, words))
}

/// Runs the command; the process's exit code.
pub fn run(cli: Cli) -> ExitCode {
    let json = wants_json(&cli.command);
    let to_output = names_standard_output(&cli.command);
    // A server writes no files, and its handlers call those that were there before them.
    if !matches!(cli.command, Command::Serve(_)) {
        signals::clean_up();
    }
    let result = match cli.command {
        Command::Init(a) => init::run(&a),
        Command::Train(a) => train::run(&a),
        Command::Launch(a) => launch::run(&a),
        Command::Sweep(a) => sweep::run(&a),
        Command::Eval(a) => eval::run(&a),
        Command::Predict(a) => predict::run(&a),
        Command::Explain(a) => explain::run(&a),
        Command::Generate(a) => generate::run(&a),
        Command::Import(a) => import::run(&a),
        Command::Models(a) => models::run(&a),
        Command::Docs(a) => docs::run(&a),
        Command::Serve(a) => serve::run(&a),
        Command::Check(a) => check::run(&a),
        Command::Bench(a) => bench::run(&a),
        Command::LrFind(a) => lr_find::run(&a),
        Command::Runs(a) => runs::run(&a),
        Command::Compare(a) => runs::compare::run(&a),
        Command::Plot(a) => runs::plot::run(&a),
        Command::Report(a) => report::run(&a),
        Command::Devices(a) => devices::run(a),
        Command::Doctor(a) => doctor::run(&a),
        Command::Verify(a) => verify::run(&a),
        Command::Man(a) => man::run(&a),
        Command::Export(a) => export::run(&a),
        Command::Schema(_) => completions::schema(),
        Command::Data(DataCommand::Fetch { source, root, mirrors, output }) => {
            data::fetch(&source, root.as_deref(), &mirrors, output)
        }
        Command::Data(DataCommand::Show(a)) => show::run(&a),
        Command::Data(DataCommand::Tokenize(a)) => tokenize::run(&a),
        Command::Completions { shell } => completions::completions(shell),
    };
    match result {
        Ok(code) => code,
        // A reader that closes the pipe has read enough.
        Err(failure) if to_output && failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

fn wants_json(command: &Command) -> bool {
    match command {
        Command::Init(a) => a.output.json,
        Command::Train(a) => a.output.json,
        Command::Launch(a) => a.command.iter().any(|word| word == "--json"),
        Command::Sweep(a) => a.output.json,
        Command::Eval(a) => a.output.json,
        Command::Predict(a) => a.output.json,
        Command::Explain(a) => a.output.json,
        Command::Generate(a) => a.output.json,
        Command::Import(a) => a.output.json,
        Command::Models(a) => a.output.json,
        Command::Docs(a) => a.output.json,
        Command::Serve(a) => a.output.json,
        Command::Check(a) => a.output.json,
        Command::Bench(a) => a.output.json,
        Command::LrFind(a) => a.output.json,
        Command::Runs(a) => a.output.json,
        Command::Compare(a) => a.output.json,
        Command::Plot(a) => a.output.json,
        Command::Report(a) => a.output.json,
        Command::Devices(a) => a.json,
        Command::Doctor(a) => a.output.json,
        Command::Verify(a) => a.output.json,
        Command::Man(a) => a.output.json,
        Command::Export(a) => a.output.json,
        Command::Data(DataCommand::Fetch { output, .. }) => output.json,
        Command::Data(DataCommand::Show(a)) => a.output.json,
        Command::Data(DataCommand::Tokenize(a)) => a.output.json,
        Command::Schema(a) => a.json,
        Command::Completions { .. } => false,
    }
}

/// Whether a file that the command writes is standard output.
fn names_standard_output(command: &Command) -> bool {
    let file = match command {
        Command::Eval(a) => a.predictions.as_deref(),
        Command::Report(a) => a.out.as_deref(),
        Command::Export(a) => Some(a.out.as_path()),
        Command::Bench(a) => a.trace.as_deref(),
        Command::Data(DataCommand::Show(a)) => a.out.as_deref(),
        _ => None,
    };
    file.is_some_and(|file| Output::at(file).is_ok_and(|out| out.is_standard_output()))
}

/// Prints results on standard output.
///
/// # Errors
/// Standard output cannot be written to (a closed pipe ends the command quietly).
fn print(text: &str) -> Result<(), Failure> {
    printed(terminal::print(text))
}

/// Prints a JSON object on one line.
///
/// # Errors
/// As [`print`].
fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    printed(terminal::print_json(value))
}

/// [`print`], or on standard error where a file that the user named is standard output: what comes through that is the file alone.
fn print_beside(file: Option<&Output>, text: &str) -> Result<(), Failure> {
    match file.is_some_and(Output::is_standard_output) {
        true => {
            terminal::say(text.trim_end());
            Ok(())
        }
        false => print(text),
    }
}

/// Refuses to write what is no text to a terminal.
fn expect_no_terminal(file: &Output, what: &str) -> Result<(), Failure> {
    match file.is_standard_output() && terminal::shows_output() {
        true => Err(Failure::Usage(format!(
            "{what} is no text for a terminal\nhelp: name a file, or lead standard output to one"
        ))),
        false => Ok(()),
    }
}

fn printed(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Other(anyhow::Error::new(e).context("cannot write to standard output")))
        }
        _ => Ok(()),
    }
}
