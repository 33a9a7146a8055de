//! From a block's tiles to the result, by way of the epilogue.

use super::block::RESULTS;
use super::{PANEL, SIDE};
use crate::gemm::tile::Epilogue;
use crate::simd::{Routine, Simd};

/// Arguments of [`StoreBlock`].
pub struct Stored<'a> {
    /// The block.
    pub tiles: *const f32,
    /// Rows, at most [`PANEL`].
    pub rows: usize,
    /// Columns, at most [`PANEL`].
    pub n: usize,
    /// Column 0 of the place that the rows are counted from.
    pub c: *mut f32,
    /// Where each row begins, floats from `c`: at least `rows`, or none for rows that are `step` apart. [`SKIPPED`] ones are not stored.
    pub places: &'a [u32],
    /// Floats from row to row.
    pub step: usize,
    /// Applied to each result; its vectors begin at the block's first column.
    pub epilogue: Epilogue,
}

/// The place of a row that is not stored.
pub const SKIPPED: u32 = u32::MAX;

/// Stores a block.
pub struct StoreBlock;

impl Routine for StoreBlock {
    type Args = *const Stored<'static>;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: *const Stored<'static>) {
        // SAFETY: the caller passes addresses that are all valid.
        unsafe {
            let b = &*args;
            debug_assert!(b.rows <= PANEL && b.n <= PANEL);
            let epilogue = &b.epilogue;
            let (low, high) = (s.splat(epilogue.low), s.splat(epilogue.high));
            let has_matrix = epilogue.has_matrix();
            for column in (0..b.n).step_by(S::LANES) {
                let n = (b.n - column).min(S::LANES);
                let vector = |p: *const f32| s.load_part(p.add(column), n);
                let scale = if epilogue.scale.is_null() { s.splat(1.0) } else { vector(epilogue.scale) };
                let bias = if epilogue.bias.is_null() { s.zero() } else { vector(epilogue.bias) };
                let tile = b.tiles.add(column / SIDE * RESULTS + column % SIDE);
                for row in 0..b.rows {
                    let place = if b.places.is_empty() { row * b.step } else { *b.places.get_unchecked(row) as usize };
                    if place == SKIPPED as usize {
                        continue;
                    }
                    let c = b.c.wrapping_add(place + column);
                    let mut x = s.load(tile.add(row / SIDE * 2 * RESULTS + row % SIDE * SIDE));
                    if !epilogue.scale.is_null() {
                        x = s.mul(x, scale);
                    }
                    if has_matrix {
                        x = epilogue.apply_matrices(s, x, c, n);
                    }
                    // The sum comes second, so that NaN stays.
                    x = s.min(high, s.max(low, s.add(x, bias)));
                    if n == S::LANES {
                        s.store(c, x);
                    } else {
                        s.store_part(c, x, n);
                    }
                }
            }
        }
    }
}

/// Asks for the cache lines of a block's place, which is stored when its sums are done.
pub struct ForeseeBlock;

impl Routine for ForeseeBlock {
    type Args = *const Stored<'static>;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: *const Stored<'static>) {
        // SAFETY: the caller passes valid arguments; the lines are only asked for.
        unsafe {
            let b = &*args;
            for row in 0..b.rows {
                let place = if b.places.is_empty() { row * b.step } else { *b.places.get_unchecked(row) as usize };
                if place != SKIPPED as usize {
                    for column in (0..b.n).step_by(SIDE) {
                        s.prefetch_write(b.c.wrapping_add(place + column));
                    }
                    s.prefetch_write(b.c.wrapping_add(place + b.n - 1));
                }
            }
        }
    }
}
