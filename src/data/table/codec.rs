//! How the columns of a table become numbers: fitted on the training rows alone, and kept in the checkpoint.

mod decode;

pub use decode::{Decoded, rounded};

use super::cell;
use super::dates::DateForm;
use super::hashed::{MOST_BUCKETS, Words, bucket};
use super::quantiles::{Quantiles, percentiles, piecewise_linear};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Codec {
    Standardize {
        fill: f64,
        mean: f64,
        deviation: f64,
        log: bool,
    },
    Plain {
        fill: f64,
    },
    Quantile {
        fill: f64,
        quantiles: Quantiles,
    },
    PiecewiseLinear {
        fill: f64,
        edges: Vec<f64>,
    },
    /// In the order of their places; `other`: there is a place for all texts besides.
    Category {
        values: Vec<String>,
        other: bool,
    },
    Hashed {
        buckets: usize,
    },
    Text(Words),
    Boolean,
    Date {
        fill: f64,
        mean: f64,
        deviation: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<DateForm>,
        /// The part of the day has two more numbers.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        time_of_day: bool,
    },
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// As a number.
    Number,
    /// As a truth.
    Truth,
    /// As a date, which is written so, or as ISO 8601 has it.
    Date(Option<DateForm>),
    /// As a text.
    Text,
    /// As a text, of which the hash is kept.
    Hash,
}

/// What a number should have been that no input can be.
pub const TOO_LARGE: &str = "a number of at most 3.4e38, the largest in single precision,";

impl Read {
    /// Whether any text will do.
    pub fn is_text(self) -> bool {
        matches!(self, Read::Text | Read::Hash)
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
            Read::Text | Read::Hash => Ok(0.0),
        }
    }
}

impl Encoding {
    /// How the cells are read.
    pub fn read(&self) -> Read {
        match self {
            Encoding::Number { .. } => Read::Number,
            Encoding::Category { .. } | Encoding::Text(_) => Read::Text,
            Encoding::Hashed { .. } => Read::Hash,
            Encoding::Boolean => Read::Truth,
            Encoding::Date { form, .. } => Read::Date(*form),
        }
    }
}

/// Mean and standard deviation (of the population, as scikit-learn has it; 1 where all are the same).
pub fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt();
    // Rounding of a mean makes a deviation of what has none.
    let none = deviation <= 1e-12 * mean.abs() || deviation == 0.0 || !deviation.is_finite();
    (mean, if none { 1.0 } else { deviation })
}

fn log(value: f64) -> f64 {
    value.signum() * value.abs().ln_1p()
}

