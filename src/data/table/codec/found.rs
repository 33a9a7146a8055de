//! What a training has found in a column, and how its cells become numbers by that.

use super::super::super::classes::{spellings, value};
use super::super::dates::DateForm;
use super::super::hashed::Words;
use super::super::quantiles::Quantiles;
use super::ColumnCodec;
use serde::{Deserialize, Serialize};

/// How the cells of a column become numbers. `fill` stands for a missing one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Codec {
    /// `(x - mean) / deviation`; with `log` of `sign(x) · ln(1 + |x|)`.
    Standardize { fill: f64, mean: f64, deviation: f64, log: bool },
    /// The number itself.
    Plain { fill: f64 },
    /// The quantile of a normal distribution.
    Quantile { fill: f64, quantiles: Quantiles },
    /// How much of each bin lies below the number.
    PiecewiseLinear { fill: f64, edges: Vec<f64> },
    /// In the order of their places; `other`: there is a place for all texts besides.
    Category { values: Vec<String>, other: bool },
    /// A 1 in the place that the text's hash says; `plain`: `1.0` has that of `1`, and `True` that of `true`.
    Hashed {
        buckets: usize,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plain: bool,
    },
    /// The words of a text.
    Text(Words),
    /// 1, 0.
    Boolean,
    /// Days, and the part of the year and the week as points on a circle.
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

impl ColumnCodec {
    /// How its cells become numbers.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Whether the last of its numbers says that the cell is missing.
    pub fn has_indicator(&self) -> bool {
        self.indicator
    }

    /// How cells may be written that have a text as their category, itself first.
    pub fn spellings(text: &str) -> impl Iterator<Item = String> {
        let below_zero = Some(format!("-{text}")).filter(|cell| value(cell) == text);
        [text.to_owned()].into_iter().chain(below_zero).chain(spellings(text))
    }
}
