//! Warnings about what is easily overlooked: in the folders of the data, in its names, and in what goes with photos and with frozen
//! layers.

use crate::config::language::sections::{Data, Transform};
use crate::config::{Diagnostic, Experiment, Lint, value_as_toml};
use crate::data::DataSpec;
use crate::terminal::is_hidden;
use std::collections::BTreeMap;
use unicode_normalization::UnicodeNormalization;

/// How many names a warning shows.
const SHOWN: usize = 8;

/// The warnings about the data.
pub fn of_data(experiment: &Experiment, data: &DataSpec) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    found.extend(empty_classes(experiment, data));
    found.extend(alike_classes(experiment, data));
    found.extend(target_leak(experiment, data));
    found.extend(photos_without_normalize(experiment));
    found
}

/// A warning with its place in `[data]`.
fn at(experiment: &Experiment, warning: Diagnostic, key: &str, label: &str) -> Diagnostic {
    match experiment.nearest_span(key) {
        Some(span) => warning.at(span, label),
        None => warning,
    }
}

fn empty_classes(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let names = quoted(&data.empty_folders);
    let message = match data.empty_folders.len() {
        0 => return None,
        1 => format!("the folder {names} holds no photos, and is no class"),
        _ => format!("the folders {names} hold no photos, and are no classes"),
    };
    let warning = Diagnostic::warning(Lint::EmptyClass, message)
        .help("put the photos there, remove the folder, or name the classes with `classes`");
    Some(at(experiment, warning, "data.root", "the folders are here"))
}

/// Names in backquotes, the first few of them. A name shows what it hides.
fn quoted(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(SHOWN);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// What a name looks like: spaces at its ends, and what cannot be seen, do not count, and a letter with a mark is the same as one
/// character or as two (normal form C of Unicode).
fn look(name: &str) -> String {
    let seen: String = name.nfc().filter(|c| !is_hidden(*c)).collect();
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name with all that is not plain in it written out.
fn written_out(name: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    let shown: String =
        name.chars().map(|c| if plain(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect();
    format!("\"{shown}\"")
}

fn alike_classes(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let mut looks: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for name in data.class_names().into_iter().flatten() {
        looks.entry(look(name)).or_default().push(name);
    }
    let alike: Vec<String> = looks
        .values()
        .filter(|names| names.len() > 1)
        .map(|names| names.iter().map(|name| written_out(name)).collect::<Vec<_>>().join(" and "))
        .collect();
    let first = alike.first()?;
    let more = if alike.len() > 1 { format!(", and {} more such pairs", alike.len() - 1) } else { String::new() };
    let message = format!("classes have names that look the same: {first}{more}");
    let warning = Diagnostic::warning(Lint::AlikeClasses, message)
        .note("they differ in spaces, in characters that cannot be seen, or in whether a letter and its mark are one character (NFC) or two (NFD)")
        .help("if they are one class, give them one name");
    let key = if experiment.span_of("data.classes").is_some() { "data.classes" } else { "data.source" };
    Some(at(experiment, warning, key, "the classes"))
}

fn target_leak(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let names = quoted(&data.leaks);
    let message = match data.leaks.len() {
        0 => return None,
        1 => format!("{names} says the target exactly: is it known when a prediction is asked for?"),
        _ => format!("{names} say the target exactly: are they known when a prediction is asked for?"),
    };
    let (columns, them) = if data.leaks.len() == 1 { ("the column", "it") } else { ("the columns", "them") };
    let drop = value_as_toml(&serde_json::json!(data.leaks));
    let warning = Diagnostic::warning(Lint::TargetLeak, message)
        .help(format!("if not, leave {columns} out with `drop = {drop}`: figures are too good with {them}"));
    Some(at(experiment, warning, "data.target", "the target"))
}

fn photos_without_normalize(experiment: &Experiment) -> Option<Diagnostic> {
    let Data { source, transforms, train_transforms, val_transforms, .. } = &experiment.data;
    let normalizes = |list: &[Transform]| list.iter().any(|t| matches!(t, Transform::Normalize(_)));
    if !source.has_photos() || [transforms, train_transforms, val_transforms].iter().any(|list| normalizes(list)) {
        return None;
    }
    let message = "photos without `normalize`: their pixels go into the model as they are, from 0 to 1";
    let warning = Diagnostic::warning(Lint::PhotosWithoutNormalize, message).help(
        "add `{ type = \"normalize\", mean = \"imagenet\", std = \"imagenet\" }` to the end of `transforms`; `runner data show \
         --write-normalize` measures both of the photos themselves",
    );
    Some(at(experiment, warning, "data.transforms", "no `normalize` here"))
}

/// Layers that stay at random numbers.
pub fn frozen_without_weights(experiment: &Experiment) -> Option<Diagnostic> {
    let first = experiment.model.freeze.first()?;
    if experiment.model.weights.is_some() {
        return None;
    }
    let message = "`freeze` keeps layers as they are, and without `weights` they are random numbers";
    let help = "name the weights that they shall have with `weights` in `[model]`, or leave `freeze` out";
    Some(Diagnostic::warning(Lint::FrozenWithoutWeights, message).at(first.span, "never trained").help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_look_the_same_in_many_ways() {
        for (a, b) in [("caf\u{e9}", "cafe\u{301}"), ("A ", "A"), ("a\u{200b}b", "ab"), ("a\u{a0}b", "a b")] {
            assert_eq!(look(a), look(b));
        }
        for (a, b) in [("a", "A"), ("e", "\u{e9}"), ("a b", "ab")] {
            assert_ne!(look(a), look(b));
        }
        assert_eq!(written_out("cafe\u{301} "), "\"cafe\\u{301} \"");
    }
}
