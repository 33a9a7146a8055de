//! The update.

use super::Tensor;
use super::adafactor::Adafactor;
use crate::graph::op::{
    AccumulateLoss, Algorithm, Clipping, GradBlocks, GradSquares, Nadam, OptimizerStep, Part, TensorOptions, Trust,
    UpdateScale, radam_rectification,
};
use crate::shards::BLOCK;

pub(super) fn accumulate_grad(x: &[Tensor]) -> Vec<Vec<f64>> {
    vec![x[0].data.iter().zip(x[1].data).map(|(grad, sum)| sum + grad).collect()]
}

/// The mean loss so far, the share, and the sums.
pub(super) fn accumulate_loss(op: &AccumulateLoss, x: &[Tensor]) -> Vec<Vec<f64>> {
    let share = x[1].data[0] / f64::from(op.full);
    let sums = [x[2].data[0] + share * x[0].data[0], x[2].data[1] + share];
    let mean = if sums[1] > 0.0 { sums[0] / sums[1] } else { sums[0] };
    vec![vec![mean], vec![share], sums.to_vec()]
}

pub(super) fn mean_scale(x: &[Tensor]) -> Vec<Vec<f64>> {
    let (schedule, shares) = (x[0].data, x[1].data[1]);
    let scale = if shares > 0.0 { schedule[1] / shares } else { 0.0 };
    vec![vec![schedule[0], scale, schedule[2], schedule[3]]]
}

pub(super) fn zero_grad(x: &[Tensor]) -> Vec<Vec<f64>> {
    x.iter().map(|t| vec![0.0; t.data.len()]).collect()
}

pub(super) fn grad_norm(x: &[Tensor]) -> Vec<Vec<f64>> {
    let schedule = x[0].data;
    let squares: f64 = x[1..].iter().flat_map(|g| g.data).map(|g| g * g).sum();
    vec![vec![schedule[1] / schedule[2] * squares.sqrt()]]
}

pub(super) fn grad_squares(op: &GradSquares, x: &[Tensor]) -> Vec<Vec<f64>> {
    let mut sums = x[0].data.to_vec();
    for (GradBlocks { first, part }, gradient) in op.gradients.iter().zip(&x[1..]) {
        let blocks = gradient.data[part.start..part.start + part.len].chunks(BLOCK);
        sums[*first..].iter_mut().zip(blocks).for_each(|(sum, block)| *sum = block.iter().map(|g| g * g).sum());
    }
    vec![sums]
}

pub(super) fn norm_of_squares(x: &[Tensor]) -> Vec<Vec<f64>> {
    let schedule = x[0].data;
    vec![vec![(schedule[1] / schedule[2]).abs() * x[1].data.iter().sum::<f64>().sqrt()]]
}

/// What becomes of gradients before a rule sees them.
pub(super) struct Seen {
    /// The update is made.
    pub updates: bool,
    /// Factor of every gradient.
    pub scale: f64,
}

/// From the operands that clipping has.
pub(super) fn seen(clipping: &Clipping, x: &[Tensor]) -> Seen {
    let (schedule, loss) = (x[0].data, x[1].data[0]);
    let norm = if clipping.has_norm() { x[2].data[0] } else { 0.0 };
    let loss_scale = if clipping.scaled { x[3].data[0] } else { 1.0 };
    let clip = clipping.clip_norm.map_or(1.0, |limit| (f64::from(limit) / (norm / loss_scale + 1e-6)).min(1.0));
    Seen {
        updates: loss.is_finite() && (!clipping.scaled || norm.is_finite()),
        scale: schedule[1] / schedule[2] / loss_scale * clip,
    }
}

/// An element of a gradient, no further from 0 than `limit`.
pub(super) fn clipped(g: f64, limit: Option<f32>) -> f64 {
    match limit.map(f64::from) {
        Some(limit) if g > limit => limit,
        Some(limit) if g < -limit => -limit,
        _ => g,
    }
}

