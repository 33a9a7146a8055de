//! Layer normalisation: each row by itself.

use super::reduce_columns::{Grid, flush};
use super::reduce_rows::{Plain, SquaresAbout, Terms, sum};
use crate::fusions::Behind;
use crate::graph::op::{LayerNorm, LayerNormGrad, LayerNormGradOperands, LayerNormOperands};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Parts, chunks};
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};
use std::ops::Range;

/// Rows whose parameter gradients are summed in single precision.
const RUN: usize = 32;

/// [`LayerNorm`].
pub struct LayerNormKernel {
    /// Length of a row.
    pub row: usize,
    /// The operation.
    pub op: LayerNorm,
    /// Instructions.
    pub level: SimdLevel,
}

/// [`LayerNormGrad`].
pub struct LayerNormGradKernel {
    row: usize,
    op: LayerNormGrad,
    behind: Behind,
    grid: Grid,
    level: SimdLevel,
}

/// `Σ dy · gamma` (without `x`), or `Σ dy · gamma · (x − mean)`.
struct Weighted<'a> {
    dy: &'a [f32],
    gamma: &'a [f32],
    x: Option<(&'a [f32], f32)>,
}

impl Terms for Weighted<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let mut g = get(s, self.dy, i, n);
        if !self.gamma.is_empty() {
            g = s.mul(g, get(s, self.gamma, i, n));
        }
        match self.x {
            Some((x, mean)) => s.mul(g, s.sub(get(s, x, i, n), s.splat(mean))),
            None => g,
        }
    }
}

/// Statistics of some rows.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    mean: &'a [f32],
    rstd: &'a [f32],
}

vectorised! {
    /// Whole rows; `gamma` and `beta` may be empty.
    fn forward<'a, S>(
        s, x: &'a [f32], y: &'a mut [f32], mean: &'a mut [f32], rstd: &'a mut [f32], gamma: &'a [f32], beta: &'a [f32],
        eps: f64, centered: bool,
    ) {
        let row = x.len() / mean.len();
        for (r, (x, y)) in x.chunks(row).zip(y.chunks_mut(row)).enumerate() {
            let m = if centered { (sum(s, row, Plain(x)) / row as f64) as f32 } else { 0.0 };
            let inv = (1.0 / (sum(s, row, SquaresAbout(x, m)) / row as f64 + eps).sqrt()) as f32;
            (mean[r], rstd[r]) = (m, inv);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let mut v = s.mul(s.sub(get(s, x, i, n), s.splat(m)), s.splat(inv));
                if !gamma.is_empty() {
                    v = s.mul(v, get(s, gamma, i, n));
                }
                if !beta.is_empty() {
                    v = s.add(v, get(s, beta, i, n));
                }
                put(s, y, i, n, v);
            }
        }
    }

    /// `dx = rstd · (dy γ − mean(dy γ) − x̂ · mean(dy γ x̂)) + residual` for whole rows; `residual` may be empty. Unless the mean was
    /// taken off, without the second term.
    fn backward<'a, S>(
        s, x: &'a [f32], dy: &'a [f32], residual: &'a [f32], dx: &'a mut [f32], stats: Statistics<'a>, gamma: &'a [f32],
        row: usize, centered: bool,
    ) {
        for (r, ((x, dy), dx)) in x.chunks(row).zip(dy.chunks(row)).zip(dx.chunks_mut(row)).enumerate() {
            let (mean, inv) = (stats.mean[r], stats.rstd[r]);
            let shift = if centered { sum(s, row, Weighted { dy, gamma, x: None }) / row as f64 } else { 0.0 };
            let slope = sum(s, row, Weighted { dy, gamma, x: Some((x, mean)) }) / row as f64;
            let slope = s.splat((slope * (inv as f64) * (inv as f64)) as f32);
            let shift = s.splat(shift as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let mut g = get(s, dy, i, n);
                if !gamma.is_empty() {
                    g = s.mul(g, get(s, gamma, i, n));
                }
                let d = s.mul(s.sub(get(s, x, i, n), s.splat(mean)), slope);
                let mut v = s.mul(s.sub(s.sub(g, shift), d), s.splat(inv));
                if !residual.is_empty() {
                    v = s.add(v, get(s, residual, r * row + i, n));
                }
                put(s, dx, i, n, v);
            }
        }
    }

    /// `dgammas[c] = Σ dy · x̂`, `dbetas[c] = Σ dy` over some rows, for some columns.
    fn parameters<'a, S>(
        s, x: &'a [f32], dy: &'a [f32], stats: Statistics<'a>, row: usize, rows: Range<usize>, columns: Range<usize>,
        dgammas: &'a mut [f64], dbetas: &'a mut [f64],
    ) {
        dgammas.fill(0.0);
        dbetas.fill(0.0);
        for c in columns.clone().step_by(S::LANES) {
            let (n, at) = ((columns.end - c).min(S::LANES), c - columns.start);
            for start in rows.clone().step_by(RUN) {
                let (mut dgamma, mut dbeta) = (s.zero(), s.zero());
                for r in start..(start + RUN).min(rows.end) {
                    let g = get(s, dy, r * row + c, n);
                    let d = s.sub(get(s, x, r * row + c, n), s.splat(stats.mean[r]));
                    dgamma = s.fma(g, s.mul(d, s.splat(stats.rstd[r])), dgamma);
                    dbeta = s.add(dbeta, g);
                }
                flush(s, dgamma, n, &mut dgammas[at..]);
                flush(s, dbeta, n, &mut dbetas[at..]);
            }
        }
    }
}