impl ColumnCodec {
    /// Fits the codec of a column on the rows of training, `rows`. `bins`: how many the model cuts numbers into, if it does.
    pub fn fit(name: &str, encoding: &Encoding, cells: &Cells, rows: &[u32], bins: Option<usize>) -> ColumnCodec {
        let codec = match (encoding, cells) {
            (Encoding::Category { most, least }, Cells::Texts(numbers, texts)) => {
                category(rows.iter().filter_map(|row| numbers[*row as usize]), texts, *most, *least)
            }
            (Encoding::Hashed { buckets }, _) => Codec::Hashed { buckets: *buckets },
            (Encoding::Text(words), _) => Codec::Text(*words),
            (_, Cells::Texts(..)) => Codec::Boolean,
            (encoding, Cells::Numbers(values)) => {
                let there = rows.iter().map(|row| values[*row as usize]).filter(|value| !value.is_nan());
                number(encoding, there.collect())
            }
        };
        let indicator = rows.iter().any(|row| cells.is_missing(*row));
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
            Codec::Hashed { buckets } | Codec::Text(Words { buckets, .. }) => (1..=MOST_BUCKETS).contains(buckets),
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
            Codec::Hashed { .. } => Read::Hash,
            Codec::Boolean => Read::Truth,
            Codec::Date { form, .. } => Read::Date(form),
        }
    }

    /// Whether a text has a place, one of its own or that of all others.
    pub fn has_place_for(&self, text: &str) -> bool {
        match &self.codec {
            Codec::Category { values, other } => {
                *other || values.binary_search_by(|value| value.as_str().cmp(text)).is_ok()
            }
            _ => true,
        }
    }

    /// How many numbers a cell becomes.
    pub fn width(&self) -> usize {
        let own = match &self.codec {
            Codec::Standardize { .. } | Codec::Plain { .. } | Codec::Quantile { .. } | Codec::Boolean => 1,
            Codec::PiecewiseLinear { edges, .. } => edges.len().saturating_sub(1).max(1),
            Codec::Category { values, other } => values.len() + usize::from(*other),
            Codec::Hashed { buckets } | Codec::Text(Words { buckets, .. }) => *buckets,
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
            Codec::Hashed { buckets } => {
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
            (Codec::Category { values, other }, Some(text)) => {
                match values.binary_search_by(|value| value.as_str().cmp(text)) {
                    Ok(at) => row[at] = 1.0,
                    Err(_) if *other => row[values.len()] = 1.0,
                    Err(_) => {}
                }
            }
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

/// The codec of numbers.
fn number(encoding: &Encoding, mut there: Vec<f64>) -> Codec {
    let (mean, deviation) = mean_and_deviation(there.iter().copied());
    match *encoding {
        Encoding::Number { scaling, fill, bins } => {
            let of_log = |there: &[f64]| mean_and_deviation(there.iter().map(|value| log(*value)));
            let (mean_of, deviation) = if scaling == Scaling::Log { of_log(&there) } else { (mean, deviation) };
            let fill = match fill {
                Fill::Median => median(&mut there),
                Fill::Mean => mean,
                Fill::Zero => 0.0,
            };
            match scaling {
                Scaling::Standardize | Scaling::Log => {
                    Codec::Standardize { fill, mean: mean_of, deviation, log: scaling == Scaling::Log }
                }
                Scaling::None => Codec::Plain { fill },
                Scaling::Quantile => {
                    there.sort_unstable_by(f64::total_cmp);
                    Codec::Quantile { fill, quantiles: Quantiles::of(&there) }
                }
                Scaling::PiecewiseLinear => {
                    there.sort_unstable_by(f64::total_cmp);
                    let mut edges = percentiles(&there, bins + 1);
                    edges.dedup();
                    Codec::PiecewiseLinear { fill, edges }
                }
            }
        }
        Encoding::Date { form, time_of_day } => {
            Codec::Date { fill: median(&mut there), mean, deviation, form, time_of_day }
        }
        Encoding::Boolean | Encoding::Category { .. } | Encoding::Hashed { .. } | Encoding::Text(_) => Codec::Boolean,
    }
}

/// The number in the middle, or between the two there; 0 if there is none. Puts the numbers into another order.
fn median(there: &mut [f64]) -> f64 {
    let Some(last) = there.len().checked_sub(1) else { return 0.0 };
    let (_, low, above) = there.select_nth_unstable_by(last / 2, f64::total_cmp);
    let low = *low;
    let high = if last.is_multiple_of(2) { low } else { above.iter().copied().fold(f64::INFINITY, f64::min) };
    percentiles(&[low, high], 3)[1]
}

/// The codec of texts by their numbers in `texts`: the most frequent ones have places, in the order of their names.
fn category(numbers: impl Iterator<Item = u32>, texts: &[String], most: usize, least: usize) -> Codec {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    let all = counts.len();
    let mut kept: Vec<(usize, &String)> =
        counts.into_iter().filter(|(_, n)| *n >= least).map(|(text, n)| (n, &texts[text as usize])).collect();
    kept.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    kept.truncate(most);
    let other = kept.len() < all;
    let mut values: Vec<String> = kept.into_iter().map(|(_, text)| text.clone()).collect();
    values.sort_unstable();
    Codec::Category { values, other }
}
