//! Functions of vectors beyond those of [`Simd`], good to a few units in the last place.

use super::{MAX_LANES, Simd};
use std::f32::consts::FRAC_1_PI;

/// Evaluates a polynomial, highest coefficient first.
#[inline(always)]
fn poly<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut p = s.splat(c[0]);
    for c in &c[1..] {
        p = s.fma(p, x, s.splat(*c));
    }
    p
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, s.exp(s.neg(x))))
}

/// `eˣ − 1`: near 0 by its series, where the subtraction would leave few digits.
#[inline(always)]
pub fn exp_m1<S: Simd>(s: S, x: S::V) -> S::V {
    // Taylor's series; at 0.35 the first term left out is below 1e-8 of the sum.
    let series = poly(s, x, [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);
    let series = s.fma(s.mul(x, x), series, x);
    s.select(s.ge(s.abs(x), s.splat(0.35)), s.sub(s.exp(x), s.splat(1.0)), series)
}

/// `ln(1 + x)` for `0 ≤ x ≤ 1`, as `2 artanh(x / (2 + x))` by its series: at 1 the first term left out is below 1e-9.
#[inline(always)]
pub fn ln_1p<S: Simd>(s: S, x: S::V) -> S::V {
    let z = s.div(x, s.add(s.splat(2.0), x));
    let square = s.mul(z, z);
    let c = [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0];
    let series = poly(s, square, c);
    s.mul(s.splat(2.0), s.fma(s.mul(square, series), z, z))
}

/// `tanh(x) / x − 1` for `|x|` up to 0.625: an even minimax polynomial (S. Moshier, *Methods and Programs for Mathematical
/// Functions*, 1989).
#[inline(always)]
fn tanh_bend<S: Simd>(s: S, x: S::V) -> S::V {
    let z = s.mul(x, x);
    let p = poly(s, z, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
    s.mul(z, p)
}

/// Hyperbolic tangent: a polynomial below 0.625, `1 − 2 / (e²ˣ + 1)` above.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let small = s.fma(tanh_bend(s, x), x, x);
    let a = s.abs(x);
    let e = s.exp(s.add(a, a));
    let large = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    let large = s.select(s.gt(s.zero(), x), s.neg(large), large);
    // A NaN is not above, so it goes through the polynomial and stays one.
    s.select(s.gt(a, s.splat(0.625)), large, small)
}

/// `x − tanh(x)`: below 0.625 by tanh's polynomial alone, where the subtraction would leave few digits.
#[inline(always)]
pub fn tanhshrink<S: Simd>(s: S, x: S::V) -> S::V {
    let large = s.sub(x, tanh(s, x));
    s.select(s.gt(s.abs(x), s.splat(0.625)), large, s.neg(s.mul(tanh_bend(s, x), x)))
}

/// `ln(1 + eˣ)`; only numbers up to 1 go through the exponential, so that nothing overflows.
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::V) -> S::V {
    // The second operand wins where x is NaN.
    s.add(s.max(s.zero(), x), ln_1p(s, s.exp(s.neg(s.abs(x)))))
}

/// The error function: an odd rational minimax approximation, and exactly ±1 beyond 3.92, where single precision knows
/// nothing in between.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let sign = s.select(s.gt(s.zero(), x), s.neg(one), one);
    let beyond = s.gt(s.abs(x), s.splat(3.92));
    let z = s.mul(x, x);
    let p = poly(
        s,
        z,
        [
            -2.726_142_3e-10,
            2.770_681_4e-8,
            -2.101_024e-6,
            -5.692_506_4e-5,
            -7.349_906_3e-4,
            -2.954_6e-3,
            -1.609_603_3e-2,
        ],
    );
    let q = poly(s, z, [-1.456_607_2e-5, -2.133_740_5e-4, -1.682_827e-3, -7.373_329_2e-3, -1.426_473_9e-2]);
    // A NaN is not beyond, and stays one.
    s.select(beyond, sign, s.div(s.mul(x, p), q))
}

/// Beyond this, sine and cosine are computed one by one.
const NEAR: f32 = 8192.0;

/// Sine of radians, to 3 units in the last place however large `x` is.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::V) -> S::V {
    let near = wave(s, x, 0.0);
    let far = s.gt(s.abs(x), s.splat(NEAR));
    if s.any(far) { s.select(far, each(s, x, f64::sin), near) } else { near }
}

/// Cosine, likewise.
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::V) -> S::V {
    let near = wave(s, x, 0.5);
    let far = s.gt(s.abs(x), s.splat(NEAR));
    if s.any(far) { s.select(far, each(s, x, f64::cos), near) } else { near }
}

/// `sin(x + shift · π)` for a shift of 0 or a half and `|x|` up to [`NEAR`]: the nearest multiple of π, less the shift, is taken off, and
/// what is left goes through an odd minimax polynomial on ± π/2 (relative error 5e-10 before its coefficients are rounded).
#[inline(always)]
fn wave<S: Simd>(s: S, x: S::V, shift: f32) -> S::V {
    let turns = s.round(s.fma(x, s.splat(FRAC_1_PI), s.splat(shift)));
    let off = s.sub(turns, s.splat(shift));
    // π in four parts, of which the first three have so few digits that the products are exact.
    let mut r = x;
    for part in [3.140_625, 9.675_026e-4, 1.509_906_7e-7, 5.126_688e-12] {
        r = s.fma(off, s.splat(-part), r);
    }
    let z = s.mul(r, r);
    let bend = poly(s, z, [-2.550_259_4e-8, 2.762_705e-6, -1.984_309_3e-4, 8.333_350_5e-3, -1.666_666_7e-1]);
    let y = s.fma(s.mul(r, z), bend, r);
    // Odd multiples turn the sign; halves of them are rounded to even ones.
    let half = s.round(s.mul(turns, s.splat(0.5)));
    let odd = s.eq(s.abs(s.sub(turns, s.add(half, half))), s.splat(1.0));
    s.select(odd, s.neg(y), y)
}

/// A function of each lane, in double precision.
#[inline(always)]
fn each<S: Simd>(s: S, x: S::V, f: fn(f64) -> f64) -> S::V {
    let mut lanes = s.to_array(x);
    apply(&mut lanes, f);
    // SAFETY: the array is as long as the widest vector.
    unsafe { s.load(lanes.as_ptr()) }
}

#[cold]
#[inline(never)]
fn apply(lanes: &mut [f32; MAX_LANES], f: fn(f64) -> f64) {
    lanes.iter_mut().for_each(|x| *x = f(f64::from(*x)) as f32);
}
