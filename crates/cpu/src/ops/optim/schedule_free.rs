//! AdamW without a schedule.

use super::{Tensor, gradient, lerp, mean_square};
use crate::graph::op::ScheduleFree;
use crate::run::parallel::vectorised;
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};

/// Its constants.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) eps: f32,
    pub(super) steps: ScheduleFree,
}

/// Constants of a step.
#[derive(Clone, Copy)]
struct Now {
    rule: Rule,
    /// All begin at the parameter.
    first: bool,
    /// `1 / √(1 − beta2^step)`
    correction: f32,
    rate: f32,
    /// Share of the newest point in the average.
    share: f64,
}

/// Updates a stretch of a tensor; `state` is `z`, `exp_avg_sq` and the average.
pub(super) fn update(level: SimdLevel, p: &mut [f32], g: &[f32], state: [&mut [f32]; 3], rule: Rule, t: Tensor) {
    let left = 1.0 - rule.beta2.powi(t.step.min(i32::MAX as i64) as i32);
    let now = Now {
        rule,
        first: t.step <= 1,
        correction: (1.0 / left.sqrt()) as f32,
        rate: (t.lr * rule.steps.warmth(t.step)) as f32,
        share: rule.steps.share(t.step),
    };
    descend(level, p, g, state, now, t);
}

vectorised! {
    fn descend<'a, S>(s, p: &'a mut [f32], g: &'a [f32], state: [&'a mut [f32]; 3], now: Now, t: Tensor) {
        let [lowest, square, average] = state;
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let y = get(s, p, i, n);
            let d = gradient(s, get(s, g, i, n), y, Tensor { weight_decay: 0.0, ..t });
            let v = mean_square(s, get(s, square, i, n), d, now.rule.beta2);
            put(s, square, i, n, v);
            let root = s.fma(s.sqrt(v), s.splat(now.correction), s.splat(now.rule.eps));
            let mut step = s.div(d, root);
            if t.weight_decay != 0.0 {
                step = s.fma(s.splat(t.weight_decay as f32), y, step);
            }
            let [z, x] = if now.first { [y; 2] } else { [get(s, lowest, i, n), get(s, average, i, n)] };
            let z = s.fma(s.splat(-now.rate), step, z);
            let x = lerp(s, x, z, now.share);
            put(s, lowest, i, n, z);
            put(s, average, i, n, x);
            put(s, p, i, n, lerp(s, z, x, now.rule.beta1));
        }
    }
}
