//! Sums over the rows of a row-major matrix, column by column.
//!
//! Floats are added up in runs of [`RUN`] rows and the runs in double precision, so that the error does not grow with the
//! number of rows.

use crate::backend::cpu::run::parallel::vectorised;
use crate::backend::cpu::run::threads::{Chunks, chunks};
use crate::backend::cpu::simd::lanes::get;
use crate::backend::cpu::simd::{MAX_LANES, Simd};
use std::ops::Range;

/// Rows whose sum is taken in single precision.
const RUN: usize = 16;

/// Columns of a [`Grid`]'s block.
const BLOCK_COLUMNS: usize = 256;

/// A matrix cut into blocks of rows and columns, one a task. Partial sums are kept for each block of rows.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// The blocks of rows.
    pub rows: Chunks,
    /// The blocks of columns.
    pub columns: Chunks,
}

impl Grid {
    /// Blocks of a `rows × columns` matrix that stay in the second-level cache, at most 512 of them down a column.
    pub fn new(rows: usize, columns: usize) -> Self {
        let width = columns.clamp(1, BLOCK_COLUMNS);
        let height = (32 * 1024 / width).max(64).max(rows.div_ceil(512));
        Grid { rows: chunks(rows, height), columns: chunks(columns, width) }
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.rows.count() * self.columns.count()
    }

    /// Rows, number of the block of rows, and columns of block `i`.
    pub fn block(&self, i: usize) -> (Range<usize>, usize, Range<usize>) {
        let (r, c) = (i / self.columns.count(), i % self.columns.count());
        (self.rows.range(r), r, self.columns.range(c))
    }
}

/// Adds the first `n` lanes to doubles.
#[inline(always)]
pub fn flush<S: Simd>(s: S, v: S::V, n: usize, out: &mut [f64]) {
    let lanes = s.to_array(v);
    for (o, v) in out[..n].iter_mut().zip(lanes) {
        *o += v as f64;
    }
}

vectorised! {
    /// `sums[c] = Σ x[r][c]` over `rows`, for the columns `columns` of a matrix with `width` columns.
    pub fn sums<'a, S>(s, x: &'a [f32], width: usize, rows: Range<usize>, columns: Range<usize>, sums: &'a mut [f64]) {
        sums.fill(0.0);
        for c in columns.clone().step_by(S::LANES) {
            let n = (columns.end - c).min(S::LANES);
            let out = &mut sums[c - columns.start..];
            for start in rows.clone().step_by(RUN) {
                let mut sum = s.zero();
                for r in start..(start + RUN).min(rows.end) {
                    sum = s.add(sum, get(s, x, r * width + c, n));
                }
                flush(s, sum, n, out);
            }
        }
    }

    /// Sums, and sums of squared distances from these rows' own mean.
    pub fn moments<'a, S>(
        s, x: &'a [f32], width: usize, rows: Range<usize>, columns: Range<usize>, sums: &'a mut [f64], squares: &'a mut [f64],
    ) {
        sums.fill(0.0);
        squares.fill(0.0);
        let mut c = columns.start;
        while c < columns.end {
            let at = c - columns.start;
            let (sums, squares) = (&mut sums[at..], &mut squares[at..]);
            if columns.end - c >= TOGETHER * S::LANES {
                moments_of::<S, TOGETHER>(s, x, width, rows.clone(), c..c + TOGETHER * S::LANES, sums, squares);
                c += TOGETHER * S::LANES;
            } else {
                moments_of::<S, 1>(s, x, width, rows.clone(), c..(c + S::LANES).min(columns.end), sums, squares);
                c += S::LANES;
            }
        }
    }

    /// `dys[c] = Σ dy`, `dots[c] = Σ dy · (x − mean[c])`; `mean` begins at the first of `columns`.
    pub fn dots<'a, S>(
        s, x: &'a [f32], dy: &'a [f32], width: usize, mean: &'a [f32], rows: Range<usize>, columns: Range<usize>,
        dys: &'a mut [f64], dots: &'a mut [f64],
    ) {
        dys.fill(0.0);
        dots.fill(0.0);
        let mut c = columns.start;
        while c < columns.end {
            let at = c - columns.start;
            let (mean, dys, dots) = (&mean[at..], &mut dys[at..], &mut dots[at..]);
            if columns.end - c >= TOGETHER * S::LANES {
                dots_of::<S, TOGETHER>(s, [x, dy], width, mean, rows.clone(), c..c + TOGETHER * S::LANES, [dys, dots]);
                c += TOGETHER * S::LANES;
            } else {
                let columns = c..(c + S::LANES).min(columns.end);
                dots_of::<S, 1>(s, [x, dy], width, mean, rows.clone(), columns, [dys, dots]);
                c += S::LANES;
            }
        }
    }
}

