//! Batch normalisation: each channel over all other axes.

use super::elementwise::apply;
use super::reduce_columns::{Grid, dots, moments};
use crate::backend::cpu::fusions::Behind;
use crate::backend::cpu::run::frame::{Frame, NodeKernel, Scratch, View};
use crate::backend::cpu::run::parallel::{for_chunks, rows_per_chunk, vectorised};
use crate::backend::cpu::run::threads::{Parts, chunks};
use crate::backend::cpu::simd::lanes::{get, put};
use crate::backend::cpu::simd::{MAX_LANES, SimdLevel};
use crate::graph::op::{Activation, BatchNorm, BatchNormInfer};

/// Rows × channels: the operand as a matrix. Several rows in a row are taken for one, if the channels then fill whole
/// vectors, which begin at multiples of their size.
#[derive(Debug, Clone, Copy)]
struct Size {
    rows: usize,
    channels: usize,
    /// Rows that are taken for one.
    folded: usize,
    /// Of the matrix with its rows so taken.
    grid: Grid,
}

impl Size {
    fn new(rows: usize, channels: usize) -> Self {
        let folded = folded(rows, channels);
        Size { rows, channels, folded, grid: Grid::new(rows / folded, channels * folded) }
    }

    /// Columns of the matrix with its rows so taken.
    fn width(&self) -> usize {
        self.channels * self.folded
    }

    /// Numbers in one table of partial sums.
    fn partials(&self) -> usize {
        self.grid.rows.count() * self.width()
    }
}

/// How many of the rows make a row of whole vectors: 1 if none do, or not all rows would.
fn folded(rows: usize, channels: usize) -> usize {
    let needed = (1..=MAX_LANES).find(|n| (n * channels).is_multiple_of(MAX_LANES));
    needed.filter(|n| rows.is_multiple_of(*n) && rows > 0).unwrap_or(1)
}

/// Writes `table` to `wide` as often as there is room.
fn widen(table: &[f32], wide: &mut [f32]) {
    for part in wide.chunks_exact_mut(table.len().max(1)) {
        part.copy_from_slice(table);
    }
}

/// `y = (x − mean) · factor + offset + residual` for whole rows; `offset` may be empty and `residual` null (0). Each of `x`
/// and `residual` is equal to `y` or apart.
struct Affine<'a> {
    x: *const f32,
    residual: *const f32,
    y: *mut f32,
    rows: usize,
    mean: &'a [f32],
    factor: &'a [f32],
    offset: &'a [f32],
}

vectorised! {
    fn affine<'a, S>(s, a: Affine<'a>) {
        let channels = a.mean.len();
        for r in 0..a.rows {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let (mean, factor) = (get(s, a.mean, c, n), get(s, a.factor, c, n));
                let offset = if a.offset.is_empty() { s.zero() } else { get(s, a.offset, c, n) };
                let at = r * channels + c;
                // SAFETY: the caller's pointers hold `rows` rows, and this is inside one of them.
                unsafe {
                    let x = if n < S::LANES { s.load_part(a.x.add(at), n) } else { s.load(a.x.add(at)) };
                    let mut y = s.fma(s.sub(x, mean), factor, offset);
                    if !a.residual.is_null() {
                        let from = a.residual.add(at);
                        y = s.add(y, if n < S::LANES { s.load_part(from, n) } else { s.load(from) });
                    }
                    if n < S::LANES { s.store_part(a.y.add(at), y, n) } else { s.store(a.y.add(at), y) };
                }
            }
        }
    }

    /// `dx = (dy − shift − (x − mean) · slope) · factor` for whole rows.
    fn input_gradient<'a, S>(
        s, x: &'a [f32], dy: &'a [f32], dx: &'a mut [f32], mean: &'a [f32], tables: [&'a [f32]; 3],
    ) {
        let [shift, slope, factor] = tables;
        let channels = mean.len();
        for row in (0..dx.len()).step_by(channels) {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let d = s.sub(get(s, x, row + c, n), get(s, mean, c, n));
                let g = s.sub(get(s, dy, row + c, n), get(s, shift, c, n));
                let g = s.sub(g, s.mul(d, get(s, slope, c, n)));
                put(s, dx, row + c, n, s.mul(g, get(s, factor, c, n)));
            }
        }
    }
}

