//! Running metric sums, counts of classes, and sums for each output of a regression.

use super::Tensor;
use crate::graph::op::{
    ClassCounts, Counted, ERROR_SUMS, ErrorSums, LEAST_TARGET, Metrics, RANKS, Task, error_sum, metric_slot as slot,
};

/// Index of the largest element, the first of equals.
fn argmax(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

pub(super) fn metrics(op: &Metrics, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (loss, weight, prediction, target) = (x[0].data[0], x[1].data[0], x[2], x[3]);
    let mut sums = x[4].data.to_vec();
    if !loss.is_finite() {
        sums[slot::NOT_FINITE] += 1.0;
        return vec![sums];
    }
    sums[slot::LOSS] += loss * weight;
    sums[slot::WEIGHT] += weight;
    let pairs = prediction.data.iter().zip(target.data);
    match op.task {
        Task::Classification => {
            let ignored = |t: f64| op.ignore_index.is_some_and(|i| t == f64::from(i));
            for (row, t) in prediction.data.chunks(prediction.last()).zip(target.data).filter(|(_, t)| !ignored(**t)) {
                // Of numbers that are none, none is the largest.
                let is_right = !row.iter().any(|x| x.is_nan()) && argmax(row) as f64 == *t;
                sums[slot::CORRECT] += f64::from(u8::from(is_right));
                sums[slot::ITEMS] += 1.0;
            }
        }
        Task::BinaryClassification => {
            for (x, t) in pairs {
                sums[slot::CORRECT] += f64::from(u8::from((*x > 0.0) == (*t > 0.5)));
                sums[slot::ITEMS] += 1.0;
            }
        }
        Task::Regression => {
            for (x, t) in pairs {
                sums[slot::ABS_ERROR] += (x - t).abs();
                sums[slot::SQUARED_ERROR] += (x - t).powi(2);
                sums[slot::ITEMS] += 1.0;
            }
        }
    }
    vec![sums]
}

pub(super) fn class_counts(op: &ClassCounts, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (loss, prediction, target) = (x[0].data[0], x[1], x[2]);
    let mut counts = x[3].data.to_vec();
    if !loss.is_finite() {
        return vec![counts];
    }
    let classes = op.classes(prediction.last());
    let of = |class: usize| RANKS + 3 * class;
    match op.of {
        Counted::Classes { ignore_index, matrix } => {
            for (row, t) in prediction.data.chunks(classes).zip(target.data) {
                if ignore_index.is_some_and(|i| *t == f64::from(i)) {
                    continue;
                }
                let (target, predicted) = (*t as usize, argmax(row));
                let before = |i: usize| row[i] > row[target] || (row[i] == row[target] && i < target);
                let rank = (0..classes).filter(|i| before(*i)).count();
                if rank < RANKS {
                    counts[rank] += 1.0;
                }
                counts[of(target)] += f64::from(u8::from(predicted == target));
                counts[of(predicted) + 1] += 1.0;
                counts[of(target) + 2] += 1.0;
                if matrix {
                    counts[of(classes) + target * classes + predicted] += 1.0;
                }
            }
        }
        Counted::Labels(labels) => {
            for (i, (x, t)) in prediction.data.iter().zip(target.data).enumerate() {
                let (predicted, is) = (*x > 0.0, *t > 0.5);
                for (k, counts_here) in [predicted && is, predicted, is].into_iter().enumerate() {
                    counts[of(i % labels) + k] += f64::from(u8::from(counts_here));
                }
            }
        }
    }
    vec![counts]
}

pub(super) fn error_sums(op: &ErrorSums, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (loss, prediction, target) = (x[0].data[0], x[1], x[2]);
    let mut sums = x[3].data.to_vec();
    if !loss.is_finite() {
        return vec![sums];
    }
    for (i, (x, t)) in prediction.data.iter().zip(target.data).enumerate() {
        let of = &mut sums[i % op.outputs * ERROR_SUMS..][..ERROR_SUMS];
        of[error_sum::TARGET] += t;
        of[error_sum::SQUARED_TARGET] += t * t;
        of[error_sum::SQUARED_ERROR] += (x - t).powi(2);
        of[error_sum::RELATIVE_ERROR] += (x - t).abs() / t.abs().max(LEAST_TARGET);
        of[error_sum::ABSOLUTE_ERROR] += (x - t).abs();
    }
    vec![sums]
}