impl NodeKernel for LayerNormKernel {
    fn run(&self, frame: &Frame<'_>) {
        let LayerNormOperands { x, gamma, beta } = self.op.places();
        let x = frame.input::<f32>(x);
        let [gamma, beta] = [gamma, beta].map(|place| place.map_or(&[][..], |i| frame.input::<f32>(i)));
        let row = self.row;
        let outputs = [0, 1, 2].map(|i| Parts::new(frame.output::<f32>(i)));
        let pieces = chunks(x.len() / row, rows_per_chunk(row));
        frame.pool().run(pieces.count(), |task, _| {
            let rows = pieces.range(task);
            let r = rows.start * row..rows.end * row;
            // SAFETY: each task has its own rows.
            let (y, mean, rstd) =
                unsafe { (outputs[0].part(r.clone()), outputs[1].part(rows.clone()), outputs[2].part(rows)) };
            forward(self.level, &x[r], y, mean, rstd, gamma, beta, self.op.eps as f64, self.op.centered);
        });
    }
}

impl LayerNormGradKernel {
    /// For `rows` rows of `row` elements.
    pub fn new(op: &LayerNormGrad, behind: Behind, rows: usize, row: usize, level: SimdLevel) -> Self {
        LayerNormGradKernel { row, op: op.clone(), behind, grid: Grid::new(rows, row), level }
    }
}

impl NodeKernel for LayerNormGradKernel {
    fn scratch_bytes(&self) -> usize {
        if self.op.weight { 2 * Scratch::size::<f64>(self.grid.rows.count() * self.row) } else { 0 }
    }

    fn run(&self, frame: &Frame<'_>) {
        let LayerNormGradOperands { x, dy, mean, rstd, gamma } = self.op.places();
        let [x, dy, mean, rstd] = [x, dy, mean, rstd].map(|i| frame.input::<f32>(i));
        let gamma = gamma.map_or(&[][..], |i| frame.input::<f32>(i));
        let residual = self.behind.summand.map(|i| frame.input::<f32>(i));
        let row = self.row;
        for_chunks(frame.pool(), frame.output::<f32>(0), rows_per_chunk(row) * row, |start, dx| {
            let r = start..start + dx.len();
            let stats = Statistics { mean: &mean[start / row..], rstd: &rstd[start / row..] };
            let residual = residual.map_or(&[][..], |all| &all[r.clone()]);
            backward(self.level, &x[r.clone()], &dy[r], residual, dx, stats, gamma, row, self.op.centered);
        });
        if !self.op.weight {
            return;
        }
        let mut scratch = frame.scratch();
        let size = self.grid.rows.count() * row;
        let (dgammas, dbetas) = (scratch.take::<f64>(size), scratch.take::<f64>(size));
        {
            let (dgammas, dbetas) = (Parts::new(dgammas), Parts::new(dbetas));
            frame.pool().run(self.grid.count(), |task, _| {
                let (rows, block, columns) = self.grid.block(task);
                let at = block * row + columns.start..block * row + columns.end;
                // SAFETY: each block has its own sums.
                let (dgammas, dbetas) = unsafe { (dgammas.part(at.clone()), dbetas.part(at)) };
                parameters(self.level, x, dy, Statistics { mean, rstd }, row, rows, columns, dgammas, dbetas);
            });
        }
        let total = |table: &[f64], out: &mut [f32]| {
            for (c, d) in out.iter_mut().enumerate() {
                *d = table[c..].iter().step_by(row).sum::<f64>() as f32;
            }
        };
        total(dgammas, frame.output(1));
        if self.op.bias {
            total(dbetas, frame.output(2));
        }
    }
}