/// The normalised rows of `x`, with what is added to them if anything is, and the activation on them, a cache-full at a
/// time.
fn normalise(
    frame: &Frame,
    level: SimdLevel,
    act: Option<Activation>,
    (x, residual, y): (View<'_, f32>, Option<View<'_, f32>>, View<'_, f32>),
    [mean, factor, offset]: [&[f32]; 3],
) {
    let channels = mean.len();
    let pieces = chunks(y.len() / channels.max(1), rows_per_chunk(channels));
    let small = rows_per_chunk(channels * 4);
    frame.pool().run(pieces.count(), |task, _| {
        let rows = pieces.range(task);
        for start in rows.clone().step_by(small) {
            let n = (rows.end - start).min(small);
            let r = start * channels..(start + n) * channels;
            let residual = residual.map_or(std::ptr::null(), |all| all.range(r.clone()).cast_const());
            let (x, y, len) = (x.range(r.clone()).cast_const(), y.range(r.clone()), r.len());
            affine(level, Affine { x, residual, y, rows: n, mean, factor, offset });
            // SAFETY: the elements just written, in place.
            unsafe { apply(level, act, y, y, len) };
        }
    });
}

/// [`BatchNorm`].
pub struct BatchNormKernel {
    op: BatchNorm,
    behind: Behind,
    size: Size,
    level: SimdLevel,
}

impl BatchNormKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNorm, behind: Behind, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormKernel { op: op.clone(), behind, size: Size::new(rows, channels), level }
    }

    /// Mean and biased variance of each channel, from the blocks' sums and squares (Chan, Golub & LeVeque 1983).
    fn statistics(&self, c: usize, sums: &[f64], squares: &[f64]) -> (f64, f64) {
        let Size { rows, channels, folded, grid } = self.size;
        // A block has a sum for each of the rows that are taken for one.
        let parts = grid.rows.count() * folded;
        let mean = (0..parts).map(|i| sums[i * channels + c]).sum::<f64>() / rows as f64;
        let total: f64 = (0..parts)
            .map(|i| {
                let n = grid.rows.range(i / folded).len() as f64;
                let d = sums[i * channels + c] / n - mean;
                squares[i * channels + c] + n * d * d
            })
            .sum();
        (mean, total / rows as f64)
    }

    /// Moves the running statistics towards the batch's.
    fn track(&self, frame: &Frame, mean: &[f32], variances: &[f64]) {
        let first = 1 + 2 * self.op.affine as usize;
        let counter = frame.update::<i64>(first + 2);
        counter[0] += 1;
        let weight = self.op.momentum.map_or(1.0 / counter[0] as f64, f64::from);
        let unbiased = self.size.rows as f64 / (self.size.rows as f64 - 1.0);
        let towards = |old: f32, new: f64| ((1.0 - weight) * old as f64 + weight * new) as f32;
        for (r, m) in frame.update::<f32>(first).iter_mut().zip(mean) {
            *r = towards(*r, *m as f64);
        }
        for (r, v) in frame.update::<f32>(first + 1).iter_mut().zip(variances) {
            *r = towards(*r, v * unbiased);
        }
    }
}

impl NodeKernel for BatchNormKernel {
    fn scratch_bytes(&self) -> usize {
        let Size { channels, .. } = self.size;
        2 * Scratch::size::<f64>(self.size.partials())
            + Scratch::size::<f64>(channels)
            + 3 * Scratch::size::<f32>(self.size.width())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (Size { channels, grid, .. }, width) = (self.size, self.size.width());
        let x = frame.input::<f32>(0);
        let mut scratch = frame.scratch();
        let (sums, squares) = (scratch.take::<f64>(self.size.partials()), scratch.take::<f64>(self.size.partials()));
        let variances = scratch.take::<f64>(channels);
        let tables: [&mut [f32]; 3] = std::array::from_fn(|_| scratch.take::<f32>(width));
        {
            let (sums, squares) = (Parts::new(sums), Parts::new(squares));
            frame.pool().run(grid.count(), |task, _| {
                let (rows, block, columns) = grid.block(task);
                let at = block * width + columns.start..block * width + columns.end;
                // SAFETY: each block has its own sums.
                let (sums, squares) = unsafe { (sums.part(at.clone()), squares.part(at)) };
                moments(self.level, x, width, rows, columns, sums, squares);
            });
        }
        let (mean, invstd) = (frame.output::<f32>(1), frame.output::<f32>(2));
        let gamma = self.op.affine.then(|| frame.input::<f32>(1));
        let [means, factors, offsets] = tables;
        for c in 0..channels {
            let (m, v) = self.statistics(c, sums, squares);
            mean[c] = m as f32;
            variances[c] = v;
            invstd[c] = (1.0 / (v + self.op.eps as f64).sqrt()) as f32;
            for row in (0..width).step_by(channels) {
                factors[row + c] = invstd[c] * gamma.map_or(1.0, |g| g[c]);
            }
        }
        widen(mean, means);
        if self.op.track {
            self.track(frame, mean, variances);
        }
        if self.op.affine {
            widen(frame.input::<f32>(2), offsets);
        }
        let beta = if self.op.affine { offsets } else { &mut offsets[..0] };
        let residual = self.behind.summand.map(|i| frame.source::<f32>(i));
        let views = (frame.source::<f32>(0), residual, frame.target::<f32>(0));
        normalise(frame, self.level, self.behind.act, views, [means, factors, beta]);
    }
}

