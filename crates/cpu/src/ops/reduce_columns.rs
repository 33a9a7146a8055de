//! Sums over the rows of a row-major matrix, column by column.
//!
//! Floats are added up in runs of [`RUN`] rows and the runs in double precision, so that the error does not grow with the
//! number of rows.

use super::activation::Function;
use crate::run::parallel::vectorised;
use crate::run::threads::{Chunks, chunks};
use crate::simd::lanes::get;
use crate::simd::{Kernel, MAX_LANES, Simd};
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
    if n == S::LANES {
        // Of a length that the compiler knows, so that it makes vectors of it.
        for (o, v) in out[..S::LANES].iter_mut().zip(lanes) {
            *o += v as f64;
        }
    } else {
        for (o, v) in out[..n].iter_mut().zip(lanes) {
            *o += v as f64;
        }
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
}

/// Sums over the rows of a block of a matrix, and sums of squared distances from the block's own mean.
pub struct Moments<'a> {
    /// The first row of the block, of `width` elements. Others may be writing columns that are not the block's.
    pub x: *const f32,
    /// Columns of the matrix.
    pub width: usize,
    /// Rows of the block.
    pub rows: usize,
    /// Columns of the block.
    pub columns: Range<usize>,
    /// Sums and squares of the block's columns.
    pub sums: [&'a mut [f64]; 2],
}

impl Kernel for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.sums.iter_mut().for_each(|sums| sums.fill(0.0));
        let mut c = self.columns.start;
        while c < self.columns.end {
            c = if self.columns.end - c >= TOGETHER * S::LANES {
                self.columns_from::<S, TOGETHER>(s, c, S::LANES)
            } else {
                self.columns_from::<S, 1>(s, c, (self.columns.end - c).min(S::LANES))
            };
        }
    }
}

/// Vectors of columns whose sums are taken side by side: one sum alone would wait for its own last addition, and a row's
/// cache lines are next to each other.
const TOGETHER: usize = 4;

