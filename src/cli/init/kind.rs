//! What a source is: photos, a table, a text; and what else there is, where it is none of these.

use crate::api::failure::Failure;
use crate::config::nearest;
use crate::data::image_list::is_list_of_photos;
use crate::data::images_below;
use crate::data::table::{is_table, is_table_name};
use crate::files::durable::folder_of;
use crate::files::kind::{Kind, kind};
use crate::runs::folder::is_run;
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a configuration can be written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A folder of photos.
    Photos,
    /// A table in a file.
    Table,
    /// A text, or a folder of some.
    Text,
}

/// Endings of texts, as the source of texts has them.
const TEXTS: [&str; 3] = ["txt", "md", "text"];
/// Kinds of files that a message names.
const SHOWN: usize = 4;

/// What is at a path. `target`: the column of it that is named, so that a text is taken for a table.
///
/// # Errors
/// Nothing is there, or nothing that a configuration could be written for: what it is instead.
pub fn look(path: &Path, target: Option<&str>) -> Result<Source, Failure> {
    let shown = path.display();
    let Ok(metadata) = fs::metadata(path) else { return Err(Failure::Other(anyhow!(nothing(path)))) };
    if metadata.is_dir() {
        return folder(path);
    }
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let (what, help) = match (kind(path), ending.as_str()) {
        (_, "toml") => {
            ("a configuration already", format!("`runner check {shown}` validates it, `runner train {shown}` trains"))
        }
        (_, "feather" | "arrow") => ("a table in Arrow's own format", "save it as Parquet or CSV".to_owned()),
        (_, "xlsx" | "xls" | "ods") => ("a spreadsheet", "save it as CSV".to_owned()),
        (Some(Kind::Empty), _) => ("empty", "there is nothing to learn from it".to_owned()),
        (Some(Kind::Text), _) if is_list_of_photos(path, target) => return Ok(Source::Photos),
        (Some(Kind::Text | Kind::Other | Kind::Compressed), _) if is_table(path) => return Ok(Source::Table),
        (Some(Kind::Text), _) if target.is_some() && !TEXTS.contains(&ending.as_str()) => return Ok(Source::Table),
        (Some(Kind::Text), "json") => {
            ("one JSON value", "a table of JSON has an object on each line (`.jsonl`)".to_owned())
        }
        (Some(Kind::Text), _) => return Ok(Source::Text),
        (Some(Kind::Image), _) => (
            "an image",
            "photos to learn from are a folder with a folder for each class: `runner init FOLDER`".to_owned(),
        ),
        (Some(Kind::Safetensors), _) => (
            "a file of tensors",
            "its tensors are samples by `source = \"tensors\"`, or the weights of a model by `[model] weights`"
                .to_owned(),
        ),
        (Some(Kind::Zip), _) => ("a zip archive", "unpack it, and name the folder or the table in it".to_owned()),
        (Some(Kind::Compressed), _) => ("packed", "a table may be (`.csv.gz`, `.csv.zst`); unpack all else".to_owned()),
        (Some(Kind::Other), "tar") => (
            "an archive",
            "archives of photos are read by `source = \"webdataset\"`, which wants them as they are".to_owned(),
        ),
        (Some(Kind::Other), _) => {
            ("no text", "a table is CSV, JSON Lines or Parquet, a text is UTF-8; photos are a folder".to_owned())
        }
        (None, _) => return Err(Failure::Usage(format!("`{shown}` cannot be read as a file"))),
    };
    Err(Failure::Usage(format!(
        "`{shown}` is {what}, and a configuration is written for a folder of photos, a table or a text\nhelp: {help}"
    )))
}

/// The message for a path at which nothing is, with what lies beside it under a like name.
fn nothing(path: &Path) -> String {
    let beside: Vec<String> = fs::read_dir(folder_of(path)).map_or_else(
        |_| Vec::new(),
        |entries| entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
    );
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let help = nearest(&name, beside.iter().map(String::as_str));
    let help =
        help.map_or(String::new(), |near| format!("\nhelp: did you mean `{}`?", path.with_file_name(near).display()));
    format!("there is no file and no folder `{}`{help}", path.display())
}

fn folder(path: &Path) -> Result<Source, Failure> {
    let shown = path.display();
    if is_run(path) {
        return Err(Failure::Usage(format!(
            "`{shown}` is the folder of a run\nhelp: its configuration is `{shown}/config.toml`; `runner train --resume {shown}` goes on with it"
        )));
    }
    if path.join("config.json").is_file() && path.join("tokenizer.json").is_file() {
        return Err(Failure::Usage(format!(
            "`{shown}` is a model of Hugging Face's\nhelp: `runner import {shown}` writes a configuration for it"
        )));
    }
    if !images_below(path).map_err(Failure::Other)?.is_empty() {
        return Ok(Source::Photos);
    }
    let mut endings: BTreeMap<String, usize> = BTreeMap::new();
    let mut folders = 0;
    count(path, 0, &mut endings, &mut folders);
    if TEXTS.iter().any(|ending| endings.contains_key(*ending)) {
        return Ok(Source::Text);
    }
    let mut most: Vec<(&String, &usize)> = endings.iter().collect();
    most.sort_by_key(|(ending, number)| (std::cmp::Reverse(**number), (*ending).clone()));
    let of = |(ending, number): &(&String, &usize)| {
        let kind = if ending.is_empty() { "without an ending".to_owned() } else { format!("`.{ending}`") };
        let (before, after) =
            if ending.is_empty() { (String::new(), format!(" {kind}")) } else { (format!("{kind} "), String::new()) };
        format!("{number} {before}file{}{after}", if **number == 1 { "" } else { "s" })
    };
    let mut parts: Vec<String> = most.iter().take(SHOWN).map(of).collect();
    if most.len() > SHOWN {
        parts.push("others".to_owned());
    }
    if folders > 0 {
        parts.push(format!("{folders} folder{}", if folders == 1 { "" } else { "s" }));
    }
    let holds = if parts.is_empty() {
        "is empty".to_owned()
    } else {
        format!("has no images and no texts; it holds {}", joined(&parts))
    };
    let table = fs::read_dir(path).ok().and_then(|entries| {
        let mut tables: Vec<_> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_table_name(path)).collect();
        tables.sort_unstable();
        tables.into_iter().next()
    });
    let help = match (table, endings.contains_key("tar")) {
        (Some(table), _) => format!("a table is named itself: `runner init {} --target COLUMN`", table.display()),
        (None, true) => "archives of photos are read by `source = \"webdataset\"`".to_owned(),
        (None, false) => format!(
            "photos are expected in a folder for each class: `{shown}/CLASS/*.jpg`, or `{shown}/train/CLASS/*.jpg` and `{shown}/val/CLASS/*.jpg`"
        ),
    };
    Err(Failure::Usage(format!("`{shown}` {holds}\nhelp: {help}")))
}

/// Parts of a sentence, with `and` before the last.
fn joined(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        parts => parts.concat(),
    }
}

/// How many files of each ending there are in a folder and some levels below, and how many folders in it.
fn count(path: &Path, depth: usize, endings: &mut BTreeMap<String, usize>, folders: &mut usize) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                *folders += usize::from(depth == 0);
                if depth < 4 {
                    count(&path, depth + 1, endings, folders);
                }
            }
            Ok(_) => {
                let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
                *endings.entry(ending.unwrap_or_default()).or_default() += 1;
            }
            Err(_) => {}
        }
    }
}
