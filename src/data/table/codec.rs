//! How the columns of a table become numbers: fitted on the training rows alone, and kept in the checkpoint.

mod decode;
mod fit;
mod found;

pub use decode::{Decoded, rounded};
pub use fit::mean_and_deviation;
pub use found::Codec;

use super::super::classes::place;
use super::cell;
use super::dates::DateForm;
use super::hashed::{MOST_BUCKETS, Words, bucket};
use super::quantiles::{percentiles, piecewise_linear};
use fit::{category, number};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Most ends of bins: those of the most bins that a layer may ask for.
const MOST_EDGES: usize = 1001;

/// How a column of numbers is written for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Less the mean, by the standard deviation. `sklearn.preprocessing.StandardScaler`.
    Standardize,
    /// The quantile of a normal distribution that the number is of the training rows. `QuantileTransformer(output_distribution="normal")`.
    Quantile,
    /// `sign(x) · ln(1 + |x|)`, then standardised.
    Log,
    /// How much of each of some bins lies below the number: Gorishniy, Rubachev and Babenko 2022, "On Embeddings for Numerical
    /// Features in Tabular Deep Learning", section 3.1. Bins end at quantiles.
    PiecewiseLinear,
    /// As it is.
    None,
}

/// What stands in the place of a number that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// The median of the training rows.
    Median,
    /// Their mean.
    Mean,
    /// Zero.
    Zero,
}

/// How a column is to be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// A number.
    Number {
        /// How it is scaled.
        scaling: Scaling,
        /// What stands for a missing one.
        fill: Fill,
        /// Bins of [`Scaling::PiecewiseLinear`].
        bins: usize,
    },
    /// One of some texts: 1 in its own place and 0 in those of the others.
    Category {
        /// Most of them that have a place of their own, the most frequent ones.
        most: usize,
        /// Rows that a text must stand in to have one.
        least: usize,
    },
    /// One of any texts: 1 in the place that its hash says, and 0 in the others.
    Hashed {
        /// How many places there are.
        buckets: usize,
    },
    /// The words of a text.
    Text(Words),
    /// 1, 0.
    Boolean,
    /// Days, and the part of the year and the week as points on a circle.
    Date {
        /// How it is written; `None`: as ISO 8601 has it.
        form: Option<DateForm>,
        /// With the part of the day as another point.
        time_of_day: bool,
    },
}

/// A column with what its codec has found in the training rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnCodec {
    /// The column's name.
    pub name: String,
    codec: Codec,
    /// Cells were missing in training: whether one is has a place of its own.
    indicator: bool,
    /// Where bins begin and end that a layer of the model cuts the column's numbers into, as they are encoded: quantiles of the training
    /// rows, ascending. Empty if none does, or if the column is no single number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    edges: Vec<f32>,
}

/// The cells of a column, read once.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Numbers, dates in days, truths as 1 and 0, hashes of texts; NaN where one is missing.
    Numbers(Vec<f64>),
    /// Numbers of texts in a list; `None` where one is missing.
    Texts(Vec<Option<u32>>, Arc<Vec<String>>),
}

impl Cells {
    /// True for a row in which it has nothing.
    pub fn is_missing(&self, row: u32) -> bool {
        match self {
            Cells::Numbers(values) => values[row as usize].is_nan(),
            Cells::Texts(numbers, _) => numbers[row as usize].is_none(),
        }
    }
}

/// How a cell of a column is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    /// As a number.
    Number,
    /// As a truth.
    Truth,
    /// As a date, which is written so, or as ISO 8601 has it.
    Date(Option<DateForm>),
    /// As a text.
    Text,
    /// As a text, of which the hash is kept; `plain`: of a value that files write in several ways, in one of them.
    #[allow(missing_docs)]
    Hash { plain: bool },
}

/// What a number should have been that no input can be.
pub const TOO_LARGE: &str = "a number of at most 3.4e38, the largest in single precision,";

impl Read {
    /// Whether any text will do.
    pub fn is_text(self) -> bool {
        matches!(self, Read::Text | Read::Hash { .. })
    }

