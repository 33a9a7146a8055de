//! Figures over the course of runs, over the number of updates.

use super::folder::Run;
use super::lines::{Line, number};
use crate::config::nearest;
use serde_json::Value;
use std::collections::BTreeSet;

/// A figure of a run at the updates at which it was written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Which of the runs.
    pub run: usize,
    /// The figure, as the lines call it.
    pub figure: String,
    /// Updates, and the values after them.
    pub points: Vec<(f64, f64)>,
}

/// The curve of one figure, by its whole name.
pub fn curve(run: &Run, index: usize, figure: &str) -> Option<Curve> {
    let of = |lines: &[Line]| -> Vec<(f64, f64)> {
        lines.iter().filter_map(|line| Some((number(line, "step")?, number(line, figure)?))).collect()
    };
    let points = [of(&run.lines.steps), of(&run.lines.epochs)].into_iter().find(|points| !points.is_empty())?;
    Some(Curve { run: index, figure: figure.to_owned(), points })
}

/// The curves of a figure in runs. A name without `train_` and `val_` stands for both; of several runs only for that of the
/// validation.
///
/// # Errors
/// No run has such a figure.
pub fn curves(runs: &[Run], figure: &str) -> Result<Vec<Curve>, String> {
    let of =
        |name: &str| -> Vec<Curve> { runs.iter().enumerate().filter_map(|(i, run)| curve(run, i, name)).collect() };
    let exact = of(figure);
    let [train, val] = ["train_", "val_"].map(|prefix| of(&format!("{prefix}{figure}")));
    let found = match runs.len() {
        // The loss of the steps is finer than that of the epochs.
        1 => [if exact.is_empty() { train } else { exact }, val].concat(),
        _ => [val, exact, train].into_iter().find(|list| !list.is_empty()).unwrap_or_default(),
    };
    if !found.is_empty() {
        return Ok(found);
    }
    let numbers = |line: &Line| -> Vec<String> {
        let plottable = line.iter().filter(|(_, value)| value.is_number() || matches!(value, Value::Null));
        plottable.map(|(name, _)| name.clone()).collect()
    };
    let mut names: BTreeSet<String> = runs
        .iter()
        .flat_map(|run| run.lines.epochs.last().into_iter().chain(run.lines.steps.last()))
        .flat_map(numbers)
        .collect();
    if names.is_empty() {
        return Err("nothing has been written down of these runs yet".into());
    }
    ["epoch", "step", "kind"].iter().for_each(|name| _ = names.remove(*name));
    // A name without `train_` and `val_` is asked for as well.
    let bare =
        |name: &String| ["train_", "val_"].iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned);
    let known: BTreeSet<String> = names.iter().cloned().chain(names.iter().filter_map(bare)).collect();
    let near = nearest(figure, known.iter().map(String::as_str));
    let near = near.map_or(String::new(), |near| format!("\nhelp: did you mean `{near}`?"));
    let all = names.into_iter().collect::<Vec<_>>().join(", ");
    Err(format!("no run has a figure `{figure}`: there are {all}{near}"))
}
