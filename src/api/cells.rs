//! Rows of tables with what models say: names of columns, cells that no spreadsheet runs, CSV.

use crate::data::table::ColumnValue;

/// A name as a cell of a table that is guarded: with a `'` before it where a spreadsheet would run it as a formula.
pub fn guarded(name: String) -> String {
    if name.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) { format!("'{name}") } else { name }
}

/// What `predict` and `eval --predictions` call columns of their own, and keys of objects.
const OWN_COLUMNS: [&str; 23] = [
    "answer",
    "class",
    "classes",
    "file",
    "fold",
    "heads",
    "label",
    "line",
    "loss",
    "prediction",
    "prediction_label",
    "probabilities",
    "probability",
    "quantiles",
    "sample",
    "spans",
    "tags",
    "target",
    "target_label",
    "top",
    "value",
    "values",
    "words",
];

/// What the column is called that names the rows of a table, beside `others`: as in the table, with `id_` before it where there is
/// another of that name.
pub fn id_column<'a>(column: &str, others: impl IntoIterator<Item = &'a str>) -> String {
    let taken = OWN_COLUMNS.contains(&column) || others.into_iter().any(|other| other == column);
    if taken { format!("id_{column}") } else { column.to_owned() }
}

/// The cell of another table, likewise; a number is no formula.
pub fn guarded_cell(cell: ColumnValue) -> ColumnValue {
    match cell {
        ColumnValue::Text(text) if text.parse::<f64>().is_err() => ColumnValue::Text(guarded(text)),
        other => other,
    }
}

/// A row of a table: in quotes what has a comma, a quote or a line's end in it (RFC 4180).
pub fn csv(cells: &[String]) -> String {
    let cell = |text: &String| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.clone(),
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let cells = ["plain", "a,b", "say \"x\"", "two\nlines", ""].map(String::from);
        assert_eq!(csv(&cells), "plain,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\n");
    }
}
