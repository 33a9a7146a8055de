//! The rules that change each element by itself, in one loop over parameter, gradient and state.

use super::{Tensor, gradient, lerp, mean_square};
use crate::graph::op::{Algorithm, Nadam, radam_rectification};
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, Simd, SimdLevel};

/// How one element changes. Constants of the step are computed once, in double precision.
pub(super) trait Rule: Copy {
    /// The new value of parameters `w` with gradient `g`, which the weight decay has been added to unless it is decoupled; it has
    /// been taken from `w` then. `state` is updated in place.
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, state: &mut [S::V; 2]) -> S::V;
}

/// What one call of [`update`] works on. A tensor of state that the rule does without is an empty slice.
struct Job<'a, R> {
    p: &'a mut [f32],
    g: &'a [f32],
    state: [&'a mut [f32]; 2],
    rule: R,
    /// Factor of the parameter before the update.
    keep: f32,
    t: Tensor,
}

impl<R: Rule> Kernel for Job<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Job { p, g, state: [first, second], rule, keep, t } = self;
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = s.mul(get(s, p, i, n), s.splat(keep));
            let d = gradient(s, get(s, g, i, n), w, t);
            let mut state = [s.zero(); 2];
            if !first.is_empty() {
                state[0] = get(s, first, i, n);
            }
            if !second.is_empty() {
                state[1] = get(s, second, i, n);
            }
            let w = rule.element(s, w, d, &mut state);
            if !first.is_empty() {
                put(s, first, i, n, state[0]);
            }
            if !second.is_empty() {
                put(s, second, i, n, state[1]);
            }
            put(s, p, i, n, w);
        }
    }
}

/// Updates a stretch of a tensor by a rule that is not one of those with loops of their own.
pub(super) fn update(
    level: SimdLevel,
    algorithm: &Algorithm,
    (p, g): (&mut [f32], &[f32]),
    state: [&mut [f32]; 2],
    mut t: Tensor,
) {
    let mut keep = 1.0;
    if algorithm.is_decoupled() {
        keep = (1.0 - t.lr * t.weight_decay) as f32;
        t.weight_decay = 0.0;
    }
    let corrected = |beta: f64| 1.0 - beta.powi(t.step.min(i32::MAX as i64) as i32);
    macro_rules! run {
        ($rule:expr) => {
            level.run(Job { p, g, state, rule: $rule, keep, t })
        };
    }
    match *algorithm {
        Algorithm::Nadam { beta1, beta2, eps, momentum_decay, .. } => {
            let Nadam { of_gradient, of_mean } = Nadam::at(t.step, beta1, momentum_decay);
            let correction = (1.0 / corrected(beta2).sqrt()) as f32;
            let [of_gradient, of_mean] = [of_gradient, of_mean].map(|share| (-t.lr * share) as f32);
            run!(NadamRule { beta1, beta2, eps, of_gradient, of_mean, correction });
        }
        Algorithm::Radam { beta1, beta2, eps, .. } => {
            let step_size = -t.lr / corrected(beta1);
            let rectified =
                radam_rectification(t.step, beta2).map(|r| (step_size * r * corrected(beta2).sqrt()) as f32);
            run!(RadamRule { beta1, beta2, eps, step_size: step_size as f32, rectified });
        }
        Algorithm::Adagrad { lr_decay, eps, .. } => {
            run!(AdagradRule { eps, rate: (-t.lr / (1.0 + (t.step - 1) as f64 * lr_decay)) as f32 });
        }
        Algorithm::Adadelta { rho, eps } => run!(AdadeltaRule { rho, eps, rate: -t.lr as f32 }),
        Algorithm::Adamax { beta1, beta2, eps } => {
            run!(AdamaxRule { beta1, beta2: beta2 as f32, eps, step_size: (-t.lr / corrected(beta1)) as f32 });
        }
        Algorithm::Lion { beta1, beta2 } => run!(LionRule { beta1, beta2, rate: -t.lr as f32 }),
        Algorithm::Sgd { .. }
        | Algorithm::Adam { .. }
        | Algorithm::RmsProp { .. }
        | Algorithm::ScheduleFreeAdamW { .. } => {
            unreachable!("has a loop of its own")
        }
        Algorithm::Lamb { .. } | Algorithm::Lars { .. } | Algorithm::Adafactor { .. } => {
            unreachable!("looks at norms")
        }
    }
}

