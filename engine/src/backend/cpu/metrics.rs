//! Running sums of what is reported.

use super::frame::{Frame, NodeKernel, Scratch};
use super::parallel::{CHUNK, for_chunks, rows_per_chunk, vectorised};
use super::rows::{Distance, SquaredDistance, sum};
use super::simd::SimdLevel;
use super::threads::{Chunks, chunks};
use crate::graph::Shape;
use crate::graph::op::{Task, metric_slot as slot};

/// [`crate::graph::op::Metrics`].
pub struct MetricsKernel {
    task: Task,
    /// Rows that the loss is the mean of.
    rows: usize,
    /// Logits of a row, or 1.
    row: usize,
    /// The rows (classification) or elements (regression) of each task.
    pieces: Chunks,
    level: SimdLevel,
}

vectorised! {
    fn errors<'a, S>(s, x: &'a [f32], t: &'a [f32]) -> [f64; 2] {
        [sum(s, x.len(), Distance(x, t)), sum(s, x.len(), SquaredDistance(x, t))]
    }
}

/// True if the first of the largest logits is the target's.
fn is_right(x: &[f32], target: i32) -> bool {
    let Some(&of_target) = usize::try_from(target).ok().and_then(|t| x.get(t)) else { return false };
    let (before, after) = x.split_at(target as usize);
    before.iter().all(|v| *v < of_target) && after.iter().all(|v| *v <= of_target)
}

impl MetricsKernel {
    /// For predictions of shape `x`.
    pub fn new(task: Task, x: &Shape, level: SimdLevel) -> Self {
        match task {
            Task::Classification => {
                let (rows, row) = (x.rows(), x.last());
                MetricsKernel { task, rows, row, pieces: chunks(rows, rows_per_chunk(row)), level }
            }
            Task::Regression => {
                let rows = x.dims().first().copied().unwrap_or(1);
                MetricsKernel { task, rows, row: 1, pieces: chunks(x.len(), CHUNK), level }
            }
        }
    }
}

impl NodeKernel for MetricsKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(2 * self.pieces.count())
    }

    fn run(&self, frame: &Frame<'_>) {
        let loss = frame.input::<f32>(0)[0];
        let totals = frame.update::<f64>(3);
        if !loss.is_finite() {
            totals[slot::NOT_FINITE] += 1.0;
            return;
        }
        let x = frame.input::<f32>(1);
        let partial = frame.scratch().take::<f64>(2 * self.pieces.count());
        match self.task {
            Task::Classification => {
                let targets = frame.input::<i32>(2);
                for_chunks(frame.pool(), partial, 2, |start, sums| {
                    let rows = self.pieces.range(start / 2);
                    let right = rows.filter(|r| is_right(&x[r * self.row..(r + 1) * self.row], targets[*r])).count();
                    sums.copy_from_slice(&[right as f64, 0.0]);
                });
                totals[slot::CORRECT] += partial.iter().step_by(2).sum::<f64>();
            }
            Task::Regression => {
                let targets = frame.input::<f32>(2);
                for_chunks(frame.pool(), partial, 2, |start, sums| {
                    let r = self.pieces.range(start / 2);
                    sums.copy_from_slice(&errors(self.level, &x[r.clone()], &targets[r]));
                });
                totals[slot::ABS_ERROR] += partial.iter().step_by(2).sum::<f64>();
                totals[slot::SQUARED_ERROR] += partial.iter().skip(1).step_by(2).sum::<f64>();
                totals[slot::ELEMENTS] += x.len() as f64;
            }
        }
        totals[slot::LOSS] += loss as f64 * self.rows as f64;
        totals[slot::ROWS] += self.rows as f64;
    }
}
