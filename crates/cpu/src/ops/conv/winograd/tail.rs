//! Products for the last few channels, which fill only a small part of a tile. A tile would compute whole vectors of channels
//! for them, so vectors run over the channels of the other side instead.

use super::grid::{Grid, element_floats};
use super::points::{Four, Points};
use super::transforms::vector_start;
use crate::simd::{Kernel, MAX_LANES, Simd};
use std::ops::Range;

/// Most channels for which this is faster than a tile.
const MOST: usize = 2;

/// Vectors whose accumulators stay in registers.
const VECTORS: usize = 4;

/// The first of the channels written that are left to this module, of `channels` in tiles of `width`: all of the last tile.
pub fn start(channels: usize, width: usize) -> usize {
    let whole = channels / width * width;
    if whole > 0 && channels - whole <= MOST { whole } else { channels }
}

/// Where weight `c` of `from` lies in a row of whole vectors, of which the last repeats channels, with weights of 0.
pub fn place(c: usize, from: usize, lanes: usize) -> usize {
    let last = (from - 1) / lanes * lanes;
    if c < last { c } else { last + c + lanes - from }
}

/// Floats of such a row.
pub fn row(from: usize, lanes: usize) -> usize {
    from.next_multiple_of(lanes)
}

/// `output[element][tile][column] = Σ_from input[element][tile][from] · weights[element][column][from]`
pub struct Dots<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// How many there are.
    pub count: usize,
    /// Transformed tiles, and floats from element to element.
    pub input: (&'a [f32], usize),
    /// Transformed weights: rows in the order of [`place`], and floats from element to element.
    pub weights: (&'a [f32], usize),
    /// Columns, and floats from tile to tile.
    pub columns: usize,
    /// See `columns`.
    pub width: usize,
    /// The products.
    pub output: &'a mut [f32],
}

impl Kernel for Dots<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let from = self.grid.from;
        let (tiles_read, input) = self.input;
        let output = element_floats(self.grid.block, self.width);
        let row = row(from, S::LANES);
        assert!(tiles_read.len() >= (self.grid.elements - 1) * input + self.count * from);
        assert!(self.output.len() >= self.grid.elements * output && from >= S::LANES);
        assert!(self.count > 0 && self.count <= self.grid.block && self.columns <= self.width);
        for (element, column) in (0..self.grid.elements).flat_map(|e| (0..self.columns).map(move |c| (e, c))) {
            let weights = &self.weights.0[element * self.weights.1 + column * row..][..row];
            for first in (0..self.count).step_by(S::LANES) {
                // SAFETY: as asserted, the tiles are there; those beyond the last repeat it, and are not stored.
                unsafe {
                    let mut tiles = [tiles_read.as_ptr(); MAX_LANES];
                    for t in 0..S::LANES {
                        tiles[t] = tiles[t].add(element * input + (first + t).min(self.count - 1) * from);
                    }
                    let mut acc = [s.zero(); MAX_LANES];
                    for c in (0..from).step_by(S::LANES) {
                        let w = s.load(weights.as_ptr().add(c));
                        let c = vector_start(s, c, from);
                        for t in 0..S::LANES {
                            acc[t] = s.fma(s.load(tiles[t].add(c)), w, acc[t]);
                        }
                    }
                    let (mut lanes, mut sums) = ([0.0; MAX_LANES * MAX_LANES], [0.0; MAX_LANES * MAX_LANES]);
                    for t in 0..S::LANES {
                        s.store(lanes.as_mut_ptr().add(t * S::LANES), acc[t]);
                    }
                    s.transpose(lanes.as_ptr(), S::LANES, sums.as_mut_ptr(), S::LANES);
                    let mut total = s.zero();
                    for lane in 0..S::LANES {
                        total = s.add(total, s.load(sums.as_ptr().add(lane * S::LANES)));
                    }
                    let total = s.to_array(total);
                    for t in 0..(self.count - first).min(S::LANES) {
                        self.output[element * output + (first + t) * self.width + column] = total[t];
                    }
                }
            }
        }
    }
}

/// `sums[element][row][column] (+)= Σ_tiles a[element][tile][row] · b[element][tile][column]`
pub struct Outer<'a> {
    /// How many rows.
    pub rows: usize,
    /// How many tiles there are.
    pub count: usize,
    /// Transformed tiles, floats from element to element, and from tile to tile.
    pub a: (&'a [f32], [usize; 2]),
    /// The same.
    pub b: (&'a [f32], [usize; 2]),
    /// Columns.
    pub columns: Range<usize>,
    /// Floats from element to element and from row to row of `sums`.
    pub step: [usize; 2],
    /// Adds to the sums.
    pub accumulate: bool,
    /// The sums.
    pub sums: &'a mut [f32],
}

impl Kernel for Outer<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, last) = (self.rows, self.count.saturating_sub(1));
        let ((a_tiles, [a_element, a_step]), (b_tiles, [b_element, b_step])) = (self.a, self.b);
        assert!(a_tiles.len() >= (Four::ELEMENTS - 1) * a_element + last * a_step + rows && rows >= S::LANES);
        assert!(b_tiles.len() >= (Four::ELEMENTS - 1) * b_element + last * b_step + self.columns.end);
        for (element, column) in (0..Four::ELEMENTS).flat_map(|e| self.columns.clone().map(move |c| (e, c))) {
            for first in (0..rows).step_by(VECTORS * S::LANES) {
                // Vectors beyond the last repeat it, and are not stored.
                let mut starts = [0; VECTORS];
                for v in 0..VECTORS {
                    starts[v] = vector_start(s, first + v * S::LANES, rows);
                }
                let mut acc = [s.zero(); VECTORS];
                // SAFETY: as asserted, the tiles are there.
                unsafe {
                    let mut a = a_tiles.as_ptr().add(element * a_element);
                    let mut b = b_tiles.as_ptr().add(element * b_element + column);
                    for _ in 0..self.count {
                        let dy = s.splat(*b);
                        for v in 0..VECTORS {
                            acc[v] = s.fma(s.load(a.add(starts[v])), dy, acc[v]);
                        }
                        (a, b) = (a.wrapping_add(a_step), b.wrapping_add(b_step));
                    }
                }
                for v in 0..VECTORS {
                    let lanes = s.to_array(acc[v]);
                    // The last vector's first rows are those of the one before.
                    for row in first + v * S::LANES..rows.min(first + (v + 1) * S::LANES) {
                        let sum = &mut self.sums[element * self.step[0] + row * self.step[1] + column];
                        *sum = lanes[row - starts[v]] + if self.accumulate { *sum } else { 0.0 };
                    }
                }
            }
        }
    }
}
