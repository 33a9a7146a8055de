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

/// Arguments of [`Transpose`].
#[derive(Clone, Copy)]
pub struct Transposed {
    /// Element (0, 0) of the matrix.
    pub from: *const f32,
    /// Floats from row to row and from column to column.
    pub strides: [usize; 2],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// First element of the panel.
    pub to: *mut f32,
    /// Columns of the panel: those after `columns` are 0.
    pub width: usize,
}

/// Packs some columns of a matrix to a panel `[rows][width]`. Meant for columns that lie along memory.
pub struct Transpose;

/// Rows and columns of a square that is turned at once: eight cache lines on either side.
const SQUARE: usize = 8;

impl Routine for Transpose {
    type Args = Transposed;

    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn run<S: Simd>(_: S, t: Transposed) {
        for k in (0..t.rows).step_by(SQUARE) {
            for n in (0..t.width).step_by(SQUARE) {
                // SAFETY: the caller passes a matrix that is valid in all its rows and columns, and a panel likewise.
                unsafe {
                    let mut square = [[0.0f32; SQUARE]; SQUARE];
                    if t.strides[0] == 1 && k + SQUARE <= t.rows && n + SQUARE <= t.columns.min(t.width) {
                        for i in 0..SQUARE {
                            square[i] = t.from.add((n + i) * t.strides[1] + k).cast::<[f32; SQUARE]>().read_unaligned();
                        }
                        for j in 0..SQUARE {
                            let mut row = [0.0; SQUARE];
                            for i in 0..SQUARE {
                                row[i] = square[i][j];
                            }
                            t.to.add((k + j) * t.width + n).cast::<[f32; SQUARE]>().write_unaligned(row);
                        }
                    } else {
                        for j in k..(k + SQUARE).min(t.rows) {
                            for i in n..(n + SQUARE).min(t.width) {
                                let x =
                                    if i < t.columns { *t.from.add(i * t.strides[1] + j * t.strides[0]) } else { 0.0 };
                                *t.to.add(j * t.width + i) = x;
                            }
                        }
                    }
                }
            }
        }
    }
}
