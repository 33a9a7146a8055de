//! `runner man`: the manual as pages of `man`, and completions, as packages ship them.

use super::args::{Cli, ManArgs};
use super::completions::script;
use crate::api::failure::Failure;
use crate::api::what::{expect_folder, output};
use crate::files::durable;
use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where packages of systems keep what.
const PAGES: &str = "man/man1";
const SCRIPTS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/runner"),
    (Shell::Zsh, "zsh/site-functions/_runner"),
    (Shell::Fish, "fish/vendor_completions.d/runner.fish"),
];

/// Writes the pages and the scripts into a folder, below which they lie as below `/usr/share`.
pub(super) fn run(args: &ManArgs) -> Result<ExitCode, Failure> {
    expect_folder(&args.out)?;
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    // With it built, a command below knows its whole name.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &args.out.join(PAGES), &mut files)?;
    for (shell, place) in SCRIPTS {
        files.push((args.out.join(place), script(shell).into_bytes()));
    }
    for (path, content) in &files {
        let folder = durable::folder_of(path);
        durable::create_folders(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
        output(path)?.put(content).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    if args.output.json {
        super::print_json(&json!({ "files": files.iter().map(|(path, _)| path).collect::<Vec<_>>() }))?;
    } else {
        super::print(&format!("{} files are in `{}`", files.len(), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The argument for a page, which shows nothing but its name of how many are taken.
fn show_several(arg: Arg) -> Arg {
    let several = arg.is_positional() && arg.get_num_args().is_some_and(|number| number.max_values() > 1);
    let Some([name]) = arg.get_value_names().filter(|_| several) else { return arg };
    let name = format!("{name}...");
    arg.value_name(name)
}

/// The page with the values of options where it shows how the command is written.
fn with_values(page: &str, command: &Command) -> String {
    let escaped = |text: &str| text.replace('-', "\\-");
    let mut page = page.to_owned();
    for option in command.get_opts() {
        let Some((long, [value, ..])) = option.get_long().zip(option.get_value_names()) else { continue };
        if !option.get_num_args().is_some_and(|number| number.takes_values()) {
            continue;
        }
        let (name, value) = (format!("\\fB\\-\\-{}\\fR", escaped(long)), format!("\\fI{}\\fR", escaped(value)));
        page = page.replacen(&format!("[{name}]"), &format!("[{name} {value}]"), 1);
        page = page.replacen(&format!("<{name}>"), &format!("{name} {value}"), 1);
    }
    page
}

/// A page for a command and for each below it: `runner.1`, `runner-train.1`, `runner-data-fetch.1`.
fn pages(command: &Command, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    // The whole version would be as wide as the page, at whose foot this stands.
    let page = Man::new(command.clone().mut_args(show_several)).source(concat!("runner ", env!("CARGO_PKG_VERSION")));
    let name = page.get_filename();
    let mut text = Vec::new();
    page.render(&mut text).with_context(|| format!("cannot make the page `{name}`"))?;
    files.push((folder.join(name), with_values(&String::from_utf8_lossy(&text), command).into_bytes()));
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).try_for_each(|inner| pages(inner, folder, files))
}
