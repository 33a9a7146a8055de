//! What an evaluation says of each number that a model learnt, in its own unit.

use super::runs::grid::Grid;
use crate::data::{DataSpec, target_names};
use crate::terminal::{figure, one_line, visible};
use crate::train::setup::error_report::{ErrorReport, OutputErrors};
use serde_json::{Value, json};

/// Most targets that are listed one by one.
const MOST: usize = 50;

/// What the targets are called: the columns of a table or a list, else their numbers from 1.
fn names(data: &DataSpec, report: &ErrorReport) -> Vec<String> {
    let own = target_names(data);
    let name = |at: usize| own.get(at).cloned().unwrap_or_else(|| (at + 1).to_string());
    (0..report.outputs().count()).map(name).collect()
}

/// A table with a row for each target, where there are several.
pub(super) fn text(report: &ErrorReport, data: &DataSpec) -> Option<String> {
    let names = names(data, report);
    if !(2..=MOST).contains(&names.len()) {
        return None;
    }
    let mut grid = Grid::new(["target", "mae", "rmse", "r2", "mape"].map(str::to_owned).to_vec(), 1);
    for (name, errors) in names.iter().zip(report.outputs()) {
        let figures = [errors.mae, errors.rmse, errors.r2, errors.mape].map(|value| figure(value, 6, 12));
        grid.row([one_line(&visible(name))].into_iter().chain(figures).collect());
    }
    let text = grid.text();
    Some(format!("{}\n`mae` and `rmse` above are over all {} targets, whatever their units", text, names.len()))
}

/// An object for each target, where there are several.
pub(super) fn json(report: &ErrorReport, data: &DataSpec) -> Option<Value> {
    let names = names(data, report);
    let of = |(name, OutputErrors { mae, rmse, r2, mape }): (&String, OutputErrors)| json!({ "target": name, "mae": mae, "rmse": rmse, "r2": r2, "mape": mape });
    (names.len() > 1).then(|| names.iter().zip(report.outputs()).map(of).collect())
}
