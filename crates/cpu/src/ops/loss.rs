//! Losses and their gradients.

use super::elementwise_loss::{ElementwiseGradKernel, ElementwiseKernel};
use super::loss_weights::{own_of, own_weights};
use super::reduce_rows::{Dot, Plain, log_sum_exp, sum};
use super::soft_cross_entropy::SoftCrossEntropyKernel;
use super::weighted_binary::WeightedBinaryKernel;
use crate::graph::op::{CrossEntropy, Loss, LossGrad, LossOp, RowLoss};
use crate::graph::{DType, Shape};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Chunks, chunks};
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};

/// [`crate::graph::op::CrossEntropy`] and its gradient.
pub struct CrossEntropyKernel {
    loss: CrossEntropy,
    /// Sum of the weights of all classes.
    all_weights: f64,
    rows: usize,
    classes: usize,
    weighted: bool,
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
    /// Sum of the losses of some rows, and of the weights of those that count. A target that is no class gives NaN. `own` are the rows' own
    /// weights, and empty where all are 1.
    fn forward<'a, S>(s, x: &'a [f32], targets: &'a [i32], own: &'a [f32], row: usize, rule: Rule<'a>) -> [f64; 2] {
        let (mut total, mut weights, smoothing) = (0.0, 0.0, rule.smoothing as f64);
        for (i, (x, t)) in x.chunks(row).zip(targets).enumerate().filter(|(_, (_, t))| **t != rule.ignored) {
            let own = own.get(i).map_or(1.0, |own| *own as f64);
            let [top, log] = match rule.form {
                RowLoss::Nll => [0.0; 2],
                RowLoss::CrossEntropy | RowLoss::Focal { .. } => log_sum_exp(s, x),
            };
            let class = usize::try_from(*t).ok().filter(|t| *t < row);
            let weight = rule.weight(class) as f64;
            let off = class.map_or(f64::NAN, |t| log - (x[t] as f64 - top));
            total += own * match rule.form {
                RowLoss::Focal { .. } => rule.focus(-off)[0] * off * weight,
                RowLoss::CrossEntropy | RowLoss::Nll => (1.0 - smoothing) * off * weight,
            };
            if smoothing != 0.0 {
                let log = top + log;
                total += own * smoothing * match rule.weights {
                    [] => log - sum(s, row, Plain(x)) / row as f64,
                    weights => (rule.all_weights * log - sum(s, row, Dot(weights, x))) / row as f64,
                };
            }
            weights += own * weight;
        }
        [total, weights]
    }

    fn backward<'a, S>(
        s,
        x: &'a [f32],
        targets: &'a [i32],
        own: &'a [f32],
        dx: &'a mut [f32],
        row: usize,
        factor: f32,
        rule: Rule<'a>,
    ) {
        let flat = rule.smoothing / row as f32;
        for (i, ((x, t), dx)) in x.chunks(row).zip(targets).zip(dx.chunks_mut(row)).enumerate() {
            let factor = own.get(i).map_or(factor, |own| own * factor);
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
    pub fn new(loss: &CrossEntropy, x: &Shape, weighted: bool, backward: bool, level: SimdLevel) -> Self {
        let all_weights = loss.weight.iter().map(|w| f64::from(*w)).sum();
        let (loss, rows, classes) = (loss.clone(), x.rows(), x.last());
        CrossEntropyKernel { loss, all_weights, rows, classes, weighted, level, backward }
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
        let own = own_weights(frame, self.weighted, self.backward);
        if self.backward {
            let (weight, dloss) = (frame.input::<f32>(2)[0], frame.input::<f32>(3)[0]);
            let factor = if weight > 0.0 { dloss / weight } else { 0.0 };
            for_chunks(frame.pool(), frame.output::<f32>(0), self.rows_per_task() * row, |start, dx| {
                let r = start / row..(start + dx.len()) / row;
                let x = &x[start..start + dx.len()];
                backward(self.level, x, &targets[r.clone()], own_of(own, r), dx, row, factor, rule);
            });
        } else {
            let pieces = self.pieces();
            let partial = frame.scratch().take::<f64>(2 * pieces.count());
            for_chunks(frame.pool(), partial, 2, |start, sums| {
                let r = pieces.range(start / 2);
                let x = &x[r.start * row..r.end * row];
                sums.copy_from_slice(&forward(self.level, x, &targets[r.clone()], own_of(own, r), row, rule));
            });
            let weight: f64 = partial.iter().skip(1).step_by(2).sum();
            let total: f64 = partial.iter().step_by(2).sum();
            frame.output::<f32>(0)[0] = if weight > 0.0 { (total / weight) as f32 } else { 0.0 };
            frame.output::<f32>(1)[0] = weight as f32;
        }
    }
}

/// The kernel of a loss on predictions of shape `x` and targets of type `targets`.
pub fn kernel(op: &LossOp, x: &Shape, targets: DType, level: SimdLevel) -> Box<dyn NodeKernel> {
    let (weighted, items) = (op.weighted, op.loss.items(x));
    match &op.loss {
        Loss::CrossEntropy(l) if targets == DType::F32 => {
            Box::new(SoftCrossEntropyKernel::new(l, x, weighted, false, level))
        }
        Loss::CrossEntropy(l) => Box::new(CrossEntropyKernel::new(l, x, weighted, false, level)),
        Loss::Elementwise(l) => Box::new(ElementwiseKernel { loss: *l, len: x.len(), items, weighted, level }),
        Loss::Binary(l) => Box::new(WeightedBinaryKernel::new(l, [x.len(), items], weighted, false)),
    }
}

/// The kernel of a loss's gradient.
pub fn grad_kernel(op: &LossGrad, x: &Shape, targets: DType, level: SimdLevel) -> Box<dyn NodeKernel> {
    let (weighted, items) = (op.weighted, op.loss.items(x));
    match &op.loss {
        Loss::CrossEntropy(l) if targets == DType::F32 => {
            Box::new(SoftCrossEntropyKernel::new(l, x, weighted, true, level))
        }
        Loss::CrossEntropy(l) => Box::new(CrossEntropyKernel::new(l, x, weighted, true, level)),
        Loss::Elementwise(l) => Box::new(ElementwiseGradKernel { loss: *l, items, weighted, level }),
        Loss::Binary(l) => Box::new(WeightedBinaryKernel::new(l, [x.len(), items], weighted, true)),
    }
}
