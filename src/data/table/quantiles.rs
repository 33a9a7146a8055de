//! Quantiles of numbers, and the normal distribution that they are mapped to.

use serde::{Deserialize, Serialize};

/// Most quantiles that are kept: scikit-learn's `n_quantiles`.
const MOST: usize = 1000;
/// The ends of probabilities, beyond which scikit-learn clips: `spacing(1)` off the bounds.
const BOUND: f64 = 1e-7 - f64::EPSILON;

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

/// The inverse of the standard normal distribution function: algorithm AS 241 (Wichura 1988), to 16 digits.
fn normal_quantile(p: f64) -> f64 {
    let horner = |coefficients: [f64; 8], x: f64| coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c);
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        let above = horner(
            [
                3.387_132_872_796_366_5,
                133.141_667_891_784_38,
                1_971.590_950_306_551_3,
                13_731.693_765_509_46,
                45_921.953_931_549_87,
                67_265.770_927_008_7,
                33_430.575_583_588_13,
                2_509.080_928_730_122_7,
            ],
            r,
        );
        let below = horner(
            [
                1.0,
                42.313_330_701_600_91,
                687.187_007_492_057_9,
                5_394.196_021_424_751,
                21_213.794_301_586_597,
                39_307.895_800_092_71,
                28_729.085_735_721_943,
                5_226.495_278_852_545,
            ],
            r,
        );
        return q * above / below;
    }
    let r = (-(if q < 0.0 { p } else { 1.0 - p }).ln()).sqrt();
    let value = if r <= 5.0 {
        let r = r - 1.6;
        let above = horner(
            [
                1.423_437_110_749_683_5,
                4.630_337_846_156_546,
                5.769_497_221_460_691,
                3.647_848_324_763_204_5,
                1.270_458_252_452_368_4,
                0.241_780_725_177_450_6,
                0.022_723_844_989_269_184,
                7.745_450_142_783_414e-4,
            ],
            r,
        );
        let below = horner(
            [
                1.0,
                2.053_191_626_637_759,
                1.676_384_830_183_803_8,
                0.689_767_334_985_1,
                0.148_103_976_427_480_08,
                0.015_198_666_563_616_457,
                5.475_938_084_995_345e-4,
                1.050_750_071_644_416_9e-9,
            ],
            r,
        );
        above / below
    } else {
        let r = r - 5.0;
        let above = horner(
            [
                6.657_904_643_501_103,
                5.463_784_911_164_114,
                1.784_826_539_917_291_3,
                0.296_560_571_828_504_87,
                0.026_532_189_526_576_124,
                0.001_242_660_947_388_078_4,
                2.711_555_568_743_487_6e-5,
                2.010_334_399_292_288_1e-7,
            ],
            r,
        );
        let below = horner(
            [
                1.0,
                0.599_832_206_555_888,
                0.136_929_880_922_735_8,
                0.014_875_361_290_850_615,
                7.868_691_311_456_133e-4,
                1.846_318_317_510_054_7e-5,
                1.421_511_758_316_446e-7,
                2.044_263_103_389_939_8e-15,
            ],
            r,
        );
        above / below
    };
    value.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_quantile_is_that_of_tables() {
        // scipy.stats.norm.ppf
        for (p, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.025, -1.959_963_984_540_054),
            (0.9, 1.281_551_565_544_600_4),
            (0.01, -2.326_347_874_040_840_8),
            (1e-7, -5.199_337_582_192_816_5),
            (1e-12, -7.034_483_825_301_132),
        ] {
            assert!(
                (normal_quantile(p) - expected).abs() < 1e-12 * (1.0 + expected.abs()),
                "{p}: {}",
                normal_quantile(p)
            );
        }
    }

    #[test]
    fn percentiles_are_those_of_numpy() {
        assert_eq!(percentiles(&[1.0, 2.0, 4.0, 8.0], 3), [1.0, 3.0, 8.0]);
        assert_eq!(percentiles(&[5.0], 3), [5.0; 3]);
        assert!(percentiles(&[], 3).is_empty());
    }
}
