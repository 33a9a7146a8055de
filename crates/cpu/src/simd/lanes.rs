//! Vectors from and to slices, the last one short.

use super::Simd;

/// Elements `i .. i + n` of `x`, `n ≤ LANES`; the other lanes are 0.
#[inline(always)]
pub fn get<S: Simd>(s: S, x: &[f32], i: usize, n: usize) -> S::V {
    let part = &x[i..i + n];
    // SAFETY: the `n` elements are there; a full vector is loaded only if `n` is one.
    unsafe { if n < S::LANES { s.load_part(part.as_ptr(), n) } else { s.load(part.as_ptr()) } }
}

/// Writes elements `i .. i + n` of `y`, `n ≤ LANES`.
#[inline(always)]
pub fn put<S: Simd>(s: S, y: &mut [f32], i: usize, n: usize, v: S::V) {
    let part = &mut y[i..i + n];
    // SAFETY: the `n` elements are there; a full vector is stored only if `n` is one.
    unsafe { if n < S::LANES { s.store_part(part.as_mut_ptr(), v, n) } else { s.store(part.as_mut_ptr(), v) } }
}
