//! Running sums of what is reported.

use crate::graph::Shape;
use crate::graph::op::{Metrics, Task, metric_slot as slot};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Chunks, chunks};
use crate::simd::SimdLevel;

/// [`crate::graph::op::Metrics`].
pub struct MetricsKernel {
    op: Metrics,
    /// Logits of a row, or 1.
    row: usize,
    /// The rows (classification) or elements of each task.
    pieces: Chunks,
    level: SimdLevel,
}

/// Sums that grow side by side, at every level of vectors.
const LANES: usize = 8;

vectorised! {
    // In double precision: the square of an error of 1e20 or of 1e-23 is no number of single precision.
    fn errors<'a, S>(_s, x: &'a [f32], t: &'a [f32]) -> [f64; 2] {
        let (mut absolute, mut squared) = ([0.0; LANES], [0.0; LANES]);
        for (x, t) in x.chunks(LANES).zip(t.chunks(LANES)) {
            for (((x, t), absolute), squared) in x.iter().zip(t).zip(&mut absolute).zip(&mut squared) {
                let d = f64::from(*x) - f64::from(*t);
                *absolute += d.abs();
                *squared += d * d;
            }
        }
        [absolute.iter().sum(), squared.iter().sum()]
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
    pub fn new(op: &Metrics, x: &Shape, level: SimdLevel) -> Self {
        let (row, pieces) = match op.task {
            Task::Classification => (x.last(), chunks(x.rows(), rows_per_chunk(x.last()))),
            Task::BinaryClassification | Task::Regression => (1, chunks(x.len(), CHUNK)),
        };
        MetricsKernel { op: op.clone(), row, pieces, level }
    }
}

impl NodeKernel for MetricsKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(2 * self.pieces.count())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (loss, weight) = (frame.input::<f32>(0)[0], frame.input::<f32>(1)[0]);
        let totals = frame.update::<f64>(4);
        if !loss.is_finite() {
            totals[slot::NOT_FINITE] += 1.0;
            return;
        }
        let x = frame.input::<f32>(2);
        let partial = frame.scratch().take::<f64>(2 * self.pieces.count());
        // Two sums over the pieces, and where they go.
        let to = match self.op.task {
            Task::Classification => {
                let targets = frame.input::<i32>(3);
                for_chunks(frame.pool(), partial, 2, |start, sums| {
                    let rows = self.pieces.range(start / 2).filter(|r| self.op.ignore_index != Some(targets[*r]));
                    let (mut right, mut items) = (0, 0);
                    for r in rows {
                        right += usize::from(is_right(&x[r * self.row..(r + 1) * self.row], targets[r]));
                        items += 1;
                    }
                    sums.copy_from_slice(&[right as f64, f64::from(items)]);
                });
                [slot::CORRECT, slot::ITEMS]
            }
            Task::BinaryClassification => {
                let targets = frame.input::<f32>(3);
                for_chunks(frame.pool(), partial, 2, |start, sums| {
                    let r = self.pieces.range(start / 2);
                    let right =
                        x[r.clone()].iter().zip(&targets[r.clone()]).filter(|(x, t)| (**x > 0.0) == (**t > 0.5));
                    sums.copy_from_slice(&[right.count() as f64, r.len() as f64]);
                });
                [slot::CORRECT, slot::ITEMS]
            }
            Task::Regression => {
                let targets = frame.input::<f32>(3);
                for_chunks(frame.pool(), partial, 2, |start, sums| {
                    let r = self.pieces.range(start / 2);
                    sums.copy_from_slice(&errors(self.level, &x[r.clone()], &targets[r]));
                });
                totals[slot::ITEMS] += x.len() as f64;
                [slot::ABS_ERROR, slot::SQUARED_ERROR]
            }
        };
        for (k, to) in to.into_iter().enumerate() {
            totals[to] += partial.iter().skip(k).step_by(2).sum::<f64>();
        }
        totals[slot::LOSS] += loss as f64 * weight as f64;
        totals[slot::WEIGHT] += weight as f64;
    }
}
