//! Windows of two by two pixels that touch and never reach beyond the image: each pixel lies in one window or in none, so
//! a gradient is written once, without a sum.

use super::position::Position;
use crate::simd::lanes::{Lane, get, put};
use crate::simd::{Kernel, Simd};

/// A row of windows.
pub struct Forward<'a, X, Y> {
    /// The upper row of pixels.
    pub top: &'a [X],
    /// The lower one.
    pub bottom: &'a [X],
    /// The maxima.
    pub y: &'a mut [Y],
    /// Where they lie in their windows.
    pub index: &'a mut [u8],
    /// Floats in a pixel.
    pub channels: usize,
    /// Maxima are kept within these.
    pub bounds: Option<[f32; 2]>,
}

impl<X: Lane, Y: Lane> Kernel for Forward<'_, X, Y> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Forward { top, bottom, y, index, channels, bounds } = self;
        let pixels = top.chunks_exact(2 * channels).zip(bottom.chunks_exact(2 * channels));
        let windows = y.chunks_exact_mut(channels).zip(index.chunks_exact_mut(channels));
        for ((top, bottom), (y, index)) in pixels.zip(windows) {
            let ((a, b), (c, d)) = (top.split_at(channels), bottom.split_at(channels));
            for i in (0..channels).step_by(S::LANES) {
                let n = (channels - i).min(S::LANES);
                let (va, vb, vc, vd) = (get(s, a, i, n), get(s, b, i, n), get(s, c, i, n), get(s, d, i, n));
                let (mut best, at) = maximum(s, [va, vb, vc, vd]);
                if let Some([low, high]) = bounds {
                    best = bounded(s, best, [s.splat(low), s.splat(high)]);
                }
                put(s, y, i, n, best);
                u8::put(s, &mut index[i..i + n], at);
            }
        }
    }
}

/// The maximum of a window's pixels, row by row, and where it lies. The earlier pixel wins among equals, the last among those
/// that are NaN: as in any order of the four.
#[inline(always)]
pub fn maximum<S: Simd>(s: S, [a, b, c, d]: [S::V; 4]) -> (S::V, S::V) {
    let right = s.gt_or_nan(b, a);
    let (upper, at_upper) = (s.select(right, b, a), s.select(right, s.splat(1.0), s.zero()));
    let right = s.gt_or_nan(d, c);
    let (lower, at_lower) = (s.select(right, d, c), s.select(right, s.splat(3.0), s.splat(2.0)));
    let below = s.gt_or_nan(lower, upper);
    (s.select(below, lower, upper), s.select(below, at_lower, at_upper))
}

/// A maximum within bounds. NaN stays.
#[inline(always)]
pub fn bounded<S: Simd>(s: S, best: S::V, [low, high]: [S::V; 2]) -> S::V {
    s.min(high, s.max(low, best))
}

/// Adds the gradients of the maxima, pixel by pixel, to sums by channel.
pub struct AddMaxima<'a> {
    /// Gradient of the maxima.
    pub dy: &'a [f32],
    /// The sums.
    pub sums: &'a mut [f32],
}

impl Kernel for AddMaxima<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let AddMaxima { dy, sums } = self;
        let channels = sums.len();
        for dy in dy.chunks_exact(channels) {
            for i in (0..channels).step_by(S::LANES) {
                let n = (channels - i).min(S::LANES);
                put(s, sums, i, n, s.add(get(s, sums, i, n), get(s, dy, i, n)));
            }
        }
    }
}

/// The gradient of one row of pixels, the upper or the lower one of a row of windows.
pub struct BackwardRow<'a> {
    /// Gradient of the maxima, from the first channel that is wanted; pixels are `step` floats apart.
    pub dy: &'a [f32],
    /// Where they lay.
    pub index: &'a [u8],
    /// Floats from one pixel to the next of the two above.
    pub step: usize,
    /// 0 for the upper row, 1 for the lower one.
    pub row: usize,
    /// Windows side by side.
    pub windows: usize,
    /// The pixels, `channels` floats each: with those that no window reaches.
    pub dx: &'a mut [f32],
    /// Channels that are wanted.
    pub channels: usize,
}

impl Kernel for BackwardRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let BackwardRow { dy, index, step, row, windows, dx, channels } = self;
        let (left, right) = (s.splat(2.0 * row as f32), s.splat(2.0 * row as f32 + 1.0));
        let mut pixels = dx.chunks_exact_mut(2 * channels);
        for (window, pair) in pixels.by_ref().take(windows).enumerate() {
            let (a, b) = pair.split_at_mut(channels);
            for i in (0..channels).step_by(S::LANES) {
                let n = (channels - i).min(S::LANES);
                let from = window * step + i;
                let (v, at) = (get(s, dy, from, n), u8::get(s, &index[from..from + n]));
                put(s, a, i, n, s.select(s.eq(at, left), v, s.zero()));
                put(s, b, i, n, s.select(s.eq(at, right), v, s.zero()));
            }
        }
        let reached = 2 * windows * channels;
        dx[reached..].fill(0.0);
    }
}

/// The gradient of a row of windows.
pub struct Backward<'a> {
    /// Gradient of the maxima.
    pub dy: &'a [f32],
    /// Where they lay.
    pub index: &'a [u8],
    /// The two rows of pixels, of equal length: with a column that no window reaches if the width is odd.
    pub dx: &'a mut [f32],
    /// Floats in a pixel.
    pub channels: usize,
}

impl Kernel for Backward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Backward { dy, index, dx, channels } = self;
        let (top, bottom) = dx.split_at_mut(dx.len() / 2);
        let (mut top, mut bottom) = (top.chunks_exact_mut(2 * channels), bottom.chunks_exact_mut(2 * channels));
        let windows = dy.chunks_exact(channels).zip(index.chunks_exact(channels));
        for ((top, bottom), (dy, index)) in top.by_ref().zip(bottom.by_ref()).zip(windows) {
            let ((a, b), (c, d)) = (top.split_at_mut(channels), bottom.split_at_mut(channels));
            for i in (0..channels).step_by(S::LANES) {
                let n = (channels - i).min(S::LANES);
                let (v, at) = (get(s, dy, i, n), u8::get(s, &index[i..i + n]));
                put(s, a, i, n, s.select(s.eq(at, s.zero()), v, s.zero()));
                put(s, b, i, n, s.select(s.eq(at, s.splat(1.0)), v, s.zero()));
                put(s, c, i, n, s.select(s.eq(at, s.splat(2.0)), v, s.zero()));
                put(s, d, i, n, s.select(s.eq(at, s.splat(3.0)), v, s.zero()));
            }
        }
        top.into_remainder().fill(0.0);
        bottom.into_remainder().fill(0.0);
    }
}
