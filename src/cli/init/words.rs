//! A configuration for a table of texts, each of a class.

use super::architecture::{Takes, expect};
use super::numbers::CLASSES;
use super::parameters::{Parameters, Values};
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::cli::models::heading;
use crate::data::table::{CellType, Format, Shown, is_parquet, open_sheet};
use crate::terminal::thousands;
use std::collections::HashSet;

/// The model that is written where none is asked for.
const MODEL: &str = "text_classifier";
/// Words of a cell, in the mean, from which on it is a text of its own and no category.
const WORDS: usize = 4;
/// The same where most cells differ.
const FEW_WORDS: usize = 2;
/// Rows that are looked at.
pub const LOOKED_AT: u64 = 200;
/// Classes that the comment names.
const LISTED: usize = 10;
/// Tokens of a text at most.
const LENGTH: usize = 256;

/// Whether cells are texts of their own, and no categories: they have some words, or at least two and differ in most rows.
pub fn is_text<'a>(cells: impl Iterator<Item = &'a str>) -> bool {
    let (mut count, mut words, mut different) = (0, 0, HashSet::new());
    for cell in cells {
        count += 1;
        words += cell.split_whitespace().count();
        different.insert(cell);
    }
    let most_differ = 2 * different.len() > count && count > 1;
    count > 0 && words >= count * if most_differ { FEW_WORDS } else { WORDS }
}

/// The first cells of each column of a table. `None`: it cannot be read.
pub fn first_cells(wanted: &Wanted) -> Option<Vec<(String, Vec<String>)>> {
    let sheet = open_sheet(wanted.source, Format::default()).ok()?;
    let mut columns: Vec<(String, Vec<String>)> = sheet.names().iter().map(|name| (name.clone(), Vec::new())).collect();
    let mut rows = 0;
    sheet
        .each_cells(&sheet.readable(), |_, row| {
            rows += 1;
            if rows <= LOOKED_AT {
                columns.iter_mut().zip(row).for_each(|((_, column), cell)| column.push((*cell).to_owned()));
            }
            Ok(())
        })
        .ok()?;
    Some(columns)
}

/// The column of texts, if the model could learn from that alone: the target is one of some classes, and no other column is of use.
pub fn alone(wanted: &Wanted, columns: &[Shown]) -> Option<String> {
    let is_target = |shown: &&Shown| shown.becomes.starts_with("the target");
    let target = &columns.iter().find(is_target)?.column;
    if target.cells == CellType::Numbers && target.distinct > CLASSES {
        return None;
    }
    let cells = first_cells(wanted)?;
    let texts = |shown: &&Shown| {
        let own = cells.iter().find(|(name, _)| *name == shown.column.name);
        shown.column.cells == CellType::Texts && own.is_some_and(|(_, cells)| is_text(cells.iter().map(String::as_str)))
    };
    let (own, others): (Vec<&Shown>, Vec<&Shown>) = columns.iter().filter(|shown| !is_target(shown)).partition(texts);
    let of_use = others.iter().any(|shown| shown.width > 0 && !shown.column.name.to_ascii_lowercase().ends_with("id"));
    match own[..] {
        [text] if !of_use => Some(text.column.name.clone()),
        _ => None,
    }
}

/// The configuration for a table of which nothing is left but texts that differ in every row; `None`: it is no such table.
pub fn of_table(wanted: &Wanted, target: &str) -> Option<Result<Made, Failure>> {
    let columns = first_cells(wanted)?;
    let (_, learnt) = columns.iter().find(|(name, _)| name == target)?;
    let mut texts = columns.iter().filter(|(name, cells)| name != target && is_text(cells.iter().map(String::as_str)));
    let (text, _) = texts.next()?;
    if texts.next().is_some() {
        return None;
    }
    let learnt: HashSet<&str> = learnt.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
    let numbers = learnt.len() > CLASSES && learnt.iter().all(|cell| cell.parse::<f64>().is_ok());
    if numbers && !wanted.classes && wanted.model.is_none() {
        return Some(Err(Failure::Usage(format!(
            "`{}` has more than {CLASSES} different numbers, which are no classes\nhelp: with `{} = \"tokens\"` in `columns` of `[data]` a model learns numbers from a text, as \
             docs/config/tables.md#tokens-beside-numbers has it; `--model gru_seq2seq` writes them as texts; with `--classes` each number is a class all the same",
            named(target),
            named(text)
        ))));
    }
    Some(configuration(wanted, target, text))
}

