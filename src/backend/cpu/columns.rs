//! Sums over the rows of a row-major matrix, column by column.
//!
//! Floats are added up in runs of [`RUN`] rows and the runs in double precision, so that the error does not grow with the
//! number of rows.

use super::lanes::get;
use super::parallel::vectorised;
use super::simd::{MAX_LANES, Simd};
use super::threads::{Chunks, chunks};
use std::ops::Range;

/// Rows whose sum is taken in single precision.
const RUN: usize = 32;

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
        let count = rows.len() as f64;
        for c in columns.clone().step_by(S::LANES) {
            let n = (columns.end - c).min(S::LANES);
            let at = c - columns.start;
            for start in rows.clone().step_by(RUN) {
                let mut sum = s.zero();
                for r in start..(start + RUN).min(rows.end) {
                    sum = s.add(sum, get(s, x, r * width + c, n));
                }
                flush(s, sum, n, &mut sums[at..]);
            }
            let mut centre = [0.0f32; MAX_LANES];
            for (m, sum) in centre.iter_mut().zip(&sums[at..at + n]) {
                *m = (sum / count) as f32;
            }
            // SAFETY: the array is as long as the widest vector.
            let mean = unsafe { s.load(centre.as_ptr()) };
            // The sum of the distances tells what rounding took from the mean.
            let mut left = [0.0f64; MAX_LANES];
            for start in rows.clone().step_by(RUN) {
                let (mut sum, mut square) = (s.zero(), s.zero());
                for r in start..(start + RUN).min(rows.end) {
                    let d = s.sub(get(s, x, r * width + c, n), mean);
                    sum = s.add(sum, d);
                    square = s.fma(d, d, square);
                }
                flush(s, sum, n, &mut left);
                flush(s, square, n, &mut squares[at..]);
            }
            for (i, l) in left.into_iter().enumerate().take(n) {
                squares[at + i] -= l * l / count;
                sums[at + i] = centre[i] as f64 * count + l;
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
        for c in columns.clone().step_by(S::LANES) {
            let n = (columns.end - c).min(S::LANES);
            let at = c - columns.start;
            let centre = get(s, mean, at, n);
            for start in rows.clone().step_by(RUN) {
                let (mut sum, mut dot) = (s.zero(), s.zero());
                for r in start..(start + RUN).min(rows.end) {
                    let g = get(s, dy, r * width + c, n);
                    let d = s.sub(get(s, x, r * width + c, n), centre);
                    sum = s.add(sum, g);
                    dot = s.fma(g, d, dot);
                }
                flush(s, sum, n, &mut dys[at..]);
                flush(s, dot, n, &mut dots[at..]);
            }
        }
    }
}
