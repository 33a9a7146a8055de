//! Windows of two by two pixels that touch and never reach beyond the image: each pixel lies in one window or in none, so
//! a gradient is written once, without a sum.

use super::position::Position;
use crate::backend::cpu::lanes::{get, put};
use crate::backend::cpu::simd::{Kernel, Simd};

/// A row of windows.
pub struct Forward<'a> {
    /// The upper row of pixels.
    pub top: &'a [f32],
    /// The lower one.
    pub bottom: &'a [f32],
    /// The maxima.
    pub y: &'a mut [f32],
    /// Where they lie in their windows.
    pub index: &'a mut [u8],
    /// Floats in a pixel.
    pub channels: usize,
}

impl Kernel for Forward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Forward { top, bottom, y, index, channels } = self;
        let pixels = top.chunks_exact(2 * channels).zip(bottom.chunks_exact(2 * channels));
        let windows = y.chunks_exact_mut(channels).zip(index.chunks_exact_mut(channels));
        for ((top, bottom), (y, index)) in pixels.zip(windows) {
            let ((a, b), (c, d)) = (top.split_at(channels), bottom.split_at(channels));
            for i in (0..channels).step_by(S::LANES) {
                let n = (channels - i).min(S::LANES);
                let (va, vb, vc, vd) = (get(s, a, i, n), get(s, b, i, n), get(s, c, i, n), get(s, d, i, n));
                // The earlier pixel wins among equals, the last among those that are NaN: as in any order of the four.
                let right = s.gt_or_nan(vb, va);
                let (upper, at_upper) = (s.select(right, vb, va), s.select(right, s.splat(1.0), s.zero()));
                let right = s.gt_or_nan(vd, vc);
                let (lower, at_lower) = (s.select(right, vd, vc), s.select(right, s.splat(3.0), s.splat(2.0)));
                let below = s.gt_or_nan(lower, upper);
                put(s, y, i, n, s.select(below, lower, upper));
                u8::put(s, &mut index[i..i + n], s.select(below, at_lower, at_upper));
            }
        }
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
