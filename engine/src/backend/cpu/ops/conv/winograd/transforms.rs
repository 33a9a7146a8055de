//! The transforms of F(2×2, 3×3) along one axis, and of whole input tiles.

use super::grid::{ELEMENTS, Grid};
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

/// `A y`, the adjoint of [`output_transform`].
#[inline(always)]
pub fn output_adjoint<S: Simd>(s: S, y: [S::V; 2]) -> [S::V; 4] {
    [y[0], s.add(y[0], y[1]), s.sub(y[0], y[1]), s.neg(y[1])]
}

/// `Gᵀ u`, the adjoint of [`kernel_transform`].
#[inline(always)]
pub fn kernel_adjoint<S: Simd>(s: S, u: [S::V; 4]) -> [S::V; 3] {
    let half = s.splat(0.5);
    let sum = s.mul(half, s.add(u[1], u[2]));
    [s.add(u[0], sum), s.mul(half, s.sub(u[1], u[2])), s.add(sum, u[3])]
}

/// `Bᵀ d B`, element by element `step` floats apart.
///
/// # Safety
/// `to` has room for them.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn store_input<S: Simd>(s: S, d: [[S::V; 4]; 4], to: *mut f32, step: usize) {
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
            unsafe { s.store(to.add((i * 4 + j) * step), row[j]) };
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

/// `A dy Aᵀ` of a tile's pixels, row by row, element by element `step` floats apart.
///
/// # Safety
/// `to` has room for a vector of each element.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
pub unsafe fn store_output_grad<S: Simd>(s: S, [a, b, c, d]: [S::V; 4], to: *mut f32, step: usize) {
    let columns = [output_adjoint(s, [a, c]), output_adjoint(s, [b, d])];
    for i in 0..4 {
        let row = output_adjoint(s, [columns[0][i], columns[1][i]]);
        for j in 0..4 {
            // SAFETY: the caller's promise.
            unsafe { s.store(to.add((i * 4 + j) * step), row[j]) };
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
pub struct Input<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// The images.
    pub source: &'a [f32],
    /// A row outside the image.
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
        assert!(self.source.len() >= k.images * height * width * k.from && self.zeros.len() >= width * k.from);
        assert!(self.input.len() >= ELEMENTS * k.element_floats(k.from) && self.tiles.len() <= k.block);
        assert!(k.from >= S::LANES);
        let (line, element) = (width * k.from, k.element_floats(k.from));
        let mut to = self.input.as_mut_ptr();
        let mut positions = k.positions(self.tiles.start);
        let mut rows = [self.zeros.as_ptr(); 4];
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            if column == 0 || t == 0 {
                for i in 0..4 {
                    let y = (2 * row + i).wrapping_sub(k.padding[0]);
                    rows[i] = if y < height {
                        self.source.as_ptr().wrapping_add((image * height + y) * line)
                    } else {
                        self.zeros.as_ptr()
                    };
                }
            }
            let first = (2 * column).wrapping_sub(k.padding[1]);
            let mut columns = [0, k.from, 2 * k.from, 3 * k.from];
            let mut at = rows;
            let inside = first < width && first + 3 < width;
            for at in &mut at {
                *at = at.wrapping_add(first.wrapping_mul(k.from));
            }
            if !inside {
                // Columns outside the image are 0.
                for (j, column) in columns.iter_mut().enumerate() {
                    *column = if first.wrapping_add(j) < width { *column } else { usize::MAX };
                }
            }
            // SAFETY: a pixel has `from` channels, and the transformed tiles room for as many.
            unsafe {
                for c in (0..k.from).step_by(S::LANES) {
                    let c = vector_start(s, c, k.from);
                    if inside {
                        store_input(s, load_inside(s, at, k.from, c), to.add(c), element);
                    } else {
                        store_input(s, load_at_edge(s, at, columns, c), to.add(c), element);
                    }
                }
                to = to.add(k.from);
            }
        }
    }
}

/// A vector of channels of 4 × 4 pixels that lie `step` floats apart in their rows.
///
/// # Safety
/// The pixels have these channels.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
unsafe fn load_inside<S: Simd>(s: S, rows: [*const f32; 4], step: usize, c: usize) -> [[S::V; 4]; 4] {
    let mut tile = [[s.zero(); 4]; 4];
    for i in 0..4 {
        for j in 0..4 {
            // SAFETY: the caller's promise.
            tile[i][j] = unsafe { s.load(rows[i].wrapping_add(j * step + c)) };
        }
    }
    tile
}

/// The same at an edge of the image: columns of `usize::MAX` lie outside, and are 0.
///
/// # Safety
/// The other pixels have these channels.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
unsafe fn load_at_edge<S: Simd>(s: S, rows: [*const f32; 4], columns: [usize; 4], c: usize) -> [[S::V; 4]; 4] {
    let mut tile = [[s.zero(); 4]; 4];
    for j in 0..4 {
        if columns[j] == usize::MAX {
            continue;
        }
        for i in 0..4 {
            let from = rows[i].wrapping_add(columns[j] + c);
            // SAFETY: the caller's promise.
            tile[i][j] = unsafe { s.load(from) };
        }
    }
    tile
}