#[derive(Clone, Copy)]
struct NadamRule {
    beta1: f64,
    beta2: f64,
    eps: f32,
    of_gradient: f32,
    of_mean: f32,
    correction: f32,
}

impl Rule for NadamRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [mean, square]: &mut [S::V; 2]) -> S::V {
        *mean = lerp(s, *mean, g, 1.0 - self.beta1);
        *square = mean_square(s, *square, g, self.beta2);
        let root = s.fma(s.sqrt(*square), s.splat(self.correction), s.splat(self.eps));
        let step = s.fma(s.splat(self.of_gradient), g, s.mul(s.splat(self.of_mean), *mean));
        s.add(w, s.div(step, root))
    }
}

#[derive(Clone, Copy)]
struct RadamRule {
    beta1: f64,
    beta2: f64,
    eps: f32,
    step_size: f32,
    /// The step size where the variance is known well enough to divide by.
    rectified: Option<f32>,
}

impl Rule for RadamRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [mean, square]: &mut [S::V; 2]) -> S::V {
        *mean = lerp(s, *mean, g, 1.0 - self.beta1);
        *square = mean_square(s, *square, g, self.beta2);
        match self.rectified {
            Some(step) => s.add(w, s.div(s.mul(s.splat(step), *mean), s.add(s.sqrt(*square), s.splat(self.eps)))),
            None => s.fma(s.splat(self.step_size), *mean, w),
        }
    }
}

#[derive(Clone, Copy)]
struct AdagradRule {
    eps: f32,
    rate: f32,
}

impl Rule for AdagradRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [sum, _]: &mut [S::V; 2]) -> S::V {
        *sum = s.fma(g, g, *sum);
        s.add(w, s.div(s.mul(s.splat(self.rate), g), s.add(s.sqrt(*sum), s.splat(self.eps))))
    }
}

#[derive(Clone, Copy)]
struct AdadeltaRule {
    rho: f64,
    eps: f32,
    rate: f32,
}

impl Rule for AdadeltaRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [square, delta]: &mut [S::V; 2]) -> S::V {
        let eps = s.splat(self.eps);
        *square = mean_square(s, *square, g, self.rho);
        let step = s.mul(s.sqrt(s.div(s.add(*delta, eps), s.add(*square, eps))), g);
        *delta = mean_square(s, *delta, step, self.rho);
        s.fma(s.splat(self.rate), step, w)
    }
}

#[derive(Clone, Copy)]
struct AdamaxRule {
    beta1: f64,
    beta2: f32,
    eps: f32,
    step_size: f32,
}

impl Rule for AdamaxRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [mean, largest]: &mut [S::V; 2]) -> S::V {
        *mean = lerp(s, *mean, g, 1.0 - self.beta1);
        // The second of the two, if it is NaN.
        *largest = s.max(s.mul(*largest, s.splat(self.beta2)), s.add(s.abs(g), s.splat(self.eps)));
        s.add(w, s.div(s.mul(s.splat(self.step_size), *mean), *largest))
    }
}

#[derive(Clone, Copy)]
struct LionRule {
    beta1: f64,
    beta2: f64,
    rate: f32,
}

impl Rule for LionRule {
    #[inline(always)]
    fn element<S: Simd>(self, s: S, w: S::V, g: S::V, [mean, _]: &mut [S::V; 2]) -> S::V {
        let step = lerp(s, *mean, g, 1.0 - self.beta1);
        *mean = lerp(s, *mean, g, 1.0 - self.beta2);
        // Zero and NaN are their own sign.
        let down = s.select(s.gt(s.zero(), step), s.splat(-1.0), step);
        let sign = s.select(s.gt(step, s.zero()), s.splat(1.0), down);
        s.fma(s.splat(self.rate), sign, w)
    }
}