/// Vectors of columns whose sums are taken side by side: one sum alone would wait for its own last addition, and a row's
/// cache lines are next to each other.
const TOGETHER: usize = 4;

/// [`moments`] of `V` whole vectors of columns, or of one that may be short, added to what is there.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
fn moments_of<S: Simd, const V: usize>(
    s: S,
    x: &[f32],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    sums: &mut [f64],
    squares: &mut [f64],
) {
    let (count, n) = (rows.len() as f64, columns.len().min(S::LANES));
    for start in rows.clone().step_by(RUN) {
        let mut sum = [s.zero(); V];
        for r in start..(start + RUN).min(rows.end) {
            let at = r * width + columns.start;
            for v in 0..V {
                sum[v] = s.add(sum[v], get(s, x, at + v * S::LANES, n));
            }
        }
        for v in 0..V {
            flush(s, sum[v], n, &mut sums[v * S::LANES..]);
        }
    }
    let mut mean = [s.zero(); V];
    let mut centre = [[0.0f32; MAX_LANES]; V];
    for v in 0..V {
        for (m, sum) in centre[v].iter_mut().zip(&sums[v * S::LANES..v * S::LANES + n]) {
            *m = (sum / count) as f32;
        }
        // SAFETY: the array is as long as the widest vector.
        mean[v] = unsafe { s.load(centre[v].as_ptr()) };
    }
    // The sum of the distances tells what rounding took from the mean.
    let mut left = [[0.0f64; MAX_LANES]; V];
    for start in rows.clone().step_by(RUN) {
        let (mut sum, mut square) = ([s.zero(); V], [s.zero(); V]);
        for r in start..(start + RUN).min(rows.end) {
            let at = r * width + columns.start;
            for v in 0..V {
                let d = s.sub(get(s, x, at + v * S::LANES, n), mean[v]);
                sum[v] = s.add(sum[v], d);
                square[v] = s.fma(d, d, square[v]);
            }
        }
        for v in 0..V {
            flush(s, sum[v], n, &mut left[v]);
            flush(s, square[v], n, &mut squares[v * S::LANES..]);
        }
    }
    for v in 0..V {
        for (i, l) in left[v].into_iter().enumerate().take(n) {
            squares[v * S::LANES + i] -= l * l / count;
            sums[v * S::LANES + i] = centre[v][i] as f64 * count + l;
        }
    }
}

/// [`dots`] of `V` whole vectors of columns, or of one that may be short, added to what is there.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
fn dots_of<S: Simd, const V: usize>(
    s: S,
    [x, dy]: [&[f32]; 2],
    width: usize,
    mean: &[f32],
    rows: Range<usize>,
    columns: Range<usize>,
    [dys, dots]: [&mut [f64]; 2],
) {
    let n = columns.len().min(S::LANES);
    let mut centre = [s.zero(); V];
    for v in 0..V {
        centre[v] = get(s, mean, v * S::LANES, n);
    }
    for start in rows.clone().step_by(RUN) {
        let (mut sum, mut dot) = ([s.zero(); V], [s.zero(); V]);
        for r in start..(start + RUN).min(rows.end) {
            let at = r * width + columns.start;
            for v in 0..V {
                let g = get(s, dy, at + v * S::LANES, n);
                let d = s.sub(get(s, x, at + v * S::LANES, n), centre[v]);
                sum[v] = s.add(sum[v], g);
                dot[v] = s.fma(g, d, dot[v]);
            }
        }
        for v in 0..V {
            flush(s, sum[v], n, &mut dys[v * S::LANES..]);
            flush(s, dot[v], n, &mut dots[v * S::LANES..]);
        }
    }
}
