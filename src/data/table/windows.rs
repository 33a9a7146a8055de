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
    /// Rows behind them, whose targets are learnt; 0: the target of the last row of the window is.
    pub horizon: usize,
    /// Rows from the begin of a window to that of the next one of its series.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stride: usize,
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
        self.rows > 0 && self.stride > 0 && ordered
    }

    /// How many rows' targets a sample has.
    pub fn learnt(&self) -> usize {
        self.horizon.max(1)
    }

    /// The rows of a sample and what is learnt of them, in words.
    pub fn in_words(&self) -> String {
        let window = format!("window of {}", counted(self.rows, "row"));
        match self.horizon {
            0 => window,
            rows => format!("{window} with the {} behind it", counted(rows, "row")),
        }
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
        series.divided(self, &Parts { train: rows.to_vec(), ..Parts::default() }).train
    }

    /// The last rows of the windows that a trained model answers for: of forecasts the last window of each series, else all.
    pub fn answered(&self, series: &Series) -> Vec<u32> {
        match self.horizon {
            0 => series.ends(self).collect(),
            _ => series.last(self.rows),
        }
    }

    /// How many series have no whole window, if some have none.
    pub fn unanswered_in_words(&self, series: &Series) -> Option<String> {
        let (short, [count, _]) = (series.shorter_than(self.rows), series.measures());
        let rows = counted(self.rows, "row");
        (short > 0).then(|| format!("{short} of {count} series have fewer than {rows}, and no prediction"))
    }

    /// The last rows of the windows of each part. Windows between two parts are in none, see [`Series::divided`].
    ///
    /// # Errors
    /// One that should have some has none.
    pub fn divided(&self, series: &Series, parts: &Parts) -> Result<Parts> {
        let own = series.divided(self, parts);
        let [count, longest] = series.measures();
        for (name, rows, windows) in [("training", &parts.train, &own.train), ("validation", &parts.val, &own.val)] {
            ensure!(
                rows.is_empty() || !windows.is_empty(),
                "no {} is for {name}: there {} {count} series of at most {}, and {} for {name}; take a smaller `window`{}, or hold out another part",
                self.in_words(),
                if count == 1 { "is" } else { "are" },
                counted(longest, "row"),
                counted(rows.len(), "row"),
                if self.horizon > 0 { " or `horizon`" } else { "" },
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
                "{short} of {count} series have fewer than {}, a window{}, and are left out",
                counted(least, "row"),
                if self.horizon > 0 { " and the rows behind it" } else { "" }
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
        match self.learnt() {
            1 => columns.to_vec(),
            rows => columns.iter().flat_map(|name| (1..=rows).map(move |row| format!("{name}_{row}"))).collect(),
        }
    }
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(stride: &usize) -> bool {
    *stride == 1
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