impl Moments<'_> {
    /// `V` vectors of columns from `c` on, each of `n` columns, added to what is there. The column after them.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn columns_from<S: Simd, const V: usize>(&mut self, s: S, c: usize, n: usize) -> usize {
        let (x, width) = (self.x, self.width);
        let load = |r: usize, v: usize| {
            let p = x.wrapping_add(r * width + c + v * S::LANES);
            // SAFETY: inside row `r` of the block, whose rows the caller's pointer holds.
            unsafe { if n < S::LANES { s.load_part(p, n) } else { s.load(p) } }
        };
        let at = c - self.columns.start;
        let [sums, squares] = &mut self.sums;
        let (sums, squares, count) = (&mut sums[at..], &mut squares[at..], self.rows as f64);
        for start in (0..self.rows).step_by(RUN) {
            let mut sum = [s.zero(); V];
            for r in start..(start + RUN).min(self.rows) {
                for v in 0..V {
                    sum[v] = s.add(sum[v], load(r, v));
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
        // The sum of the distances gives the rounding error of the mean.
        let mut left = [[0.0f64; MAX_LANES]; V];
        for start in (0..self.rows).step_by(RUN) {
            let (mut sum, mut square) = ([s.zero(); V], [s.zero(); V]);
            for r in start..(start + RUN).min(self.rows) {
                for v in 0..V {
                    let d = s.sub(load(r, v), mean[v]);
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
        c + (V - 1) * S::LANES + n
    }
}

/// `dys[c] = Σ dy`, `dots[c] = Σ dy · (x − mean[c])` over the rows of a block of a matrix, where `dy` is the gradient by
/// `(x − mean) · factor + offset`, of what is given by the function `f` of it.
pub struct Dots<'a, F> {
    /// The function; [`super::activation::Identity`] if there is none, and the last two tables do not matter then.
    pub f: F,
    /// The first row of the block, of `width` elements.
    pub x: *const f32,
    /// Likewise.
    pub dy: *const f32,
    /// Columns of the matrix.
    pub width: usize,
    /// Rows of the block.
    pub rows: usize,
    /// Columns of the block.
    pub columns: Range<usize>,
    /// Of every column of the block.
    pub mean: &'a [f32],
    /// Likewise.
    pub factor: &'a [f32],
    /// Likewise, or empty for 0.
    pub offset: &'a [f32],
    /// `dys` and `dots` of the block's columns.
    pub sums: [&'a mut [f64]; 2],
}

impl<F: Function> Kernel for Dots<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.sums.iter_mut().for_each(|sums| sums.fill(0.0));
        let mut c = self.columns.start;
        while c < self.columns.end {
            match (self.columns.end - c) / S::LANES {
                0 => c = self.columns_from::<S, 1>(s, c, self.columns.end - c),
                1 => c = self.columns_from::<S, 1>(s, c, S::LANES),
                2 => c = self.columns_from::<S, 2>(s, c, S::LANES),
                3 => c = self.columns_from::<S, 3>(s, c, S::LANES),
                _ => c = self.columns_from::<S, 4>(s, c, S::LANES),
            }
        }
    }
}

impl<F: Function> Dots<'_, F> {
    /// `V` vectors of columns from `c` on, the last of `n` columns. The column after them.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn columns_from<S: Simd, const V: usize>(&mut self, s: S, c: usize, n: usize) -> usize {
        let [mut mean, mut factor, mut offset] = [[s.zero(); V]; 3];
        let at = c - self.columns.start;
        for v in 0..V {
            mean[v] = get(s, self.mean, at + v * S::LANES, n);
            factor[v] = get(s, self.factor, at + v * S::LANES, n);
            if !self.offset.is_empty() {
                offset[v] = get(s, self.offset, at + v * S::LANES, n);
            }
        }
        for start in (0..self.rows).step_by(RUN) {
            let (mut sum, mut dot) = ([s.zero(); V], [s.zero(); V]);
            for r in start..(start + RUN).min(self.rows) {
                for v in 0..V {
                    let i = r * self.width + c + v * S::LANES;
                    // SAFETY: inside row `r` of the block, whose rows the caller's pointers hold.
                    let load = |p: *const f32| unsafe {
                        if n < S::LANES { s.load_part(p.add(i), n) } else { s.load(p.add(i)) }
                    };
                    let d = s.sub(load(self.x), mean[v]);
                    let dy = self.f.gradient(s, s.fma(d, factor[v], offset[v]), load(self.dy));
                    sum[v] = s.add(sum[v], dy);
                    dot[v] = s.fma(dy, d, dot[v]);
                }
            }
            for v in 0..V {
                flush(s, sum[v], n, &mut self.sums[0][at + v * S::LANES..]);
                flush(s, dot[v], n, &mut self.sums[1][at + v * S::LANES..]);
            }
        }
        c + (V - 1) * S::LANES + n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::SimdLevel;

    /// Columns of every kind of strip, and rows that are no whole number of runs.
    #[test]
    fn moments_keep_their_digits_far_from_zero() {
        let (rows, width) = (1003, 117);
        for level in SimdLevel::supported() {
            let element = |r: usize, c: usize| {
                let noise = ((r * 7919 + c * 104_729) % 1009) as f32 / 1009.0 - 0.5;
                match c % 4 {
                    // The first rows lie apart from all others.
                    0 => noise + if r < 20 { 30.0 } else { 0.0 },
                    1 => noise + 1000.0,
                    2 => noise * 1e-3,
                    _ => 12345.6,
                }
            };
            let x: Vec<f32> = (0..rows * width).map(|i| element(i / width, i % width)).collect();
            let (range, columns) = (2..rows, 3..width - 1);
            let (mut sums, mut squares) = (vec![-1.0; columns.len()], vec![-1.0; columns.len()]);
            let (block, sums_of) = (x[range.start * width..].as_ptr(), [&mut sums[..], &mut squares[..]]);
            level.run(Moments { x: block, width, rows: range.len(), columns: columns.clone(), sums: sums_of });
            for (i, c) in columns.enumerate() {
                let column = || range.clone().map(|r| x[r * width + c] as f64);
                let sum: f64 = column().sum();
                let mean = sum / range.len() as f64;
                let square: f64 = column().map(|x| (x - mean) * (x - mean)).sum();
                assert!((sums[i] - sum).abs() <= 1e-6 * column().map(f64::abs).sum::<f64>(), "{level}, column {c}");
                assert!((squares[i] - square).abs() <= 1e-5 * square, "{level}, column {c}: {} {square}", squares[i]);
            }
        }
    }
}
