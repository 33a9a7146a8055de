//! Transforms of the gradient by the weight: of `dy`, and of the sum back to the weight's layout.

use super::grid::{Grid, Held, element_floats};
use super::points::{Four, MOST, Points};
use super::transforms::{store_output_grad, vector_start};
use crate::gemm::round_up;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

const TILE: usize = Four::TILE;
const WIDE: usize = Four::WIDE;

/// Transforms `dy` to `[element][tile][output]` with zeros beyond the last channel, and adds its pixels to the bias's sums.
pub struct OutputGrad<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// `[N, OH, OW, O]`
    pub dy: &'a [f32],
    /// Where the tiles go.
    pub output: Held<'a>,
    /// Sums by channel.
    pub bias_sums: &'a mut [f32],
}

impl Kernel for OutputGrad<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let ([height, width], step) = (k.dest, round_up(k.to));
        let (output, element) = self.output.check(k.elements, &self.tiles, step);
        let mut positions = k.positions(self.tiles.start);
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            let mut c = 0;
            while c < step {
                let left = k.to.saturating_sub(c);
                // SAFETY: pixels inside the image have `to` channels; the transformed tile and the sums are padded to
                // whole vectors.
                unsafe {
                    let mut pixels = [[s.zero(); TILE]; TILE];
                    for i in 0..TILE * TILE {
                        let (y, x) = (TILE * row + i / TILE, TILE * column + i % TILE);
                        if y < height && x < width && left > 0 {
                            let from = self.dy.as_ptr().add(((image * height + y) * width + x) * k.to + c);
                            let pixel = if left >= S::LANES { s.load(from) } else { s.load_part(from, left) };
                            pixels[i / TILE][i % TILE] = pixel;
                        }
                    }
                    let sum = self.bias_sums.as_mut_ptr().add(c);
                    let mut rows = [s.zero(); TILE];
                    for i in 0..TILE {
                        let [a, b, c, d] = pixels[i];
                        rows[i] = s.add(s.add(a, b), s.add(c, d));
                    }
                    let total = s.add(s.add(rows[0], rows[1]), s.add(rows[2], rows[3]));
                    s.store(sum, s.add(s.load(sum), total));
                    store_output_grad(s, &pixels, output.add(t * self.output.tile + c), element);
                }
                c += S::LANES;
            }
        }
    }
}

/// Transforms the sum back to `dw [O, 3, 3, I]` for some output channels.
pub struct Back<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// `[element][output][input]`, and floats from one output channel to the next.
    pub sum: (&'a [f32], usize),
    /// The output channels.
    pub outputs: Range<usize>,
    /// Theirs.
    pub dw: &'a mut [f32],
}

impl Kernel for Back<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (k, (sum, step)) = (self.grid, self.sum);
        let element = element_floats(k.to, step);
        assert!(sum.len() >= k.elements * element && step >= k.from && k.from >= S::LANES && self.outputs.end <= k.to);
        assert!(self.dw.len() >= self.outputs.len() * 9 * k.from);
        for (o, dw) in self.outputs.zip(self.dw.chunks_exact_mut(9 * k.from)) {
            for c in (0..k.from).step_by(S::LANES) {
                let c = vector_start(s, c, k.from);
                let mut half = [[s.zero(); MOST[1]]; 3];
                for j in 0..WIDE {
                    let mut column = [s.zero(); MOST[1]];
                    for i in 0..WIDE {
                        // SAFETY: as asserted, a row has these channels.
                        column[i] = unsafe { s.load(sum.as_ptr().add((i * WIDE + j) * element + o * step + c)) };
                    }
                    let column = Four::kernel_adjoint(s, column);
                    for i in 0..3 {
                        half[i][j] = column[i];
                    }
                }
                for i in 0..3 {
                    let row = Four::kernel_adjoint(s, half[i]);
                    for (j, x) in row.into_iter().enumerate() {
                        // SAFETY: as asserted.
                        unsafe { s.store(dw.as_mut_ptr().add((i * 3 + j) * k.from + c), x) };
                    }
                }
            }
        }
    }
}
