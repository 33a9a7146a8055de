//! Vectors from and to slices, the last one short.

use super::Simd;
use half::bf16;

/// A type that floats have in memory.
pub trait Lane: Copy + Send + Sync + 'static {
    /// The first `n ≤ LANES` numbers from any address on; the other lanes are 0.
    ///
    /// # Safety
    /// `p` is valid for reading them.
    unsafe fn load<S: Simd>(s: S, p: *const Self, n: usize) -> S::V;

    /// Writes the first `n ≤ LANES` lanes to any address.
    ///
    /// # Safety
    /// `p` is valid for writing them.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V, n: usize);
}

impl Lane for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32, n: usize) -> S::V {
        // SAFETY: the caller's promise; a full vector is loaded only if `n` is one.
        unsafe { if n < S::LANES { s.load_part(p, n) } else { s.load(p) } }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f32, v: S::V, n: usize) {
        // SAFETY: the caller's promise; a full vector is stored only if `n` is one.
        unsafe { if n < S::LANES { s.store_part(p, v, n) } else { s.store(p, v) } }
    }
}

impl Lane for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const bf16, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_rounded(p, n) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut bf16, v: S::V, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.store_rounded(p, v, n) }
    }
}

/// Elements `i .. i + n` of `x`, `n ≤ LANES`; the other lanes are 0.
#[inline(always)]
pub fn get<S: Simd, T: Lane>(s: S, x: &[T], i: usize, n: usize) -> S::V {
    let part = &x[i..i + n];
    // SAFETY: the `n` elements are there.
    unsafe { T::load(s, part.as_ptr(), n) }
}

/// Writes elements `i .. i + n` of `y`, `n ≤ LANES`.
#[inline(always)]
pub fn put<S: Simd, T: Lane>(s: S, y: &mut [T], i: usize, n: usize, v: S::V) {
    let part = &mut y[i..i + n];
    // SAFETY: the `n` elements are there.
    unsafe { T::store(s, part.as_mut_ptr(), v, n) }
}