/// [`BatchNormInfer`].
pub struct BatchNormInferKernel {
    op: BatchNormInfer,
    behind: Behind,
    channels: usize,
    width: usize,
    level: SimdLevel,
}

impl BatchNormInferKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNormInfer, behind: Behind, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormInferKernel { op: op.clone(), behind, channels, width: channels * folded(rows, channels), level }
    }
}

impl NodeKernel for BatchNormInferKernel {
    fn scratch_bytes(&self) -> usize {
        3 * Scratch::size::<f32>(self.width)
    }

    fn run(&self, frame: &Frame<'_>) {
        let first = 1 + 2 * self.op.affine as usize;
        let (mean, variance) = (frame.input::<f32>(first), frame.input::<f32>(first + 1));
        let mut scratch = frame.scratch();
        let [means, factors, offsets] = std::array::from_fn(|_| scratch.take::<f32>(self.width));
        let gamma = self.op.affine.then(|| frame.input::<f32>(1));
        for (i, f) in factors.iter_mut().enumerate() {
            let c = i % self.channels;
            *f = 1.0 / (variance[c] + self.op.eps).sqrt() * gamma.map_or(1.0, |g| g[c]);
        }
        widen(mean, means);
        if self.op.affine {
            widen(frame.input::<f32>(2), offsets);
        }
        let beta = if self.op.affine { offsets } else { &mut offsets[..0] };
        let residual = self.behind.summand.map(|i| frame.source::<f32>(i));
        let views = (frame.source::<f32>(0), residual, frame.target::<f32>(0));
        normalise(frame, self.level, self.behind.act, views, [means, factors, beta]);
    }
}

/// [`crate::graph::op::BatchNormGrad`].
pub struct BatchNormGradKernel {
    affine: bool,
    size: Size,
    level: SimdLevel,
}

impl BatchNormGradKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(affine: bool, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormGradKernel { affine, size: Size::new(rows, channels), level }
    }
}

impl NodeKernel for BatchNormGradKernel {
    fn scratch_bytes(&self) -> usize {
        2 * Scratch::size::<f64>(self.size.partials()) + 4 * Scratch::size::<f32>(self.size.width())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (Size { rows, channels, grid, .. }, width) = (self.size, self.size.width());
        let (x, dy) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let (mean, invstd) = (frame.input::<f32>(2), frame.input::<f32>(3));
        let mut scratch = frame.scratch();
        let (dys, xdys) = (scratch.take::<f64>(self.size.partials()), scratch.take::<f64>(self.size.partials()));
        let [means, shift, slope, factor] = std::array::from_fn(|_| scratch.take::<f32>(width));
        widen(mean, means);
        let means = &*means;
        {
            let (dys, xdys) = (Parts::new(dys), Parts::new(xdys));
            frame.pool().run(grid.count(), |task, _| {
                let (rows, block, columns) = grid.block(task);
                let at = block * width + columns.start..block * width + columns.end;
                // SAFETY: each block has its own sums.
                let (dys, xdys) = unsafe { (dys.part(at.clone()), xdys.part(at)) };
                dots(self.level, x, dy, width, &means[columns.clone()], rows, columns, dys, xdys);
            });
        }
        let gamma = self.affine.then(|| frame.input::<f32>(4));
        let mut params = self.affine.then(|| (frame.output::<f32>(1), frame.output::<f32>(2)));
        for c in 0..channels {
            let dy: f64 = dys[c..].iter().step_by(channels).sum();
            let xdy: f64 = xdys[c..].iter().step_by(channels).sum();
            let inv = invstd[c] as f64;
            for i in (c..width).step_by(channels) {
                shift[i] = (dy / rows as f64) as f32;
                slope[i] = (xdy * inv * inv / rows as f64) as f32;
                factor[i] = invstd[c] * gamma.map_or(1.0, |g| g[c]);
            }
            if let Some((dgamma, dbeta)) = &mut params {
                dgamma[c] = (xdy * inv) as f32;
                dbeta[c] = dy as f32;
            }
        }
        let tables: [&[f32]; 3] = [shift, slope, factor];
        for_chunks(frame.pool(), frame.output::<f32>(0), rows_per_chunk(width) * width, |start, dx| {
            let r = start..start + dx.len();
            input_gradient(self.level, &x[r.clone()], &dy[r], dx, means, tables);
        });
    }
}
