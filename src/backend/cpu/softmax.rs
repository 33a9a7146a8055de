//! Softmax over the last axis.

use super::frame::{Frame, NodeKernel};
use super::lanes::{get, put};
use super::parallel::{for_chunks, rows_per_chunk, vectorised};
use super::rows::{Dot, Exponentials, max, sum};
use super::simd::SimdLevel;

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

vectorised! {
    fn forward<'a, S>(s, x: &'a [f32], y: &'a mut [f32], row: usize) {
        for (x, y) in x.chunks(row).zip(y.chunks_mut(row)) {
            let top = max(s, x);
            // The exponentials are computed twice rather than kept: the row may be long, and `exp` is quick.
            let total = s.splat(sum(s, row, Exponentials(x, top)) as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let e = s.exp(s.sub(get(s, x, i, n), s.splat(top)));
                put(s, y, i, n, s.div(e, total));
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
