//! Running metric sums.

use super::Tensor;
use crate::graph::op::{Metrics, Task, metric_slot as slot};

/// Index of the largest element, the first of equals.
fn argmax(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

pub(super) fn metrics(op: &Metrics, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (loss, prediction, target) = (x[0].data[0], x[1], x[2]);
    let mut sums = x[3].data.to_vec();
    if !loss.is_finite() {
        sums[slot::NOT_FINITE] += 1.0;
        return vec![sums];
    }
    let rows = prediction.rows() as f64;
    sums[slot::LOSS] += loss * rows;
    sums[slot::ROWS] += rows;
    match op.task {
        Task::Classification => {
            let rows = prediction.data.chunks(prediction.last()).zip(target.data);
            sums[slot::CORRECT] += rows.filter(|(row, t)| argmax(row) == **t as usize).count() as f64;
        }
        Task::Regression => {
            for (x, t) in prediction.data.iter().zip(target.data) {
                sums[slot::ABS_ERROR] += (x - t).abs();
                sums[slot::SQUARED_ERROR] += (x - t).powi(2);
                sums[slot::ELEMENTS] += 1.0;
            }
        }
    }
    vec![sums]
}
