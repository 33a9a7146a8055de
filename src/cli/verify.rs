//! `runner verify`.

use super::args::VerifyArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::runs::find::named;
use crate::runs::verify::{Disagreement, Verified, verify};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Says whether the files of a run agree; if not, the exit code is 1.
pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let folder = named(&args.run).map_err(Failure::Usage)?;
    let Verified { files, disagreements, notes } = verify(&folder)?;
    let name = |path: &Path| path.strip_prefix(&folder).unwrap_or(path).display().to_string();
    if args.output.json {
        let files: Vec<Value> = files.iter().map(|(path, what)| json!({ "file": name(path), "what": what })).collect();
        let wrong = |one: &Disagreement| json!({ "file": name(&one.file), "what": one.what });
        let wrong: Vec<Value> = disagreements.iter().map(wrong).collect();
        print_json(
            &json!({ "run": folder, "agrees": wrong.is_empty(), "files": files, "disagreements": wrong, "notes": notes }),
        )?;
    } else {
        let mut text = String::new();
        for (path, what) in &files {
            text += &format!("{:<24} {what}\n", name(path));
        }
        for Disagreement { file, what } in &disagreements {
            text += &format!("wrong: `{}`: {what}\n", name(file));
        }
        for note in &notes {
            text += &format!("note: {note}\n");
        }
        text += &match disagreements.len() {
            0 => format!("the files of `{}` agree", folder.display()),
            1 => "1 disagreement".to_owned(),
            n => format!("{n} disagreements"),
        };
        print(&text)?;
    }
    Ok(if disagreements.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
