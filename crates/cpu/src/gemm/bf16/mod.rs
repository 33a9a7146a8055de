//! Matrix products whose factors are rounded to bf16 where they are packed, with sums in single precision.
//!
//! The arithmetic is that of AMX's tiles ([`block`]): 16 rows times 16 columns, 32 terms at a time. Which unit computes it, and how
//! rows and columns are shared out, changes no bit: every element is the same sum in the same order.
//!
//! Layouts. *Rows* (`A`): numbers along the sum, side by side, padded with zeros to whole steps of 32 terms. *Panels* (`B`): two tiles of
//! columns; of each step first the one, then the other, where a tile has 16 pairs of terms, of each pair the 16 columns. A last
//! panel of at most 16 columns has a single tile. Which terms are a pair depends on the unit ([`pack::Pairing`]).

pub mod block;
pub mod pack;
pub mod product;
pub mod store;

/// Rows, columns and pairs of terms of a tile.
pub const SIDE: usize = 16;

/// Terms of a step: what a tile of `A` has of the sum.
pub const STEP: usize = 32;

/// 16-bit numbers of a tile.
pub const TILE: usize = SIDE * STEP;

/// Columns of a panel, and rows of a block: two tiles.
pub const PANEL: usize = 2 * SIDE;

/// Tiles of `n` rows or columns.
pub const fn tiles(n: usize) -> usize {
    n.div_ceil(SIDE)
}

/// Steps of a sum of `k` terms.
pub const fn steps(k: usize) -> usize {
    k.div_ceil(STEP)
}

/// Terms of the last step of a sum of `k` terms.
pub const fn last_terms(k: usize) -> usize {
    match k % STEP {
        0 => STEP,
        terms => terms,
    }
}
