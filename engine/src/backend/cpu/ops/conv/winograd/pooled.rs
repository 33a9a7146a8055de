//! The transforms for convolutions with max-pooling over 2 × 2 pixels behind them. A tile of the output is a window: it is
//! pooled in registers, and a window's gradient is placed in its tile as it is read.

use super::grid::{ELEMENTS, Grid, TilePanel};
use super::transforms::{output_tile, store_input, store_output_grad, vector_start};
use crate::backend::cpu::gemm::round_up;
use crate::backend::cpu::ops::conv::operands::PooledGrad;
use crate::backend::cpu::ops::max_pool::pairs::{bounded, maximum};
use crate::backend::cpu::ops::max_pool::position::Position;
use crate::backend::cpu::run::threads::Parts;
use crate::backend::cpu::simd::lanes;
use crate::backend::cpu::simd::{Kernel, Simd};
use std::ops::Range;

/// Turns `[element][tile][column]` into maxima and where they lie, for a panel of channels.
pub struct Output<'a> {
    /// Of which tiles and channels.
    pub panel: TilePanel<'a>,
    /// Transformed pixels.
    pub output: &'a [f32],
    /// What pixels are multiplied by, by channel.
    pub scale: Option<&'a [f32]>,
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
        let TilePanel { grid: k, tiles, channel, channels, width: columns } = self.panel;
        let [height, width] = k.dest.map(|side| side / 2);
        let element = k.element_floats(columns);
        let bounds = self.bounds.map(|[low, high]| [s.splat(low), s.splat(high)]);
        assert!(self.output.len() >= ELEMENTS * element && tiles.len() <= k.block && channel + channels <= k.to);
        assert!([self.scale, self.bias].into_iter().flatten().all(|x| x.len() >= k.to));
        let mut positions = k.positions(tiles.start);
        for t in 0..tiles.len() {
            let [image, row, column] = positions.step();
            if row >= height || column >= width {
                continue;
            }
            let at = ((image * height + row) * width + column) * k.to + channel;
            // SAFETY: a tile has one window, which belongs to it alone, and this call to these of its channels.
            let (y, index) = unsafe { (self.y.part(at..at + channels), self.index.part(at..at + channels)) };
            let mut c = 0;
            while c < channels {
                let n = (channels - c).min(S::LANES);
                // SAFETY: scale and bias have these channels, and rows of the transformed tiles are whole panels.
                let (scale, bias, window) = unsafe {
                    let of_channels = |x: &[f32]| s.load_part(x.as_ptr().add(channel + c), n);
                    (
                        self.scale.map(of_channels),
                        self.bias.map_or(s.zero(), of_channels),
                        output_tile(s, self.output.as_ptr().add(t * columns + c), element),
                    )
                };
                let (mut best, place) = match scale {
                    // It may be negative.
                    Some(scale) => maximum(s, window.map(|pixel| s.fma(pixel, scale, bias))),
                    // The same bias for all four: added to the largest alone.
                    None => {
                        let (best, place) = maximum(s, window);
                        (s.add(best, bias), place)
                    }
                };
                if let Some(bounds) = bounds {
                    best = bounded(s, best, bounds);
                }
                lanes::put(s, y, c, n, best);
                u8::put(s, &mut index[c..c + n], place);
                c += S::LANES;
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
    /// A row of windows outside the image.
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
        let (dy, index, element) = (self.source.dy, self.source.index, k.element_floats(k.from));
        debug_assert_eq!(k.padding, [1, 1]);
        assert!(
            dy.len() >= k.images * height * width * k.from && index.len() == dy.len() && self.zeros.len() >= k.from
        );
        assert!(self.input.len() >= ELEMENTS * element && self.tiles.len() <= k.block && k.from >= S::LANES);
        let mut to = self.input.as_mut_ptr();
        let mut positions = k.positions(self.tiles.start);
        // The bytes of zeros are zeros.
        let outside = (self.zeros.as_ptr(), self.zeros.as_ptr().cast::<u8>());
        let mut rows = [outside; 3];
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            // The 4 × 4 pixels begin one before a window's: they touch 3 × 3 windows.
            if column == 0 || t == 0 {
                for i in 0..3 {
                    let y = (row + i).wrapping_sub(1);
                    rows[i] = outside;
                    if y < height {
                        let at = (image * height + y) * width * k.from;
                        rows[i] = (dy.as_ptr().wrapping_add(at), index.as_ptr().wrapping_add(at));
                    }
                }
            }
            for c in (0..k.from).step_by(S::LANES) {
                let c = vector_start(s, c, k.from);
                let mut windows = [(s.zero(), s.zero()); 9];
                for j in 0..3 {
                    let x = (column + j).wrapping_sub(1);
                    if x >= width {
                        continue;
                    }
                    for i in 0..3 {
                        let (dy, at) = rows[i];
                        let (dy, at) = (dy.wrapping_add(x * k.from + c), at.wrapping_add(x * k.from + c));
                        // SAFETY: a window has `from` channels.
                        windows[i * 3 + j] = unsafe { (s.load(dy), s.load_bytes(at)) };
                    }
                }
                let tile = spread(s, windows);
                // SAFETY: the transformed tiles have room for `from` channels.
                unsafe { store_input(s, tile, to.add(c), element) };
            }
            to = to.wrapping_add(k.from);
        }
    }
}

/// The 4 × 4 pixels that begin one row and column before the second of 3 × 3 windows, from each window's gradient and place.
#[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
#[inline(always)]
fn spread<S: Simd>(s: S, windows: [(S::V, S::V); 9]) -> [[S::V; 4]; 4] {
    let mut pixels = [[s.zero(); 4]; 4];
    for i in 0..4 {
        for j in 0..4 {
            let (dy, at) = windows[[0, 1, 1, 2][i] * 3 + [0, 1, 1, 2][j]];
            let place = s.splat((2 * ((i + 1) % 2) + (j + 1) % 2) as f32);
            pixels[i][j] = s.select(s.eq(at, place), dy, s.zero());
        }
    }
    pixels
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
        let element = k.element_floats(step);
        // That of no pixel.
        let none = s.splat(4.0);
        let mut positions = k.positions(self.tiles.start);
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            let inside = row < height && column < width;
            let at = ((image * height + row) * width + column) * k.to;
            let mut c = 0;
            while c < step {
                let n = k.to.saturating_sub(c).min(S::LANES);
                let (mut dy, mut place) = (s.zero(), none);
                if inside && n > 0 {
                    dy = lanes::get(s, self.source.dy, at + c, n);
                    place = u8::get(s, &self.source.index[at + c..at + c + n]);
                }
                // SAFETY: the transformed tile and the sums are padded to whole vectors.
                unsafe {
                    let sum = self.bias_sums.as_mut_ptr().add(c);
                    s.store(sum, s.add(s.load(sum), dy));
                    let mut pixels = [s.zero(); 4];
                    for i in 0..4 {
                        pixels[i] = s.select(s.eq(place, s.splat(i as f32)), dy, s.zero());
                    }
                    store_output_grad(s, pixels, self.output.as_mut_ptr().add(t * step + c), element);
                }
                c += S::LANES;
            }
        }
    }
}