/// The step counter if the operation counts, then parameter and state of each tensor, all after the update.
pub(super) fn step(op: &OptimizerStep, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (head, schedule) = (op.head(), x[0].data);
    let Seen { updates, scale } = seen(&op.clipping(), x);
    let t = x[head - 1].data[0] + f64::from(u8::from(updates && op.counts));

    let mut results: Vec<Vec<f64>> = op.counts.then(|| vec![t]).into_iter().collect();
    for (number, (operands, options)) in x[head..].chunks(op.stride()).zip(&op.tensors).enumerate() {
        let mut parameter = operands[0].data.to_vec();
        let mut state: Vec<Vec<f64>> = operands[2..].iter().map(|s| s.data.to_vec()).collect();
        let gradient = |i: usize| clipped(operands[1].data[i] * scale, op.clip_value);
        if updates && let Algorithm::Adafactor { beta2_decay, eps, d, moments } = op.algorithm {
            let rule = Adafactor { beta2_decay, eps: eps.map(f64::from), d: f64::from(d), moments };
            let g: Vec<f64> = (0..parameter.len()).map(gradient).collect();
            let lr = (schedule[0] - schedule[3]) * f64::from(options.lr_scale) + schedule[3];
            let shapes: Vec<&[usize]> = operands[2..].iter().map(|s| s.dims).collect();
            rule.update(options, [lr, t], &mut parameter, &g, &mut state, &shapes);
        } else if updates && let Some(trust) = op.algorithm.trust() {
            let g: Vec<f64> = (0..parameter.len()).map(gradient).collect();
            let lr = (schedule[0] - schedule[3]) * f64::from(options.lr_scale) + schedule[3];
            tensor(&op.algorithm, &trust, options.weight_decay, [lr, t], &mut parameter, &g, &mut state);
        } else if updates {
            let Part { start, len } = op.part(number, parameter.len());
            for i in start..start + len {
                let mut s: Vec<f64> = state.iter().map(|s| s[i - start]).collect();
                let g = gradient(i);
                parameter[i] = element(&op.algorithm, options, [schedule[0], schedule[3]], t, parameter[i], g, &mut s);
                for (all, one) in state.iter_mut().zip(s) {
                    all[i - start] = one;
                }
            }
        }
        results.push(parameter);
        results.extend(state);
    }
    results
}

/// The update of a whole tensor `p` with gradient `g`, by a rule that looks at norms: learning rate and number of the step.
fn tensor(
    algorithm: &Algorithm,
    trust: &Trust,
    weight_decay: f32,
    [lr, t]: [f64; 2],
    p: &mut [f64],
    g: &[f64],
    state: &mut [Vec<f64>],
) {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let decay = f64::from(weight_decay);
    match *algorithm {
        Algorithm::Lamb { beta1, beta2, eps, .. } => {
            let mut step = vec![0.0; p.len()];
            for i in 0..p.len() {
                state[0][i] = beta1 * state[0][i] + (1.0 - beta1) * g[i];
                state[1][i] = beta2 * state[1][i] + (1.0 - beta2) * g[i] * g[i];
                let deviation = (state[1][i] / (1.0 - beta2.powf(t))).sqrt();
                step[i] = state[0][i] / (1.0 - beta1.powf(t)) / (deviation + f64::from(eps)) + decay * p[i];
            }
            let ratio = trust.ratio(weight_decay, [norm(p), norm(&step)]);
            p.iter_mut().zip(step).for_each(|(p, step)| *p -= lr * ratio * step);
        }
        Algorithm::Lars { momentum, .. } => {
            let ratio = trust.ratio(weight_decay, [norm(p), norm(g)]);
            for i in 0..p.len() {
                state[0][i] = f64::from(momentum) * state[0][i] + lr * ratio * (g[i] + decay * p[i]);
                p[i] -= state[0][i];
            }
        }
        _ => unreachable!("each element changes by itself"),
    }
}

/// The scale and the growth tracker after the update.
pub(super) fn update_scale(op: &UpdateScale, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (norm, scale, tracker) = (x[0].data[0], x[1].data[0], x[2].data[0] + 1.0);
    if !x[3].data[0].is_finite() {
        return vec![vec![scale], vec![x[2].data[0]]];
    }
    let [scale, tracker] = if !norm.is_finite() {
        [scale * f64::from(op.backoff), 0.0]
    } else if tracker < f64::from(op.interval) {
        [scale, tracker]
    } else {
        let grown = scale * f64::from(op.growth);
        [if grown <= f64::from(f32::MAX) { grown } else { scale }, 0.0]
    };
    vec![vec![scale], vec![tracker]]
}

