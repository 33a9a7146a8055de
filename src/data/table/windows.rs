//! Windows: samples of several rows of a series, one after the other, and what is learnt of the rows behind them.

use super::codec::Read;
use super::division::Parts;
use super::raw::Raw;
use super::series::Series;
use crate::terminal::{counted, thousands};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which rows make a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Rows of a window, which the model takes.
    pub rows: usize,
    /// Rows behind them, whose targets are learnt.
    pub horizon: usize,
    /// The column that orders the rows of a series, and how it is read; `None`: they are in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<(String, Read)>,
    /// The column whose values are series of their own, and how it is read; `None`: all rows are of one series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<(String, Read)>,
}

impl Windows {
    /// Whether a training can have made it.
    pub fn is_sane(&self) -> bool {
        let ordered = self.time.as_ref().is_none_or(|(_, read)| !read.is_text());
        self.rows > 0 && self.horizon > 0 && ordered
    }

    /// The columns that say the order of rows, with how they are read.
    pub fn keys(&self) -> impl Iterator<Item = (&str, Read)> {
        self.time.iter().chain(&self.series).map(|(name, read)| (name.as_str(), *read))
    }

    /// The rows of a table as series.
    ///
    /// # Errors
    /// The column that orders rows is missing in one of them, or two rows of a series have the same there.
    pub fn series_of(&self, raw: &Raw) -> Result<Arc<Series>> {
        let [time, series] = [&self.time, &self.series].map(|key| key.as_ref().map(|(name, _)| name.as_str()));
        Ok(Arc::new(Series::of(time, series, raw)?))
    }

    /// The last rows of all windows whose targets are in `rows`.
    pub fn all(&self, series: &Series, rows: &[u32]) -> Vec<u32> {
        series.divided([self.rows, self.horizon], &Parts { train: rows.to_vec(), ..Parts::default() }).train
    }

    /// The last rows of the windows of each part: those whose rows behind are all of that part. Windows between two parts are in none.
    ///
    /// # Errors
    /// One that should have some has none.
    pub fn divided(&self, series: &Series, parts: &Parts) -> Result<Parts> {
        let own = series.divided([self.rows, self.horizon], parts);
        let [count, longest] = series.measures();
        for (name, rows, windows) in [("training", &parts.train, &own.train), ("validation", &parts.val, &own.val)] {
            ensure!(
                rows.is_empty() || !windows.is_empty(),
                "no window of {} with the {} behind it is for {name}: there {} {count} series of at most {}, and {} for {name}; take a smaller \
                 `window` or `horizon`, or hold out another part",
                counted(self.rows, "row"),
                counted(self.horizon, "row"),
                if count == 1 { "is" } else { "are" },
                counted(longest, "row"),
                counted(rows.len(), "row"),
            );
        }
        Ok(own)
    }

    /// What the user should know of the series.
    pub fn notes(&self, series: &Series) -> Vec<String> {
        let [count, _] = series.measures();
        let least = self.rows + self.horizon;
        let short = match series.shorter_than(least) {
            0 => None,
            short => Some(format!(
                "{short} of {count} series have fewer than {least} rows, a window and the rows behind it, and are left out"
            )),
        };
        let dates = matches!(&self.time, Some((_, Read::Date(_))));
        let time = |step: f64| if dates { in_days(step) } else { format!("{step}") };
        let steps = series.steps().filter(|(_, longer, _, _)| *longer > 0).map(|(all, longer, usual, longest)| {
            format!(
                "{} of {} steps from row to row are longer than {}, the usual one, the longest {}: a window is of rows, whatever lies between them",
                thousands(longer as u64),
                thousands(all as u64),
                time(usual),
                time(longest)
            )
        });
        short.into_iter().chain(steps).collect()
    }

    /// What the numbers of some target columns are called, row by row behind the window: `sold_1`, `sold_2`, …; of one row as the columns.
    pub fn named(&self, columns: &[String]) -> Vec<String> {
        match self.horizon {
            1 => columns.to_vec(),
            rows => columns.iter().flat_map(|name| (1..=rows).map(move |row| format!("{name}_{row}"))).collect(),
        }
    }
}

/// A time in days, for people.
fn in_days(days: f64) -> String {
    let rounded = |number: f64| (number * 100.0).round() / 100.0;
    match days * 24.0 {
        hours if hours < 1.0 => format!("{} min", rounded(hours * 60.0)),
        hours if hours < 24.0 => format!("{} h", rounded(hours)),
        _ if days == 1.0 => "1 day".to_owned(),
        _ => format!("{} days", rounded(days)),
    }
}
