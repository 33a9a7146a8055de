//! Positions within a window: bytes in memory, or 32 bits where the window is large, and floats in vectors.

use crate::run::frame::Element;
use crate::simd::{MAX_LANES, Simd};

/// A type that holds a position within a window. As floats, positions in windows of up to 2²⁴ pixels are exact.
pub trait Position: Element {
    /// Up to `LANES` positions; lanes without one hold 0.
    fn get<S: Simd>(s: S, from: &[Self]) -> S::V;
    /// Writes the first of up to `LANES` positions, which are whole numbers that the type holds.
    fn put<S: Simd>(s: S, to: &mut [Self], v: S::V);
}

impl Position for u8 {
    #[inline(always)]
    fn get<S: Simd>(s: S, from: &[u8]) -> S::V {
        if from.len() >= S::LANES {
            // SAFETY: the bytes are there.
            return unsafe { s.load_bytes(from.as_ptr()) };
        }
        let mut bytes = [0; MAX_LANES];
        for (b, f) in bytes.iter_mut().zip(from) {
            *b = *f;
        }
        // SAFETY: `LANES <= MAX_LANES`.
        unsafe { s.load_bytes(bytes.as_ptr()) }
    }
    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [u8], v: S::V) {
        if to.len() >= S::LANES {
            // SAFETY: there is room, and positions of this type are below 256.
            return unsafe { s.store_bytes(to.as_mut_ptr(), v) };
        }
        let mut bytes = [0; MAX_LANES];
        // SAFETY: `LANES <= MAX_LANES`, and as above.
        unsafe { s.store_bytes(bytes.as_mut_ptr(), v) };
        for (t, b) in to.iter_mut().zip(bytes) {
            *t = b;
        }
    }
}

impl Position for i32 {
    #[inline(always)]
    fn get<S: Simd>(s: S, from: &[i32]) -> S::V {
        let mut floats = [0.0; MAX_LANES];
        for (f, i) in floats[..S::LANES].iter_mut().zip(from) {
            *f = *i as f32;
        }
        // SAFETY: `LANES <= MAX_LANES`.
        unsafe { s.load(floats.as_ptr()) }
    }
    #[inline(always)]
    fn put<S: Simd>(s: S, to: &mut [i32], v: S::V) {
        for (t, x) in to.iter_mut().zip(&s.to_array(v)[..S::LANES]) {
            *t = *x as i32;
        }
    }
}
