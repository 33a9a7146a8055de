//! From sums of errors and targets to what is reported of them, as scikit-learn averages: the mean over the outputs.

use crate::graph::op::{ERROR_SUMS, Figure, LEAST_TARGET, error_sum};

/// What an evaluation has summed of each output.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorReport {
    outputs: Vec<[f64; ERROR_SUMS]>,
    /// Numbers of each output.
    count: f64,
}

/// The figures of one output, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutputErrors {
    /// Mean absolute error.
    pub mae: f64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Coefficient of determination.
    pub r2: f64,
    /// Mean absolute percentage error, as a fraction.
    pub mape: f64,
}

impl ErrorReport {
    /// What the sums (`[outputs, ERROR_SUMS]`) over `items` numbers in all stand for.
    pub fn new(sums: &[f64], items: f64) -> Self {
        let outputs = sums.as_chunks::<ERROR_SUMS>().0.to_vec();
        let count = items / outputs.len().max(1) as f64;
        ErrorReport { outputs, count }
    }

    /// The same of pairs of a prediction and a target, row by row, of `outputs` each.
    pub fn of_rows(outputs: usize, rows: impl Iterator<Item = impl Iterator<Item = (f32, f32)>>) -> Self {
        let (mut all, mut count) = (vec![[0.0; ERROR_SUMS]; outputs], 0.0);
        for row in rows {
            count += 1.0;
            for (sums, (x, t)) in all.iter_mut().zip(row) {
                let (x, t) = (f64::from(x), f64::from(t));
                sums[error_sum::TARGET] += t;
                sums[error_sum::SQUARED_TARGET] += t * t;
                sums[error_sum::SQUARED_ERROR] += (x - t).powi(2);
                sums[error_sum::RELATIVE_ERROR] += (x - t).abs() / t.abs().max(LEAST_TARGET);
                sums[error_sum::ABSOLUTE_ERROR] += (x - t).abs();
            }
        }
        ErrorReport { outputs: all, count }
    }

    fn mean(&self, of: impl Fn(&[f64; ERROR_SUMS]) -> f64) -> f64 {
        self.outputs.iter().map(of).sum::<f64>() / self.outputs.len() as f64
    }

    /// `1 − Σ (x − t)² / Σ (t − mean of t)²` of an output. As scikit-learn's `r2_score`: NaN of a single number and, where all
    /// targets are the same, 1 of perfect predictions and 0 of others.
    fn r2(&self, sums: &[f64; ERROR_SUMS]) -> f64 {
        if self.count < 2.0 {
            return f64::NAN;
        }
        let mean = sums[error_sum::TARGET] / self.count;
        let all = sums[error_sum::SQUARED_TARGET] - mean * sums[error_sum::TARGET];
        // What is left of equal targets by rounding.
        let nothing = all <= 4.0 * f64::EPSILON * sums[error_sum::SQUARED_TARGET];
        match (nothing, sums[error_sum::SQUARED_ERROR] == 0.0) {
            (_, true) => 1.0,
            (true, false) => 0.0,
            (false, false) => 1.0 - sums[error_sum::SQUARED_ERROR] / all,
        }
    }

    /// What is reported of each output, in order.
    pub fn outputs(&self) -> impl Iterator<Item = OutputErrors> {
        self.outputs.iter().map(|sums| OutputErrors {
            mae: sums[error_sum::ABSOLUTE_ERROR] / self.count,
            rmse: (sums[error_sum::SQUARED_ERROR] / self.count).sqrt(),
            r2: self.r2(sums),
            mape: sums[error_sum::RELATIVE_ERROR] / self.count,
        })
    }

    /// A figure that comes from these sums; `None` for any other.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::R2 => Some(self.mean(|sums| self.r2(sums))),
            Figure::Mape => Some(self.mean(|sums| sums[error_sum::RELATIVE_ERROR] / self.count)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R² of predictions `x` of targets `t`.
    fn r2(x: &[f32], t: &[f32]) -> f64 {
        let rows = x.iter().zip(t).map(|(x, t)| std::iter::once((*x, *t)));
        ErrorReport::of_rows(1, rows).figure(Figure::R2).unwrap()
    }

    /// As `sklearn.metrics.r2_score` has it, although sums of equal targets are rounded.
    #[test]
    fn equal_targets_are_predicted_or_not() {
        let same = [0.1; 3];
        assert_eq!((r2(&same, &same), r2(&[0.1, 0.1, 0.2], &same)), (1.0, 0.0));
        assert_eq!(r2(&[1.0, 2.0], &[1.0, 2.0]), 1.0);
        assert!((r2(&[2.0, 2.0], &[1.0, 2.0]) + 1.0).abs() < 1e-12);
        assert!(r2(&[1.0], &[1.0]).is_nan());
    }
}
