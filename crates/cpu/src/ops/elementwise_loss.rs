//! Losses of numbers, one by one, and their gradients.

use super::loss_weights::{own_of, own_weights, store_mean, weighted_factor};
use super::reduce_rows::{Plain, Terms, sum};
use crate::graph::op::{ElementwiseLoss, LEAST_MEAN};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, vectorised};
use crate::run::threads::chunks;
use crate::simd::lanes::{get, put};
use crate::simd::math::{ln_1p, sigmoid};
use crate::simd::{MAX_LANES, Simd, SimdLevel};

/// A function of prediction and target over vectors.
trait Pointwise: Copy {
    /// The value.
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V;

    /// The derivative by the prediction.
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V;
}

/// Evaluates `$body` with `$f` bound to the [`Pointwise`] of `$loss`.
macro_rules! with_loss {
    ($loss:expr, $f:ident => $body:expr) => {
        match $loss {
            ElementwiseLoss::Mse => {
                let $f = Mse;
                $body
            }
            ElementwiseLoss::L1 => {
                let $f = L1;
                $body
            }
            ElementwiseLoss::SmoothL1 { beta } => {
                let $f = SmoothL1(beta);
                $body
            }
            ElementwiseLoss::Huber { delta } => {
                let $f = Huber(delta);
                $body
            }
            ElementwiseLoss::BceWithLogits => {
                let $f = BceWithLogits;
                $body
            }
            ElementwiseLoss::Quantile { quantile } => {
                let $f = Quantile(quantile);
                $body
            }
            ElementwiseLoss::PoissonNll | ElementwiseLoss::GammaNll | ElementwiseLoss::Tweedie { .. } => {
                let $f = OfMean($loss);
                $body
            }
        }
    };
}

#[derive(Clone, Copy)]
struct Mse;
#[derive(Clone, Copy)]
struct L1;
#[derive(Clone, Copy)]
struct SmoothL1(f32);
#[derive(Clone, Copy)]
struct Huber(f32);
#[derive(Clone, Copy)]
struct BceWithLogits;
#[derive(Clone, Copy)]
struct Quantile(f32);
/// A loss of the mean of a distribution, which needs logarithms and powers: one element after the other, in doubles.
#[derive(Clone, Copy)]
struct OfMean(ElementwiseLoss);

/// `±a` with the sign of `d`, and 0 where that is 0.
#[inline(always)]
fn signed<S: Simd>(s: S, a: f32, d: S::V) -> S::V {
    let below = s.select(s.gt(s.zero(), d), s.splat(-a), d);
    s.select(s.gt(d, s.zero()), s.splat(a), below)
}

impl Pointwise for Mse {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let d = s.sub(x, t);
        s.mul(d, d)
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let d = s.sub(x, t);
        s.add(d, d)
    }
}

impl Pointwise for L1 {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        s.abs(s.sub(x, t))
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        signed(s, 1.0, s.sub(x, t))
    }
}

impl Pointwise for SmoothL1 {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let (d, beta) = (s.abs(s.sub(x, t)), s.splat(self.0));
        let square = s.div(s.mul(s.mul(s.splat(0.5), d), d), beta);
        s.select(s.gt(beta, d), square, s.sub(d, s.splat(0.5 * self.0)))
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let (d, beta) = (s.sub(x, t), s.splat(self.0));
        s.select(s.gt(beta, s.abs(d)), s.div(d, beta), signed(s, 1.0, d))
    }
}

impl Pointwise for Huber {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let (d, delta) = (s.abs(s.sub(x, t)), s.splat(self.0));
        let line = s.mul(delta, s.sub(d, s.splat(0.5 * self.0)));
        s.select(s.gt(d, delta), line, s.mul(s.mul(s.splat(0.5), d), d))
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let d = s.sub(x, t);
        s.select(s.gt(s.abs(d), s.splat(self.0)), signed(s, self.0, d), d)
    }
}

impl Pointwise for BceWithLogits {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let tail = ln_1p(s, s.exp(s.neg(s.abs(x))));
        s.add(s.sub(s.max(s.zero(), x), s.mul(x, t)), tail)
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        s.sub(sigmoid(s, x), t)
    }
}

impl Pointwise for Quantile {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let d = s.sub(x, t);
        s.max(s.mul(s.splat(-self.0), d), s.mul(s.splat(1.0 - self.0), d))
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        let d = s.sub(x, t);
        let below = s.select(s.gt(s.zero(), d), s.splat(-self.0), d);
        s.select(s.gt(d, s.zero()), s.splat(1.0 - self.0), below)
    }
}

