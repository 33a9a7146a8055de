//! Files given in each other's place: what the file is that was given, and which command takes it.

use super::failure::Failure;
use crate::checkpoint;
use crate::config::text::spelling::list;
use crate::files::kind::{Kind, kind};
use crate::runs::datum::natural;
use crate::runs::find::suggestion;
use crate::runs::folder::is_run;
use crate::train::files::folder::file;
use anyhow::anyhow;
use std::fs;
use std::path::Path;

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

/// Refuses a file that is no checkpoint, where one is asked for. A file of unknown kind is left to its reader.
///
/// # Errors
/// Nothing is there; a folder, a configuration, weights of PyTorch, an image, an archive.
pub fn expect_checkpoint(path: &Path) -> Result<(), Failure> {
    expect_file(path)?;
    let shown = path.display();
    if path.is_dir() {
        let best = [file::BEST, file::LAST].into_iter().map(|name| path.join(name)).find(|p| p.is_file());
        return Err(refuse(match best {
            Some(best) => format!("`{shown}` is a folder\nhelp: give a checkpoint of the run: `{}`", best.display()),
            None => format!(
                "`{shown}` is a folder\nhelp: give a checkpoint of a run, such as `{}`",
                path.join(file::BEST).display()
            ),
        }));
    }
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

/// Refuses to write a file into a folder that is not there, before what it would say is found out.
///
/// # Errors
/// There is no such folder.
pub fn expect_folder_of(out: &Path) -> Result<(), Failure> {
    match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(Failure::Usage(format!(
            "cannot write `{}`: there is no folder `{1}`\nhelp: `mkdir -p {1}` makes it",
            out.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a path at which nothing is, with what there is in its stead.
///
/// # Errors
/// Nothing is there, or the system does not tell.
pub fn expect_file(path: &Path) -> Result<(), Failure> {
    let Err(error) = fs::metadata(path) else { return Ok(()) };
    let help = match path.parent() {
        Some(folder) if is_run(folder) => {
            let there = checkpoints(folder);
            match &there[..] {
                [] => format!("\nhelp: the run `{}` has saved no checkpoint yet", folder.display()),
                there => format!(
                    "\nhelp: the run `{}` has {}",
                    folder.display(),
                    list(there.iter().map(String::as_str), "and")
                ),
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

fn refuse(text: String) -> Failure {
    Failure::Usage(text)
}