    /// The value of a cell that is not missing. `Err`: what it should have been.
    pub fn value(self, text: &str, decimal: char) -> Result<f64, &'static str> {
        match self {
            Read::Number => cell::number(text, decimal).ok_or_else(|| match text.parse::<f64>() {
                Ok(large) if large.abs() > f64::from(f32::MAX) => TOO_LARGE,
                _ => "a number",
            }),
            Read::Truth => {
                let number = || cell::number(text, decimal).map(|number| number != 0.0);
                cell::truth(text).or_else(number).map(f64::from).ok_or("true or false")
            }
            Read::Date(None) => cell::date(text).ok_or("a date, as 2026-11-26"),
            Read::Date(Some(form)) => form.days(text).ok_or("a date, as the `format` of the column says,"),
            Read::Text | Read::Hash { .. } => Ok(0.0),
        }
    }
}

impl Encoding {
    /// How the cells are read.
    pub fn read(&self) -> Read {
        match self {
            Encoding::Number { .. } => Read::Number,
            Encoding::Category { .. } | Encoding::Text(_) => Read::Text,
            Encoding::Hashed { .. } => Read::Hash { plain: true },
            Encoding::Boolean => Read::Truth,
            Encoding::Date { form, .. } => Read::Date(*form),
        }
    }
}

fn log(value: f64) -> f64 {
    value.signum() * value.abs().ln_1p()
}

impl ColumnCodec {
    /// Fits the codec of a column on the rows of training, `rows`. `bins`: how many the model cuts numbers into, if it does.
    pub fn fit(name: &str, encoding: &Encoding, cells: &Cells, rows: &[u32], bins: Option<usize>) -> ColumnCodec {
        let is_missing = || rows.iter().any(|row| cells.is_missing(*row));
        let (codec, indicator) = match (encoding, cells) {
            (Encoding::Category { most, least }, Cells::Texts(numbers, texts)) => {
                let there = rows.iter().filter_map(|row| numbers[*row as usize]);
                (category(there, texts, *most, *least), is_missing())
            }
            (Encoding::Hashed { buckets }, _) => (Codec::Hashed { buckets: *buckets, plain: true }, is_missing()),
            (Encoding::Text(words), _) => (Codec::Text(*words), is_missing()),
            (_, Cells::Texts(..)) => (Codec::Boolean, is_missing()),
            (encoding, Cells::Numbers(values)) => {
                let (mut there, mut count) = (vec![0.0; rows.len()], 0);
                for row in rows {
                    there[count] = values[*row as usize];
                    count += usize::from(!there[count].is_nan());
                }
                there.truncate(count);
                (number(encoding, there), count < rows.len())
            }
        };
        let mut fitted = ColumnCodec { name: name.to_owned(), codec, indicator, edges: Vec::new() };
        if let Some(bins) = bins.filter(|_| fitted.is_one_number()) {
            fitted.edges = fitted.bins_of(cells, rows, bins);
        }
        fitted
    }

    /// What the model is given where a cell is missing, if none was in training.
    pub fn instead_of_missing(&self) -> Option<String> {
        let given = match &self.codec {
            Codec::Standardize { fill, .. }
            | Codec::Plain { fill }
            | Codec::Quantile { fill, .. }
            | Codec::PiecewiseLinear { fill, .. } => format!("`{}`", decode::rounded(*fill)),
            Codec::Date { fill, .. } => format!("`{}`", cell::date_text(*fill)),
            Codec::Boolean => "something between true and false".to_owned(),
            Codec::Category { .. } | Codec::Hashed { .. } => "none of the categories".to_owned(),
            Codec::Text(_) => "a text without words".to_owned(),
        };
        (!self.indicator).then_some(given)
    }

    /// Whether its cells become one number, beside the one that says whether they are missing.
    pub fn is_one_number(&self) -> bool {
        matches!(self.codec, Codec::Standardize { .. } | Codec::Plain { .. } | Codec::Quantile { .. })
    }

