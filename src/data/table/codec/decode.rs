//! From the numbers of a sample back to what a cell of a table was.

use super::{Codec, ColumnCodec, cell};
use std::cmp::Ordering;
use std::fmt;

/// What a cell was, as far as its numbers determine it.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// Nothing was in it.
    Missing,
    /// A number, but for rounding to single precision.
    Number(f64),
    /// Days since 1970-01-01.
    Date(f64),
    /// Yes or no.
    Truth(bool),
    /// One of the texts with a place of their own.
    Text(String),
    /// One of the texts whose hash says this place.
    Bucket(usize),
    /// Another text.
    Other,
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decoded::Missing => write!(f, "(missing)"),
            Decoded::Number(number) => write!(f, "{}", rounded(*number)),
            Decoded::Date(days) => write!(f, "{}", cell::date_text(*days)),
            Decoded::Truth(truth) => write!(f, "{truth}"),
            Decoded::Text(text) => write!(f, "{text}"),
            Decoded::Bucket(place) => write!(f, "(bucket {place})"),
            Decoded::Other => write!(f, "(other)"),
        }
    }
}

/// A number that was standardised in single precision, with as many digits as that has: one that is nearly whole was.
pub fn rounded(number: f64) -> f32 {
    let whole = number.round();
    if (number - whole).abs() <= 1e-6 * number.abs() { whole as f32 } else { number as f32 }
}

/// A number that was made in single precision from others of a `size`, with the seven digits that are known of it: 21.4 and 0, for
/// 21.399998 and -0.00000003.
fn as_written(number: f64, size: f64) -> f64 {
    let step = 10f64.powi((number.abs().max(size).log10().floor() as i32).saturating_sub(6));
    if step.is_normal() { (number / step).round() * step + 0.0 } else { number }
}

impl Decoded {
    /// The order in which they are shown: numbers and dates by value, texts by name, what is missing last.
    pub fn order(&self, other: &Decoded) -> Ordering {
        let rank = |value: &Decoded| match value {
            Decoded::Number(_) | Decoded::Date(_) | Decoded::Truth(_) | Decoded::Text(_) | Decoded::Bucket(_) => 0,
            Decoded::Other => 1,
            Decoded::Missing => 2,
        };
        rank(self).cmp(&rank(other)).then_with(|| match (self, other) {
            (Decoded::Number(a), Decoded::Number(b)) | (Decoded::Date(a), Decoded::Date(b)) => a.total_cmp(b),
            (Decoded::Truth(a), Decoded::Truth(b)) => a.cmp(b),
            (Decoded::Text(a), Decoded::Text(b)) => a.cmp(b),
            (Decoded::Bucket(a), Decoded::Bucket(b)) => a.cmp(b),
            _ => Ordering::Equal,
        })
    }
}

impl ColumnCodec {
    /// What a cell was that has become these numbers, as many as the codec is wide.
    pub fn decode(&self, row: &[f32]) -> Decoded {
        let row = match self.indicator {
            true if row.last() == Some(&1.0) => return Decoded::Missing,
            true => &row[..row.len() - 1],
            false => row,
        };
        let first = row.first().copied().map_or(0.0, f64::from);
        match &self.codec {
            Codec::Standardize { mean, deviation, log, .. } => {
                let value = as_written(first * deviation + mean, mean.abs().max(*deviation));
                Decoded::Number(if *log { value.signum() * value.abs().exp_m1() } else { value })
            }
            Codec::Plain { .. } => Decoded::Number(first),
            Codec::Quantile { quantiles, .. } => Decoded::Number(quantiles.value(first)),
            Codec::PiecewiseLinear { edges, .. } => {
                let size = edges.iter().fold(0.0, |most: f64, edge| most.max(edge.abs()));
                Decoded::Number(as_written(of_bins(row, edges), size))
            }
            Codec::Boolean => Decoded::Truth(first > 0.5),
            Codec::Date { mean, deviation, .. } => Decoded::Date((first * deviation + mean).round()),
            Codec::Category { values, .. } => match row.iter().position(|one| *one == 1.0) {
                Some(at) if at < values.len() => Decoded::Text(values[at].clone()),
                _ => Decoded::Other,
            },
            Codec::Hashed { .. } => row.iter().position(|one| *one == 1.0).map_or(Decoded::Other, Decoded::Bucket),
            // What its words were is lost.
            Codec::Text(_) => Decoded::Other,
        }
    }
}

