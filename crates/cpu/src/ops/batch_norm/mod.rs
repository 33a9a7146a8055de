//! Batch normalisation: each channel over all other axes.

mod conv;
mod grad;
mod statistics;
mod sync;

pub use conv::{NormConvKernel, NormGradWeightKernel};
pub use grad::BatchNormGradKernel;
pub use statistics::{BatchNormStatisticsKernel, Statistics};
pub use sync::{FromSumsKernel, GradFromSumsKernel, GradSumsKernel, SumsKernel};

use super::activation::{Function, with_activation};
use super::reduce_columns::Grid;
use crate::fusions::Behind;
use crate::graph::op::{
    Activation, BatchNorm, BatchNormApply, BatchNormApplyOperands, BatchNormInfer, BatchNormInferOperands,
    BatchNormOperands,
};
use crate::run::frame::{Frame, NodeKernel, Scratch, View};
use crate::run::parallel::rows_per_chunk;
use crate::run::threads::chunks;
use crate::simd::lanes::get;
use crate::simd::{Kernel, MAX_LANES, Simd, SimdLevel};

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

/// What normalises the elements of a row: `y = (x − mean) · factor + offset`.
struct Tables<'a> {
    mean: &'a [f32],
    /// `invstd · gamma`
    factor: &'a [f32],
    /// `beta`; empty without.
    offset: &'a [f32],
}

impl<'a> Tables<'a> {
    fn scratch_bytes(size: &Size) -> usize {
        3 * Scratch::size::<f32>(size.width())
    }

    /// From `mean` and `invstd` of the channels, and `gamma` and `beta` if there are any.
    fn new(
        scratch: &mut Scratch<'a>,
        size: &Size,
        [mean, invstd]: [&[f32]; 2],
        [gamma, beta]: [Option<&[f32]>; 2],
    ) -> Self {
        let [means, factor, offset] = std::array::from_fn(|_| scratch.take::<f32>(size.width()));
        widen(mean, means);
        for (i, f) in factor.iter_mut().enumerate() {
            let c = i % size.channels;
            *f = invstd[c] * gamma.map_or(1.0, |g| g[c]);
        }
        beta.inspect(|beta| widen(beta, offset));
        Tables { mean: means, factor, offset: if beta.is_some() { offset } else { &[] } }
    }
}

/// Writes `table` to `wide` as often as there is room.
fn widen(table: &[f32], wide: &mut [f32]) {
    for part in wide.chunks_exact_mut(table.len().max(1)) {
        part.copy_from_slice(table);
    }
}

/// `y = f((x − mean) · factor + offset + residual)` for whole rows; `offset` may be empty and `residual` null (0). Each of `x`
/// and `residual` is equal to `y` or apart.
struct Affine<'a, F> {
    f: F,
    x: *const f32,
    residual: *const f32,
    y: *mut f32,
    rows: usize,
    tables: [&'a [f32]; 3],
}

impl<F: Function> Kernel for Affine<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [mean, factor, offset] = self.tables;
        let width = mean.len();
        for r in 0..self.rows {
            for c in (0..width).step_by(S::LANES) {
                let (n, at) = ((width - c).min(S::LANES), r * width + c);
                let offset = if offset.is_empty() { s.zero() } else { get(s, offset, c, n) };
                // SAFETY: the caller's pointers hold `rows` rows, and this is inside one of them.
                unsafe {
                    let load = |p: *const f32| if n < S::LANES { s.load_part(p.add(at), n) } else { s.load(p.add(at)) };
                    let mut y = s.fma(s.sub(load(self.x), get(s, mean, c, n)), get(s, factor, c, n), offset);
                    if !self.residual.is_null() {
                        y = s.add(y, load(self.residual));
                    }
                    let (y, to) = (self.f.value(s, y), self.y.add(at));
                    if n < S::LANES {
                        s.store_part(to, y, n)
                    } else {
                        s.store(to, y)
                    };
                }
            }
        }
    }
}

