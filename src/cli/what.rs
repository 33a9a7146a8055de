//! Files given in each other's place: what the file is that was given, and which command takes it.

use super::failure::Failure;
use crate::checkpoint;
use crate::files::kind::{Kind, kind};
use crate::train::files::folder::file;
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

/// Refuses a file that is no checkpoint, where one is asked for. A file that is missing, or of unknown kind, is left to its reader.
///
/// # Errors
/// A folder, a configuration, weights of PyTorch, an image, an archive.
pub fn expect_checkpoint(path: &Path) -> Result<(), Failure> {
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

fn refuse(text: String) -> Failure {
    Failure::Usage(text)
}
