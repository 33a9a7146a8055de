//! Cross entropy against the shares of all classes in each row.

use super::loss_weights::{own_of, own_weights, store_mean};
use super::reduce_rows::{Terms, log_sum_exp, sum};
use crate::graph::Shape;
use crate::graph::op::CrossEntropy;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Chunks, chunks};
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};

/// [`crate::graph::op::CrossEntropy`] with shares as targets, and its gradient.
pub struct SoftCrossEntropyKernel {
    loss: CrossEntropy,
    rows: usize,
    classes: usize,
    weighted: bool,
    level: SimdLevel,
    backward: bool,
}

/// What counts of each class in a row: its share, smoothed and weighted.
#[derive(Clone, Copy)]
struct Counted<'a> {
    shares: &'a [f32],
    /// Of each class; empty where all are 1.
    weights: &'a [f32],
    smoothing: f32,
}

impl Counted<'_> {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, i: usize, n: usize) -> S::V {
        let flat = s.splat(self.smoothing / self.shares.len() as f32);
        let smoothed = s.add(s.mul(s.splat(1.0 - self.smoothing), get(s, self.shares, i, n)), flat);
        if self.weights.is_empty() { smoothed } else { s.mul(smoothed, get(s, self.weights, i, n)) }
    }
}

/// `Σ counted`.
struct All<'a>(Counted<'a>);

impl Terms for All<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        self.0.at(s, i, n)
    }
}

/// `Σ counted · (top − x)`. From the largest on down, so that large numbers take no digits.
struct Below<'a>(Counted<'a>, &'a [f32], f32);

impl Terms for Below<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        s.mul(self.0.at(s, i, n), s.sub(s.splat(self.2), get(s, self.1, i, n)))
    }
}

vectorised! {
    /// Sum of the losses of some rows, and of their own weights, which are empty where all are 1.
    fn forward<'a, S>(
        s,
        x: &'a [f32],
        shares: &'a [f32],
        own: &'a [f32],
        row: usize,
        loss: &'a CrossEntropy,
    ) -> [f64; 2] {
        let (mut total, mut weights) = (0.0, 0.0);
        for (i, (x, shares)) in x.chunks(row).zip(shares.chunks(row)).enumerate() {
            let own = own.get(i).map_or(1.0, |own| *own as f64);
            let counted = Counted { shares, weights: &loss.weight, smoothing: loss.label_smoothing };
            let [top, log] = log_sum_exp(s, x);
            total += own * (log * sum(s, row, All(counted)) + sum(s, row, Below(counted, x, top as f32)));
            weights += own;
        }
        [total, weights]
    }

    fn backward<'a, S>(
        s,
        x: &'a [f32],
        shares: &'a [f32],
        own: &'a [f32],
        dx: &'a mut [f32],
        row: usize,
        factor: f32,
        loss: &'a CrossEntropy,
    ) {
        for (i, ((x, shares), dx)) in x.chunks(row).zip(shares.chunks(row)).zip(dx.chunks_mut(row)).enumerate() {
            let factor = own.get(i).map_or(factor, |own| own * factor);
            let counted = Counted { shares, weights: &loss.weight, smoothing: loss.label_smoothing };
            let [top, log] = log_sum_exp(s, x).map(|v| s.splat(v as f32));
            let all = s.splat(sum(s, row, All(counted)) as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let p = s.exp(s.sub(s.sub(get(s, x, i, n), top), log));
                let d = s.sub(s.mul(p, all), counted.at(s, i, n));
                put(s, dx, i, n, s.mul(d, s.splat(factor)));
            }
        }
    }
}

impl SoftCrossEntropyKernel {
    /// For logits of shape `x`.
    pub fn new(loss: &CrossEntropy, x: &Shape, weighted: bool, backward: bool, level: SimdLevel) -> Self {
        SoftCrossEntropyKernel { loss: loss.clone(), rows: x.rows(), classes: x.last(), weighted, level, backward }
    }

    /// The rows of each task, as where targets are classes.
    fn pieces(&self) -> Chunks {
        chunks(self.rows, self.rows_per_task())
    }

    fn rows_per_task(&self) -> usize {
        rows_per_chunk(self.classes * 32)
    }
}

impl NodeKernel for SoftCrossEntropyKernel {
    fn scratch_bytes(&self) -> usize {
        if self.backward { 0 } else { Scratch::size::<f64>(2 * self.pieces().count()) }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, shares) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let row = self.classes;
        let own = own_weights(frame, self.weighted, self.backward);
        if self.backward {
            let (weight, dloss) = (frame.input::<f32>(2)[0], frame.input::<f32>(3)[0]);
            let factor = if weight > 0.0 { dloss / weight } else { 0.0 };
            for_chunks(frame.pool(), frame.output::<f32>(0), self.rows_per_task() * row, |start, dx| {
                let r = start..start + dx.len();
                let own = own_of(own, r.start / row..r.end / row);
                backward(self.level, &x[r.clone()], &shares[r], own, dx, row, factor, &self.loss);
            });
        } else {
            let pieces = self.pieces();
            let partial = frame.scratch().take::<f64>(2 * pieces.count());
            for_chunks(frame.pool(), partial, 2, |start, sums| {
                let rows = pieces.range(start / 2);
                let r = rows.start * row..rows.end * row;
                let own = own_of(own, rows);
                sums.copy_from_slice(&forward(self.level, &x[r.clone()], &shares[r], own, row, &self.loss));
            });
            store_mean(frame, partial, [self.rows; 2], self.weighted);
        }
    }
}