/// The `t`-th update of one element `p` with gradient `g`; its state is updated, the new `p` returned.
fn element(
    algorithm: &Algorithm,
    options: &TensorOptions,
    [lr, floor]: [f64; 2],
    t: f64,
    mut p: f64,
    mut g: f64,
    state: &mut [f64],
) -> f64 {
    let lr = (lr - floor) * f64::from(options.lr_scale) + floor;
    let weight_decay = f64::from(options.weight_decay);
    if let Algorithm::ScheduleFreeAdamW { beta1, beta2, eps, steps } = *algorithm {
        // The parameter is `y` of the paper, `state[0]` is `z`, and `state[2]` is `x`.
        if t == 1.0 {
            (state[0], state[2]) = (p, p);
        }
        state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
        let deviation = (state[1] / (1.0 - beta2.powf(t))).sqrt();
        state[0] -= lr * steps.warmth(t as i64) * (g / (deviation + f64::from(eps)) + weight_decay * p);
        state[2] += steps.share(t as i64) * (state[0] - state[2]);
        return (1.0 - beta1) * state[0] + beta1 * state[2];
    }
    if algorithm.is_decoupled() {
        p *= 1.0 - lr * weight_decay;
    } else {
        g += weight_decay * p;
    }
    match *algorithm {
        Algorithm::Sgd { momentum: 0.0, .. } => p - lr * g,
        Algorithm::Sgd { momentum, dampening, nesterov } => {
            let (momentum, dampening) = (f64::from(momentum), f64::from(dampening));
            state[0] = if t == 1.0 { g } else { momentum * state[0] + (1.0 - dampening) * g };
            p - lr * if nesterov { g + momentum * state[0] } else { state[0] }
        }
        Algorithm::Adam { beta1, beta2, eps, amsgrad, .. } => {
            state[0] = beta1 * state[0] + (1.0 - beta1) * g;
            state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
            let mut square = state[1];
            if amsgrad {
                state[2] = state[2].max(square);
                square = state[2];
            }
            let mean = state[0] / (1.0 - beta1.powf(t));
            let deviation = (square / (1.0 - beta2.powf(t))).sqrt();
            p - lr * mean / (deviation + f64::from(eps))
        }
        Algorithm::RmsProp { alpha, eps, momentum, centered } => {
            state[0] = alpha * state[0] + (1.0 - alpha) * g * g;
            let mut variance = state[0];
            if centered {
                // The last of the slots.
                let mean = state.last_mut().expect("a centered RMSprop keeps the mean");
                *mean = alpha * *mean + (1.0 - alpha) * g;
                variance -= *mean * *mean;
            }
            let step = g / (variance.sqrt() + f64::from(eps));
            if momentum == 0.0 {
                return p - lr * step;
            }
            state[1] = f64::from(momentum) * state[1] + step;
            p - lr * state[1]
        }
        Algorithm::Nadam { beta1, beta2, eps, momentum_decay, .. } => {
            state[0] = beta1 * state[0] + (1.0 - beta1) * g;
            state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
            let Nadam { of_gradient, of_mean } = Nadam::at(t as i64, beta1, momentum_decay);
            let deviation = (state[1] / (1.0 - beta2.powf(t))).sqrt();
            p - lr * (of_gradient * g + of_mean * state[0]) / (deviation + f64::from(eps))
        }
        Algorithm::Radam { beta1, beta2, eps, .. } => {
            state[0] = beta1 * state[0] + (1.0 - beta1) * g;
            state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
            let mean = state[0] / (1.0 - beta1.powf(t));
            p - lr
                * match radam_rectification(t as i64, beta2) {
                    Some(factor) => mean * factor * (1.0 - beta2.powf(t)).sqrt() / (state[1].sqrt() + f64::from(eps)),
                    None => mean,
                }
        }
        Algorithm::Adagrad { lr_decay, eps, .. } => {
            state[0] += g * g;
            p - lr / (1.0 + (t - 1.0) * lr_decay) * g / (state[0].sqrt() + f64::from(eps))
        }
        Algorithm::Adadelta { rho, eps } => {
            let eps = f64::from(eps);
            state[0] = rho * state[0] + (1.0 - rho) * g * g;
            let step = ((state[1] + eps) / (state[0] + eps)).sqrt() * g;
            state[1] = rho * state[1] + (1.0 - rho) * step * step;
            p - lr * step
        }
        Algorithm::Adamax { beta1, beta2, eps } => {
            state[0] = beta1 * state[0] + (1.0 - beta1) * g;
            let (kept, new) = (beta2 * state[1], g.abs() + f64::from(eps));
            state[1] = if kept > new { kept } else { new };
            p - lr / (1.0 - beta1.powf(t)) * state[0] / state[1]
        }
        Algorithm::Lion { beta1, beta2 } => {
            let step = beta1 * state[0] + (1.0 - beta1) * g;
            state[0] = beta2 * state[0] + (1.0 - beta2) * g;
            // Zero and what is not a number are their own sign.
            p - lr
                * if step > 0.0 {
                    1.0
                } else if step < 0.0 {
                    -1.0
                } else {
                    step
                }
        }
        Algorithm::Lamb { .. } | Algorithm::Lars { .. } | Algorithm::Adafactor { .. } => {
            unreachable!("looks at the whole tensor")
        }
        Algorithm::ScheduleFreeAdamW { .. } => unreachable!("has been done"),
    }
}
