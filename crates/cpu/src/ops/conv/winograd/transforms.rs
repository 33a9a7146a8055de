//! The transforms of whole tiles.

use super::grid::{Grid, Held};
use super::points::{Four, MOST, Points};
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Transforms the rows of a tile whose columns have been transformed, and stores its elements `step` floats apart: `Bᵀ d B`.
///
/// # Safety
/// `to` has room for them.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn store_input<P: Points, S: Simd>(s: S, columns: &[[S::V; MOST[1]]; MOST[1]], to: *mut f32, step: usize) {
    for i in 0..P::WIDE {
        let mut row = [s.zero(); MOST[1]];
        for j in 0..P::WIDE {
            row[j] = columns[j][i];
        }
        let row = P::input_transform(s, row);
        for j in 0..P::WIDE {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.add((i * P::WIDE + j) * step), row[j]) };
        }
    }
}

/// `Aᵀ m A` of a transformed tile whose elements lie `step` floats apart: the pixels, row by row.
///
/// # Safety
/// `from` has a vector for each element.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn output_tile<P: Points, S: Simd>(s: S, from: *const f32, step: usize) -> [[S::V; MOST[0]]; MOST[0]] {
    let mut half = [[s.zero(); MOST[1]]; MOST[0]];
    for j in 0..P::WIDE {
        let mut column = [s.zero(); MOST[1]];
        for i in 0..P::WIDE {
            // SAFETY: the caller's promise.
            column[i] = unsafe { s.load(from.add((i * P::WIDE + j) * step)) };
        }
        let column = P::output_transform(s, column);
        for i in 0..P::TILE {
            half[i][j] = column[i];
        }
    }
    let mut pixels = [[s.zero(); MOST[0]]; MOST[0]];
    for i in 0..P::TILE {
        pixels[i] = P::output_transform(s, half[i]);
    }
    pixels
}

/// `A dy Aᵀ` of a tile's pixels, row by row, element by element `step` floats apart.
///
/// # Safety
/// `to` has room for a vector of each element.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn store_output_grad<S: Simd>(s: S, pixels: &[[S::V; MOST[0]]; MOST[0]], to: *mut f32, step: usize) {
    let mut half = [[s.zero(); MOST[0]]; MOST[1]];
    for j in 0..Four::TILE {
        let column = Four::output_adjoint(s, [pixels[0][j], pixels[1][j], pixels[2][j], pixels[3][j]]);
        for i in 0..Four::WIDE {
            half[i][j] = column[i];
        }
    }
    for i in 0..Four::WIDE {
        let row = Four::output_adjoint(s, half[i]);
        for j in 0..Four::WIDE {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.add((i * Four::WIDE + j) * step), row[j]) };
        }
    }
}

/// Where the vector of channels that would begin at `c` of `n` begins: the last repeats channels of the one before, as there
/// are more than a vector of them.
#[inline(always)]
pub fn vector_start<S: Simd>(_: S, c: usize, n: usize) -> usize {
    c.min(n - S::LANES)
}

/// Transforms input tiles to `[element][tile][from]`.
pub struct Input<'a, P> {
    /// Their sizes.
    pub points: PhantomData<P>,
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// The images.
    pub source: &'a [f32],
    /// A row outside the image.
    pub zeros: &'a [f32],
    /// Where they go.
    pub input: Held<'a>,
}

impl<P: Points> Kernel for Input<'_, P> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let [height, width] = k.source;
        assert!(self.source.len() >= k.images * height * width * k.from && self.zeros.len() >= width * k.from);
        assert!(k.from >= S::LANES);
        let (line, (mut to, element)) = (width * k.from, self.input.check(P::ELEMENTS, &self.tiles, k.from));
        let mut positions = k.positions(self.tiles.start);
        let mut rows = [self.zeros.as_ptr(); MOST[1]];
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            if column == 0 || t == 0 {
                for i in 0..P::WIDE {
                    let y = (P::TILE * row + i).wrapping_sub(k.padding[0]);
                    rows[i] = if y < height {
                        self.source.as_ptr().wrapping_add((image * height + y) * line)
                    } else {
                        self.zeros.as_ptr()
                    };
                }
            }
            let first = (P::TILE * column).wrapping_sub(k.padding[1]);
            for c in (0..k.from).step_by(S::LANES) {
                let c = vector_start(s, c, k.from);
                let mut columns = [[s.zero(); MOST[1]]; MOST[1]];
                for j in 0..P::WIDE {
                    // Columns outside the image are 0.
                    let x = first.wrapping_add(j);
                    if x < width {
                        let mut pixels = [s.zero(); MOST[1]];
                        for i in 0..P::WIDE {
                            // SAFETY: a pixel has `from` channels.
                            pixels[i] = unsafe { s.load(rows[i].wrapping_add(x * k.from + c)) };
                        }
                        columns[j] = P::input_transform(s, pixels);
                    }
                }
                // SAFETY: the transformed tiles have room for `from` channels.
                unsafe { store_input::<P, S>(s, &columns, to.add(c), element) };
            }
            to = to.wrapping_add(self.input.tile);
        }
    }
}
