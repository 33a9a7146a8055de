//! `runner models`.

use super::args::ModelsArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::config::load::models::{MODELS, built_in};
use crate::config::nearest;
use crate::terminal::columns;
use serde_json::json;
use std::process::ExitCode;

/// Lists the models that are a part of the program, or prints the file of one.
pub(super) fn run(args: &ModelsArgs) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.show {
        let (name, text) = named(name)?;
        match args.output.json {
            true => print_json(&json!({ "name": name, "text": text }))?,
            false => print(text)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let all: Vec<(&str, &str)> = MODELS.iter().map(|(name, text)| (*name, title(text))).collect();
    if args.output.json {
        let list: Vec<_> = all.iter().map(|(name, title)| json!({ "name": name, "title": title })).collect();
        print_json(&json!({ "models": list }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let wide = all.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    let lines: Vec<String> = all.iter().map(|(name, title)| format!("{name:wide$}  {title}")).collect();
    print(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The architecture of a name, and the text of its file.
///
/// # Errors
/// There is none, with that which was probably meant.
pub(super) fn named(name: &str) -> Result<(&'static str, &'static str), Failure> {
    built_in(name).ok_or_else(|| {
        let near = nearest(name, MODELS.iter().map(|(name, _)| *name));
        let help =
            near.map_or_else(|| "`runner models` lists all".to_owned(), |near| format!("did you mean `{near}`?"));
        Failure::Usage(format!("there is no model `{name}` in the program\nhelp: {help}"))
    })
}

/// What a model's file says of itself first, without the paper and what comes behind.
fn title(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    line.split(" (").next().unwrap_or(line).trim_end_matches('.')
}
