//! What rows weigh in the loss.

use super::super::row_names::RowName;
use super::super::sheet::Sheet;
use super::codec::Cells;
use super::options::TableOptions;
use super::raw::Raw;
use anyhow::{Result, ensure};

/// Refuses weights that are missing, below 0 or too large, with the first row that has such, or leaves those rows out; refuses those that are all 0.
pub fn expect_weights(options: &TableOptions, text: &Sheet, raw: &mut Raw) -> Result<()> {
    let Some(name) = &options.sample_weight else { return Ok(()) };
    let (bad, some) = {
        let cells = raw.numbers(name)?;
        let Cells::Numbers(weights) = &*cells else { return Ok(()) };
        let good = |weight: f64| weight >= 0.0 && (weight as f32).is_finite();
        let bad = weights.iter().enumerate().filter(|(_, weight)| !good(**weight));
        let bad: Vec<(usize, f64)> = bad.map(|(row, weight)| (row, *weight)).collect();
        (bad, weights.iter().any(|weight| *weight as f32 > 0.0))
    };
    raw.leave_out(bad, |row, weight| {
        let place = match row {
            RowName::Line(_, line) => format!("{} {line}", if text.kinds().is_some() { "row" } else { "line" }),
            RowName::Id(column, id) => format!("the row whose `{column}` is `{id}`"),
        };
        let has = if weight.is_nan() { "nothing".to_owned() } else { format!("`{weight}`") };
        format!("{place}: the column `{name}` has {has}, and a weight is a number of at least 0")
    })?;
    ensure!(some, "every weight in the column `{name}` is 0");
    Ok(())
}
