//! Sums over the rows of a row-major matrix, column by column.
//!
//! Floats are added up in runs of [`RUN`] rows and the runs in double precision, so that the error does not grow with the
//! number of rows.

use super::activation::Function;
use crate::backend::cpu::run::threads::{Chunks, chunks};
use crate::backend::cpu::simd::lanes::get;
use crate::backend::cpu::simd::{Kernel, Simd, SimdLevel};
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

/// Vectors of columns whose sums are taken side by side: one sum alone would wait for its own last addition, and a row's
/// cache lines are next to each other.
const TOGETHER: usize = 4;

/// The columns from `$at` to `$end` as strips of `V` vectors, the last of a strip of `n` columns: runs `$body` for each.
/// Rows are in the loop outside, so that memory is read in its own order.
macro_rules! strips {
    ($S:ident, $at:ident .. $end:expr, |$V:ident, $n:ident| $body:expr) => {
        while $at < $end {
            let $n = ($end - $at).min($S::LANES);
            match ($end - $at) / $S::LANES {
                0 | 1 => strips!($S, $at, $V = 1, $n, $body),
                2 => strips!($S, $at, $V = 2, $n, $body),
                3 => strips!($S, $at, $V = 3, $n, $body),
                _ => strips!($S, $at, $V = TOGETHER, $n, $body),
            }
        }
    };
    ($S:ident, $at:ident, $V:ident = $count:expr, $n:ident, $body:expr) => {{
        const $V: usize = $count;
        $body;
        $at += ($V - 1) * $S::LANES + $n;
    }};
}

/// `sums[c] = Σ x[r][c]` over `rows`, for the columns `columns` of a matrix with `width` columns.
pub fn sums(level: SimdLevel, x: &[f32], width: usize, rows: Range<usize>, columns: Range<usize>, sums: &mut [f64]) {
    level.run(Sums { x: &x[rows.start * width..rows.end * width], width, columns, sums });
}

struct Sums<'a> {
    x: &'a [f32],
    width: usize,
    columns: Range<usize>,
    sums: &'a mut [f64],
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.sums.fill(0.0);
        for rows in self.x.chunks(RUN * self.width) {
            let (mut at, end) = (0, self.columns.len());
            strips!(S, at..end, |V, n| self.strip::<S, V>(s, rows, at, n));
        }
    }
}

impl Sums<'_> {
    /// Adds a run of rows, of `V` vectors of columns from the block's column `at` on, the last of `n` columns.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(&mut self, s: S, rows: &[f32], at: usize, n: usize) {
        let n = if V == 1 { n } else { S::LANES };
        let mut sum = [s.zero(); V];
        for row in rows.chunks_exact(self.width) {
            for v in 0..V {
                sum[v] = s.add(sum[v], get(s, row, self.columns.start + at + v * S::LANES, n));
            }
        }
        for v in 0..V {
            flush(s, sum[v], n, &mut self.sums[at + v * S::LANES..]);
        }
    }
}

/// Sums, and sums of squared distances from these rows' own mean, over `rows`, for the columns `columns` of a matrix with
/// `width` columns.
///
/// Sixteen rows at a time, with the distances from the first of them: these are small, so little is lost where they are
/// squared and added up in single precision. What such a run leaves is counted from the first row of all, in double precision,
/// which has digits enough for the difference of squares at the end.
pub fn moments(
    level: SimdLevel,
    x: &[f32],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    sums: &mut [f64],
    squares: &mut [f64],
) {
    if !rows.is_empty() {
        level.run(Moments { x: &x[rows.start * width..rows.end * width], width, columns, sums, squares });
    }
}

struct Moments<'a> {
    x: &'a [f32],
    width: usize,
    columns: Range<usize>,
    sums: &'a mut [f64],
    squares: &'a mut [f64],
}

impl Kernel for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.sums.fill(0.0);
        self.squares.fill(0.0);
        for rows in self.x.chunks(RUN * self.width) {
            let (mut at, end) = (0, self.columns.len());
            strips!(S, at..end, |V, n| self.strip::<S, V>(s, rows, at, n));
        }
        let n = (self.x.len() / self.width) as f64;
        let first = &self.x[self.columns.clone()];
        for ((sum, square), first) in self.sums.iter_mut().zip(&mut *self.squares).zip(first) {
            // What is no number stays none.
            let left = *square - *sum * *sum / n;
            *square = if left < 0.0 { 0.0 } else { left };
            *sum += n * *first as f64;
        }
    }
}

impl Moments<'_> {
    /// Adds a run of rows, of `V` vectors of columns from the block's column `at` on, the last of `n` columns.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(&mut self, s: S, rows: &[f32], at: usize, n: usize) {
        let n = if V == 1 { n } else { S::LANES };
        let [mut first, mut sum, mut square] = [[s.zero(); V]; 3];
        for v in 0..V {
            first[v] = get(s, rows, self.columns.start + at + v * S::LANES, n);
        }
        for row in rows.chunks_exact(self.width).skip(1) {
            for v in 0..V {
                let d = s.sub(get(s, row, self.columns.start + at + v * S::LANES, n), first[v]);
                sum[v] = s.add(sum[v], d);
                square[v] = s.fma(d, d, square[v]);
            }
        }
        let count = (rows.len() / self.width) as f64;
        for v in 0..V {
            let [first, sum, square] = [first[v], sum[v], square[v]].map(|x| s.to_array(x));
            let at = at + v * S::LANES;
            let origin = &self.x[self.columns.start + at..][..n];
            let results = self.sums[at..].iter_mut().zip(&mut self.squares[at..]);
            for (i, ((sums, squares), origin)) in results.zip(origin).enumerate() {
                let (from, sum) = (first[i] as f64 - *origin as f64, sum[i] as f64);
                *sums += count * from + sum;
                *squares += square[i] as f64 + from * (2.0 * sum + count * from);
            }
        }
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
        for start in (0..self.rows).step_by(RUN) {
            let rows = start..(start + RUN).min(self.rows);
            let (mut at, end) = (0, self.columns.len());
            strips!(S, at..end, |V, n| self.strip::<S, V>(s, rows.clone(), at, n));
        }
    }
}

impl<F: Function> Dots<'_, F> {
    /// Adds a run of rows, of `V` vectors of columns from the block's column `at` on, the last of `n` columns.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(&mut self, s: S, rows: Range<usize>, at: usize, n: usize) {
        let [mut mean, mut factor, mut offset, mut sum, mut dot] = [[s.zero(); V]; 5];
        let n = if V == 1 { n } else { S::LANES };
        for v in 0..V {
            mean[v] = get(s, self.mean, at + v * S::LANES, n);
            factor[v] = get(s, self.factor, at + v * S::LANES, n);
            if !self.offset.is_empty() {
                offset[v] = get(s, self.offset, at + v * S::LANES, n);
            }
        }
        for row in rows {
            for v in 0..V {
                let i = row * self.width + self.columns.start + at + v * S::LANES;
                // SAFETY: inside a row of the block, whose rows the caller's pointers hold.
                let load =
                    |p: *const f32| unsafe { if n < S::LANES { s.load_part(p.add(i), n) } else { s.load(p.add(i)) } };
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            moments(level, &x, width, range.clone(), columns.clone(), &mut sums, &mut squares);
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
