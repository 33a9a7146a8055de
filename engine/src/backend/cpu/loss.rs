//! Losses and their gradients.

use super::frame::{Frame, NodeKernel, Scratch};
use super::lanes::{get, put};
use super::parallel::{CHUNK, for_chunks, for_chunks2, rows_per_chunk, vectorised};
use super::rows::{Exponentials, Plain, SquaredDistance, max, sum};
use super::simd::SimdLevel;
use super::threads::chunks;

/// [`crate::graph::op::CrossEntropy`] and its gradient.
pub struct CrossEntropyKernel {
    rows: usize,
    classes: usize,
    smoothing: f32,
    level: SimdLevel,
    backward: bool,
}

vectorised! {
    /// Sum of the losses of some rows; `lse` takes each row's log-sum-exp. A target that is no class gives NaN.
    fn forward<'a, S>(s, x: &'a [f32], targets: &'a [i32], lse: &'a mut [f32], row: usize, smoothing: f64) -> f64 {
        let mut total = 0.0;
        for ((x, t), lse) in x.chunks(row).zip(targets).zip(lse) {
            let top = max(s, x);
            let log = sum(s, row, Exponentials(x, top)).ln() + top as f64;
            *lse = log as f32;
            let target = usize::try_from(*t).ok().and_then(|t| x.get(t)).map_or(f64::NAN, |v| *v as f64);
            total += (1.0 - smoothing) * (log - target);
            if smoothing != 0.0 {
                total += smoothing * (log - sum(s, row, Plain(x)) / row as f64);
            }
        }
        total
    }

    fn backward<'a, S>(s, x: &'a [f32], targets: &'a [i32], dx: &'a mut [f32], row: usize, factor: f32, smoothing: f32) {
        let flat = s.splat(smoothing / row as f32);
        for ((x, t), dx) in x.chunks(row).zip(targets).zip(dx.chunks_mut(row)) {
            // Not `e^(x − lse)` with the saved sum: where the net is sure of itself, rounding `lse` would leave few
            // digits of `p − 1`.
            let top = max(s, x);
            let log = s.splat(sum(s, row, Exponentials(x, top)).ln() as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let p = s.exp(s.sub(s.sub(get(s, x, i, n), s.splat(top)), log));
                put(s, dx, i, n, s.sub(p, flat));
            }
            if let Some(d) = usize::try_from(*t).ok().and_then(|t| dx.get_mut(t)) {
                *d -= 1.0 - smoothing;
            }
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                put(s, dx, i, n, s.mul(get(s, dx, i, n), s.splat(factor)));
            }
        }
    }

    fn squares<'a, S>(s, x: &'a [f32], t: &'a [f32]) -> f64 {
        sum(s, x.len(), SquaredDistance(x, t))
    }

    fn differences<'a, S>(s, x: &'a [f32], t: &'a [f32], dx: &'a mut [f32], factor: f32) {
        for i in (0..x.len()).step_by(S::LANES) {
            let n = (x.len() - i).min(S::LANES);
            put(s, dx, i, n, s.mul(s.splat(factor), s.sub(get(s, x, i, n), get(s, t, i, n))));
        }
    }
}

impl CrossEntropyKernel {
    /// For `rows` rows of `classes` logits.
    pub fn new(rows: usize, classes: usize, smoothing: f32, backward: bool, level: SimdLevel) -> Self {
        CrossEntropyKernel { rows, classes, smoothing, level, backward }
    }

    /// Fewer than where memory is the bound: an exponential and its share of a logarithm take some 30 times as long.
    fn rows_per_task(&self) -> usize {
        rows_per_chunk(self.classes * 32)
    }
}

impl NodeKernel for CrossEntropyKernel {
    fn scratch_bytes(&self) -> usize {
        if self.backward { 0 } else { Scratch::size::<f64>(self.rows.div_ceil(self.rows_per_task())) }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, targets) = (frame.input::<f32>(0), frame.input::<i32>(1));
        let (row, step) = (self.classes, self.rows_per_task());
        if self.backward {
            let dloss = frame.input::<f32>(3);
            let factor = dloss[0] / self.rows as f32;
            for_chunks(frame.pool(), frame.output::<f32>(0), step * row, |start, dx| {
                let r = start / row..(start + dx.len()) / row;
                let x = &x[start..start + dx.len()];
                backward(self.level, x, &targets[r], dx, row, factor, self.smoothing);
            });
        } else {
            let loss = frame.output::<f32>(0);
            let partial = frame.scratch().take::<f64>(self.rows.div_ceil(step));
            let lse = frame.output::<f32>(1);
            for_chunks2(frame.pool(), (lse, step), (&mut *partial, 1), |task, lse, sum| {
                let r = task * step..task * step + lse.len();
                let x = &x[r.start * row..r.end * row];
                sum[0] = forward(self.level, x, &targets[r], lse, row, self.smoothing as f64);
            });
            loss[0] = (partial.iter().sum::<f64>() / self.rows as f64) as f32;
        }
    }
}

/// [`crate::graph::op::Mse`].
pub struct MseKernel {
    /// Number of elements.
    pub len: usize,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MseKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(chunks(self.len, CHUNK).count())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, t) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let pieces = chunks(self.len, CHUNK);
        let partial = frame.scratch().take::<f64>(pieces.count());
        for_chunks(frame.pool(), partial, 1, |task, sum| {
            let r = pieces.range(task);
            sum[0] = squares(self.level, &x[r.clone()], &t[r]);
        });
        frame.output::<f32>(0)[0] = (partial.iter().sum::<f64>() / self.len as f64) as f32;
    }
}

/// [`crate::graph::op::MseGrad`].
pub struct MseGradKernel {
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MseGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, t, dloss) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.input::<f32>(2));
        let dx = frame.output::<f32>(0);
        let factor = (2.0 / dx.len() as f64 * dloss[0] as f64) as f32;
        for_chunks(frame.pool(), dx, CHUNK, |start, dx| {
            let r = start..start + dx.len();
            differences(self.level, &x[r.clone()], &t[r], dx, factor);
        });
    }
}
