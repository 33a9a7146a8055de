//! Losses.

use super::Tensor;
use super::softmax::log_sum_exp;
use crate::graph::op::{CrossEntropy, ElementwiseLoss, LEAST_MEAN, Loss, LossGrad, LossOp, RowLoss, WeightedBinary};

/// The loss, and what the batch weighs.
pub(super) fn loss(op: &LossOp, x: &[Tensor]) -> Vec<Vec<f64>> {
    let own = |i: usize| if op.weighted { x[2].data[i] } else { 1.0 };
    let (sum, weight, items) = match &op.loss {
        Loss::CrossEntropy(l) => {
            let (sum, weights) = cross_entropy(l, x, own);
            (sum, weights, weights)
        }
        Loss::Elementwise(_) | Loss::Binary(_) => {
            let (mut sum, mut weights) = (0.0, 0.0);
            for (i, (x, t)) in x[0].data.iter().zip(x[1].data).enumerate() {
                sum += own(i) * of_number(&op.loss, i, *x, *t)[0];
                weights += own(i);
            }
            let samples = op.loss.items(&x[0].dims.to_vec().into()) as f64;
            (sum, weights, weights * samples / x[0].data.len() as f64)
        }
    };
    vec![vec![if weight > 0.0 { sum / weight } else { 0.0 }], vec![items]]
}

pub(super) fn loss_grad(op: &LossGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let own = |i: usize| if op.weighted { x[4].data[i] } else { 1.0 };
    match &op.loss {
        Loss::CrossEntropy(l) => cross_entropy_grad(l, x, own),
        Loss::Elementwise(_) | Loss::Binary(_) => {
            let weights: f64 = (0..x[0].data.len()).map(own).sum();
            let factor = if weights > 0.0 { x[3].data[0] / weights } else { 0.0 };
            let pairs = x[0].data.iter().zip(x[1].data).enumerate();
            vec![pairs.map(|(i, (x, t))| factor * own(i) * of_number(&op.loss, i, *x, *t)[1]).collect()]
        }
    }
}

/// The loss of number `i`, and its derivative by the prediction.
fn of_number(loss: &Loss, i: usize, x: f64, t: f64) -> [f64; 2] {
    match loss {
        Loss::Elementwise(l) => element(*l, x, t),
        Loss::Binary(l) => binary(l, i, x, t),
        Loss::CrossEntropy(_) => unreachable!("a loss of classes"),
    }
}

/// A function of prediction and target, and its derivative by the prediction.
fn element(loss: ElementwiseLoss, x: f64, t: f64) -> [f64; 2] {
    let d = x - t;
    let sign = if d == 0.0 { 0.0 } else { d.signum() };
    let m = x + LEAST_MEAN;
    match loss {
        ElementwiseLoss::Mse => [d * d, 2.0 * d],
        ElementwiseLoss::L1 => [d.abs(), sign],
        ElementwiseLoss::SmoothL1 { beta } => match f64::from(beta) {
            beta if d.abs() < beta => [0.5 * d * d / beta, d / beta],
            beta => [d.abs() - 0.5 * beta, sign],
        },
        ElementwiseLoss::Huber { delta } => match f64::from(delta) {
            delta if d.abs() <= delta => [0.5 * d * d, d],
            delta => [delta * (d.abs() - 0.5 * delta), delta * sign],
        },
        ElementwiseLoss::BceWithLogits => [x.max(0.0) - x * t + (-x.abs()).exp().ln_1p(), 1.0 / (1.0 + (-x).exp()) - t],
        ElementwiseLoss::Quantile { quantile } => {
            let q = f64::from(quantile);
            if d < 0.0 { [-q * d, -q] } else { [(1.0 - q) * d, (1.0 - q) * sign] }
        }
        ElementwiseLoss::PoissonNll => [x - t * m.ln(), 1.0 - t / m],
        ElementwiseLoss::GammaNll => [m.ln() + t / m, (m - t) / (m * m)],
        ElementwiseLoss::Tweedie { power } => {
            let p = f64::from(power);
            [m.powf(2.0 - p) / (2.0 - p) - t * m.powf(1.0 - p) / (1.0 - p), m.powf(-p) * (m - t)]
        }
    }
}

/// The loss of element `i`, and its derivative by the prediction.
fn binary(loss: &WeightedBinary, i: usize, x: f64, t: f64) -> [f64; 2] {
    let weight = match loss.pos_weight.len() {
        0 => 1.0,
        n => f64::from(loss.pos_weight[i % n]),
    };
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let entropy = weight * t * softplus(-x) + (1.0 - t) * softplus(x);
    let slope = (1.0 - t) * sigmoid(x) - weight * t * sigmoid(-x);
    let [gamma, alpha] = loss.gamma_and_alpha().map(f64::from);
    let share = if alpha < 0.0 { 1.0 } else { alpha * t + (1.0 - alpha) * (1.0 - t) };
    if gamma == 0.0 {
        return [share * entropy, share * slope];
    }
    let off = t * sigmoid(-x) + (1.0 - t) * sigmoid(x);
    let change = sigmoid(x) * sigmoid(-x) * (1.0 - 2.0 * t);
    let bend = if off > 0.0 { gamma * off.powf(gamma - 1.0) * change * entropy } else { 0.0 };
    [share * off.powf(gamma) * entropy, share * (off.powf(gamma) * slope + bend)]
}

