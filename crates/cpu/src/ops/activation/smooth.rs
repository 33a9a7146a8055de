//! Functions with exponentials, sine and cosine, and softsign.

use super::Function;
use crate::graph::op::{SELU_ALPHA, SELU_SCALE};
use crate::simd::Simd;
use crate::simd::math::{cos, erf, exp_m1, sigmoid, sin, softplus, tanh, tanhshrink};
use std::f32::consts::FRAC_1_SQRT_2;

/// ELU.
#[derive(Clone, Copy)]
pub struct Elu {
    /// Scale for negative inputs.
    pub alpha: f32,
}

impl Function for Elu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.select(s.gt(x, s.zero()), x, s.mul(s.splat(self.alpha), exp_m1(s, x)))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, saved: S::V, dy: S::V) -> S::V {
        let alpha = s.splat(self.alpha);
        let slope = if self.alpha >= 0.0 { s.add(saved, alpha) } else { s.mul(alpha, s.exp(saved)) };
        s.select(s.gt(saved, s.zero()), dy, s.mul(dy, slope))
    }
}

/// GELU with the error function.
#[derive(Clone, Copy)]
pub struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        let e = erf(s, s.mul(x, s.splat(FRAC_1_SQRT_2)));
        s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), e))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        // 1 / √(2π)
        const NORM: f32 = 0.398_942_3;
        let e = erf(s, s.mul(x, s.splat(FRAC_1_SQRT_2)));
        let cdf = s.mul(s.splat(0.5), s.add(s.splat(1.0), e));
        let pdf = s.mul(s.splat(NORM), s.exp(s.mul(s.splat(-0.5), s.mul(x, x))));
        s.mul(dy, s.fma(x, pdf, cdf))
    }
}

/// GELU's approximation.
#[derive(Clone, Copy)]
pub struct GeluTanh;

/// √(2/π)
const ROOT: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044715;

impl Function for GeluTanh {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        let cubic = s.fma(s.mul(s.splat(CUBIC), s.mul(x, x)), x, x);
        let t = tanh(s, s.mul(s.splat(ROOT), cubic));
        s.mul(s.mul(s.splat(0.5), x), s.add(s.splat(1.0), t))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let one = s.splat(1.0);
        let square = s.mul(x, x);
        let cubic = s.fma(s.mul(s.splat(CUBIC), square), x, x);
        let t = tanh(s, s.mul(s.splat(ROOT), cubic));
        let inner = s.mul(s.splat(ROOT), s.fma(s.splat(3.0 * CUBIC), square, one));
        let slope = s.mul(s.sub(one, s.mul(t, t)), inner);
        s.mul(dy, s.mul(s.splat(0.5), s.add(s.add(one, t), s.mul(x, slope))))
    }
}

/// SiLU.
#[derive(Clone, Copy)]
pub struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.div(x, s.add(s.splat(1.0), s.exp(s.neg(x))))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let one = s.splat(1.0);
        let g = sigmoid(s, x);
        s.mul(dy, s.mul(g, s.fma(x, s.sub(one, g), one)))
    }
}

/// Hyperbolic tangent.
#[derive(Clone, Copy)]
pub struct Tanh;

impl Function for Tanh {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        tanh(s, x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        s.mul(dy, s.sub(s.splat(1.0), s.mul(y, y)))
    }
}

/// Logistic function.
#[derive(Clone, Copy)]
pub struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        sigmoid(s, x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        s.mul(dy, s.mul(s.sub(s.splat(1.0), y), y))
    }
}

/// Sine.
#[derive(Clone, Copy)]
pub struct Sin;

impl Function for Sin {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        sin(s, x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        s.mul(dy, cos(s, x))
    }
}

/// Cosine.
#[derive(Clone, Copy)]
pub struct Cos;

impl Function for Cos {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        cos(s, x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        s.mul(s.neg(dy), sin(s, x))
    }
}

/// Mish.
#[derive(Clone, Copy)]
pub struct Mish;

