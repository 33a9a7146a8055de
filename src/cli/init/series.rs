//! A configuration for a table of series: windows of rows, and what comes next.

use super::parameters::Parameters;
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::cli::models::heading;
use crate::config::value_as_toml;
use crate::data::DataSpec;
use crate::data::table::{CellType, Odd, Shown, is_parquet};
use crate::terminal::{counted, thousands};
use serde_json::json;

/// Rows of a window and rows behind it, the first of which a table has enough rows for.
const SIZES: [[usize; 2]; 3] = [[28, 7], [12, 3], [4, 1]];
/// Updates that a training has about.
const UPDATES: usize = 1500;

/// What orders the rows, and says which series each is of.
#[derive(Clone, Default)]
struct Keys {
    /// A column, and how its dates are written, if it is not as 2026-11-30.
    time: Option<(String, Option<String>)>,
    series: Option<String>,
    window: usize,
    horizon: usize,
}

impl Keys {
    /// The lines of `[data]` that say them, each with a remark.
    fn lines(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut lines = Vec::new();
        if let Some((name, form)) = &self.time {
            lines.push(("time_column", quoted(name), "the order of the rows; the latest are held out"));
            if let Some(form) = form {
                let rules = json!({ name.clone(): { "type": "date", "format": form } });
                lines.push(("columns", value_as_toml(&rules), "how its dates are written"));
            }
        }
        if let Some(series) = &self.series {
            lines.push(("series_column", quoted(series), "which series a row is of"));
        }
        lines.push(("window", self.window.to_string(), "rows that the model sees at once"));
        lines.push(("horizon", self.horizon.to_string(), "rows behind them that it learns"));
        lines
    }

    fn described(&self, wanted: &Wanted, target: &str) -> Result<DataSpec, Failure> {
        let path = wanted.source.to_str().map(quoted).unwrap_or_default();
        let lines = self.lines().iter().map(|(key, value, _)| format!("{key} = {value}\n")).collect::<String>();
        let loss = if wanted.classes { "cross_entropy" } else { "mse" };
        let experiment = draft(&format!(
            "[data]\nsource = \"csv\"\npath = {path}\ntarget = {}\nclasses = {}\nvalidation_split = 0.2\n{lines}[model]\nuse = \"lstm_forecaster\"\n\
             [loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"adamw\"\n[train]\nepochs = 1\n",
            quoted(target),
            wanted.classes
        ))?;
        described(&experiment)
    }
}

/// The keys with which the table can be read, and what its samples are then.
fn found(wanted: &Wanted, target: &str, columns: &[Shown]) -> Result<(Keys, DataSpec), Failure> {
    let others = || columns.iter().map(|shown| &shown.column).filter(|column| column.name != target);
    let time = others().find_map(|column| match &column.odd {
        Some(Odd::DateFormat(_, form)) => Some((column.name.clone(), Some(form.clone()))),
        _ => (column.cells == CellType::Dates).then(|| (column.name.clone(), None)),
    });
    // One series, and then those of each column that may name them.
    let names = others().filter(|column| {
        let named = matches!(column.cells, CellType::Texts | CellType::Codes) || column.whole;
        named && column.missing == 0 && time.as_ref().is_none_or(|(time, _)| *time != column.name)
    });
    let series: Vec<Option<String>> =
        std::iter::once(None).chain(names.map(|column| Some(column.name.clone())).filter(|_| time.is_some())).collect();
    let classes = wanted.classes
        || columns.iter().any(|shown| shown.column.name == target && shown.column.cells != CellType::Numbers);
    let mut first = None;
    for [window, horizon] in SIZES {
        for series in &series {
            let horizon = if classes { 1 } else { horizon };
            let keys = Keys { time: time.clone(), series: series.clone(), window, horizon };
            match keys.described(wanted, target) {
                Ok(spec) => return Ok((keys, spec)),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
    }
    Err(first.unwrap_or_else(|| Failure::Usage("the table has no series".to_owned())))
}

/// A configuration that learns what a column of a table has next.
pub fn configuration(wanted: &Wanted, model: &'static str, target: &str, columns: &[Shown]) -> Result<Made, Failure> {
    let (keys, spec) = found(wanted, target, columns)?;
    let (train, val) = (spec.train.unwrap_or(0), spec.val.unwrap_or(0));
    let file = &wanted.file;
    let source = wanted.source.file_name().map(|name| named(&name.to_string_lossy())).unwrap_or_default();
    let task = format!(
        "learns `{}` of the {} behind {}",
        named(target),
        counted(keys.horizon, "row"),
        counted(keys.window, "row")
    );
    let mut out = Writing::default();
    out.comment(&format!("It {task} of {source}: written by `runner init`."));
    out.comment(&format!(
        "Found: {} windows to train on, {} to validate on.",
        thousands(train as u64),
        thousands(val as u64)
    ));
    out.comment("What to change: `window` and `horizon`, columns that are not known when it is asked (`drop`), the learning rate.");
    let ending = if is_parquet(wanted.source) { "parquet" } else { "csv" };
    out.comment(&format!(
        "`runner predict runs/{} NEW.{ending}` says what comes after the last row of each series, once it is trained.",
        run_name(file)
    ));
    out.gap().key("seed", "1", "").section("data");
    out.key("source", if is_parquet(wanted.source) { "\"parquet\"" } else { "\"csv\"" }, "");
    out.key("path", &quoted(&wanted.written), "from the folder of this file");
    out.key("target", &quoted(target), "the model sees what it was, and learns what it will be");
    if wanted.classes {
        out.key("classes", "true", "its numbers are names of classes");
    }
    keys.lines().iter().for_each(|(key, value, remark)| _ = out.key(key, value, remark));
    out.key("validation_split", "0.2", "rows that are held out, to see how good it is on others");
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
        out.early_stopping(10);
    }
    let what = format!("it {task}, with {} windows to train on", thousands(train as u64));
    Ok(Made { text: out.text(), what })
}
