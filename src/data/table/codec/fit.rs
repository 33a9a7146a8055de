//! What codecs find in the cells of the rows of training.

use super::super::quantiles::{Quantiles, percentiles};
use super::{Codec, Encoding, Fill, Scaling, log};
use std::collections::BTreeMap;

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

/// The codec of numbers.
pub(super) fn number(encoding: &Encoding, mut there: Vec<f64>) -> Codec {
    let (mean, deviation) = mean_and_deviation(there.iter().copied());
    match *encoding {
        Encoding::Number { scaling, fill, bins } => {
            let of_log = |there: &[f64]| mean_and_deviation(there.iter().map(|value| log(*value)));
            let (mean_of, deviation) = if scaling == Scaling::Log { of_log(&there) } else { (mean, deviation) };
            let fill = match fill {
                Fill::Median => median(&there),
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
            Codec::Date { fill: median(&there), mean, deviation, form, time_of_day }
        }
        Encoding::Boolean | Encoding::Category { .. } | Encoding::Hashed { .. } | Encoding::Text(_) => Codec::Boolean,
    }
}

/// The number in the middle, or between the two there; 0 if there is none.
fn median(all: &[f64]) -> f64 {
    let Some(last) = all.len().checked_sub(1) else { return 0.0 };
    let (mut some, rank) = around(all, last / 2);
    let (_, low, above) = some.select_nth_unstable_by(rank, f64::total_cmp);
    let low = *low;
    let high = if last.is_multiple_of(2) { low } else { above.iter().copied().fold(f64::INFINITY, f64::min) };
    percentiles(&[low, high], 3)[1]
}

/// Numbers among which those of `rank` and of the next rank are, and the rank that the first of the two has there: those near it in a sample. A median of a million
/// numbers takes a quarter of the time so.
fn around(all: &[f64], rank: usize) -> (Vec<f64>, usize) {
    /// Numbers of the sample, and those of them on each side: four standard deviations of the place that a rank has in it.
    const SAMPLE: usize = 1024;
    const SIDE: usize = 64;
    const BLOCK: usize = 256;
    let whole = || (all.to_vec(), rank);
    if all.len() < 16 * SAMPLE {
        return whole();
    }
    let mut sample: Vec<f64> = all.iter().copied().step_by(all.len() / SAMPLE).collect();
    sample.sort_unstable_by(f64::total_cmp);
    let at = rank * sample.len() / all.len();
    let (low, high) = (sample[at.saturating_sub(SIDE)], sample[(at + SIDE).min(sample.len() - 1)]);
    let (mut below, mut some) = (0, Vec::new());
    let mut block = [0.0; BLOCK];
    for numbers in all.chunks(BLOCK) {
        let mut count = 0;
        for number in numbers {
            below += usize::from(*number < low);
            block[count] = *number;
            count += usize::from(low <= *number && *number <= high);
        }
        some.extend_from_slice(&block[..count]);
    }
    match rank.checked_sub(below) {
        Some(rank) if rank + 1 < some.len() => (some, rank),
        _ => whole(),
    }
}

/// The codec of texts by their numbers in `texts`: the most frequent ones have places, in the order of their names.
pub(super) fn category(numbers: impl Iterator<Item = u32>, texts: &[String], most: usize, least: usize) -> Codec {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn medians_are_those_of_sorted_numbers() {
        let mut draw = Stream::new(3, Purpose::Split, 0, 0);
        for round in 0..12 {
            let count = (1 << 14) + draw.below(3) as usize;
            let number = |draw: &mut Stream| match round % 4 {
                0 => f64::from(draw.next_u32()) - f64::from(1u32 << 31),
                1 => f64::from(draw.below(3)) - 1.0,
                2 => (f64::from(draw.below(2000)) - 1000.0).powi(9),
                // The two in the middle have other signs.
                _ => [-1e300, 1e-300, -0.0, 1e300][draw.below(4) as usize],
            };
            let all: Vec<f64> = (0..count).map(|_| number(&mut draw)).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            assert_eq!(median(&all).to_bits(), percentiles(&sorted, 3)[1].to_bits(), "round {round}");
        }
        assert_eq!([median(&[]), median(&[2.0]), median(&[1.0, 4.0])], [0.0, 2.0, 2.5]);
    }
}
