//! Rules whose steps are scaled by the norms of whole tensors, LAMB and LARS: one pass over the tensors for the norms, and one for
//! the step.

use super::{Tensor, gradient, lerp, mean_square};
use crate::graph::op::Algorithm;
use crate::ops::reduce_rows::{Dot, Terms, sum};
use crate::run::parallel::vectorised;
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};

/// What one pass looks at: a stretch of a tensor.
pub(super) struct Stretch<'a> {
    pub(super) p: &'a mut [f32],
    pub(super) g: &'a [f32],
    /// State that the rule does without is an empty slice.
    pub(super) state: [&'a mut [f32]; 2],
    pub(super) t: Tensor,
}

/// The constants of LAMB's step.
#[derive(Clone, Copy)]
struct Lamb {
    beta1: f64,
    beta2: f64,
    eps: f32,
    /// `1 / (1 − beta1^step)`, and the root of the same of `beta2`.
    corrections: [f32; 2],
}

impl Lamb {
    fn new(beta1: f64, beta2: f64, eps: f32, step: i64) -> Self {
        let left = |beta: f64| 1.0 - beta.powi(step.min(i32::MAX as i64) as i32);
        Lamb { beta1, beta2, eps, corrections: [(1.0 / left(beta1)) as f32, (1.0 / left(beta2).sqrt()) as f32] }
    }

    /// The step before it is scaled: Adam's, and the decay times the parameter.
    #[inline(always)]
    fn step<S: Simd>(self, s: S, p: S::V, [mean, square]: [S::V; 2], t: Tensor) -> S::V {
        let root = s.fma(s.sqrt(square), s.splat(self.corrections[1]), s.splat(self.eps));
        let step = s.div(s.mul(mean, s.splat(self.corrections[0])), root);
        s.fma(s.splat(t.weight_decay as f32), p, step)
    }
}

/// Takes the gradient into LAMB's means; the terms are the squares of its step.
struct LambSteps<'a> {
    p: &'a [f32],
    g: &'a [f32],
    state: [&'a mut [f32]; 2],
    rule: Lamb,
    t: Tensor,
}

impl Terms for LambSteps<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let [mean, square] = &mut self.state;
        let p = get(s, self.p, i, n);
        let g = gradient(s, get(s, self.g, i, n), p, Tensor { weight_decay: 0.0, ..self.t });
        let m = lerp(s, get(s, mean, i, n), g, 1.0 - self.rule.beta1);
        let v = mean_square(s, get(s, square, i, n), g, self.rule.beta2);
        put(s, mean, i, n, m);
        put(s, square, i, n, v);
        let step = self.rule.step(s, p, [m, v], self.t);
        s.mul(step, step)
    }
}

/// The squares of a gradient as the rule sees it, without weight decay.
struct Gradients<'a>(&'a [f32], Tensor);

impl Terms for Gradients<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let g = gradient(s, get(s, self.0, i, n), s.zero(), Tensor { weight_decay: 0.0, ..self.1 });
        s.mul(g, g)
    }
}

vectorised! {
    fn lamb_squares<'a, S>(s, of: Stretch<'a>, rule: Lamb) -> [f64; 2] {
        let Stretch { p, g, state, t } = of;
        [sum(s, p.len(), Dot(p, p)), sum(s, p.len(), LambSteps { p, g, state, rule, t })]
    }

    fn lars_squares<'a, S>(s, of: Stretch<'a>) -> [f64; 2] {
        [sum(s, of.p.len(), Dot(of.p, of.p)), sum(s, of.p.len(), Gradients(of.g, of.t))]
    }

    fn lamb<'a, S>(s, of: Stretch<'a>, rule: Lamb, ratio: f64) {
        let Stretch { p, state: [mean, square], t, .. } = of;
        let rate = s.splat((-t.lr * ratio) as f32);
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = get(s, p, i, n);
            let step = rule.step(s, w, [get(s, mean, i, n), get(s, square, i, n)], t);
            put(s, p, i, n, s.fma(rate, step, w));
        }
    }

    fn lars<'a, S>(s, of: Stretch<'a>, momentum: f32, ratio: f64) {
        let Stretch { p, g, state: [velocity, _], t } = of;
        let rate = s.splat((t.lr * ratio) as f32);
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = get(s, p, i, n);
            let d = gradient(s, get(s, g, i, n), w, t);
            let v = s.fma(rate, d, s.mul(get(s, velocity, i, n), s.splat(momentum)));
            put(s, velocity, i, n, v);
            put(s, p, i, n, s.sub(w, v));
        }
    }
}

/// The first pass: the sums of the squares of parameter and direction. LAMB takes the gradient into its state.
pub(super) fn squares(level: SimdLevel, algorithm: &Algorithm, of: Stretch) -> [f64; 2] {
    match *algorithm {
        Algorithm::Lamb { beta1, beta2, eps, .. } => {
            let rule = Lamb::new(beta1, beta2, eps, of.t.step);
            lamb_squares(level, of, rule)
        }
        Algorithm::Lars { .. } => lars_squares(level, of),
        _ => unreachable!("looks at no norms"),
    }
}

/// The second pass: the step, scaled.
pub(super) fn apply(level: SimdLevel, algorithm: &Algorithm, of: Stretch, ratio: f64) {
    match *algorithm {
        Algorithm::Lamb { beta1, beta2, eps, .. } => {
            let rule = Lamb::new(beta1, beta2, eps, of.t.step);
            lamb(level, of, rule, ratio);
        }
        Algorithm::Lars { momentum, .. } => lars(level, of, momentum, ratio),
        _ => unreachable!("looks at no norms"),
    }
}
