//! Packs operands in the layout that a tile reads: the columns of a panel side by side, padded with zeros in the last panel.

use super::tile::tile_rows;
use crate::simd::{MAX_LANES, Routine, Simd};

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

/// Rows ahead of the one that is copied are prefetched: rows that are parts of longer ones lie apart, which machines are slow to
/// foresee.
const AHEAD: usize = 16;

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
                let ahead = from.wrapping_add(AHEAD * c.from_step);
                let mut i = 0;
                while i + S::LANES <= c.columns {
                    if r + AHEAD < c.rows {
                        s.prefetch(ahead.wrapping_add(i));
                    }
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
        if p.strides[0] == 1 && p.width.is_multiple_of(S::LANES) {
            for k in (0..p.rows).step_by(S::LANES) {
                for n in (0..p.width).step_by(S::LANES) {
                    // SAFETY: the caller's promise; the square begins inside the panel.
                    unsafe { square(s, &p, k, n) };
                }
            }
            return;
        }
        // Sixteen rows at a time: a cache line of each column is read whole while the lines written stay in L1.
        for start in (0..p.rows).step_by(16) {
            for n in 0..p.width {
                // SAFETY: the caller passes elements that are valid.
                unsafe {
                    let (from, to) = (p.from.wrapping_add(n * p.strides[1]), p.to.add(n));
                    for k in start..(start + 16).min(p.rows) {
                        *to.add(k * p.width) = if n < p.columns { *from.add(k * p.strides[0]) } else { 0.0 };
                    }
                }
            }
        }
    }
}

/// Turns the square at row `k`, column `n` of a panel whose columns lie along memory; at the edges by way of squares of
/// its own.
///
/// # Safety
/// The elements of both sides are valid, and the width is a number of whole vectors.
#[inline(always)]
unsafe fn square<S: Simd>(s: S, p: &Panel, k: usize, n: usize) {
    let (rows, columns) = ((p.rows - k).min(S::LANES), p.columns.saturating_sub(n).min(S::LANES));
    // SAFETY: the caller's promise; the squares have room for `LANES` rows of as many.
    unsafe {
        let (from, to) = (p.from.wrapping_add(n * p.strides[1] + k), p.to.add(k * p.width + n));
        if rows == S::LANES && columns == S::LANES {
            return s.transpose(from, p.strides[1], to, p.width);
        }
        let (mut lying, mut upright) = ([0.0; MAX_LANES * MAX_LANES], [0.0; MAX_LANES * MAX_LANES]);
        for c in 0..columns {
            s.store(lying.as_mut_ptr().add(c * S::LANES), s.load_part(from.add(c * p.strides[1]), rows));
        }
        s.transpose(lying.as_ptr(), S::LANES, upright.as_mut_ptr(), S::LANES);
        for r in 0..rows {
            s.store(to.add(r * p.width), s.load(upright.as_ptr().add(r * S::LANES)));
        }
    }
}

/// Arguments of [`CopyColumns`].
#[derive(Clone, Copy)]
pub struct Columns {
    /// Element (0, 0) of a matrix whose columns lie along memory.
    pub from: *const f32,
    /// Floats from column to column.
    pub from_step: usize,
    /// Number of columns.
    pub len: usize,
    /// Number of rows.
    pub rows: usize,
    /// Tiles that the rows are cut in, as by [`tile_rows`].
    pub tiles: usize,
    /// First element of the first tile's copy.
    pub to: *mut f32,
    /// Floats from column to column of a tile.
    pub to_step: usize,
    /// Floats from tile to tile.
    pub tile: usize,
}

/// Copies columns, each tile's rows side by side: column by column, as they lie far apart. The two do not overlap. What lies after
/// a tile's rows, up to whole vectors, is of no meaning.
pub struct CopyColumns;

/// Tiles whose first rows are looked up together.
const TILES: usize = 64;

impl Routine for CopyColumns {
    type Args = Columns;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, c: Columns) {
        let mut starts = [0; TILES];
        // Whole vectors end in the next column at the latest, if that has as many elements, and in the room that a tile has for them.
        let whole = if c.rows >= S::LANES { c.len.saturating_sub(1) } else { 0 };
        for first in (0..c.tiles).step_by(TILES) {
            let starts = &mut starts[..TILES.min(c.tiles - first)];
            starts.iter_mut().enumerate().for_each(|(i, start)| *start = tile_rows(c.rows, c.tiles, first + i).start);
            for k in 0..c.len {
                for (i, start) in starts.iter().enumerate() {
                    let i = first + i;
                    // SAFETY: the caller passes elements that are valid.
                    unsafe {
                        let (from, to) = (c.from.add(k * c.from_step + start), c.to.add(i * c.tile + k * c.to_step));
                        if k < whole && c.to_step == S::LANES {
                            s.store(to, s.load(from));
                            continue;
                        }
                        let rows = tile_rows(c.rows, c.tiles, i).len();
                        for n in (0..rows).step_by(S::LANES) {
                            s.store_part(to.add(n), s.load_part(from.add(n), rows - n), rows - n);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::SimdLevel;

    #[test]
    fn panels_hold_the_columns_and_zeros() {
        for level in SimdLevel::supported() {
            for (rows, columns, width) in
                [(1, 1, 8), (16, 16, 16), (37, 32, 32), (40, 21, 32), (5, 32, 32), (64, 7, 16), (27, 10, 32)]
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

    #[test]
    fn tiles_hold_their_rows_of_each_column() {
        for level in SimdLevel::supported() {
            for (rows, tiles, len, to_step) in [
                (1, 1, 1, 16),
                (14, 1, 5, 16),
                (27, 2, 3, 16),
                (100, 8, 2, 16),
                (100, 20, 4, 8),
                (7, 2, 3, 8),
                (500, 90, 3, 8),
            ] {
                let from_step = rows + 3;
                let tile = len * to_step + 16;
                let from: Vec<f32> = (0..(len - 1) * from_step + rows).map(|i| i as f32).collect();
                let mut to = vec![-1.0; tiles * tile];
                let (a, b) = (from.as_ptr(), to.as_mut_ptr());
                let columns = Columns { from: a, from_step, len, rows, tiles, to: b, to_step, tile };
                // SAFETY: both sides have all elements.
                unsafe { level.routine::<CopyColumns>()(columns) };
                for i in 0..tiles {
                    for (r, row) in tile_rows(rows, tiles, i).enumerate() {
                        for k in 0..len {
                            let (at, want) = (i * tile + k * to_step + r, from[k * from_step + row]);
                            assert_eq!(to[at], want, "{level}: {rows} rows in {tiles}, row {row} of column {k}");
                        }
                    }
                }
                // Nothing after the room of the last column's rows.
                let end = (tiles - 1) * tile + (len - 1) * to_step + to_step.max(level.lanes());
                assert!(to[end..].iter().all(|x| *x == -1.0), "{level}: {rows} rows in {tiles}");
            }
        }
    }
}
