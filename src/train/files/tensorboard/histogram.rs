//! Histograms with TensorFlow's buckets: each is a tenth wider than the one before, away from 0 in both directions.

use std::sync::LazyLock;

/// The upper ends of the buckets, exclusive.
static LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let up: Vec<f64> =
        std::iter::successors(Some(1e-12), |limit| Some(limit * 1.1)).take_while(|l| *l < 1e20).collect();
    let ends = |sign: f64| std::iter::once(f64::MAX * sign);
    let down = up.iter().rev().map(|limit| -limit);
    ends(-1.0).chain(down).chain([0.0]).chain(up.iter().copied()).chain(ends(1.0)).collect()
});

/// Numbers, counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
    buckets: Vec<f64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { min: f64::MAX, max: f64::MIN, count: 0.0, sum: 0.0, squares: 0.0, buckets: vec![0.0; LIMITS.len()] }
    }
}

impl Histogram {
    /// Counts a number; one that is not finite has no bucket.
    pub fn add(&mut self, value: f32) {
        let value = f64::from(value);
        if !value.is_finite() {
            return;
        }
        let bucket = LIMITS.partition_point(|limit| *limit <= value);
        self.buckets[bucket] += 1.0;
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    /// Upper ends and counts of buckets; those side by side that are empty are one.
    pub fn buckets(&self) -> Vec<(f64, f64)> {
        let mut out: Vec<(f64, f64)> = Vec::new();
        for (limit, count) in LIMITS.iter().zip(&self.buckets) {
            match out.last_mut() {
                Some((end, 0.0)) if *count == 0.0 => *end = *limit,
                _ => out.push((*limit, *count)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_its_bucket() {
        let mut histogram = Histogram::default();
        let values = [-3e38, -1.0, -1e-13, 0.0, 1e-13, 1e-12, 0.5, 3e38];
        values.into_iter().for_each(|value| histogram.add(value));
        histogram.add(f32::NAN);
        assert_eq!((histogram.count, histogram.min, histogram.max), (8.0, f64::from(-3e38f32), f64::from(3e38f32)));
        let mut low = f64::NEG_INFINITY;
        let mut left = values.map(f64::from).to_vec();
        for (limit, count) in histogram.buckets() {
            let inside = left.iter().filter(|value| **value >= low && **value < limit).count();
            assert_eq!(inside as f64, count, "up to {limit}");
            left.retain(|value| *value >= limit);
            low = limit;
        }
        assert!(left.is_empty());
    }
}
