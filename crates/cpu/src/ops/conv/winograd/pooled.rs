//! The transforms for convolutions with max-pooling over 2 × 2 pixels after them. A tile of the output is a window or four: they
//! are pooled in registers, and a window's gradient is placed in its tile as it is read.

use super::grid::{Grid, Held, TilePanel, element_floats};
use super::points::{Four, MOST, Points};
use super::transforms::{output_tile, store_input, store_output_grad, vector_start};
use crate::gemm::round_up;
use crate::ops::conv::operands::PooledGrad;
use crate::ops::max_pool::pairs::{bounded, maximum};
use crate::ops::max_pool::position::Position;
use crate::run::threads::Parts;
use crate::simd::lanes;
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Windows down and across a tile of the gradients.
const WINDOWS: usize = Four::TILE / 2;

/// Turns `[element][tile][column]` into maxima and where they lie, for a panel of channels.
pub struct Output<'a, P> {
    /// Sizes of tiles.
    pub points: PhantomData<P>,
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

impl<P: Points> Kernel for Output<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let TilePanel { grid: k, tiles, channel, channels, width: columns } = self.panel;
        let [height, width] = k.dest.map(|side| side / 2);
        let element = element_floats(k.block, columns);
        let bounds = self.bounds.map(|[low, high]| [s.splat(low), s.splat(high)]);
        assert!(self.output.len() >= P::ELEMENTS * element && tiles.len() <= k.block && channel + channels <= k.to);
        assert!([self.scale, self.bias].into_iter().flatten().all(|x| x.len() >= k.to));
        let mut positions = k.positions(tiles.start);
        for t in 0..tiles.len() {
            let [image, row, column] = positions.step();
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                // SAFETY: scale and bias have these channels, and rows of the transformed tiles are whole panels.
                let (scale, bias, pixels) = unsafe {
                    let of_channels = |x: &[f32]| s.load_part(x.as_ptr().add(channel + c), n);
                    (
                        self.scale.map(of_channels),
                        self.bias.map_or(s.zero(), of_channels),
                        output_tile::<P, S>(s, self.output.as_ptr().add(t * columns + c), element),
                    )
                };
                for window in 0..P::TILE * P::TILE / 4 {
                    let windows = P::TILE / 2;
                    let [i, j] = [window / windows, window % windows];
                    let (y, x) = (windows * row + i, windows * column + j);
                    if y >= height || x >= width {
                        continue;
                    }
                    let [upper, lower] = [pixels[2 * i], pixels[2 * i + 1]];
                    let window = [upper[2 * j], upper[2 * j + 1], lower[2 * j], lower[2 * j + 1]];
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
                    let at = ((image * height + y) * width + x) * k.to + channel + c;
                    // SAFETY: a window belongs to one tile, and this call has these of its channels.
                    let (y, index) = unsafe { (self.y.part(at..at + n), self.index.part(at..at + n)) };
                    lanes::put(s, y, 0, n, best);
                    u8::put(s, index, place);
                }
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
    pub input: Held<'a>,
}

impl Kernel for Input<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let [height, width] = k.source.map(|side| side / 2);
        let (dy, index, (mut to, element)) =
            (self.source.dy, self.source.index, self.input.check(k.elements, &self.tiles, k.from));
        debug_assert_eq!(k.padding, [1, 1]);
        assert!(
            dy.len() >= k.images * height * width * k.from && index.len() == dy.len() && self.zeros.len() >= k.from
        );
        assert!(k.from >= S::LANES);
        let mut positions = k.positions(self.tiles.start);
        // The bytes of zeros are zeros.
        let outside = (self.zeros.as_ptr(), self.zeros.as_ptr().cast::<u8>());
        let mut rows = [outside; WINDOWS + 2];
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            // The 6 × 6 pixels begin one before a window's: they touch 4 × 4 windows.
            if column == 0 || t == 0 {
                for (i, at) in rows.iter_mut().enumerate() {
                    let y = (WINDOWS * row + i).wrapping_sub(1);
                    *at = outside;
                    if y < height {
                        let first = (image * height + y) * width * k.from;
                        *at = (dy.as_ptr().wrapping_add(first), index.as_ptr().wrapping_add(first));
                    }
                }
            }
            for c in (0..k.from).step_by(S::LANES) {
                let c = vector_start(s, c, k.from);
                let mut columns = [[s.zero(); MOST[1]]; MOST[1]];
                for j in 0..Four::WIDE {
                    let x = (WINDOWS * column + window_of(j)).wrapping_sub(1);
                    if x < width {
                        let mut windows = [(s.zero(), s.zero()); WINDOWS + 2];
                        for i in 0..WINDOWS + 2 {
                            let (dy, at) = rows[i];
                            let (dy, at) = (dy.wrapping_add(x * k.from + c), at.wrapping_add(x * k.from + c));
                            // SAFETY: a window has `from` channels.
                            windows[i] = unsafe { (s.load(dy), s.load_bytes(at)) };
                        }
                        columns[j] = Four::input_transform(s, spread(s, windows, j));
                    }
                }
                // SAFETY: the transformed tiles have room for `from` channels.
                unsafe { store_input::<Four, S>(s, &columns, to.add(c), element) };
            }
            to = to.wrapping_add(self.input.tile);
        }
    }
}

/// The window of pixel `i` of six, of which the first is the last of its window.
const fn window_of(i: usize) -> usize {
    i.div_ceil(2)
}

/// Column `j` of the 6 × 6 pixels that begin one row and column before the second of 4 × 4 windows, from the gradients and
/// places of its windows.
#[inline(always)]
fn spread<S: Simd>(s: S, windows: [(S::V, S::V); WINDOWS + 2], j: usize) -> [S::V; MOST[1]] {
    let mut pixels = [s.zero(); MOST[1]];
    for (i, pixel) in pixels.iter_mut().enumerate() {
        let (dy, at) = windows[window_of(i)];
        let place = s.splat((2 * ((i + 1) % 2) + (j + 1) % 2) as f32);
        *pixel = s.select(s.eq(at, place), dy, s.zero());
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
        let ([height, width], step) = (k.dest.map(|side| side / 2), round_up(k.to));
        let (output, element) = self.output.check(k.elements, &self.tiles, step);
        let mut positions = k.positions(self.tiles.start);
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            let mut c = 0;
            while c < step {
                let n = k.to.saturating_sub(c).min(S::LANES);
                let mut pixels = [[s.zero(); MOST[0]]; MOST[0]];
                let mut total = s.zero();
                for window in 0..WINDOWS * WINDOWS {
                    let [i, j] = [window / WINDOWS, window % WINDOWS];
                    let (y, x) = (WINDOWS * row + i, WINDOWS * column + j);
                    if y >= height || x >= width || n == 0 {
                        continue;
                    }
                    let at = ((image * height + y) * width + x) * k.to + c;
                    let (dy, place) =
                        (lanes::get(s, self.source.dy, at, n), u8::get(s, &self.source.index[at..at + n]));
                    total = s.add(total, dy);
                    for p in 0..4 {
                        let pixel = s.select(s.eq(place, s.splat(p as f32)), dy, s.zero());
                        pixels[2 * i + p / 2][2 * j + p % 2] = pixel;
                    }
                }
                // SAFETY: the transformed tile and the sums are padded to whole vectors.
                unsafe {
                    let sum = self.bias_sums.as_mut_ptr().add(c);
                    s.store(sum, s.add(s.load(sum), total));
                    store_output_grad(s, &pixels, output.add(t * self.output.tile + c), element);
                }
                c += S::LANES;
            }
        }
    }
}
