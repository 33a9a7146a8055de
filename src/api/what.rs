//! Files given in each other's place: what the file is that was given, and which command takes it.

use super::failure::Failure;
use super::members::Members;
use crate::checkpoint;
use crate::config::text::foreign;
use crate::config::text::spelling::list;
use crate::files;
use crate::files::durable::folder_of;
use crate::files::kind::{Kind, kind};
use crate::files::output::{Output, Refusal, Why};
use crate::runs::datum::natural;
use crate::runs::find::suggestion;
use crate::runs::folder::is_run;
use crate::train::files::folder::{file, is_run_file};
use anyhow::anyhow;
use std::fs;
use std::io::Read;
use std::path::{Display, Path, PathBuf};

/// Bytes of a text that are looked at to know its encoding.
const MOST_READ: u64 = 1 << 16;

/// Refuses a file that is no configuration. A file that is missing, or of unknown kind, is left to its reader.
///
/// # Errors
/// A folder, a checkpoint, weights, an image, an archive.
pub fn expect_configuration(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_dir() {
        let config = path.join(file::CONFIG);
        return Err(refuse(match config.is_file() {
            true => format!(
                "`{shown}` is the folder of a run, not a configuration\nhelp: its configuration is `{}`; `runner train --resume {shown}` goes on \
                 with the run",
                config.display()
            ),
            false => format!("`{shown}` is a folder, not a configuration\nhelp: name a `.toml` file"),
        }));
    }
    let (what, help) = match kind(path) {
        Some(Kind::Safetensors) if checkpoint::is_checkpoint(path) => (
            "a checkpoint",
            format!(
                "go on from it by `runner train --resume {shown}`, evaluate it by `runner eval {shown}`, or start anew from it with a \
                 configuration that names it as `[model] weights`"
            ),
        ),
        Some(Kind::Safetensors) => (
            "a file of tensors",
            "weights are named as `[model] weights`, data as `path` in `[data]` of a configuration".into(),
        ),
        Some(Kind::Zip) => {
            ("a zip archive", "weights of PyTorch are named as `[model] weights` in a configuration".into())
        }
        Some(Kind::Image) => ("an image", format!("`runner predict MODEL {shown}` classifies it")),
        Some(Kind::Compressed) => ("a compressed file", "a configuration is a `.toml` file".into()),
        // Its reader says which.
        Some(Kind::Other) if is_foreign_text(path) => return Ok(()),
        Some(Kind::Other) => ("no text", "a configuration is a `.toml` file".into()),
        Some(Kind::Text | Kind::Empty) | None => return Ok(()),
    };
    let is = if what == "no text" {
        "is no text, and so no configuration".into()
    } else {
        format!("is {what}, not a configuration")
    };
    Err(refuse(format!("`{shown}` {is}\nhelp: {help}")))
}

/// Whether a file is a text in another encoding than UTF-8.
fn is_foreign_text(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = files::open(path).map(|opened| opened.file.take(MOST_READ).read_to_end(&mut bytes));
    read.is_ok_and(|read| read.is_ok()) && foreign::encoding(&bytes).is_some()
}

/// Refuses a file that is no checkpoint, where one is asked for. A file of unknown kind is left to its reader.
///
/// # Errors
/// Nothing is there; a configuration, weights of PyTorch, an image, an archive.
pub fn expect_checkpoint(path: &Path) -> Result<(), Failure> {
    expect_file(path)?;
    let shown = path.display();
    let (what, help) = match kind(path) {
        // A file that is called a checkpoint and is none is damaged: its reader reports that.
        Some(Kind::Text) if path.extension().is_none_or(|e| e != "safetensors") => ("a text", "a checkpoint is a `.safetensors` file in a run's folder; the name of a configuration ends in `.toml`".to_owned()),
        Some(Kind::Zip) => (
            "a zip archive",
            "weights of PyTorch are named as `[model] weights` in a configuration, which `runner eval`, `runner predict` and `runner export` take".into(),
        ),
        Some(Kind::Image) => ("an image", "the model comes first: `runner predict MODEL FILES…`".into()),
        Some(Kind::Compressed) => ("a compressed file", "a checkpoint is a `.safetensors` file in a run's folder".into()),
        Some(Kind::Safetensors | Kind::Text | Kind::Empty | Kind::Other) | None => return Ok(()),
    };
    Err(refuse(format!("`{shown}` is {what}, not a checkpoint\nhelp: {help}")))
}

/// The output of that name, before what it would hold is found out.
///
/// # Errors
/// Nothing can be written there, or nothing may.
pub fn output(path: &Path) -> Result<Output, Failure> {
    Output::at(path).map_err(refused)
}

/// Refuses to write something to standard output together with JSON; `option` is what names the output on the command line.
///
/// # Errors
/// Both would be written there.
pub fn expect_apart(output: &Output, option: &str, json: bool) -> Result<(), Failure> {
    match json && output.is_standard_output() {
        true => Err(refuse(format!(
            "`--json` and `{}` both write to standard output\nhelp: leave out one of them",
            format!("{option} {}", output.path().display()).trim_start()
        ))),
        false => Ok(()),
    }
}