    /// Whether its cells become a 1 in one of several places.
    pub fn is_category(&self) -> bool {
        matches!(self.codec, Codec::Category { .. } | Codec::Hashed { .. })
    }

    /// Whether its cells become the words of a text.
    pub fn is_text(&self) -> bool {
        matches!(self.codec, Codec::Text(_))
    }

    /// The quantiles of encoded cells that bound so many bins, each once: `compute_bins` of `rtdl_num_embeddings`.
    fn bins_of(&self, cells: &Cells, rows: &[u32], bins: usize) -> Vec<f32> {
        let mut encoded = vec![0f32; self.width()];
        let number = |row: &u32| {
            self.encode(cells, *row as usize, &mut encoded);
            f64::from(encoded[0])
        };
        let mut sorted: Vec<f64> = rows.iter().map(number).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut edges: Vec<f32> = percentiles(&sorted, bins + 1).into_iter().map(|edge| edge as f32).collect();
        // Rounding of the interpolation is no order.
        edges.sort_unstable_by(f32::total_cmp);
        edges.dedup();
        edges
    }

    /// Where the bins of its number begin and end: two numbers at least, or none.
    pub fn edges(&self) -> &[f32] {
        if self.edges.len() > 1 { &self.edges } else { &[] }
    }

    /// Whether a training can have fitted it.
    pub fn is_sane(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let increasing =
            |list: &[f64]| list.iter().all(|v| v.is_finite()) && list.windows(2).all(|pair| pair[0] < pair[1]);
        let edges: Vec<f64> = self.edges.iter().map(|edge| f64::from(*edge)).collect();
        let codec = match &self.codec {
            Codec::Standardize { fill, mean, deviation, .. } | Codec::Date { fill, mean, deviation, .. } => {
                fill.is_finite() && mean.is_finite() && positive(*deviation)
            }
            Codec::Plain { fill } => fill.is_finite(),
            Codec::Quantile { fill, quantiles } => fill.is_finite() && quantiles.is_sane(),
            Codec::PiecewiseLinear { fill, edges } => fill.is_finite() && increasing(edges),
            Codec::Category { values, .. } => values.windows(2).all(|pair| pair[0] < pair[1]),
            Codec::Hashed { buckets, .. } | Codec::Text(Words { buckets, .. }) => (1..=MOST_BUCKETS).contains(buckets),
            Codec::Boolean => true,
        };
        codec && (edges.is_empty() || self.is_one_number() && increasing(&edges) && edges.len() <= MOST_EDGES)
    }

    /// How its cells are read.
    pub fn read(&self) -> Read {
        match self.codec {
            Codec::Standardize { .. } | Codec::Plain { .. } | Codec::Quantile { .. } => Read::Number,
            Codec::PiecewiseLinear { .. } => Read::Number,
            Codec::Category { .. } | Codec::Text(_) => Read::Text,
            Codec::Hashed { plain, .. } => Read::Hash { plain },
            Codec::Boolean => Read::Truth,
            Codec::Date { form, .. } => Read::Date(form),
        }
    }

    /// Whether a text has a place, one of its own or that of all others.
    pub fn has_place_for(&self, text: &str) -> bool {
        match &self.codec {
            Codec::Category { values, other } => *other || place(values, text).is_some(),
            _ => true,
        }
    }

    /// How many numbers a cell becomes.
    pub fn width(&self) -> usize {
        let own = match &self.codec {
            Codec::Standardize { .. } | Codec::Plain { .. } | Codec::Quantile { .. } | Codec::Boolean => 1,
            Codec::PiecewiseLinear { edges, .. } => edges.len().saturating_sub(1).max(1),
            Codec::Category { values, other } => values.len() + usize::from(*other),
            Codec::Hashed { buckets, .. } | Codec::Text(Words { buckets, .. }) => *buckets,
            Codec::Date { time_of_day, .. } => {
                if *time_of_day {
                    7
                } else {
                    5
                }
            }
        };
        own + usize::from(self.indicator)
    }

