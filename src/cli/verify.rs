//! `runner verify`.

use super::args::VerifyArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::api::members::{Members, difference};
use crate::runs::find::named;
use crate::runs::folder::is_run;
use crate::runs::verify::{Disagreement, Verified, verify};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says whether the files of runs agree; if those of one do not, the exit code is 1.
pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let mut runs = Vec::new();
    for path in &args.runs {
        runs.extend(runs_of(path)?);
    }
    let (mut all, mut agree) = (Vec::new(), true);
    for Run { folder, missing } in &runs {
        let done = missing.clone().unwrap_or_else(|| verify(folder));
        agree &= done.disagreements.is_empty();
        match args.output.json {
            true => all.push(as_json(folder, &done)),
            false => print(&as_text(folder, &done, runs.len() > 1))?,
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

/// A run that is looked at.
struct Run {
    folder: PathBuf,
    /// What there is to say of one that is not there, or of a folder of several.
    missing: Option<Verified>,
}

/// The run that a path names, or all trainings of a folder of folds or seeds.
fn runs_of(path: &Path) -> Result<Vec<Run>, Failure> {
    let Some(members) = Members::of(path)? else {
        return Ok(vec![Run { folder: named(path).map_err(Failure::Usage)?, missing: None }]);
    };
    let folders = members.folders(path);
    // Of several that do not go together the first that is not as the others is named.
    let alike = difference(members, &folders).map(|what| Run {
        folder: path.to_owned(),
        missing: Some(Verified {
            disagreements: vec![Disagreement {
                file: path.to_owned(),
                what: format!("its {}s are not of one training: {what}", members.one()),
            }],
            ..Verified::default()
        }),
    });
    let begun = folders.iter().rposition(|folder| is_run(folder)).map_or(0, |last| last + 1);
    let run = |(at, folder): (usize, PathBuf)| {
        let missing = (!is_run(&folder)).then(|| missing(path, &folder, at >= begun));
        Run { folder, missing }
    };
    Ok(folders.into_iter().enumerate().map(run).chain(alike).collect())
}

/// The outcome for a training of the folder `of` that is not there. They are trained in their order: those after the last one may be still to come.
fn missing(of: &Path, folder: &Path, may_come: bool) -> Verified {
    let mut said = Verified::default();
    if may_come {
        said.notes.push(format!(
            "`{}` has not begun: `runner train --resume {}` goes on with it",
            folder.display(),
            of.display()
        ));
    } else {
        let what = "is not there, and a later one is".to_owned();
        said.disagreements.push(Disagreement { file: folder.to_owned(), what });
    }
    said
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

/// A run's lines; `several`: those of others stand before or after them.
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
        0 if files.is_empty() => format!("there is nothing in `{}` yet", folder.display()),
        0 => format!("the files of `{}` agree", folder.display()),
        1 => format!("1 disagreement{of}"),
        n => format!("{n} disagreements{of}"),
    };
    text
}
