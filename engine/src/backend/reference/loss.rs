//! Losses.

use super::Tensor;
use super::softmax::log_sum_exp;
use crate::graph::op::{CrossEntropy, CrossEntropyGrad};

pub(super) fn cross_entropy(op: &CrossEntropy, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (classes, smoothing) = (x[0].last(), f64::from(op.label_smoothing));
    let (mut sum, mut lses) = (0.0, Vec::new());
    for (row, target) in x[0].data.chunks(classes).zip(x[1].data) {
        let lse = log_sum_exp(row);
        let others: f64 = row.iter().map(|x| lse - x).sum();
        sum += (1.0 - smoothing) * (lse - row[*target as usize]) + smoothing / classes as f64 * others;
        lses.push(lse);
    }
    vec![vec![sum / lses.len() as f64], lses]
}

pub(super) fn cross_entropy_grad(op: &CrossEntropyGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (logits, targets, lse, dloss) = (x[0], x[1], x[2], x[3].data[0]);
    let (classes, smoothing) = (logits.last(), f64::from(op.label_smoothing));
    let one = |(i, x): (usize, &f64)| {
        let (row, class) = (i / classes, i % classes);
        let target = if targets.data[row] as usize == class { 1.0 } else { 0.0 };
        let wanted = (1.0 - smoothing) * target + smoothing / classes as f64;
        dloss / logits.rows() as f64 * ((x - lse.data[row]).exp() - wanted)
    };
    vec![logits.data.iter().enumerate().map(one).collect()]
}

pub(super) fn mse(x: &[Tensor]) -> Vec<Vec<f64>> {
    let sum: f64 = x[0].data.iter().zip(x[1].data).map(|(x, t)| (x - t).powi(2)).sum();
    vec![vec![sum / x[0].data.len() as f64]]
}

pub(super) fn mse_grad(x: &[Tensor]) -> Vec<Vec<f64>> {
    let factor = x[2].data[0] * 2.0 / x[0].data.len() as f64;
    vec![x[0].data.iter().zip(x[1].data).map(|(x, t)| factor * (x - t)).collect()]
}
