//! Copies of operands in the layout that a tile reads: columns side by side, zeros where the last panel has none.

use crate::backend::cpu::simd::{Routine, Simd};

/// Arguments of [`CopyRows`].
#[derive(Clone, Copy)]
pub struct Copy2d {
    /// First element.
    pub from: *const f32,
    /// Floats from row to row.
    pub from_step: usize,
    /// First element.
    pub to: *mut f32,
    /// Floats from row to row.
    pub to_step: usize,
    /// Number of rows.
    pub rows: usize,
    /// Floats to copy in each row.
    pub columns: usize,
    /// Floats to write in each row: those after `columns` are 0.
    pub padded: usize,
}

/// Copies rows of floats. The source and the target do not overlap.
pub struct CopyRows;

impl Routine for CopyRows {
    type Args = Copy2d;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, c: Copy2d) {
        for r in 0..c.rows {
            // SAFETY: the caller passes rows that are valid in full length.
            unsafe {
                let (from, to) = (c.from.add(r * c.from_step), c.to.add(r * c.to_step));
                let mut i = 0;
                while i + S::LANES <= c.columns {
                    s.store(to.add(i), s.load(from.add(i)));
                    i += S::LANES;
                }
                while i < c.padded {
                    let have = c.columns.saturating_sub(i);
                    s.store_part(to.add(i), s.load_part(from.add(i.min(c.columns)), have), c.padded - i);
                    i += S::LANES;
                }
            }
        }
    }
}

/// Arguments of [`PackTransposed`].
#[derive(Clone, Copy)]
pub struct Panel {
    /// Element (0, 0) of a matrix.
    pub from: *const f32,
    /// Floats from row to row and from column to column.
    pub strides: [usize; 2],
    /// Number of rows.
    pub rows: usize,
    /// Columns to copy, at most `width`.
    pub columns: usize,
    /// First element of the panel, `[rows][width]`.
    pub to: *mut f32,
    /// Floats in a row of the panel: those after `columns` are 0.
    pub width: usize,
}

/// Packs columns of a matrix, row by row. The two do not overlap.
pub struct PackTransposed;

impl Routine for PackTransposed {
    type Args = Panel;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, p: Panel) {
        let square = |at: usize| at / S::LANES * S::LANES;
        // Where columns lie along memory, squares go through the registers; their edges and all else go one by one.
        let (rows, columns) = if p.strides[0] == 1 { (square(p.rows), square(p.columns)) } else { (0, 0) };
        for k in (0..rows).step_by(S::LANES) {
            for n in (0..columns).step_by(S::LANES) {
                // SAFETY: the caller passes elements that are valid; the square lies among them.
                unsafe {
                    s.transpose(p.from.add(n * p.strides[1] + k), p.strides[1], p.to.add(k * p.width + n), p.width);
                }
            }
        }
        // Sixteen rows at a time: a cache line of each column is read whole while the lines written stay in L1.
        for start in (0..p.rows).step_by(16) {
            for n in 0..p.width {
                // Below the squares of this column, if it has any.
                let first = if n < columns { start.max(rows) } else { start };
                // SAFETY: as above.
                unsafe {
                    let (from, to) = (p.from.wrapping_add(n * p.strides[1]), p.to.add(n));
                    for k in first..(start + 16).min(p.rows) {
                        *to.add(k * p.width) = if n < p.columns { *from.add(k * p.strides[0]) } else { 0.0 };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::simd::SimdLevel;

    #[test]
    fn panels_hold_the_columns_and_zeros() {
        for level in SimdLevel::supported() {
            for (rows, columns, width) in
                [(1, 1, 8), (16, 16, 16), (37, 32, 32), (40, 21, 32), (5, 32, 32), (64, 7, 16)]
            {
                for strides in [[1, rows + 3], [columns + 2, 1]] {
                    let from: Vec<f32> = (0..rows * strides[0] + columns * strides[1]).map(|i| i as f32).collect();
                    let mut to = vec![-1.0; rows * width + 1];
                    let panel = Panel { from: from.as_ptr(), strides, rows, columns, to: to.as_mut_ptr(), width };
                    // SAFETY: both sides have all elements.
                    unsafe { level.routine::<PackTransposed>()(panel) };
                    for (at, &x) in to[..rows * width].iter().enumerate() {
                        let (k, n) = (at / width, at % width);
                        let want = if n < columns { from[k * strides[0] + n * strides[1]] } else { 0.0 };
                        assert_eq!(x, want, "{level} {rows} x {columns} in {width}, {strides:?}: ({k}, {n})");
                    }
                    assert_eq!(to[rows * width], -1.0);
                }
            }
        }
    }
}