/// The normalised rows of `x`, with what is added to them if anything is, and the activation on them.
fn normalise(
    frame: &Frame,
    level: SimdLevel,
    act: Option<Activation>,
    (x, residual, y): (View<'_, f32>, Option<View<'_, f32>>, View<'_, f32>),
    tables: [&[f32]; 3],
) {
    let width = tables[0].len();
    let pieces = chunks(y.len() / width.max(1), rows_per_chunk(width));
    frame.pool().run(pieces.count(), |task, _| {
        let rows = pieces.range(task);
        let all = rows.start * width..rows.end * width;
        let residual = residual.map_or(std::ptr::null(), |r| r.range(all.clone()).cast_const());
        let (x, y) = (x.range(all.clone()).cast_const(), y.range(all));
        with_activation!(act, f => level.run(Affine { f, x, residual, y, rows: rows.len(), tables }));
    });
}

/// [`BatchNorm`].
pub struct BatchNormKernel {
    places: BatchNormOperands<usize>,
    statistics: Statistics,
    behind: Behind,
}

impl BatchNormKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNorm, behind: Behind, rows: usize, channels: usize, level: SimdLevel) -> Self {
        let places = op.places();
        // The running ones begin with their mean.
        let running = places.running_mean.unwrap_or(op.arity());
        let statistics = Statistics::new(op.statistics(), [rows, channels], running, level);
        BatchNormKernel { places, statistics, behind }
    }
}

impl NodeKernel for BatchNormKernel {
    fn scratch_bytes(&self) -> usize {
        self.statistics.scratch_bytes() + Tables::scratch_bytes(&self.statistics.size)
    }

    fn run(&self, frame: &Frame<'_>) {
        let Statistics { size, level, .. } = &self.statistics;
        let mut scratch = frame.scratch();
        let (mean, invstd) = (frame.output::<f32>(1), frame.output::<f32>(2));
        self.statistics.run(frame, &mut scratch, frame.input(0), [&mut *mean, &mut *invstd]);
        let parameters = [self.places.gamma, self.places.beta].map(|place| place.map(|i| frame.input::<f32>(i)));
        let tables = Tables::new(&mut scratch, size, [mean, invstd], parameters);
        let residual = self.behind.summand.map(|i| frame.source::<f32>(i));
        let views = (frame.source::<f32>(0), residual, frame.target::<f32>(0));
        normalise(frame, *level, self.behind.act, views, [tables.mean, tables.factor, tables.offset]);
    }
}

/// [`BatchNormApply`].
pub struct BatchNormApplyKernel {
    op: BatchNormApply,
    behind: Behind,
    size: Size,
    level: SimdLevel,
}

impl BatchNormApplyKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNormApply, behind: Behind, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormApplyKernel { op: op.clone(), behind, size: Size::new(rows, channels), level }
    }
}

impl NodeKernel for BatchNormApplyKernel {
    fn scratch_bytes(&self) -> usize {
        Tables::scratch_bytes(&self.size)
    }

    fn run(&self, frame: &Frame<'_>) {
        let mut scratch = frame.scratch();
        let BatchNormApplyOperands { mean, invstd, gamma, beta, .. } = self.op.places();
        let parameters = [gamma, beta].map(|place| place.map(|i| frame.input::<f32>(i)));
        let tables = Tables::new(&mut scratch, &self.size, [mean, invstd].map(|i| frame.input(i)), parameters);
        let residual = self.behind.summand.map(|i| frame.source::<f32>(i));
        let views = (frame.source::<f32>(0), residual, frame.target::<f32>(0));
        normalise(frame, self.level, self.behind.act, views, [tables.mean, tables.factor, tables.offset]);
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
        let BatchNormInferOperands { gamma, beta, running_mean, running_var, .. } = self.op.places();
        let [mean, variance] = [running_mean, running_var].map(|i| frame.input::<f32>(i));
        let mut scratch = frame.scratch();
        let [means, factors, offsets] = std::array::from_fn(|_| scratch.take::<f32>(self.width));
        let gamma = gamma.map(|i| frame.input::<f32>(i));
        for (i, f) in factors.iter_mut().enumerate() {
            let c = i % self.channels;
            *f = 1.0 / (variance[c] + self.op.eps).sqrt() * gamma.map_or(1.0, |g| g[c]);
        }
        widen(mean, means);
        if let Some(i) = beta {
            widen(frame.input::<f32>(i), offsets);
        }
        let beta = if beta.is_some() { offsets } else { &mut offsets[..0] };
        let residual = self.behind.summand.map(|i| frame.source::<f32>(i));
        let views = (frame.source::<f32>(0), residual, frame.target::<f32>(0));
        normalise(frame, self.level, self.behind.act, views, [means, factors, beta]);
    }
}
