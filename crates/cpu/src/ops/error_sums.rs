//! Sums of errors and targets for each output of a regression.

use crate::graph::op::{ERROR_SUMS, LEAST_TARGET, error_sum};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, rows_per_chunk};

/// [`crate::graph::op::ErrorSums`].
pub struct ErrorSumsKernel {
    /// Numbers that are predicted of each sample.
    pub outputs: usize,
    /// Numbers of a batch.
    pub elements: usize,
}

impl ErrorSumsKernel {
    /// Elements of each task, a multiple of the number of outputs.
    fn grain(&self) -> usize {
        self.outputs * rows_per_chunk(self.outputs)
    }

    fn tasks(&self) -> usize {
        self.elements.div_ceil(self.grain())
    }
}

impl NodeKernel for ErrorSumsKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(ERROR_SUMS * self.outputs * self.tasks())
    }

    fn run(&self, frame: &Frame<'_>) {
        let loss = frame.input::<f32>(0)[0];
        let totals = frame.update::<f64>(3);
        if !loss.is_finite() {
            return;
        }
        let (x, t) = (frame.input::<f32>(1), frame.input::<f32>(2));
        let (grain, width) = (self.grain(), ERROR_SUMS * self.outputs);
        let partial = frame.scratch().take::<f64>(width * self.tasks());
        for_chunks(frame.pool(), partial, width, |start, sums| {
            let from = start / width * grain;
            let to = (from + grain).min(self.elements);
            sums.fill(0.0);
            for (x, t) in x[from..to].chunks(self.outputs).zip(t[from..to].chunks(self.outputs)) {
                for ((x, t), sums) in x.iter().zip(t).zip(sums.chunks_exact_mut(ERROR_SUMS)) {
                    let (x, t) = (f64::from(*x), f64::from(*t));
                    sums[error_sum::TARGET] += t;
                    sums[error_sum::SQUARED_TARGET] += t * t;
                    sums[error_sum::SQUARED_ERROR] += (x - t) * (x - t);
                    sums[error_sum::RELATIVE_ERROR] += (x - t).abs() / t.abs().max(LEAST_TARGET);
                    sums[error_sum::ABSOLUTE_ERROR] += (x - t).abs();
                }
            }
        });
        for sums in partial.chunks(width) {
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total += sum;
            }
        }
    }
}
