//! Reductions of one row.

use crate::simd::Simd;
use crate::simd::lanes::get;

/// Vectors whose sum is taken in single precision before it goes to a double.
const RUN: usize = 64;

/// Largest element; NaN is passed over.
#[inline(always)]
pub fn max<S: Simd>(s: S, x: &[f32]) -> f32 {
    let whole = x.len() - x.len() % S::LANES;
    let mut best = s.splat(f32::NEG_INFINITY);
    for i in (0..whole).step_by(S::LANES) {
        best = s.max(get(s, x, i, S::LANES), best);
    }
    let start = if whole > 0 { s.max_lane(best) } else { f32::NEG_INFINITY };
    x[whole..].iter().fold(start, |m, v| if *v > m { *v } else { m })
}

/// The largest element, and `ln Σ e^(x − largest)`.
///
/// The largest elements' own terms are 1 each. They are counted apart, since a sum near 1 in single precision would have
/// few digits of its logarithm: that is the loss of a net that is sure of itself.
#[inline(always)]
pub fn log_sum_exp<S: Simd>(s: S, x: &[f32]) -> [f64; 2] {
    let top = max(s, x);
    let tops = x.iter().filter(|v| **v == top).count();
    let rest = sum(s, x.len(), ExponentialsBelow(x, top));
    [top as f64, (tops as f64 - 1.0 + rest).ln_1p()]
}

/// A sum over the vectors of a row, in double precision over runs of vectors: `term(s, first element, elements)`.
pub trait Terms {
    /// One vector of terms; lanes from `n` on are left out of the sum.
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V;
}

/// Sum of the terms of a row of `len` elements.
#[inline(always)]
pub fn sum<S: Simd>(s: S, len: usize, mut terms: impl Terms) -> f64 {
    let mut total = 0.0;
    for start in (0..len).step_by(RUN * S::LANES) {
        let end = (start + RUN * S::LANES).min(len);
        let mut acc = s.zero();
        for i in (start..end).step_by(S::LANES) {
            let n = (end - i).min(S::LANES);
            acc = s.add(acc, s.first(terms.term(s, i, n), n));
        }
        total += s.sum(acc) as f64;
    }
    total
}

/// `Σ x`.
pub struct Plain<'a>(pub &'a [f32]);

impl Terms for Plain<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        get(s, self.0, i, n)
    }
}

/// `Σ x · y`.
pub struct Dot<'a>(pub &'a [f32], pub &'a [f32]);

impl Terms for Dot<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        s.mul(get(s, self.0, i, n), get(s, self.1, i, n))
    }
}

/// `Σ (x − c)²`.
pub struct SquaresAbout<'a>(pub &'a [f32], pub f32);

impl Terms for SquaresAbout<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let d = s.sub(get(s, self.0, i, n), s.splat(self.1));
        s.mul(d, d)
    }
}

/// `Σ e^(x − c)` over what is below `c`.
struct ExponentialsBelow<'a>(&'a [f32], f32);

impl Terms for ExponentialsBelow<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let (x, top) = (get(s, self.0, i, n), s.splat(self.1));
        // A NaN is not at the top, and stays one.
        s.select(s.ge(x, top), s.zero(), s.exp(s.sub(x, top)))
    }
}
