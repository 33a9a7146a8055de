//! A configuration for a table of series: windows of rows, and what comes next.

use super::dialect::Dialect;
use super::order::{Asked, Order};
use super::parameters::Parameters;
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::cli::models::heading;
use crate::data::DataSpec;
use crate::data::table::{CellType, Column, Shown, is_parquet, open_sheet};
use crate::terminal::{counted, thousands};

/// Rows of a window; the first that most series have enough rows for are taken.
const WINDOWS: [usize; 3] = [28, 12, 4];
/// The part of the rows that is held out.
const HELD_OUT: f64 = 0.2;
/// Updates that a training has about.
const UPDATES: usize = 1500;

/// What is asked for of series.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfSeries<'a> {
    /// The columns.
    pub columns: Asked<'a>,
    /// Rows of a window.
    pub window: Option<usize>,
    /// Rows after it.
    pub horizon: Option<usize>,
}

/// What a sample is, and how the table is written.
struct Keys {
    dialect: Dialect,
    order: Order,
    window: usize,
    horizon: usize,
}

impl Keys {
    fn described(&self, wanted: &Wanted, target: &str) -> Result<DataSpec, Failure> {
        let path = wanted.source.to_str().map(quoted).unwrap_or_default();
        let loss = if wanted.classes { "cross_entropy" } else { "mse" };
        let experiment = draft(&format!(
            "[data]\nsource = \"csv\"\npath = {path}\ntarget = {}\nclasses = {}\nvalidation_split = {HELD_OUT}\n{}{}window = {}\nhorizon = {}\n\
             [model]\nuse = \"lstm_forecaster\"\n[loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"adamw\"\n[train]\nepochs = 1\n",
            quoted(target),
            wanted.classes,
            self.dialect.draft(),
            self.order.draft(),
            self.window,
            self.horizon
        ))?;
        described(&experiment)
    }
}

/// Windows with the rows after them, those first that most of the series have enough rows for.
fn sizes(asked: OfSeries, classes: bool, lengths: &[usize]) -> Vec<[usize; 2]> {
    let windows = asked.window.map_or(WINDOWS.to_vec(), |window| vec![window]);
    let usual = if classes { |_| 1 } else { |window: usize| (window / 4).max(1) };
    let mut sizes: Vec<[usize; 2]> =
        windows.into_iter().map(|window| [window, asked.horizon.unwrap_or_else(|| usual(window))]).collect();
    let most = lengths.get(lengths.len() / 2).copied().unwrap_or(0) as f64;
    // Windows of which the last row is learnt lie in one part of the rows, and those with rows after them begin in the other.
    let fits = |[window, horizon]: &[usize; 2]| {
        let held_out = if *horizon == 0 { window } else { horizon };
        (window + horizon) as f64 <= most * (1.0 - HELD_OUT) && *held_out as f64 <= most * HELD_OUT
    };
    sizes.sort_by_key(|size| !fits(size));
    sizes
}

