//! Products with few rows as scalar products. Both operands are contiguous along the sum, so nothing is packed that would be
//! read only once.

use super::tile::EpilogueOperands;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Most rows for which scalar products of `k` elements are faster than tiles: more for long sums, where adding up the lanes
/// costs little.
pub const fn most_rows(k: usize) -> usize {
    if k < 512 { 8 } else { 16 }
}

/// `C[m, n] = min(max(Σ_k A[m, k] · B[n, k] · scale[n] + bias[n] + residual[m, n], low), high)` for some columns.
pub struct Dots<'a> {
    /// `A`, and floats from row to row.
    pub a: (&'a [f32], usize),
    /// `B`, and floats from column to column.
    pub b: (&'a [f32], usize),
    /// Rows.
    pub rows: usize,
    /// Length of the sum.
    pub k: usize,
    /// Columns to compute.
    pub columns: Range<usize>,
    /// Operands of the epilogue, of all columns.
    pub operands: EpilogueOperands<'a>,
    /// Bounds of the result.
    pub bounds: [f32; 2],
    /// `C`, and floats from row to row.
    pub c: (*mut f32, usize),
}

impl Kernel for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // AVX2 has sixteen registers: eight sums, and what they are made of. Others have thirty-two. A single row is bound by how
        // fast `B` comes, of which more columns are read side by side.
        match (self.rows, S::LANES) {
            (1, _) => self.blocks::<S, 1, 8>(s),
            (_, 8) => self.blocks::<S, 4, 2>(s),
            _ => self.blocks::<S, 4, 4>(s),
        }
    }
}

impl Dots<'_> {
    /// `ROWS`, `COLUMNS`: those whose sums share their loads.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn blocks<S: Simd, const ROWS: usize, const COLUMNS: usize>(self, s: S) {
        // Columns outside: a block of them stays in the cache for all rows, and `B` is read once.
        for first_column in self.columns.clone().step_by(COLUMNS) {
            for first_row in (0..self.rows).step_by(ROWS) {
                // A short block repeats its last row or column: the same sum, stored more than once.
                let rows: [usize; ROWS] = std::array::from_fn(|i| (first_row + i).min(self.rows - 1));
                let columns: [usize; COLUMNS] = std::array::from_fn(|i| (first_column + i).min(self.columns.end - 1));
                let a = rows.map(|m| self.a.0[m * self.a.1..][..self.k].as_ptr());
                let b = columns.map(|n| self.b.0[n * self.b.1..][..self.k].as_ptr());
                let mut acc = [[s.zero(); COLUMNS]; ROWS];
                let whole = self.k / S::LANES * S::LANES;
                for k in (0..whole).step_by(S::LANES) {
                    // SAFETY: a whole vector is left of the `k` elements.
                    unsafe {
                        let mut av = [s.zero(); ROWS];
                        for i in 0..ROWS {
                            av[i] = s.load(a[i].add(k));
                        }
                        for j in 0..COLUMNS {
                            let bv = s.load(b[j].add(k));
                            for i in 0..ROWS {
                                acc[i][j] = s.fma(av[i], bv, acc[i][j]);
                            }
                        }
                    }
                }
                for i in 0..ROWS {
                    for j in 0..COLUMNS {
                        // SAFETY: the rest of the sum, less than a vector; the element of C is this task's own.
                        unsafe {
                            let left = self.k - whole;
                            let av = s.load_part(a[i].add(whole), left);
                            let bv = s.load_part(b[j].add(whole), left);
                            let mut sum = s.sum(s.fma(av, bv, acc[i][j]));
                            if let Some(scale) = self.operands.scale {
                                sum *= scale[columns[j]];
                            }
                            sum += self.operands.bias.map_or(0.0, |bias| bias[columns[j]]);
                            sum += self.operands.residual.map_or(0.0, |all| all[rows[i] * self.c.1 + columns[j]]);
                            if self.operands.relu_mask.is_some_and(|all| all[rows[i] * self.c.1 + columns[j]] <= 0.0) {
                                sum = 0.0;
                            }
                            let [low, high] = self.bounds;
                            // Comparisons, not `clamp`: NaN stays.
                            let sum = if low > sum { low } else { sum };
                            *self.c.0.add(rows[i] * self.c.1 + columns[j]) = if high < sum { high } else { sum };
                        }
                    }
                }
            }
        }
    }
}