/// By which the loss of a row is multiplied, and its gradient, for the logarithm of the target's probability.
fn focus(form: RowLoss, log: f64) -> [f64; 2] {
    match form {
        RowLoss::Focal { gamma } if gamma > 0.0 => {
            let (gamma, off) = (f64::from(gamma), -log.exp_m1());
            let bend = if off > 0.0 { gamma * off.powf(gamma - 1.0) * log.exp() * log } else { 0.0 };
            [off.powf(gamma), off.powf(gamma) - bend]
        }
        _ => [1.0, 1.0],
    }
}

/// The weight of a class.
fn weight(op: &CrossEntropy, class: usize) -> f64 {
    if op.weight.is_empty() { 1.0 } else { f64::from(op.weight[class]) }
}

/// True if the targets are shares of classes, which have the shape of the logits.
fn are_shares(x: &[Tensor]) -> bool {
    x[1].dims == x[0].dims
}

/// What counts of a class whose share of a row is `share`.
fn counted(op: &CrossEntropy, class: usize, share: f64, classes: usize) -> f64 {
    let smoothing = f64::from(op.label_smoothing);
    weight(op, class) * ((1.0 - smoothing) * share + smoothing / classes as f64)
}

/// Sum of the rows' losses, and of what they weigh. Row `i` has the weight `own(i)`.
fn cross_entropy(op: &CrossEntropy, x: &[Tensor], own: impl Fn(usize) -> f64) -> (f64, f64) {
    let (classes, smoothing) = (x[0].last(), f64::from(op.label_smoothing));
    let (mut sum, mut weights) = (0.0, 0.0);
    if are_shares(x) {
        for (i, (row, shares)) in x[0].data.chunks(classes).zip(x[1].data.chunks(classes)).enumerate() {
            let lse = log_sum_exp(row);
            let of = |(c, (x, share)): (usize, (&f64, &f64))| counted(op, c, *share, classes) * (lse - x);
            sum += own(i) * row.iter().zip(shares).enumerate().map(of).sum::<f64>();
            weights += own(i);
        }
        return (sum, weights);
    }
    for (i, (row, target)) in x[0].data.chunks(classes).zip(x[1].data).enumerate() {
        if *target == f64::from(op.ignore_index) {
            continue;
        }
        let lse = if op.form == RowLoss::Nll { 0.0 } else { log_sum_exp(row) };
        let others: f64 = row.iter().enumerate().map(|(c, x)| weight(op, c) * (lse - x)).sum();
        let target = *target as usize;
        let [focus, _] = focus(op.form, row[target] - lse);
        let of_target = (1.0 - smoothing) * weight(op, target) * focus * (lse - row[target]);
        sum += own(i) * (of_target + smoothing / classes as f64 * others);
        weights += own(i) * weight(op, target);
    }
    (sum, weights)
}

fn cross_entropy_grad(op: &CrossEntropy, x: &[Tensor], own: impl Fn(usize) -> f64) -> Vec<Vec<f64>> {
    let (logits, targets, weights, dloss) = (x[0], x[1], x[2].data[0], x[3].data[0]);
    let (classes, smoothing) = (logits.last(), f64::from(op.label_smoothing));
    let all: f64 = (0..classes).map(|c| weight(op, c)).sum();
    let factor = |i: usize| if weights > 0.0 { own(i) * dloss / weights } else { 0.0 };
    let mut dx = Vec::with_capacity(logits.data.len());
    if are_shares(x) {
        for (i, (row, shares)) in logits.data.chunks(classes).zip(targets.data.chunks(classes)).enumerate() {
            let lse = log_sum_exp(row);
            let counts = |c: usize| counted(op, c, shares[c], classes);
            let all: f64 = (0..classes).map(counts).sum();
            dx.extend(row.iter().enumerate().map(|(c, x)| factor(i) * ((x - lse).exp() * all - counts(c))));
        }
        return vec![dx];
    }
    for (i, (row, target)) in logits.data.chunks(classes).zip(targets.data).enumerate() {
        let counts = *target != f64::from(op.ignore_index);
        let lse = log_sum_exp(row);
        for (c, x) in row.iter().enumerate() {
            let p = if op.form == RowLoss::Nll { 0.0 } else { (x - lse).exp() };
            let of_target = match counts {
                true => weight(op, *target as usize) * focus(op.form, row[*target as usize] - lse)[1],
                false => 0.0,
            };
            let hot = if c as f64 == *target { 1.0 } else { 0.0 };
            let of_all = smoothing / classes as f64 * (p * all - weight(op, c));
            let d = (1.0 - smoothing) * of_target * (p - hot) + of_all;
            dx.push(if counts { factor(i) * d } else { 0.0 });
        }
    }
    vec![dx]
}
