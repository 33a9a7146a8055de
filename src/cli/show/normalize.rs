//! Writes a measured mean and standard deviation into a configuration.

use crate::api::failure::Failure;
use crate::api::what::output;
use crate::config::text::diagnostics::SourceKind;
use crate::config::{Loaded, Span};
use crate::files;
use anyhow::{Context, anyhow};
use std::path::Path;
use toml_edit::{Array, DocumentMut, InlineTable, Item, TableLike, Value};

/// Largest configuration, in bytes.
const MOST: u64 = 16 << 20;

/// Puts both into `normalize` in `[data] transforms` of the file at `path`, or adds that. All else of the file stays as it is. What was
/// changed, in words.
///
/// # Errors
/// The transforms are not written in this file, or the file cannot be read or written.
pub fn write(path: &Path, loaded: &Loaded, mean: &[f64], std: &[f64]) -> Result<String, Failure> {
    if let Some(span) = loaded.experiment.span_of("data.transforms") {
        written_here(loaded, span, path)?;
    }
    if let Some(channel) = std.iter().position(|std| rounded(*std) == 0.0) {
        let why =
            format!("channel {channel} has one value everywhere, and cannot be divided by a standard deviation of 0");
        return Err(Failure::Other(anyhow!("{why}: nothing is changed")));
    }
    let name = path.display();
    let bytes = files::read(path, MOST).map_err(anyhow::Error::from)?;
    let text = String::from_utf8(bytes).with_context(|| format!("cannot read `{name}`"))?;
    let (text, what) = edited(&text, mean, std).with_context(|| format!("cannot change `{name}`"))?;
    output(path)?.put(text.as_bytes()).with_context(|| format!("cannot write `{name}`"))?;
    Ok(format!("{what} in `{name}`"))
}

/// Refuses what is written elsewhere: in a file that this one extends, or on the command line.
fn written_here(loaded: &Loaded, span: Span, path: &Path) -> Result<(), Failure> {
    let first = loaded.sources.iter().find(|(_, source)| source.kind == SourceKind::File).map(|(id, _)| id);
    if first == Some(span.source) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "`transforms` of `[data]` are not written in `{}`, but at {}: nothing is changed\nhelp: name the file that has them",
        path.display(),
        loaded.sources.place(span)
    )))
}

/// With so many digits as are usual.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The text with the mean and the standard deviation, and what was done. Lines that do not change stay as they are to the byte, with their
/// ends; others end as the first line does.
fn edited(text: &str, mean: &[f64], std: &[f64]) -> anyhow::Result<(String, &'static str)> {
    const MARK: &str = "\u{feff}";
    // What writes the document knows one kind of line's end, and no mark before the first line.
    let plain = text.strip_prefix(MARK).unwrap_or(text).replace("\r\n", "\n");
    let mut document: DocumentMut = plain.parse()?;
    let data = document.entry("data").or_insert_with(toml_edit::table);
    let done = change(data.as_table_like_mut().context("`data` is no table")?, mean, std)?;
    let mut changed = document.to_string();
    if !plain.ends_with('\n') && changed.ends_with('\n') {
        changed.pop();
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (text.split_inclusive('\n').collect(), changed.split_inclusive('\n').collect());
    let same = |(old, new): &(&&str, &&str)| bare(old) == bare(new);
    let before = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - before;
    let behind = old.iter().rev().zip(new.iter().rev()).take(most).take_while(same).count();
    let end = if old.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
    let between = new[before..new.len() - behind].iter().map(|line| line.replace('\n', end));
    let mut all: String = old[..before].iter().map(|line| (*line).to_owned()).chain(between).collect();
    if text.starts_with(MARK) && before == 0 {
        all.insert_str(0, MARK);
    }
    all.extend(old[old.len() - behind..].iter().copied());
    Ok((all, done))
}

/// A line without a byte-order mark and without its end.
fn bare(line: &str) -> (&str, bool) {
    let text = line.strip_prefix('\u{feff}').unwrap_or(line);
    let ended = text.strip_suffix("\r\n").or(text.strip_suffix('\n'));
    (ended.unwrap_or(text), ended.is_some())
}

/// Changes the table `[data]`; what was done.
fn change(data: &mut dyn TableLike, mean: &[f64], std: &[f64]) -> anyhow::Result<&'static str> {
    const CHANGED: &str = "changed `mean` and `std` of `normalize`";
    const ADDED: &str = "added `normalize` to `transforms`";
    let list = |values: &[f64]| Value::from(values.iter().map(|value| rounded(*value)).collect::<Array>());
    let mut normalize = InlineTable::new();
    normalize.insert("type", "normalize".into());
    normalize.insert("mean", list(mean));
    normalize.insert("std", list(std));
    let Some(transforms) = data.get_mut("transforms") else {
        let all: Array = [normalize].into_iter().collect();
        data.insert("transforms", Item::Value(all.into()));
        return Ok("wrote `transforms` with `normalize`");
    };
    let is_normalize = |table: &dyn TableLike| table.get("type").and_then(Item::as_str) == Some("normalize");
    if let Some(tables) = transforms.as_array_of_tables_mut() {
        let Some(table) = tables.iter_mut().find(|table| is_normalize(*table)) else {
            tables.push(normalize.into_table());
            return Ok(ADDED);
        };
        table["mean"] = Item::Value(list(mean));
        table["std"] = Item::Value(list(std));
        return Ok(CHANGED);
    }
    let all = transforms.as_array_mut().context("`transforms` of `[data]` is no list")?;
    for table in all.iter_mut().filter_map(Value::as_inline_table_mut) {
        if !is_normalize(table) {
            continue;
        }
        for (key, values) in [("mean", mean), ("std", std)] {
            let Some(old) = table.get_mut(key) else { continue };
            // With the spaces that were there.
            let decor = old.decor().clone();
            *old = list(values);
            *old.decor_mut() = decor;
        }
        return Ok(CHANGED);
    }
    // On a line of its own, if the others have that.
    let prefix = all.iter().last().and_then(|last| last.decor().prefix()?.as_str()).unwrap_or_default().to_owned();
    if let Some((_, indent)) = prefix.rsplit_once('\n') {
        // A comment after the last one stays there.
        let behind = all.trailing().as_str().unwrap_or_default().to_owned();
        let (before, end) = behind.rsplit_once('\n').unwrap_or((&behind, ""));
        all.push_formatted(Value::from(normalize).decorated(format!("{before}\n{indent}"), ""));
        all.set_trailing(format!("\n{end}"));
    } else {
        all.push(normalize);
    }
    Ok(ADDED)
}

