//! The activation functions and their derivatives over vectors.

use crate::backend::cpu::simd::Simd;
use crate::backend::cpu::simd::math::{erf, exp_m1, sigmoid, tanh};
use std::f32::consts::FRAC_1_SQRT_2;

/// A function of one number, applied to vectors. A NaN stays a NaN.
pub trait Function: Copy + Send + Sync {
    /// The value.
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V;

    /// The gradient by the input, of `dy` by the output. `saved` is the output where
    /// [`crate::graph::op::Activation::grad_from_output`], else the input.
    fn gradient<S: Simd>(self, s: S, saved: S::V, dy: S::V) -> S::V;
}

/// Evaluates `$body` with `$f` bound to the [`Function`] that `$act` (an `Option<Activation>`) names; for `None`
/// that is [`Identity`].
macro_rules! with_activation {
    ($act:expr, $f:ident => $body:expr) => {{
        use $crate::backend::cpu::ops::activation as functions;
        use $crate::graph::op::Activation;
        match $act {
            None => {
                let $f = functions::Identity;
                $body
            }
            Some(Activation::Relu) => {
                let $f = functions::Relu;
                $body
            }
            Some(Activation::Relu6) => {
                let $f = functions::Relu6;
                $body
            }
            Some(Activation::LeakyRelu { slope }) => {
                let $f = functions::LeakyRelu { slope };
                $body
            }
            Some(Activation::Elu { alpha }) => {
                let $f = functions::Elu { alpha };
                $body
            }
            Some(Activation::Gelu) => {
                let $f = functions::Gelu;
                $body
            }
            Some(Activation::GeluTanh) => {
                let $f = functions::GeluTanh;
                $body
            }
            Some(Activation::Silu) => {
                let $f = functions::Silu;
                $body
            }
            Some(Activation::Tanh) => {
                let $f = functions::Tanh;
                $body
            }
            Some(Activation::Sigmoid) => {
                let $f = functions::Sigmoid;
                $body
            }
            Some(Activation::Hardsigmoid) => {
                let $f = functions::Hardsigmoid;
                $body
            }
            Some(Activation::Hardswish) => {
                let $f = functions::Hardswish;
                $body
            }
        }
    }};
}
pub(crate) use with_activation;

/// No function.
#[derive(Clone, Copy)]
pub struct Identity;
/// See [`crate::graph::op::Activation::Relu`]; so for the others.
#[derive(Clone, Copy)]
pub struct Relu;
/// ReLU6.
#[derive(Clone, Copy)]
pub struct Relu6;
/// Leaky ReLU.
#[derive(Clone, Copy)]
pub struct LeakyRelu {
    /// Slope for negative inputs.
    pub slope: f32,
}
/// ELU.
#[derive(Clone, Copy)]
pub struct Elu {
    /// Scale for negative inputs.
    pub alpha: f32,
}
/// GELU with the error function.
#[derive(Clone, Copy)]
pub struct Gelu;
/// GELU's approximation.
#[derive(Clone, Copy)]
pub struct GeluTanh;
/// SiLU.
#[derive(Clone, Copy)]
pub struct Silu;
/// Hyperbolic tangent.
#[derive(Clone, Copy)]
pub struct Tanh;
/// Logistic function.
#[derive(Clone, Copy)]
pub struct Sigmoid;
/// Hard sigmoid.
#[derive(Clone, Copy)]
pub struct Hardsigmoid;
/// Hard swish.
#[derive(Clone, Copy)]
pub struct Hardswish;

impl Function for Identity {
    #[inline(always)]
    fn value<S: Simd>(self, _: S, x: S::V) -> S::V {
        x
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, _: S, _: S::V, dy: S::V) -> S::V {
        dy
    }
}

impl Function for Relu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.max(s.zero(), x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        s.select(s.ge(s.zero(), y), s.zero(), dy)
    }
}

impl Function for Relu6 {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.min(s.splat(6.0), s.max(s.zero(), x))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        let below = s.select(s.ge(s.zero(), y), s.zero(), dy);
        s.select(s.ge(y, s.splat(6.0)), s.zero(), below)
    }
}

impl Function for LeakyRelu {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.select(s.gt(x, s.zero()), x, s.mul(x, s.splat(self.slope)))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, saved: S::V, dy: S::V) -> S::V {
        // With a slope that is not negative, the output is positive exactly where the input is.
        s.select(s.gt(saved, s.zero()), dy, s.mul(dy, s.splat(self.slope)))
    }
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

impl Function for Hardsigmoid {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.div(Relu6.value(s, s.add(x, s.splat(3.0))), s.splat(6.0))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        let inside = s.select(s.gt(y, s.zero()), s.mul(dy, s.splat(1.0 / 6.0)), s.zero());
        s.select(s.ge(y, s.splat(1.0)), s.zero(), inside)
    }
}

impl Function for Hardswish {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.div(s.mul(x, Relu6.value(s, s.add(x, s.splat(3.0)))), s.splat(6.0))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, x: S::V, dy: S::V) -> S::V {
        let middle = s.mul(dy, s.fma(x, s.splat(1.0 / 3.0), s.splat(0.5)));
        let upper = s.select(s.ge(x, s.splat(3.0)), dy, middle);
        s.select(s.ge(s.splat(-3.0), x), s.zero(), upper)
    }
}