/// A configuration that learns which class a text is of.
pub fn configuration(wanted: &Wanted, target: &str, text: &str) -> Result<Made, Failure> {
    expect(wanted.model, |takes| takes == Takes::Texts, "texts with a class each")?;
    let model = wanted.model.unwrap_or(MODEL);
    let write = |path: &str, comments: Option<&Comments>| {
        let mut out = Writing::default();
        if let Some(Comments { train, val, classes }) = comments {
            let file = &wanted.file;
            let some: Vec<String> = classes.iter().take(LISTED).map(|name| named(name)).collect();
            let more =
                if classes.len() > LISTED { format!(" and {} more", classes.len() - LISTED) } else { String::new() };
            let source = wanted.source.file_name().map(|name| named(&name.to_string_lossy())).unwrap_or_default();
            out.comment(&format!(
                "It finds the `{}` of a text, `{}`, in {source}: written by `runner init`.",
                named(target),
                named(text)
            ));
            out.comment(&format!(
                "Found: {} texts to train on, {} to validate on, of {} classes: {}{more}.",
                thousands(*train as u64),
                thousands(*val as u64),
                classes.len(),
                some.join(", ")
            ));
            out.comment(
                "What to change: how text becomes tokens (`tokenizer`), the learning rate, the width of the model.",
            );
            let ending = if is_parquet(wanted.source) { "parquet" } else { "csv" };
            out.comment(&format!(
                "`runner predict runs/{} NEW.{ending}` answers for other texts, once it is trained.",
                run_name(file)
            ));
            out.gap();
        }
        out.key("seed", "1", "");
        out.section("data");
        out.key("source", "\"text_classes\"", "");
        out.key("path", &quoted(path), "from the folder of this file");
        out.key("text", &quoted(text), "the column of the texts").key(
            "target",
            &quoted(target),
            "that of their classes",
        );
        out.key("tokenizer", "\"words\"", "or \"bpe\": parts of words, for languages that compound them");
        out.key("max_length", &LENGTH.to_string(), "words; longer texts are cut to this").key("batch_size", "32", "");
        out.key("validation_split", "0.2", "texts that are held out, to see how good it is on others");
        out.section("model");
        let what = if model == MODEL { "the mean of its words' vectors, and a layer" } else { heading(model) };
        out.key("use", &quoted(model), &format!("{what}; `runner models --show {model}`"));
        let parameters = Parameters::of(model);
        parameters.write(&mut out, sizes(&parameters), "");
        out.section("loss").key("type", "\"cross_entropy\"", "");
        out.section("optimizer").key("type", "\"adamw\"", "").key(
            "lr",
            if parameters.has_attention() { "1e-3" } else { "3e-3" },
            "the first thing to change: `runner lr-find` looks for one",
        );
        out.section("train").key("epochs", "10", "");
        out.early_stopping(3, 10);
        out.text()
    };
    let spec = described(&draft(&write(wanted.source.to_str().unwrap_or_default(), None))?)?;
    let comments = Comments {
        train: spec.train.unwrap_or(0),
        val: spec.val.unwrap_or(0),
        classes: spec.class_names().map(<[String]>::to_vec).unwrap_or_default(),
    };
    let what = format!("it finds which of {} classes a text of `{}` is", comments.classes.len(), named(text));
    Ok(Made { text: write(&wanted.written, Some(&comments)), what })
}

/// The sizes of a small model. `vocabulary` and `num_classes` are what the data says.
fn sizes(parameters: &Parameters) -> Values {
    match parameters.has_attention() {
        true => &[("width", "64"), ("heads", "4"), ("layers", "2"), ("hidden", "256")],
        false => &[("width", "64"), ("dropout", "0.5")],
    }
}

/// What was found.
struct Comments {
    train: usize,
    val: usize,
    classes: Vec<String>,
}
