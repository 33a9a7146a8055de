//! Softmax and its logarithm over the last axis.

use super::reduce_rows::{Dot, Plain, Terms, log_sum_exp, max, sum};
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, rows_per_chunk, vectorised};
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};

/// [`crate::graph::op::Softmax`].
pub struct SoftmaxKernel {
    /// Length of a row.
    pub row: usize,
    /// Instructions.
    pub level: SimdLevel,
}

/// [`crate::graph::op::SoftmaxGrad`].
pub struct SoftmaxGradKernel {
    /// Length of a row.
    pub row: usize,
    /// Instructions.
    pub level: SimdLevel,
}

/// [`crate::graph::op::LogSoftmax`].
pub struct LogSoftmaxKernel {
    /// Length of a row.
    pub row: usize,
    /// Instructions.
    pub level: SimdLevel,
}

/// [`crate::graph::op::LogSoftmaxGrad`].
pub struct LogSoftmaxGradKernel {
    /// Length of a row.
    pub row: usize,
    /// Instructions.
    pub level: SimdLevel,
}

/// `Σ e^(x − top)`, whose terms are kept in `y`.
struct Kept<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    top: f32,
}

impl Terms for Kept<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let e = s.exp(s.sub(get(s, self.x, i, n), s.splat(self.top)));
        put(s, self.y, i, n, e);
        e
    }
}

vectorised! {
    fn forward<'a, S>(s, x: &'a [f32], y: &'a mut [f32], row: usize) {
        for (x, y) in x.chunks(row).zip(y.chunks_mut(row)) {
            let top = max(s, x);
            let total = s.splat(sum(s, row, Kept { x, y, top }) as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                put(s, y, i, n, s.div(get(s, y, i, n), total));
            }
        }
    }

    fn backward<'a, S>(s, y: &'a [f32], dy: &'a [f32], dx: &'a mut [f32], row: usize) {
        for ((y, dy), dx) in y.chunks(row).zip(dy.chunks(row)).zip(dx.chunks_mut(row)) {
            let dot = s.splat(sum(s, row, Dot(y, dy)) as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                put(s, dx, i, n, s.mul(get(s, y, i, n), s.sub(get(s, dy, i, n), dot)));
            }
        }
    }

    fn log_forward<'a, S>(s, x: &'a [f32], y: &'a mut [f32], row: usize) {
        for (x, y) in x.chunks(row).zip(y.chunks_mut(row)) {
            let [top, log] = log_sum_exp(s, x).map(|v| s.splat(v as f32));
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                // The largest element is taken off first: the logarithm may be small beside it.
                put(s, y, i, n, s.sub(s.sub(get(s, x, i, n), top), log));
            }
        }
    }

    fn log_backward<'a, S>(s, y: &'a [f32], dy: &'a [f32], dx: &'a mut [f32], row: usize) {
        for ((y, dy), dx) in y.chunks(row).zip(dy.chunks(row)).zip(dx.chunks_mut(row)) {
            let total = s.splat(sum(s, row, Plain(dy)) as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                put(s, dx, i, n, s.sub(get(s, dy, i, n), s.mul(s.exp(get(s, y, i, n)), total)));
            }
        }
    }
}

impl NodeKernel for LogSoftmaxKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.input::<f32>(0), frame.output::<f32>(0));
        for_chunks(frame.pool(), y, rows_per_chunk(self.row) * self.row, |start, y| {
            log_forward(self.level, &x[start..start + y.len()], y, self.row);
        });
    }
}

impl NodeKernel for LogSoftmaxGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (y, dy, dx) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.output::<f32>(0));
        for_chunks(frame.pool(), dx, rows_per_chunk(self.row) * self.row, |start, dx| {
            let r = start..start + dx.len();
            log_backward(self.level, &y[r.clone()], &dy[r], dx, self.row);
        });
    }
}

impl NodeKernel for SoftmaxKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.input::<f32>(0), frame.output::<f32>(0));
        for_chunks(frame.pool(), y, rows_per_chunk(self.row) * self.row, |start, y| {
            forward(self.level, &x[start..start + y.len()], y, self.row);
        });
    }
}

impl NodeKernel for SoftmaxGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (y, dy, dx) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.output::<f32>(0));
        for_chunks(frame.pool(), dx, rows_per_chunk(self.row) * self.row, |start, dx| {
            let r = start..start + dx.len();
            backward(self.level, &y[r.clone()], &dy[r], dx, self.row);
        });
    }
}
