//! Losses and their gradients.

use super::reduce_rows::{Dot, Plain, Terms, log_sum_exp, sum};
use super::soft_cross_entropy::SoftCrossEntropyKernel;
use super::weighted_binary::WeightedBinaryKernel;
use crate::graph::op::{CrossEntropy, ElementwiseLoss, LEAST_MEAN, Loss, RowLoss};
use crate::graph::{DType, Shape};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Chunks, chunks};
use crate::simd::lanes::{get, put};
use crate::simd::math::{ln_1p, sigmoid};
use crate::simd::{MAX_LANES, Simd, SimdLevel};

/// [`crate::graph::op::CrossEntropy`] and its gradient.
pub struct CrossEntropyKernel {
    loss: CrossEntropy,
    /// Sum of the weights of all classes.
    all_weights: f64,
    rows: usize,
    classes: usize,
    level: SimdLevel,
    backward: bool,
}

/// What is the same for all rows.
#[derive(Clone, Copy)]
struct Rule<'a> {
    form: RowLoss,
    smoothing: f32,
    ignored: i32,
    /// Of each class; empty where all are 1.
    weights: &'a [f32],
    all_weights: f64,
}

impl Rule<'_> {
    /// By which the loss of a row is multiplied, and its gradient, for the logarithm of the target's probability.
    fn focus(&self, log: f64) -> [f64; 2] {
        let RowLoss::Focal { gamma } = self.form else { return [1.0, 1.0] };
        // Of what is surely right nothing is left; a power of 0 below 1 has no slope there.
        let (gamma, off) = (gamma as f64, -log.exp_m1());
        match gamma > 0.0 {
            true if off == 0.0 => [0.0, 0.0],
            true => [off.powf(gamma), off.powf(gamma) - gamma * off.powf(gamma - 1.0) * log.exp() * log],
            false => [1.0, 1.0],
        }
    }

    fn weight(&self, class: Option<usize>) -> f32 {
        class.and_then(|c| self.weights.get(c)).copied().unwrap_or(1.0)
    }
}

vectorised! {
    /// Sum of the losses of some rows, and of the weights of those that count. A target that is no class gives NaN.
    fn forward<'a, S>(s, x: &'a [f32], targets: &'a [i32], row: usize, rule: Rule<'a>) -> [f64; 2] {
        let (mut total, mut weights, smoothing) = (0.0, 0.0, rule.smoothing as f64);
        for (x, t) in x.chunks(row).zip(targets).filter(|(_, t)| **t != rule.ignored) {
            let [top, log] = match rule.form {
                RowLoss::Nll => [0.0; 2],
                RowLoss::CrossEntropy | RowLoss::Focal { .. } => log_sum_exp(s, x),
            };
            let class = usize::try_from(*t).ok().filter(|t| *t < row);
            let weight = rule.weight(class) as f64;
            let off = class.map_or(f64::NAN, |t| log - (x[t] as f64 - top));
            total += match rule.form {
                RowLoss::Focal { .. } => rule.focus(-off)[0] * off * weight,
                RowLoss::CrossEntropy | RowLoss::Nll => (1.0 - smoothing) * off * weight,
            };
            if smoothing != 0.0 {
                let log = top + log;
                total += smoothing * match rule.weights {
                    [] => log - sum(s, row, Plain(x)) / row as f64,
                    weights => (rule.all_weights * log - sum(s, row, Dot(weights, x))) / row as f64,
                };
            }
            weights += weight;
        }
        [total, weights]
    }

    fn backward<'a, S>(s, x: &'a [f32], targets: &'a [i32], dx: &'a mut [f32], row: usize, factor: f32, rule: Rule<'a>) {
        let flat = rule.smoothing / row as f32;
        for ((x, t), dx) in x.chunks(row).zip(targets).zip(dx.chunks_mut(row)) {
            if *t == rule.ignored || rule.form == RowLoss::Nll {
                dx.fill(0.0);
                let class = usize::try_from(*t).ok().filter(|t| *t < row && rule.form == RowLoss::Nll);
                if let Some(class) = class.filter(|_| *t != rule.ignored) {
                    dx[class] = -rule.weight(Some(class)) * factor;
                }
                continue;
            }
            let [top, log] = log_sum_exp(s, x);
            let class = usize::try_from(*t).ok().filter(|t| *t < row);
            let at = class.map(|c| x[c] as f64 - top - log);
            let factor = match (rule.form, at) {
                (RowLoss::Focal { .. }, Some(at)) => factor * rule.focus(at)[1] as f32,
                _ => factor,
            };
            let hot = (1.0 - rule.smoothing) * rule.weight(class);
            let share = s.splat(hot + flat * rule.all_weights as f32);
            for i in (0..row).step_by(S::LANES) {
                let n = (row - i).min(S::LANES);
                let p = s.exp(s.sub(s.sub(get(s, x, i, n), s.splat(top as f32)), s.splat(log as f32)));
                let d = match rule.weights {
                    [] => s.sub(p, s.splat(flat)),
                    weights => s.sub(s.mul(p, share), s.mul(s.splat(flat), get(s, weights, i, n))),
                };
                put(s, dx, i, n, s.mul(d, s.splat(factor)));
            }
            if let (Some(class), Some(at)) = (class, at) {
                // `p − 1` would have few digits where the net is sure of itself.
                let off = at.exp_m1() as f32;
                let d = match rule.weights {
                    [] => off + (rule.smoothing - flat),
                    weights => off * hot + flat * (rule.all_weights as f32 * at.exp() as f32 - weights[class]),
                };
                dx[class] = d * factor;
            }
        }
    }
}

