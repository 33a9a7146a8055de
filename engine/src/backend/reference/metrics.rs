//! Running metric sums.

use super::Tensor;
use crate::graph::op::{Metrics, Task, metric_slot as slot};

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
                sums[slot::CORRECT] += f64::from(u8::from(argmax(row) as f64 == *t));
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