/// Refuses an output that is one of the files that the command reads.
///
/// # Errors
/// It is one of them.
pub fn expect_no_input<'a>(output: &Output, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    output.is_none_of(inputs).map_err(refused)
}

/// Refuses an output that is one of the files which make up a run.
///
/// # Errors
/// It is one of them.
pub fn expect_no_run_file(output: &Output) -> Result<(), Failure> {
    let path = output.path();
    // Links lead to what would be written.
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = folder_of(&file);
    let of_run = file.file_name().and_then(|name| name.to_str()).is_some_and(is_run_file) && is_run(folder);
    if of_run {
        let folder = if path.is_symlink() { folder } else { folder_of(path) };
        let (path, folder) = (path.display(), folder.display());
        return Err(refuse(format!(
            "cannot write `{path}`: that is a file of the run in `{folder}`\nhelp: give another name to write to"
        )));
    }
    Ok(())
}

fn refused(refusal: Refusal) -> Failure {
    let help = match &refusal.why {
        // What the system says has nothing to be added to.
        Why::Io(_) => return Failure::Other(refusal.into()),
        Why::NoFolder(folder) => format!("`mkdir -p {}` makes it", folder.display()),
        Why::ReadOnly => {
            format!("give another name to write to, or `chmod u+w {}` if it may be replaced", refusal.path.display())
        }
        Why::NotAFile(_) | Why::Input(_) => "give another name to write to".into(),
    };
    Failure::Usage(format!("{refusal}\nhelp: {help}"))
}

/// The checkpoint that a path stands for: of a run's folder its best one, else its last; any other path is itself.
///
/// # Errors
/// A folder that has none.
pub fn checkpoint_of(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let shown = path.display();
    let found = [file::BEST, file::LAST].into_iter().map(|name| path.join(name)).find(|p| p.is_file());
    found.ok_or_else(|| {
        refuse(match is_run(path) {
            true => format!("the run `{shown}` has saved no checkpoint yet"),
            false => match Members::of(path) {
                Ok(Some(members)) => {
                    let one = members.one();
                    format!("`{shown}` has a run for each {one}\nhelp: give that of one of them, such as `{shown}/{one}-1`")
                }
                _ => format!(
                    "`{shown}` is a folder, and of no run\nhelp: give a checkpoint or the folder of a run, which has a `{}`",
                    file::LAST
                ),
            },
        })
    })
}

/// A folder as messages name it: the current one has an empty path where a file in it is named.
fn named(folder: &Path) -> Display<'_> {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display()
}

/// Refuses a path at which nothing is, with what there is in its stead.
///
/// # Errors
/// Nothing is there, or the system does not say whether there is something.
pub fn expect_file(path: &Path) -> Result<(), Failure> {
    let Err(error) = fs::metadata(path) else { return Ok(()) };
    let help = match path.parent() {
        Some(folder) if is_run(folder) => {
            let there = checkpoints(folder);
            match &there[..] {
                [] => format!("\nhelp: the run `{}` has saved no checkpoint yet", named(folder)),
                there => {
                    format!("\nhelp: the run `{}` has {}", named(folder), list(there.iter().map(String::as_str), "and"))
                }
            }
        }
        // The path of a checkpoint in a folder that is none, or of a folder that is none.
        Some(folder) if path.extension().is_some() && !folder.is_dir() => suggestion(folder),
        _ => suggestion(path),
    };
    Err(Failure::Other(anyhow!("{}: {error}{help}", path.display())))
}

/// The names of the checkpoints in a run's folder, in their order.
fn checkpoints(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".safetensors") && !name.starts_with('.')).collect();
    names.sort_by(|a, b| natural(a, b));
    names
}

/// Refuses the name of a folder to write to that is, or lies below, something else.
///
/// # Errors
/// It is.
pub fn expect_folder(path: &Path) -> Result<(), Failure> {
    // Of a folder that cannot be looked at, the error comes where it is written to.
    let found = path.ancestors().find_map(|path| Some((path, std::fs::metadata(path).ok()?)));
    match found.filter(|(_, found)| !found.is_dir()) {
        Some((file, _)) => Err(refuse(format!("`{}` is no folder\nhelp: choose another with --out", file.display()))),
        None => Ok(()),
    }
}

fn refuse(text: String) -> Failure {
    Failure::Usage(text)
}

/// Refuses to replace a file, unless that is asked for.
///
/// # Errors
/// It is there.
pub fn expect_new(output: &Output, force: bool) -> Result<(), Failure> {
    let path = output.path();
    if path.is_file() && !output.is_stream() && !force {
        return Err(Failure::Usage(format!(
            "`{}` is there already\nhelp: `--force` replaces it, `--out FILE` writes to another file",
            path.display()
        )));
    }
    Ok(())
}
