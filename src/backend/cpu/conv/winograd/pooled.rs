//! The transforms where max-pooling over 2 × 2 pixels lies behind the convolution: a tile of the output is a window, so
//! that it is pooled in registers, and its gradient is spread over the tile as it is read.

use super::Grid;
use super::pixels::Place;
use super::transforms::{output_adjoint, output_tile, store_input};
use crate::backend::cpu::conv::pooled::PooledGrad;
use crate::backend::cpu::gemm::round_up;
use crate::backend::cpu::lanes;
use crate::backend::cpu::max_pool::pairs::bounded;
use crate::backend::cpu::max_pool::position::Position;
use crate::backend::cpu::simd::{Kernel, Simd};
use crate::backend::cpu::threads::Parts;
use crate::graph::op::NO_GRADIENT;
use std::ops::Range;

/// Turns `[element][tile][column]` into maxima and where they lie, for a panel of channels.
pub struct Output<'a> {
    /// Of which tiles and channels.
    pub place: Place<'a>,
    /// Transformed pixels.
    pub output: &'a [f32],
    /// The bias by channel.
    pub bias: Option<&'a [f32]>,
    /// Applied to the maxima.
    pub bounds: Option<[f32; 2]>,
    /// `[N, OH / 2, OW / 2, O]`
    pub y: Parts<'a, f32>,
    /// Where the maxima lie.
    pub index: Parts<'a, u8>,
}

impl Kernel for Output<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Place { grid: k, tiles, channel, channels, width: columns } = self.place;
        let [height, width] = k.dest.map(|side| side / 2);
        let none = s.splat(NO_GRADIENT.into());
        let bounds = self.bounds.map(|[low, high]| [s.splat(low), s.splat(high)]);
        for (t, tile) in tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            if row >= height || column >= width {
                continue;
            }
            let at = ((image * height + row) * width + column) * k.to + channel;
            // SAFETY: a tile has one window, which belongs to it alone, and this call to these of its channels.
            let (y, index) = unsafe { (self.y.part(at..at + channels), self.index.part(at..at + channels)) };
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let bias = self.bias.map_or(s.zero(), |bias| lanes::get(s, bias, channel + c, n));
                // SAFETY: rows of the transformed tiles are whole panels.
                let [a, b, c2, d] =
                    unsafe { output_tile(s, self.output.as_ptr().add(t * columns + c), k.block * columns) };
                let right = s.gt_or_nan(b, a);
                let (upper, at_upper) = (s.select(right, b, a), s.select(right, s.splat(1.0), s.zero()));
                let right = s.gt_or_nan(d, c2);
                let (lower, at_lower) = (s.select(right, d, c2), s.select(right, s.splat(3.0), s.splat(2.0)));
                let below = s.gt_or_nan(lower, upper);
                // The same bias for all four: added to the largest alone.
                let mut best = s.add(s.select(below, lower, upper), bias);
                let mut place = s.select(below, at_lower, at_upper);
                if let Some(bounds) = bounds {
                    (best, place) = bounded(s, best, place, bounds, none);
                }
                lanes::put(s, y, c, n, best);
                u8::put(s, &mut index[c..c + n], place);
            }
        }
    }
}

/// Transforms input tiles of the gradient by the input to `[element][tile][from]`. The padding is 1.
pub struct Input<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// What is read.
    pub source: PooledGrad<'a>,
    /// A window outside the image.
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
        let [height, width] = k.source.map(|side| side / 2);
        debug_assert_eq!(k.padding, [1, 1]);
        for (t, tile) in self.tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            // The 4 × 4 pixels begin one before a window's: they touch 3 × 3 windows.
            let mut windows = [(self.zeros, [].as_slice()); 9];
            for (i, window) in windows.iter_mut().enumerate() {
                let (y, x) = ((row + i / 3).wrapping_sub(1), (column + i % 3).wrapping_sub(1));
                if y < height && x < width {
                    let at = ((image * height + y) * width + x) * k.from;
                    *window = (&self.source.dy[at..at + k.from], &self.source.index[at..at + k.from]);
                }
            }
            for c in (0..k.from).step_by(S::LANES) {
                let n = (k.from - c).min(S::LANES);
                let (mut dy, mut at) = ([s.zero(); 9], [s.zero(); 9]);
                for i in 0..9 {
                    let (from, index) = windows[i];
                    if !index.is_empty() {
                        dy[i] = lanes::get(s, from, c, n);
                        at[i] = u8::get(s, &index[c..c + n]);
                    }
                }
                let mut pixels = [[s.zero(); 4]; 4];
                for i in 0..4 {
                    for j in 0..4 {
                        let window = [0, 1, 1, 2][i] * 3 + [0, 1, 1, 2][j];
                        let place = s.splat((2 * ((i + 1) % 2) + (j + 1) % 2) as f32);
                        pixels[i][j] = s.select(s.eq(at[window], place), dy[window], s.zero());
                    }
                }
                // SAFETY: the transformed tiles have room for the channels.
                unsafe {
                    let to = self.input.as_mut_ptr().add(t * k.from + c);
                    store_input(s, pixels, to, k.block * k.from, n);
                }
            }
        }
    }
}

/// Transforms `dy` for the gradient by the weight to `[element][tile][output]` with zeros beyond the last channel, and adds
/// it to the bias's sums.
pub struct OutputGrad<'a> {
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// What is read.
    pub source: PooledGrad<'a>,
    /// Where the tiles go.
    pub output: &'a mut [f32],
    /// Sums by channel.
    pub bias_sums: &'a mut [f32],
}

impl Kernel for OutputGrad<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let ([height, width], step) = (k.dest.map(|side| side / 2), round_up(k.to));
        let none = s.splat(NO_GRADIENT.into());
        for (t, tile) in self.tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            let inside = row < height && column < width;
            let at = ((image * height + row) * width + column) * k.to;
            for c in (0..step).step_by(S::LANES) {
                let n = k.to.saturating_sub(c).min(S::LANES);
                let (mut dy, mut place) = (s.zero(), none);
                if inside && n > 0 {
                    dy = lanes::get(s, self.source.dy, at + c, n);
                    place = u8::get(s, &self.source.index[at + c..at + c + n]);
                    dy = s.select(s.eq(place, none), s.zero(), dy);
                }
                // SAFETY: the transformed tile and the sums are padded to whole vectors.
                unsafe {
                    let sum = self.bias_sums.as_mut_ptr().add(c);
                    s.store(sum, s.add(s.load(sum), dy));
                    let mut pixels = [s.zero(); 4];
                    for i in 0..4 {
                        pixels[i] = s.select(s.eq(place, s.splat(i as f32)), dy, s.zero());
                    }
                    let [a, b, c2, d] = pixels;
                    let columns = [output_adjoint(s, [a, c2]), output_adjoint(s, [b, d])];
                    for i in 0..4 {
                        let row = output_adjoint(s, [columns[0][i], columns[1][i]]);
                        for j in 0..4 {
                            s.store(self.output.as_mut_ptr().add(((i * 4 + j) * k.block + t) * step + c), row[j]);
                        }
                    }
                }
            }
        }
    }
}
