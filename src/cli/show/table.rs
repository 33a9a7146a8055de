//! The columns of a table: what they are like, and what becomes of them.

use crate::api::failure::Failure;
use crate::cli::{print, print_json};
use crate::data::DataSpec;
use crate::data::table::{CellType, Shown, TableCodec};
use crate::terminal::{counted, one_line, say, thousands};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Widest that a name or an example is shown.
const WIDEST: usize = 28;

/// Shows the columns of a table and the size of its parts.
///
/// # Errors
/// Standard output cannot be written.
pub fn show(columns: &[Shown], spec: &DataSpec, notes: &[String], as_json: bool) -> Result<ExitCode, Failure> {
    let [train, val] = [spec.train, spec.val].map(Option::unwrap_or_default);
    let width: usize = columns.iter().map(|shown| shown.width).sum();
    if as_json {
        let columns: Vec<Value> = columns.iter().map(column_json).collect();
        let json = json!({ "columns": columns, "features": width, "train": train, "val": val, "notes": notes });
        print_json(&json)?;
        return Ok(ExitCode::SUCCESS);
    }
    notes.iter().for_each(|note| say(&format!("note: {note}")));
    let numbers = (width > 0).then(|| format!("a vector of {width} number{}", if width == 1 { "" } else { "s" }));
    let codec = TableCodec::of(spec);
    let windows = codec.as_ref().and_then(|codec| codec.windows.clone());
    let tokens = codec.and_then(|codec| codec.tokens);
    let tokens = tokens.map(|tokens| format!("the tokens of `{}`", one_line(&tokens.column)));
    let sample: Vec<String> = numbers.into_iter().chain(tokens).collect();
    let (what, of) = match &windows {
        Some(windows) => ("windows", format!("{}, each ", counted(windows.rows, "row"))),
        None => ("rows", String::new()),
    };
    let mut text = format!(
        "{} {what} to train on, {} to validate on; a sample is {of}{}",
        thousands(train as u64),
        thousands(val as u64),
        sample.join(" and ")
    );
    match windows.map(|windows| windows.horizon) {
        None => {}
        Some(0) => text.push_str(", and the target of its last row to learn"),
        Some(rows) => text.push_str(&format!(", and the {} after it to learn", counted(rows, "row"))),
    }
    text.push_str("\n\n");
    for line in lines(columns) {
        text.push_str(&line);
        text.push('\n');
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The columns as the lines of a table, of which the first says what stands where.
pub fn lines(columns: &[Shown]) -> Vec<String> {
    let mut rows = vec![["column", "cells", "missing", "distinct", "range", "examples", "becomes"].map(str::to_owned)];
    rows.extend(columns.iter().map(row));
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let space = " ".repeat(width - cell.chars().count());
            // Counts stand on the right.
            let (before, after) = if (2..4).contains(&at) { (space.as_str(), "") } else { ("", space.as_str()) };
            line.push_str(&format!("{before}{cell}{after}  "));
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(shown: &Shown) -> [String; 7] {
    let column = &shown.column;
    let distinct = thousands(column.distinct as u64) + if column.more { "+" } else { "" };
    let range = match (column.range, column.cells) {
        (Some([low, high]), CellType::Numbers) => format!("{} … {}", number(low), number(high)),
        _ => String::new(),
    };
    let examples: Vec<String> = column.examples.iter().map(|text| one_line(text)).collect();
    let numbers = if shown.width == 1 { String::new() } else { format!(" ({} numbers)", shown.width) };
    let becomes = if shown.width == 0 { shown.becomes.clone() } else { format!("{}{numbers}", shown.becomes) };
    [
        short(&one_line(&column.name)),
        column.cells.name().to_owned(),
        thousands(column.missing as u64),
        distinct,
        range,
        short(&examples.join(", ")),
        becomes,
    ]
}

fn number(value: f64) -> String {
    // From 2^53 on a number in double precision stands for several, and its last digits are none of theirs.
    if value.abs() >= 9_007_199_254_740_992.0 {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn short(text: &str) -> String {
    match text.chars().count() > WIDEST {
        true => text.chars().take(WIDEST - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The same of one column as JSON.
pub fn column_json(shown: &Shown) -> Value {
    let column = &shown.column;
    json!({
        "name": column.name,
        "cells": column.cells.name(),
        "missing": column.missing,
        "distinct": column.distinct,
        "more_distinct": column.more,
        "range": column.range,
        "examples": column.examples,
        "becomes": shown.becomes,
        "features": shown.width,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_are_not_known_are_not_shown() {
        let shown = [1.5, -2.0, 9_007_199_254_740_991.0, 1_152_921_504_606_847_075.0].map(number);
        assert_eq!(shown, ["1.5", "-2", "9007199254740991", "1.152921504606847e18"]);
    }
}