impl OfMean {
    /// The loss of an element, and its derivative.
    fn of(self, x: f32, t: f32) -> [f64; 2] {
        let (x, t) = (f64::from(x), f64::from(t));
        let m = x + LEAST_MEAN;
        match self.0 {
            ElementwiseLoss::GammaNll => [m.ln() + t / m, (m - t) / (m * m)],
            ElementwiseLoss::Tweedie { power } => {
                let p = f64::from(power);
                let of_one = m.powf(1.0 - p);
                [m * of_one / (2.0 - p) - t * of_one / (1.0 - p), of_one * (m - t) / m]
            }
            _ => [x - t * m.ln(), 1.0 - t / m],
        }
    }

    #[inline(always)]
    fn each<S: Simd>(self, s: S, x: S::V, t: S::V, which: usize) -> S::V {
        let [mut xs, mut ts] = [[0.0; MAX_LANES]; 2];
        put(s, &mut xs, 0, S::LANES, x);
        put(s, &mut ts, 0, S::LANES, t);
        for (x, t) in xs.iter_mut().zip(ts).take(S::LANES) {
            *x = self.of(*x, t)[which] as f32;
        }
        get(s, &xs, 0, S::LANES)
    }
}

impl Pointwise for OfMean {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        self.each(s, x, t, 0)
    }
    #[inline(always)]
    fn derivative<S: Simd>(self, s: S, x: S::V, t: S::V) -> S::V {
        self.each(s, x, t, 1)
    }
}

/// `Σ f(x, t)`.
struct Values<'a, F>(F, &'a [f32], &'a [f32]);

impl<F: Pointwise> Terms for Values<'_, F> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        self.0.value(s, get(s, self.1, i, n), get(s, self.2, i, n))
    }
}

/// `Σ w f(x, t)`.
struct Weighted<'a, F>(F, &'a [f32], &'a [f32], &'a [f32]);

impl<F: Pointwise> Terms for Weighted<'_, F> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        s.mul(get(s, self.3, i, n), self.0.value(s, get(s, self.1, i, n), get(s, self.2, i, n)))
    }
}

vectorised! {
    fn values<'a, S>(s, loss: ElementwiseLoss, x: &'a [f32], t: &'a [f32]) -> f64 {
        with_loss!(loss, f => sum(s, x.len(), Values(f, x, t)))
    }

    fn weighted_values<'a, S>(s, loss: ElementwiseLoss, x: &'a [f32], t: &'a [f32], own: &'a [f32]) -> [f64; 2] {
        with_loss!(loss, f => [sum(s, x.len(), Weighted(f, x, t, own)), sum(s, own.len(), Plain(own))])
    }

    fn derivatives<'a, S>(
        s,
        loss: ElementwiseLoss,
        x: &'a [f32],
        t: &'a [f32],
        own: &'a [f32],
        dx: &'a mut [f32],
        factor: f32,
    ) {
        with_loss!(loss, f => {
            for i in (0..x.len()).step_by(S::LANES) {
                let n = (x.len() - i).min(S::LANES);
                let factor = s.splat(factor);
                let factor = if own.is_empty() { factor } else { s.mul(factor, get(s, own, i, n)) };
                put(s, dx, i, n, s.mul(factor, f.derivative(s, get(s, x, i, n), get(s, t, i, n))));
            }
        })
    }
}

/// An element-wise loss.
pub struct ElementwiseKernel {
    /// Which.
    pub loss: ElementwiseLoss,
    /// Number of elements.
    pub len: usize,
    /// What the batch weighs where elements have no weights.
    pub items: usize,
    /// Elements have weights.
    pub weighted: bool,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ElementwiseKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(2 * chunks(self.len, CHUNK).count())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, t) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let own = own_weights(frame, self.weighted, false);
        let pieces = chunks(self.len, CHUNK);
        let partial = frame.scratch().take::<f64>(2 * pieces.count());
        for_chunks(frame.pool(), partial, 2, |start, sums| {
            let r = pieces.range(start / 2);
            let (x, t) = (&x[r.clone()], &t[r.clone()]);
            sums.copy_from_slice(&match own {
                [] => [values(self.level, self.loss, x, t), 0.0],
                own => weighted_values(self.level, self.loss, x, t, &own[r]),
            });
        });
        store_mean(frame, partial, [self.len, self.items], self.weighted);
    }
}

/// The gradient of an element-wise loss.
pub struct ElementwiseGradKernel {
    /// Which.
    pub loss: ElementwiseLoss,
    /// What the batch weighs where elements have no weights.
    pub items: usize,
    /// Elements have weights.
    pub weighted: bool,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ElementwiseGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, t, dloss) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.input::<f32>(3));
        let own = own_weights(frame, self.weighted, true);
        let dx = frame.output::<f32>(0);
        let factor = match self.weighted {
            true => weighted_factor(frame, dx.len(), self.items) as f32,
            false => (1.0 / dx.len() as f64 * dloss[0] as f64) as f32,
        };
        for_chunks(frame.pool(), dx, CHUNK, |start, dx| {
            let r = start..start + dx.len();
            derivatives(self.level, self.loss, &x[r.clone()], &t[r.clone()], own_of(own, r), dx, factor);
        });
    }
}