impl CrossEntropyKernel {
    /// For logits of shape `x`.
    pub fn new(loss: &CrossEntropy, x: &Shape, backward: bool, level: SimdLevel) -> Self {
        let all_weights = loss.weight.iter().map(|w| f64::from(*w)).sum();
        CrossEntropyKernel { loss: loss.clone(), all_weights, rows: x.rows(), classes: x.last(), level, backward }
    }

    /// The rows of each task: fewer than where memory is the bound, since an exponential and its share of a logarithm take
    /// some 30 times as long.
    fn pieces(&self) -> Chunks {
        chunks(self.rows, self.rows_per_task())
    }

    fn rows_per_task(&self) -> usize {
        rows_per_chunk(self.classes * 32)
    }
}

impl NodeKernel for CrossEntropyKernel {
    fn scratch_bytes(&self) -> usize {
        if self.backward { 0 } else { Scratch::size::<f64>(2 * self.pieces().count()) }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, targets) = (frame.input::<f32>(0), frame.input::<i32>(1));
        let (row, loss) = (self.classes, &self.loss);
        let rule = Rule {
            form: loss.form,
            smoothing: loss.label_smoothing,
            ignored: loss.ignore_index,
            weights: &loss.weight,
            all_weights: self.all_weights,
        };
        if self.backward {
            let (weight, dloss) = (frame.input::<f32>(2)[0], frame.input::<f32>(3)[0]);
            let factor = if weight > 0.0 { dloss / weight } else { 0.0 };
            for_chunks(frame.pool(), frame.output::<f32>(0), self.rows_per_task() * row, |start, dx| {
                let r = start / row..(start + dx.len()) / row;
                let x = &x[start..start + dx.len()];
                backward(self.level, x, &targets[r], dx, row, factor, rule);
            });
        } else {
            let pieces = self.pieces();
            let partial = frame.scratch().take::<f64>(2 * pieces.count());
            for_chunks(frame.pool(), partial, 2, |start, sums| {
                let r = pieces.range(start / 2);
                let x = &x[r.start * row..r.end * row];
                sums.copy_from_slice(&forward(self.level, x, &targets[r], row, rule));
            });
            let weight: f64 = partial.iter().skip(1).step_by(2).sum();
            let total: f64 = partial.iter().step_by(2).sum();
            frame.output::<f32>(0)[0] = if weight > 0.0 { (total / weight) as f32 } else { 0.0 };
            frame.output::<f32>(1)[0] = weight as f32;
        }
    }
}

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

vectorised! {
    fn values<'a, S>(s, loss: ElementwiseLoss, x: &'a [f32], t: &'a [f32]) -> f64 {
        with_loss!(loss, f => sum(s, x.len(), Values(f, x, t)))
    }

    fn derivatives<'a, S>(s, loss: ElementwiseLoss, x: &'a [f32], t: &'a [f32], dx: &'a mut [f32], factor: f32) {
        with_loss!(loss, f => {
            for i in (0..x.len()).step_by(S::LANES) {
                let n = (x.len() - i).min(S::LANES);
                put(s, dx, i, n, s.mul(s.splat(factor), f.derivative(s, get(s, x, i, n), get(s, t, i, n))));
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
    /// What the batch weighs.
    pub items: usize,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ElementwiseKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(chunks(self.len, CHUNK).count())
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, t) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let pieces = chunks(self.len, CHUNK);
        let partial = frame.scratch().take::<f64>(pieces.count());
        for_chunks(frame.pool(), partial, 1, |task, sum| {
            let r = pieces.range(task);
            sum[0] = values(self.level, self.loss, &x[r.clone()], &t[r]);
        });
        frame.output::<f32>(0)[0] = (partial.iter().sum::<f64>() / self.len as f64) as f32;
        frame.output::<f32>(1)[0] = self.items as f32;
    }
}

/// The gradient of an element-wise loss.
pub struct ElementwiseGradKernel {
    /// Which.
    pub loss: ElementwiseLoss,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ElementwiseGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, t, dloss) = (frame.input::<f32>(0), frame.input::<f32>(1), frame.input::<f32>(3));
        let dx = frame.output::<f32>(0);
        let factor = (1.0 / dx.len() as f64 * dloss[0] as f64) as f32;
        for_chunks(frame.pool(), dx, CHUNK, |start, dx| {
            let r = start..start + dx.len();
            derivatives(self.level, self.loss, &x[r.clone()], &t[r], dx, factor);
        });
    }
}

/// The kernel of a loss on predictions of shape `x` and targets of type `targets`.
pub fn kernel(loss: &Loss, x: &Shape, targets: DType, level: SimdLevel) -> Box<dyn NodeKernel> {
    match loss {
        Loss::CrossEntropy(l) if targets == DType::F32 => Box::new(SoftCrossEntropyKernel::new(l, x, false, level)),
        Loss::CrossEntropy(l) => Box::new(CrossEntropyKernel::new(l, x, false, level)),
        Loss::Elementwise(l) => Box::new(ElementwiseKernel { loss: *l, len: x.len(), items: loss.items(x), level }),
        Loss::Binary(l) => Box::new(WeightedBinaryKernel::new(l, x.len(), loss.items(x), false)),
    }
}

/// The kernel of a loss's gradient.
pub fn grad_kernel(loss: &Loss, x: &Shape, targets: DType, level: SimdLevel) -> Box<dyn NodeKernel> {
    match loss {
        Loss::CrossEntropy(l) if targets == DType::F32 => Box::new(SoftCrossEntropyKernel::new(l, x, true, level)),
        Loss::CrossEntropy(l) => Box::new(CrossEntropyKernel::new(l, x, true, level)),
        Loss::Elementwise(l) => Box::new(ElementwiseGradKernel { loss: *l, level }),
        Loss::Binary(l) => Box::new(WeightedBinaryKernel::new(l, x.len(), loss.items(x), true)),
    }
}