/// The parts of Mish: `x` up to 20 and its exponential `e`; then `n` and `r = 1 / (n + 2)`, with which
/// `tanh(ln(1 + e)) = n / (n + 2)` for `n = e² + 2e`. Beyond 20 that is 1, and nothing overflows.
struct MishGate<V> {
    x: V,
    e: V,
    n: V,
    r: V,
}

impl<V: Copy> MishGate<V> {
    #[inline(always)]
    fn new<S: Simd<V = V>>(s: S, x: V) -> Self {
        // The second operand wins where x is NaN.
        let x = s.min(s.splat(20.0), x);
        let e = s.exp(x);
        let n = s.mul(e, s.add(e, s.splat(2.0)));
        MishGate { x, e, n, r: s.div(s.splat(1.0), s.add(n, s.splat(2.0))) }
    }
}

impl Function for Mish {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        let MishGate { n, r, .. } = MishGate::new(s, x);
        s.mul(x, s.mul(n, r))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        // With e = eˣ and the gate g = n / (n + 2), (1 − g²) · sigmoid(x) is 4e (1 + e) / (n + 2)².
        let MishGate { x, e, n, r } = MishGate::new(s, x);
        let bend = s.mul(s.mul(s.splat(4.0), x), s.mul(s.mul(e, r), s.mul(s.add(e, s.splat(1.0)), r)));
        s.mul(dy, s.fma(n, r, bend))
    }
}

/// Softplus.
#[derive(Clone, Copy)]
pub struct Softplus {
    /// How sharp the bend is.
    pub beta: f32,
    /// Where it goes over into the identity.
    pub threshold: f32,
}

impl Function for Softplus {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        let beta = s.splat(self.beta);
        let t = s.mul(beta, x);
        s.select(s.gt(t, s.splat(self.threshold)), x, s.div(softplus(s, t), beta))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let t = s.mul(s.splat(self.beta), x);
        s.select(s.gt(t, s.splat(self.threshold)), dy, s.mul(dy, sigmoid(s, t)))
    }
}

/// `scale · x` where positive, else `negative · (e^(rate · x) − 1)`: SELU and CELU.
#[derive(Clone, Copy)]
pub struct ScaledElu {
    scale: f32,
    negative: f32,
    rate: f32,
}

impl ScaledElu {
    /// SELU.
    pub const SELU: ScaledElu = ScaledElu { scale: SELU_SCALE, negative: SELU_SCALE * SELU_ALPHA, rate: 1.0 };

    /// CELU.
    #[inline(always)]
    pub fn celu(alpha: f32) -> ScaledElu {
        ScaledElu { scale: 1.0, negative: alpha, rate: 1.0 / alpha }
    }
}

impl Function for ScaledElu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        let below = s.mul(s.splat(self.negative), exp_m1(s, s.mul(x, s.splat(self.rate))));
        s.select(s.gt(x, s.zero()), s.mul(x, s.splat(self.scale)), below)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        let slope = s.mul(s.add(y, s.splat(self.negative)), s.splat(self.rate));
        s.mul(dy, s.select(s.gt(y, s.zero()), s.splat(self.scale), slope))
    }
}

/// Softsign.
#[derive(Clone, Copy)]
pub struct Softsign;

impl Function for Softsign {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.div(x, s.add(s.splat(1.0), s.abs(x)))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let r = s.div(s.splat(1.0), s.add(s.splat(1.0), s.abs(x)));
        s.mul(dy, s.mul(r, r))
    }
}

/// Logarithm of the logistic function.
#[derive(Clone, Copy)]
pub struct LogSigmoid;

impl Function for LogSigmoid {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.neg(softplus(s, s.neg(x)))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        // 1 − sigmoid(x)
        s.mul(dy, s.neg(exp_m1(s, y)))
    }
}

/// `x − tanh(x)`.
#[derive(Clone, Copy)]
pub struct Tanhshrink;

impl Function for Tanhshrink {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        tanhshrink(s, x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let t = tanh(s, x);
        s.mul(dy, s.mul(t, t))
    }
}
