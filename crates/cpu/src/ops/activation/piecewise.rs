//! Functions made of straight pieces, and the parabola of hard swish.

use super::Function;
use crate::simd::Simd;

/// No function.
#[derive(Clone, Copy)]
pub struct Identity;

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

/// ReLU.
#[derive(Clone, Copy)]
pub struct Relu;

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

/// ReLU6.
#[derive(Clone, Copy)]
pub struct Relu6;

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

/// Leaky ReLU.
#[derive(Clone, Copy)]
pub struct LeakyRelu {
    /// Slope for negative inputs.
    pub slope: f32,
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

/// Hard sigmoid.
#[derive(Clone, Copy)]
pub struct Hardsigmoid;

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

/// Hard swish.
#[derive(Clone, Copy)]
pub struct Hardswish;

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

/// Clamps.
#[derive(Clone, Copy)]
pub struct Hardtanh {
    /// The least value.
    pub low: f32,
    /// The largest value.
    pub high: f32,
}

impl Function for Hardtanh {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.min(s.splat(self.high), s.max(s.splat(self.low), x))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        let below = s.select(s.ge(s.splat(self.low), y), s.zero(), dy);
        s.select(s.ge(y, s.splat(self.high)), s.zero(), below)
    }
}

/// Hard shrinkage.
#[derive(Clone, Copy)]
pub struct Hardshrink {
    /// Up to there it is 0.
    pub lambda: f32,
}

impl Function for Hardshrink {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.select(s.ge(s.splat(self.lambda), s.abs(x)), s.zero(), x)
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        s.select(s.eq(y, s.zero()), s.zero(), dy)
    }
}

/// Soft shrinkage.
#[derive(Clone, Copy)]
pub struct Softshrink {
    /// Up to there it is 0.
    pub lambda: f32,
}

impl Function for Softshrink {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.sub(x, Hardtanh { low: -self.lambda, high: self.lambda }.value(s, x))
    }
    #[inline(always)]
    fn gradient<S: Simd>(self, s: S, y: S::V, dy: S::V) -> S::V {
        s.select(s.eq(y, s.zero()), s.zero(), dy)
    }
}
