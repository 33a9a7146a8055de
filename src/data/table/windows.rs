//! Windows: samples of several rows of a series, one after the other, and what is learnt of the rows after them.

use super::codec::Read;
use super::division::Parts;
use super::raw::Raw;
use super::series::{Series, Steps};
use crate::terminal::{counted, thousands};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The windows that a model is asked about.
#[derive(Debug)]
pub struct Asked {
    /// The rows of the table as series.
    pub series: Arc<Series>,
    /// The last row of each window.
    pub rows: Vec<u32>,
}

/// Where the length of windows comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// The configuration of a training.
    Configuration,
    /// A trained model, which takes no others.
    Model,
}

/// Which rows make a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Rows of a window, which the model takes.
    pub rows: usize,
    /// Rows after them, whose targets are learnt; 0: the target of the last row of the window is.
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
            rows => format!("{window} with the {} after it", counted(rows, "row")),
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

    /// The last rows of the windows of each part: of forecasts those whose rows after are all of that part. Where the target is that of the window itself, no row of
    /// it is of another part. Windows between two parts are in none.
    fn of_parts(&self, series: &Series, parts: &Parts) -> Parts {
        let mut part_of = vec![0u8; series.rows()];
        for (rows, part) in [(&parts.train, 1), (&parts.val, 2), (&parts.test, 3)] {
            rows.iter().for_each(|row| part_of[*row as usize] = part);
        }
        let mut own = Parts::default();
        for row in series.ends(self.rows, self.stride) {
            let Some(learnt) = series.learnt(row, self.horizon) else { continue };
            let part = part_of[learnt[0] as usize];
            // Rows without a target are of no part.
            let taken = series.window(row, self.rows).filter(|_| self.horizon == 0).unwrap_or_default();
            if learnt.iter().any(|row| part_of[*row as usize] != part)
                || taken.iter().any(|row| ![0, part].contains(&part_of[*row as usize]))
            {
                continue;
            }
            match part {
                1 => own.train.push(row),
                2 => own.val.push(row),
                3 => own.test.push(row),
                _ => {}
            }
        }
        own
    }

    /// The last rows of all windows whose targets are in `rows`.
    pub fn all(&self, series: &Series, rows: &[u32]) -> Vec<u32> {
        self.of_parts(series, &Parts { train: rows.to_vec(), ..Parts::default() }).train
    }

    /// The last rows of the windows that a trained model answers for: of forecasts the last window of each series, else all.
    pub fn answered(&self, series: &Series) -> Vec<u32> {
        match self.horizon {
            0 => series.ends(self.rows, self.stride).collect(),
            _ => series.last(self.rows),
        }
    }

    /// What the user should know of the windows that a model is asked about: how many series have none, and which rows are far from one another.
    pub fn notes_on(&self, asked: &Asked) -> Vec<String> {
        let (short, [count, _]) = (asked.series.shorter_than(self.rows), asked.series.measures());
        let rows = counted(self.rows, "row");
        let short = (short > 0).then(|| format!("{short} of {count} series have fewer than {rows}, and no prediction"));
        let windows = asked.rows.iter().filter_map(|row| asked.series.window(*row, self.rows));
        short.into_iter().chain(self.steps_in_words(asked.series.steps(windows))).collect()
    }

    /// The rows that a model sees in training, ascending: those of that part, and those in its windows that are of no part.
    pub fn seen(&self, series: &Series, parts: &Parts) -> Vec<u32> {
        let none = |row: &u32| ![&parts.val, &parts.test].iter().any(|part| part.binary_search(row).is_ok());
        let windows = self.of_parts(series, parts).train;
        let taken = windows.iter().flat_map(|row| series.window(*row, self.rows).unwrap_or_default());
        let mut seen: Vec<u32> = taken.copied().filter(none).chain(parts.train.iter().copied()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    /// The last rows of the windows of each part. Windows between two parts are in none, see `of_parts`.
    ///
    /// # Errors
    /// One that should have some has none.
    pub fn divided(&self, series: &Series, parts: &Parts, set_by: SetBy) -> Result<Parts> {
        let own = self.of_parts(series, parts);
        let [count, longest] = series.measures();
        let are = if count == 1 { "is" } else { "are" };
        let there = format!("there {are} {count} series of at most {}", counted(longest, "row"));
        for (name, rows, windows) in [("training", &parts.train, &own.train), ("validation", &parts.val, &own.val)] {
            if rows.is_empty() || !windows.is_empty() {
                continue;
            }
            match set_by {
                SetBy::Model => bail!("there is no {}, which the model takes: {there}", self.in_words()),
                SetBy::Configuration => bail!(
                    "no {} is for {name}: {there}, and {} for {name}; take a smaller `window`{}, or hold out another part",
                    self.in_words(),
                    counted(rows.len(), "row"),
                    if self.horizon > 0 { " or `horizon`" } else { "" },
                ),
            }
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
                if self.horizon > 0 { " and the rows after it" } else { "" }
            )),
        };
        short.into_iter().chain(self.steps_in_words(series.steps(series.each()))).collect()
    }

    /// What there is to say of steps from row to row, if some are longer than most.
    fn steps_in_words(&self, steps: Option<Steps>) -> Option<String> {
        let Steps { all, longer, usual, longest } = steps?;
        let dates = matches!(&self.time, Some((_, Read::Date(_))));
        let time = |step: f64| if dates { in_days(step) } else { format!("{step}") };
        (longer > 0).then(|| {
            format!(
                "{} of {} steps from row to row are longer than {}, the usual one, the longest {}: a window is of rows, whatever lies between them",
                thousands(longer as u64),
                thousands(all as u64),
                time(usual),
                time(longest)
            )
        })
    }

    /// What the numbers of some target columns are called, row by row after the window: `sold_1`, `sold_2`, …; of one row as the columns.
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
        hours if hours < 1.0 / 60.0 => format!("{} s", rounded(hours * 3600.0)),
        hours if hours < 1.0 => format!("{} min", rounded(hours * 60.0)),
        hours if hours < 24.0 => format!("{} h", rounded(hours)),
        _ if days == 1.0 => "1 day".to_owned(),
        _ => format!("{} days", rounded(days)),
    }
}

#[cfg(test)]
mod tests {
    use super::in_days;

    #[test]
    fn times_have_the_unit_in_which_they_are_short() {
        let seconds = |seconds: f64| in_days(seconds / 86_400.0);
        let words = [1.0, 59.0, 90.0, 3600.0, 86_400.0, 172_800.0].map(seconds);
        assert_eq!(words, ["1 s", "59 s", "1.5 min", "1 h", "1 day", "2 days"]);
    }
}