/// The keys with which the table can be read, and what its samples are then.
fn found(
    wanted: &Wanted,
    target: &str,
    (dialect, columns): (Dialect, &[Shown]),
    rows: usize,
) -> Result<(Keys, DataSpec), Failure> {
    let others: Vec<&Column> =
        columns.iter().map(|shown| &shown.column).filter(|column| column.name != target).collect();
    let sheet = open_sheet(wanted.source, dialect.format()).map_err(Failure::Other)?;
    let order = Order::of(&sheet, dialect.decimal(), &others, rows, wanted.series.columns)?;
    let classes = wanted.classes
        || columns.iter().any(|shown| shown.column.name == target && shown.column.cells != CellType::Numbers);
    let mut first = None;
    for [window, horizon] in sizes(wanted.series, classes, &order.lengths) {
        let keys = Keys { dialect, order: order.clone(), window, horizon };
        match keys.described(wanted, target) {
            Ok(spec) => return Ok((keys, spec)),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.unwrap_or_else(|| Failure::Usage("the table has no series".to_owned())))
}

/// A configuration that learns what a column of a table of so many rows has next.
pub fn configuration(
    wanted: &Wanted,
    model: &'static str,
    target: &str,
    table: (Dialect, &[Shown]),
    rows: usize,
) -> Result<Made, Failure> {
    let (keys, spec) = found(wanted, target, table, rows)?;
    let (train, val) = (spec.train.unwrap_or(0), spec.val.unwrap_or(0));
    let file = &wanted.file;
    let source = wanted.source.file_name().map(|name| named(&name.to_string_lossy())).unwrap_or_default();
    let window = counted(keys.window, "row");
    let task = match keys.horizon {
        0 => format!("learns `{}` of the last of {window}", named(target)),
        rows => format!("learns `{}` of the {} after {window}", named(target), counted(rows, "row")),
    };
    let order = keys.order.in_words();
    let mut out = Writing::default();
    out.comment(&format!("It {task} of {source}: written by `runner init`."));
    out.comment(&format!(
        "Found: {} windows to train on, {} to validate on.",
        thousands(train as u64),
        thousands(val as u64)
    ));
    out.comment(&format!("Order: {order}."));
    out.comment("What to change: `window` and `horizon`, columns that are not known when it is asked (`drop`), the learning rate.");
    let ending = if is_parquet(wanted.source) { "parquet" } else { "csv" };
    out.comment(&format!(
        "`runner predict runs/{} NEW.{ending}` says {} of each series, once it is trained.",
        run_name(file),
        if keys.horizon == 0 { "it of the windows" } else { "what comes after the last row" }
    ));
    out.gap().key("seed", "1", "").section("data");
    out.key("source", if is_parquet(wanted.source) { "\"parquet\"" } else { "\"csv\"" }, "");
    out.key("path", &quoted(&wanted.written), "from the folder of this file");
    out.key("target", &quoted(target), "the model sees what it was, and learns what it will be");
    if wanted.classes {
        out.key("classes", "true", "its numbers are names of classes");
    }
    keys.dialect.write(&mut out);
    keys.order.write(&mut out);
    out.key("window", &keys.window.to_string(), "rows that the model sees at once");
    out.key("horizon", &keys.horizon.to_string(), "rows after them that it learns");
    out.key("validation_split", &HELD_OUT.to_string(), "rows that are held out, to see how good it is on others");
    let batch = 1 << (train / 20).clamp(8, 128).ilog2();
    out.key("batch_size", &batch.to_string(), "");
    out.section("model");
    out.key("use", &format!("\"{model}\""), &format!("{}; `runner models --show {model}`", heading(model)));
    let parameters = Parameters::of(model);
    parameters.write(&mut out, &[("hidden", "64")], "its outputs are as many as the target and the horizon ask for");
    out.section("loss");
    match spec.class_names() {
        Some(_) => out.key("type", "\"cross_entropy\"", ""),
        None => out.key("type", "\"mse\"", "\"huber\" or \"l1\" where some values are far from all others"),
    };
    out.section("optimizer").key("type", "\"adamw\"", "");
    out.key("lr", "3e-3", "the first thing to change: `runner lr-find` looks for one");
    out.section("schedule").key("type", "\"cosine\"", "");
    let epochs = (UPDATES * batch / train.max(1)).clamp(5, 100);
    out.section("train").key("epochs", &epochs.to_string(), "");
    out.key("clip_grad_norm", "1.0", "steps of a recurrent net stay small");
    if val > 0 {
        out.early_stopping(10, epochs);
    }
    let what = format!("it {task}, with {} windows to train on; {order}", thousands(train as u64));
    Ok(Made { text: out.text(), what })
}

#[cfg(test)]
mod tests {
    use super::{OfSeries, sizes};

    #[test]
    fn windows_are_as_long_as_most_series_allow() {
        let first = |asked, classes, rows: usize| sizes(asked, classes, &[3, rows, rows])[0];
        let none = OfSeries::default();
        assert_eq!([60, 25, 15].map(|rows| first(none, false, rows)), [[28, 7], [12, 3], [4, 1]]);
        assert_eq!(first(none, true, 100), [28, 1]);
        assert_eq!(first(OfSeries { window: Some(9), ..none }, false, 100), [9, 2]);
        assert_eq!(first(OfSeries { horizon: Some(0), ..none }, false, 100), [12, 0]);
    }
}
