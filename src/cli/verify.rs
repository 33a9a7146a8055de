//! `runner verify`.

use super::args::VerifyArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::runs::find::named;
use crate::runs::verify::{Disagreement, Verified, verify};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says whether the files of runs agree; if those of one do not, the exit code is 1.
pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let folders: Vec<PathBuf> =
        args.runs.iter().map(|run| named(run)).collect::<Result<_, _>>().map_err(Failure::Usage)?;
    let (mut all, mut agree) = (Vec::new(), true);
    for folder in &folders {
        let done = verify(folder);
        agree &= done.disagreements.is_empty();
        match args.output.json {
            true => all.push(as_json(folder, &done)),
            false => print(&as_text(folder, &done, folders.len() > 1))?,
        }
    }
    if args.output.json {
        match &mut all[..] {
            [one] => print_json(one)?,
            all => print_json(&json!({ "agrees": agree, "runs": all }))?,
        }
    }
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file of the run, as it is called there; the folder itself by its path.
fn name(folder: &Path, path: &Path) -> String {
    let within = path.strip_prefix(folder).ok().filter(|within| !within.as_os_str().is_empty());
    within.unwrap_or(path).display().to_string()
}

fn as_json(folder: &Path, Verified { files, disagreements, notes }: &Verified) -> Value {
    let files: Vec<Value> =
        files.iter().map(|(path, what)| json!({ "file": name(folder, path), "what": what })).collect();
    let wrong = |one: &Disagreement| json!({ "file": name(folder, &one.file), "what": one.what });
    let wrong: Vec<Value> = disagreements.iter().map(wrong).collect();
    json!({ "run": folder, "agrees": wrong.is_empty(), "files": files, "disagreements": wrong, "notes": notes })
}

/// A run's lines; `several`: those of others stand before or behind them.
fn as_text(folder: &Path, Verified { files, disagreements, notes }: &Verified, several: bool) -> String {
    let mut text = String::new();
    for (path, what) in files {
        text += &format!("{:<24} {what}\n", name(folder, path));
    }
    for Disagreement { file, what } in disagreements {
        text += &format!("wrong: `{}`: {what}\n", name(folder, file));
    }
    for note in notes {
        text += &format!("note: {note}\n");
    }
    let of = if several { format!(" in `{}`", folder.display()) } else { String::new() };
    text += &match disagreements.len() {
        0 => format!("the files of `{}` agree", folder.display()),
        1 => format!("1 disagreement{of}"),
        n => format!("{n} disagreements{of}"),
    };
    text
}