    /// Writes the cells of the rows from `first` on to places of the codec's width.
    pub fn encode_from<'a>(&self, cells: &Cells, first: usize, places: impl Iterator<Item = &'a mut [f32]>) {
        match (&self.codec, cells) {
            // As `encode` does it, without a look at the codec for each cell: most columns of a table are of this kind.
            (Codec::Standardize { mean, deviation, log: false, .. }, Cells::Numbers(values)) if !self.indicator => {
                for (place, value) in places.zip(&values[first..]) {
                    match value.is_nan() {
                        true => self.encode_number(*value, place),
                        false => place[0] = ((value - mean) / deviation) as f32,
                    }
                }
            }
            _ => places.zip(first..).for_each(|(place, row)| self.encode(cells, row, place)),
        }
    }

    /// Writes the cell of a row to what is of the codec's width.
    pub fn encode(&self, cells: &Cells, row: usize, out: &mut [f32]) {
        match cells {
            Cells::Numbers(values) => self.encode_number(values[row], out),
            Cells::Texts(numbers, texts) => {
                self.encode_text(numbers[row].map(|number| texts[number as usize].as_str()), out);
            }
        }
    }

    /// Writes a number, a date or a truth; NaN where it is missing. What it writes to is of its width.
    fn encode_number(&self, value: f64, row: &mut [f32]) {
        let row = self.indicate(value.is_nan(), row);
        let or = |fill: f64| if value.is_nan() { fill } else { value };
        match &self.codec {
            Codec::Standardize { fill, mean, deviation, log: through_log } => {
                let value = if *through_log { log(or(*fill)) } else { or(*fill) };
                row[0] = ((value - mean) / deviation) as f32;
            }
            Codec::Plain { fill } => row[0] = or(*fill) as f32,
            Codec::Quantile { fill, quantiles } => row[0] = quantiles.normal(or(*fill)) as f32,
            Codec::PiecewiseLinear { fill, edges } => piecewise_linear(or(*fill), edges, row),
            // Between them, where it is missing.
            Codec::Boolean => row[0] = or(0.5) as f32,
            Codec::Date { fill, mean, deviation, .. } => {
                let days = or(*fill);
                // 1970-01-01 was a Thursday.
                let [year, week, day] =
                    [cell::part_of_year(days), (days + 3.0).rem_euclid(7.0) / 7.0, days.rem_euclid(1.0)]
                        .map(|part| TAU * part);
                let place = (days - mean) / deviation;
                // As many as the codec is wide.
                let all = [place, year.sin(), year.cos(), week.sin(), week.cos(), day.sin(), day.cos()];
                row.iter_mut().zip(all).for_each(|(to, from)| *to = from as f32);
            }
            Codec::Hashed { buckets, .. } => {
                row.fill(0.0);
                if !value.is_nan() {
                    row[bucket(value as i32, *buckets)] = 1.0;
                }
            }
            Codec::Category { .. } | Codec::Text(_) => row.fill(0.0),
        }
    }

    /// Writes a text; `None` where it is missing. A text of a category that the training rows do not have, or too seldom, has the place of all others, if
    /// there is one, and else zeros alone: it is not taken for a missing one.
    fn encode_text(&self, text: Option<&str>, row: &mut [f32]) {
        let row = self.indicate(text.is_none(), row);
        row.fill(0.0);
        match (&self.codec, text) {
            (Codec::Category { values, other }, Some(text)) => match place(values, text) {
                Some(at) => row[at] = 1.0,
                None if *other => row[values.len()] = 1.0,
                None => {}
            },
            (Codec::Text(words), Some(text)) => words.write(text, row),
            _ => {}
        }
    }

    /// Writes the last place of a row that has one for what is missing; the others.
    fn indicate<'a>(&self, missing: bool, row: &'a mut [f32]) -> &'a mut [f32] {
        if !self.indicator {
            return row;
        }
        let (last, others) = row.split_last_mut().expect("a column is at least one number");
        *last = f32::from(missing);
        others
    }
}
