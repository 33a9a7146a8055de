//! Normalisation over neighbouring channels.

use crate::graph::op::LocalResponseNorm;
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, for_chunks2, rows_per_chunk};

/// [`LocalResponseNorm`].
pub struct LocalResponseNormKernel {
    /// The operation.
    pub op: LocalResponseNorm,
    /// Length of a row.
    pub channels: usize,
}

impl NodeKernel for LocalResponseNormKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y, sums) = (frame.input::<f32>(0), frame.output::<f32>(0), frame.output::<f32>(1));
        let (op, channels) = (&self.op, self.channels);
        let part = op.alpha / op.size as f32;
        let chunk = rows_per_chunk(channels) * channels;
        for_chunks2(frame.pool(), (y, chunk), (sums, chunk), |task, y, sums| {
            let x = &x[task * chunk..][..y.len()];
            for ((x, y), sums) in x.chunks(channels).zip(y.chunks_mut(channels)).zip(sums.chunks_mut(channels)) {
                for c in 0..channels {
                    let squares: f32 = x[op.neighbours(c, channels)].iter().map(|v| v * v).sum();
                    let s = op.k + part * squares;
                    sums[c] = s;
                    y[c] = x[c] * s.powf(-op.beta);
                }
            }
        });
    }
}

/// [`crate::graph::op::LocalResponseNormGrad`].
pub struct LocalResponseNormGradKernel {
    /// The operation.
    pub op: LocalResponseNorm,
    /// Length of a row.
    pub channels: usize,
}

impl NodeKernel for LocalResponseNormGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, sums, dy) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.input::<f32>(2));
        let (op, channels) = (&self.op, self.channels);
        let factor = 2.0 * op.alpha * op.beta / op.size as f32;
        for_chunks(frame.pool(), frame.output::<f32>(0), rows_per_chunk(channels) * channels, |start, dx| {
            let rows = start..start + dx.len();
            let rows = x[rows.clone()]
                .chunks(channels)
                .zip(sums[rows.clone()].chunks(channels))
                .zip(dy[rows].chunks(channels));
            for (dx, ((x, s), dy)) in dx.chunks_mut(channels).zip(rows) {
                for c in 0..channels {
                    let shares = |i: usize| dy[i] * x[i] * s[i].powf(-op.beta - 1.0);
                    let sum: f32 = op.readers(c, channels).map(shares).sum();
                    dx[c] = dy[c] * s[c].powf(-op.beta) - factor * x[c] * sum;
                }
            }
        });
    }
}
