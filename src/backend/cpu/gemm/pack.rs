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

/// Packs a panel of `columns` columns of a matrix whose element `(k, n)` lies at `k · strides[0] + n · strides[1]`: to
/// `[rows][width]`, zeros from `columns` on.
///
/// # Safety
/// All these elements and the target are valid.
pub unsafe fn pack_transposed(
    from: *const f32,
    strides: [usize; 2],
    rows: usize,
    columns: usize,
    to: *mut f32,
    width: usize,
) {
    // Sixteen rows at a time: a cache line of each column is read whole while the lines written stay in L1.
    for start in (0..rows).step_by(16) {
        let end = (start + 16).min(rows);
        for n in 0..width {
            // SAFETY: the caller's promise.
            unsafe {
                let (from, to) = (from.wrapping_add(n * strides[1]), to.add(n));
                for k in start..end {
                    *to.add(k * width) = if n < columns { *from.add(k * strides[0]) } else { 0.0 };
                }
            }
        }
    }
}