#[cfg(test)]
mod tests {
    use super::edited;

    fn with(text: &str) -> String {
        edited(text, &[0.47523, 0.45206], &[0.26349, 0.25]).unwrap().0
    }

    #[test]
    fn ends_of_lines_and_the_mark_before_them_stay() {
        let plain = "# mine\n[data]\nsource = \"digits\"\n\n[model]\nlayers = []\n";
        let windows = plain.replace('\n', "\r\n");
        let mixed = plain.replacen('\n', "\r\n", 1);
        let without_end = plain.trim_end().to_owned();
        for text in [
            plain.to_owned(),
            windows.clone(),
            mixed,
            without_end,
            format!("\u{feff}{windows}"),
            format!("\u{feff}{plain}"),
        ] {
            let changed = with(&text);
            let is_new = |line: &&str| line.starts_with("transforms");
            let lines: Vec<&str> = changed.split_inclusive('\n').collect();
            let old: String = lines.iter().copied().filter(|line| !is_new(line)).collect();
            assert_eq!(old, text);
            let new: Vec<&str> = lines.into_iter().filter(is_new).collect();
            let end = if text.lines().count() > 0
                && text.split_inclusive('\n').next().unwrap_or_default().ends_with("\r\n")
            {
                "\r\n"
            } else {
                "]\n"
            };
            assert!(new.len() == 1 && new[0].ends_with(end), "{changed:?}");
        }
        // A first line that changes keeps the mark.
        assert!(with("\u{feff}data = { source = \"digits\" }\n").starts_with('\u{feff}'));
    }

    #[test]
    fn all_else_stays_as_it_is() {
        let before = "# photos\n[data]   # here\nsource = \"image_folder\"\ntransforms = [\n  # first\n  { type = \"resize\", size = 8 },\n  { mean=[0.5],  type = \"normalize\", std = \"imagenet\" }, # last\n]\n[model]\n";
        let after = before.replace("mean=[0.5]", "mean=[0.4752, 0.4521]").replace("\"imagenet\"", "[0.2635, 0.25]");
        assert_eq!(with(before), after);
        let added = "{ type = \"normalize\", mean = [0.4752, 0.4521], std = [0.2635, 0.25] }";
        assert_eq!(
            with("[data]\nx = 1 # one\n\n[model]\n"),
            format!("[data]\nx = 1 # one\ntransforms = [{added}]\n\n[model]\n")
        );
        assert_eq!(
            with("[data]\ntransforms = [\"grayscale\"]\n"),
            format!("[data]\ntransforms = [\"grayscale\", {added}]\n")
        );
        assert_eq!(
            with("[data]\ntransforms = [\n  \"grayscale\", # grey\n]\n"),
            format!("[data]\ntransforms = [\n  \"grayscale\", # grey\n  {added},\n]\n")
        );
        assert!(with("extends = \"a.toml\"\n").contains(&format!("[data]\ntransforms = [{added}]")));
    }
}
