//! Quantiles of numbers, which are mapped to those of a normal distribution.

use super::normal::{BOUND, normal_quantile};
use serde::{Deserialize, Serialize};

/// Most quantiles that are kept: scikit-learn's `n_quantiles`.
const MOST: usize = 1000;

/// Quantiles of the training rows, evenly spaced. `sklearn.preprocessing.QuantileTransformer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantiles(Vec<f64>);

/// `count` values of sorted numbers at evenly spaced ranks, with those between by linear interpolation, as `numpy.percentile`; none of no
/// numbers.
pub fn percentiles(sorted: &[f64], count: usize) -> Vec<f64> {
    let Some(last) = sorted.len().checked_sub(1) else { return Vec::new() };
    let value = |i: usize| {
        let at = last as f64 * (i as f64 / (count - 1).max(1) as f64);
        let (low, part) = (at.floor() as usize, at.fract());
        let (a, b) = (sorted[low], sorted[(low + 1).min(last)]);
        a + (b - a) * part
    };
    (0..count).map(value).collect()
}

/// For each bin 1 where it lies below the value, 0 where it lies above, and in its own bin the part of that below it; beyond the ends
/// it goes on as in the bins there.
pub fn piecewise_linear(value: f64, edges: &[f64], row: &mut [f32]) {
    let bins = edges.len().saturating_sub(1);
    if bins == 0 {
        row[0] = 0.0;
        return;
    }
    for (at, to) in row.iter_mut().enumerate() {
        let part = (value - edges[at]) / (edges[at + 1] - edges[at]);
        let low = if at == 0 { f64::NEG_INFINITY } else { 0.0 };
        let high = if at + 1 == bins { f64::INFINITY } else { 1.0 };
        *to = part.clamp(low, high) as f32;
    }
}

impl Quantiles {
    /// Those of sorted numbers.
    pub fn of(sorted: &[f64]) -> Quantiles {
        let mut all = percentiles(sorted, MOST.min(sorted.len()));
        // Rounding of the interpolation is no order.
        for at in 1..all.len() {
            all[at] = all[at].max(all[at - 1]);
        }
        Quantiles(all)
    }

    /// The quantiles, ascending.
    pub fn knots(&self) -> &[f64] {
        &self.0
    }

    /// Whether they are those of numbers.
    pub fn is_sane(&self) -> bool {
        self.0.iter().all(|value| value.is_finite()) && self.0.is_sorted()
    }

    /// The part of the numbers below `value`, from 0 to 1: the middle of what it is of where several quantiles are the same.
    fn rank(&self, value: f64) -> f64 {
        let all = &self.0;
        let Some(last) = all.len().checked_sub(1).filter(|last| *last > 0) else { return 0.5 };
        if value <= all[0] && all[0] < all[last] && value < all[0] {
            return 0.0;
        }
        // Linear interpolation from both sides, as `numpy.interp` of the quantiles and of their negatives in reverse.
        let at = |low: usize| {
            if low >= last {
                return 1.0;
            }
            let (a, b) = (all[low], all[low + 1]);
            let part = if b > a { ((value - a) / (b - a)).clamp(0.0, 1.0) } else { 0.0 };
            (low as f64 + part) / last as f64
        };
        let above = all.partition_point(|quantile| *quantile <= value);
        let below = all.partition_point(|quantile| *quantile < value);
        let from_left = if above == 0 { 0.0 } else { at(above - 1) };
        let from_right = if below == 0 {
            0.0
        } else if below > last {
            1.0
        } else if all[below] == value {
            below as f64 / last as f64
        } else {
            at(below - 1)
        };
        0.5 * (from_left + from_right)
    }

    /// The value at a quantile of the standard normal distribution: [`Quantiles::normal`] undone.
    pub fn value(&self, normal: f64) -> f64 {
        let (Some(mut low), Some(mut high)) = (self.0.first().copied(), self.0.last().copied()) else { return 0.0 };
        // It grows with the value. Sixty halvings are more than the digits of a double.
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.normal(middle) < normal { low = middle } else { high = middle }
        }
        high
    }

    /// The quantile of the standard normal distribution at the rank of `value`.
    pub fn normal(&self, value: f64) -> f64 {
        normal_quantile(self.rank(value).clamp(BOUND, 1.0 - BOUND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_numpy() {
        assert_eq!(percentiles(&[1.0, 2.0, 4.0, 8.0], 3), [1.0, 3.0, 8.0]);
        assert_eq!(percentiles(&[5.0], 3), [5.0; 3]);
        assert!(percentiles(&[], 3).is_empty());
    }
}
