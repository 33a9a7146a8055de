//! The transforms of F(2×2, 3×3) along one axis, and of whole input tiles.

use super::{ELEMENTS, Grid};
use crate::backend::cpu::simd::{Kernel, Simd};
use std::ops::Range;

/// `G g`
#[inline(always)]
pub fn kernel_transform<S: Simd>(s: S, g: [S::V; 3]) -> [S::V; 4] {
    let half = s.splat(0.5);
    let ends = s.mul(half, s.add(g[0], g[2]));
    let middle = s.mul(half, g[1]);
    [g[0], s.add(ends, middle), s.sub(ends, middle), g[2]]
}

/// `Bᵀ d`
#[inline(always)]
pub fn input_transform<S: Simd>(s: S, d: [S::V; 4]) -> [S::V; 4] {
    [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[1], d[3])]
}

/// `Aᵀ m`
#[inline(always)]
pub fn output_transform<S: Simd>(s: S, m: [S::V; 4]) -> [S::V; 2] {
    [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3])]
}

/// `A y`: the other way round.
#[inline(always)]
pub fn output_adjoint<S: Simd>(s: S, y: [S::V; 2]) -> [S::V; 4] {
    [y[0], s.add(y[0], y[1]), s.sub(y[0], y[1]), s.neg(y[1])]
}

/// `Gᵀ u`: the other way round.
#[inline(always)]
pub fn kernel_adjoint<S: Simd>(s: S, u: [S::V; 4]) -> [S::V; 3] {
    let half = s.splat(0.5);
    let sum = s.mul(half, s.add(u[1], u[2]));
    [s.add(u[0], sum), s.mul(half, s.sub(u[1], u[2])), s.add(sum, u[3])]
}

/// `Bᵀ d B`, element by element `step` floats apart, `n` lanes of each.
///
/// # Safety
/// `to` has room for them.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn store_input<S: Simd>(s: S, d: [[S::V; 4]; 4], to: *mut f32, step: usize, n: usize) {
    let mut half = [[s.zero(); 4]; 4];
    for j in 0..4 {
        let column = input_transform(s, [d[0][j], d[1][j], d[2][j], d[3][j]]);
        for i in 0..4 {
            half[i][j] = column[i];
        }
    }
    for i in 0..4 {
        let row = input_transform(s, half[i]);
        for j in 0..4 {
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.add((i * 4 + j) * step);
                if n >= S::LANES {
                    s.store(to, row[j]);
                } else {
                    s.store_part(to, row[j], n);
                }
            }
        }
    }
}

/// `Aᵀ m A` of a transformed tile whose elements lie `step` floats apart: the pixels, row by row.
///
/// # Safety
/// `from` has a vector for each element.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn output_tile<S: Simd>(s: S, from: *const f32, step: usize) -> [S::V; 4] {
    let mut half = [[s.zero(); 4]; 2];
    for j in 0..4 {
        let mut column = [s.zero(); 4];
        for i in 0..4 {
            // SAFETY: the caller's promise.
            column[i] = unsafe { s.load(from.add((i * 4 + j) * step)) };
        }
        let column = output_transform(s, column);
        half[0][j] = column[0];
        half[1][j] = column[1];
    }
    let (upper, lower) = (output_transform(s, half[0]), output_transform(s, half[1]));
    [upper[0], upper[1], lower[0], lower[1]]
}

/// Transforms input tiles to `[element][tile][from]`.
pub struct Input<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// The images.
    pub source: &'a [f32],
    /// A pixel outside the image.
    pub zeros: &'a [f32],
    /// Where they go.
    pub input: &'a mut [f32],
}

impl Kernel for Input<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let [height, width] = k.source;
        for (t, tile) in self.tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            let mut pixels = [self.zeros.as_ptr(); ELEMENTS];
            for (i, pixel) in pixels.iter_mut().enumerate() {
                let y = (2 * row + i / 4).wrapping_sub(k.padding[0]);
                let x = (2 * column + i % 4).wrapping_sub(k.padding[1]);
                if y < height && x < width {
                    *pixel = self.source[((image * height + y) * width + x) * k.from..].as_ptr();
                }
            }
            for c in (0..k.from).step_by(S::LANES) {
                let left = k.from - c;
                // SAFETY: a pixel has `from` channels, and the transformed tile room for as many.
                unsafe {
                    let mut tile = [[s.zero(); 4]; 4];
                    for i in 0..4 {
                        for j in 0..4 {
                            let from = pixels[i * 4 + j].add(c);
                            tile[i][j] = if left >= S::LANES { s.load(from) } else { s.load_part(from, left) };
                        }
                    }
                    let to = self.input.as_mut_ptr().add(t * k.from + c);
                    store_input(s, tile, to, k.block * k.from, left);
                }
            }
        }
    }
}
