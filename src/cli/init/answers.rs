//! A configuration for a table of texts with an answer each.

use super::architecture::{Takes, expect, takes};
use super::numbers::differ;
use super::parameters::Parameters;
use super::words::{first_cells, is_text};
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::data::table::{CellType, Column, is_parquet};
use crate::terminal::{say, thousands};
use std::collections::HashSet;

/// The model that is written where none is asked for.
const MODEL: &str = "gru_seq2seq";
/// Rows that say enough of short answers.
const FEW: usize = 4;
/// Columns that a message names.
const LISTED: usize = 5;

/// The configuration for a table of texts whose target differs from row to row and is a text, or for one that a model of answers is asked for; `None`: it is no
/// such table.
pub fn of_table(wanted: &Wanted, target: &str) -> Option<Result<Made, Failure>> {
    let asked = wanted.model.is_some_and(|model| takes(model) == Takes::Answers);
    if wanted.classes || wanted.model.is_some() && !asked {
        return None;
    }
    let columns = first_cells(wanted)?;
    let at = columns.iter().position(|(name, _)| name == target)?;
    let (_, answers) = &columns[at];
    let texts =
        |(of, (_, cells)): &(usize, &(String, Vec<String>))| *of != at && is_text(cells.iter().map(String::as_str));
    let mut others: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).filter(|name| *name != target).collect();
    // Of several texts the one before the answer is the likeliest to be what is answered.
    let text = match others[..] {
        [only] => only,
        _ => {
            let mut texts: Vec<(usize, &(String, Vec<String>))> = columns.iter().enumerate().filter(texts).collect();
            texts.sort_by_key(|(of, _)| (*of > at, of.abs_diff(at)));
            &texts.first()?.1.0
        }
    };
    others.retain(|name| *name != text);
    // A tenth of some rows is none.
    let held_out = if answers.len() < 20 { "0.3" } else { "0.1" };
    (asked || are_answers(answers)).then(|| configuration(wanted, (text, target), &others, held_out))
}

/// Refuses a target that is a text of its own in nearly every row, where there is no text that it could answer.
pub fn expect_classes(column: &Column, rows: usize) -> Result<(), Failure> {
    let distinct = if column.more { rows } else { column.distinct };
    let is_own = column.cells == CellType::Texts && differ(distinct, rows);
    if !is_own {
        return Ok(());
    }
    let name = named(&column.name);
    Err(Failure::Usage(format!(
        "`{name}` has {} different texts in {} rows, which are no classes, and no other column has texts that they could answer\nhelp: name another column \
         with `--target`; with `--classes` each text is a class all the same",
        thousands(column.distinct as u64),
        thousands(rows as u64)
    )))
}

/// Whether cells are written anew for each row, and name no class: texts that mostly differ, or words of which hardly any comes twice.
fn are_answers(cells: &[String]) -> bool {
    let different = cells.iter().collect::<HashSet<_>>().len();
    let letters = cells.iter().filter(|cell| cell.chars().any(char::is_alphabetic)).count();
    let texts = 2 * different > cells.len() && is_text(cells.iter().map(String::as_str));
    let words = cells.len() >= FEW && 10 * different >= 9 * cells.len() && 2 * letters > cells.len();
    texts || words
}

fn configuration(
    wanted: &Wanted,
    (text, target): (&str, &str),
    others: &[&str],
    held_out: &str,
) -> Result<Made, Failure> {
    expect(wanted.model, |takes| takes == Takes::Answers, "texts with an answer each")?;
    let some: Vec<String> = others.iter().take(LISTED).map(|name| format!("`{}`", named(name))).collect();
    let more = if others.len() > LISTED { format!(" and {} more", others.len() - LISTED) } else { String::new() };
    let unread = (!some.is_empty())
        .then(|| format!("the model answers one column, and does not read {}{more}", some.join(", ")));
    let model = wanted.model.unwrap_or(MODEL);
    let write = |path: &str, found: Option<[usize; 2]>| {
        let mut out = Writing::default();
        if let Some([train, val]) = found {
            let source = wanted.source.file_name().map(|name| named(&name.to_string_lossy())).unwrap_or_default();
            let [asked, answer] = [text, target].map(named);
            out.comment(&format!("It answers `{asked}` with `{answer}`, as in {source}: written by `runner init`."));
            let [train, val] = [train, val].map(|n| thousands(n as u64));
            out.comment(&format!("Found: {train} texts with answers to train on, {val} to validate on."));
            if let Some(unread) = &unread {
                out.comment(&format!("Here {unread}; `text` says which it answers."));
            }
            out.comment("What to change: how text becomes tokens (`tokenizer`), the lengths, the width of the model.");
            let ending = if is_parquet(wanted.source) { "parquet" } else { "csv" };
            out.comment(&format!(
                "`runner predict runs/{} NEW.{ending}` answers other texts, once it is trained.",
                run_name(&wanted.file)
            ));
            out.gap();
        }
        out.key("seed", "1", "");
        out.section("data");
        out.key("source", "\"text_to_text\"", "");
        out.key("path", &quoted(path), "from the folder of this file");
        out.key("text", &quoted(text), "the column of the texts");
        out.key("target", &quoted(target), "that of the answers");
        out.key("tokenizer", "\"characters\"", "or \"bpe\": parts of words, for more than some thousand texts");
        out.key("max_length", "256", "tokens; longer texts are cut to this");
        out.key("max_target_length", "256", "the same of answers");
        out.key("batch_size", "32", "").key("validation_split", held_out, "texts that are held out");
        out.section("model");
        out.key("use", &quoted(model), &format!("`runner models --show {model}` prints its layers"));
        let parameters = Parameters::of(model);
        if parameters.has_attention() {
            // Those of the paper learn from millions of texts.
            parameters.write(&mut out, &[("width", "128"), ("heads", "4"), ("layers", "2"), ("hidden", "512")], "");
        }
        out.section("loss").key("type", "\"cross_entropy\"", "");
        out.section("optimizer").key("type", "\"adamw\"", "").key(
            "lr",
            "1e-3",
            "the first thing to change: `runner lr-find` looks for one",
        );
        out.section("train").key("epochs", "20", "").key("clip_grad_norm", "1.0", "");
        out.section("metrics").key("figures", "[\"exact_match\"]", "the share of whole answers that are right");
        out.text()
    };
    let spec = described(&draft(&write(wanted.source.to_str().unwrap_or_default(), None))?)?;
    let found = [spec.train, spec.val].map(|n| n.unwrap_or(0));
    if let Some(unread) = &unread {
        say(&format!("note: {unread}"));
    }
    let what = format!("it answers `{}` with `{}`", named(text), named(target));
    Ok(Made { text: write(&wanted.written, Some(found)), what })
}