/// The number of which the bins have these parts: it lies in the last bin of which there is some, or in the first.
fn of_bins(row: &[f32], edges: &[f64]) -> f64 {
    let bins = edges.len().saturating_sub(1);
    if bins == 0 {
        return edges.first().copied().unwrap_or_default();
    }
    let at = row.iter().take(bins).rposition(|part| *part > 0.0).unwrap_or(0);
    edges[at] + f64::from(row[at]) * (edges[at + 1] - edges[at])
}

#[cfg(test)]
mod tests {
    use super::super::{Cells, Encoding, Fill, Scaling};
    use super::*;

    #[test]
    fn digits_that_are_not_known_are_not_shown() {
        let shown = |number, size| Decoded::Number(as_written(number, size)).to_string();
        assert_eq!(shown(-3.192_786e-8, 14.0), "0");
        assert_eq!(shown(21.399_998, 14.0), "21.4");
        assert_eq!(shown(1_234_567.04, 1e6), "1234567");
        assert_eq!(shown(0.001_234_567_8, 0.0), "0.001234568");
        assert_eq!(shown(0.0, 0.0), "0");
    }

    fn there_and_back(encoding: &Encoding, cells: &Cells, rows: usize) -> Vec<Decoded> {
        let all: Vec<u32> = (0..rows as u32).collect();
        let codec = ColumnCodec::fit("x", encoding, cells, &all, None);
        let row = |at: usize| {
            let mut out = vec![0.0; codec.width()];
            codec.encode(cells, at, &mut out);
            codec.decode(&out)
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn numbers_come_back_from_every_scaling() {
        let values = [-7.5, 0.0, 1.0, 2.0, 4.0, 100.0, f64::NAN];
        for scaling in [Scaling::Standardize, Scaling::Log, Scaling::Quantile, Scaling::PiecewiseLinear, Scaling::None]
        {
            let encoding = Encoding::Number { scaling, fill: Fill::Median, bins: 4 };
            let back = there_and_back(&encoding, &Cells::Numbers(values.to_vec()), values.len());
            for (back, value) in back.iter().zip(values) {
                match back {
                    Decoded::Number(number) => assert!(
                        (number - value).abs() < 1e-4 * value.abs().max(1.0),
                        "{scaling:?}: {number} of {value}"
                    ),
                    other => assert!(value.is_nan() && *other == Decoded::Missing, "{scaling:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn whole_numbers_are_shown_whole() {
        let all = [6.999_999_5, -3.000_000_2, 0.0, 0.25, 1_999.999_9, 7.001].map(|n| Decoded::Number(n).to_string());
        assert_eq!(all, ["7", "-3", "0", "0.25", "2000", "7.001"]);
    }

    #[test]
    fn words_truths_and_dates_come_back() {
        let texts: Vec<String> = ["often", "rare"].map(String::from).to_vec();
        let cells = Cells::Texts(vec![Some(0), Some(0), Some(1), None], texts.into());
        let back = there_and_back(&Encoding::Category { most: 1, least: 1 }, &cells, 4);
        let often = Decoded::Text("often".into());
        assert_eq!(back, [often.clone(), often, Decoded::Other, Decoded::Missing]);
        let back = there_and_back(&Encoding::Boolean, &Cells::Numbers(vec![1.0, 0.0]), 2);
        assert_eq!(back, [Decoded::Truth(true), Decoded::Truth(false)]);
        // 2026-11-26, and a year before.
        let back = there_and_back(
            &Encoding::Date { form: None, time_of_day: false },
            &Cells::Numbers(vec![20_783.0, 20_418.0]),
            2,
        );
        assert_eq!(back.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2026-11-26", "2025-11-26"]);
    }

    #[test]
    fn what_is_missing_is_last() {
        let mut all = vec![Decoded::Missing, Decoded::Number(2.0), Decoded::Other, Decoded::Number(-1.0)];
        all.sort_by(Decoded::order);
        assert_eq!(all, [Decoded::Number(-1.0), Decoded::Number(2.0), Decoded::Other, Decoded::Missing]);
    }
}
