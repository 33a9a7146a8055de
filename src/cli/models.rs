//! `runner models`.

use super::args::ModelsArgs;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::api::pretrained;
use crate::config::language::pretrained::{Pretrained, Unknown};
use crate::config::load::models::{MODELS, built_in};
use crate::config::nearest;
use crate::files;
use crate::terminal::columns;
use serde_json::{Value, json};
use std::path::PathBuf;
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
    if let Some(name) = &args.fetch {
        return fetch(name, args);
    }
    if args.weights {
        return weights(args);
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

/// Fetches weights, and prints where they are.
fn fetch(name: &str, args: &ModelsArgs) -> Result<ExitCode, Failure> {
    let named = Pretrained::parse(name).unwrap_or_else(|| {
        let what = format!("`{name}` names no weights");
        Err(Unknown { what, help: "names are `torchvision/MODEL` and `hf:OWNER/MODEL`".into() })
    });
    let named = named.map_err(|Unknown { what, help }| Failure::Usage(format!("{what}\nhelp: {help}")))?;
    let path = pretrained::fetch(&named)?;
    match args.output.json {
        true => print_json(&json!({ "name": name, "path": path }))?,
        false => print(&path.display().to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the weights that have names: how large they are, their licence, what they have learnt from, and whether they are there.
fn weights(args: &ModelsArgs) -> Result<ExitCode, Failure> {
    let there = |named: &Pretrained| named.path().filter(|path| files::is_there(path));
    if args.output.json {
        let list: Vec<_> = Pretrained::all().map(|named| described(&named, there(&named))).collect();
        print_json(&json!({ "weights": list }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let any = "hf:OWNER/MODEL[@REVISION][/FILE]";
    let rows = Pretrained::all().filter_map(|named| {
        let known = named.known?;
        let size = named.size().map_or_else(String::new, |size| size.to_string());
        let path = there(&named).map_or_else(String::new, |path| path.display().to_string());
        Some([named.name, size, known.licence.spdx().to_owned(), known.learnt_from.to_owned(), path])
    });
    let head = ["name", "size", "licence", "learnt from", "here"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
    let wide = |at: usize| rows.iter().map(|row| columns(&row[at])).max().unwrap_or(0);
    let (name, licence, learnt) = (wide(0).max(columns(any)), wide(2), wide(3));
    let mut lines: Vec<String> = rows
        .iter()
        .map(|[row, size, spdx, from, path]| {
            format!("{row:name$}  {size:>8}  {spdx:licence$}  {from:learnt$}  {path}").trim_end().to_owned()
        })
        .collect();
    lines.push(format!(
        "{any:name$}  any model of Hugging Face's hub, or another of its files; its page has its licence"
    ));
    lines.push("torchvision's weights may have terms of the data that they were trained on, too".to_owned());
    print(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Weights of a name, for programs.
fn described(named: &Pretrained, path: Option<PathBuf>) -> Value {
    json!({
        "name": named.name,
        "origin": named.origin.title(),
        "url": format!("{}/{}", named.address(), named.file),
        "bytes_about": named.size().map(|size| size.about),
        "sha256": named.sha256(),
        "licence": named.known.map(|known| known.licence.spdx()),
        "learnt_from": named.known.map(|known| known.learnt_from),
        "path": path,
    })
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

/// What the architecture of that name is, in a few words: nothing if there is none.
pub(super) fn heading(name: &str) -> &'static str {
    built_in(name).map_or("", |(_, text)| title(text))
}

/// What a model's file says of itself first, without the paper and what comes after.
fn title(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    line.split(" (").next().unwrap_or(line).trim_end_matches('.')
}
