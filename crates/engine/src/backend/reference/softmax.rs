//! Softmax and its logarithm over the last axis.

use super::Tensor;

/// Logarithm of the sum of `eˣ`; the largest element is taken out so that nothing overflows.
pub(super) fn log_sum_exp(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

pub(super) fn forward(x: &[Tensor]) -> Vec<Vec<f64>> {
    let mut y = Vec::new();
    for row in x[0].data.chunks(x[0].last()) {
        let lse = log_sum_exp(row);
        y.extend(row.iter().map(|x| (x - lse).exp()));
    }
    vec![y]
}

pub(super) fn grad(x: &[Tensor]) -> Vec<Vec<f64>> {
    let c = x[0].last();
    let mut dx = Vec::new();
    for (y, dy) in x[0].data.chunks(c).zip(x[1].data.chunks(c)) {
        let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
        dx.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)));
    }
    vec![dx]
}

pub(super) fn log_forward(x: &[Tensor]) -> Vec<Vec<f64>> {
    let mut y = Vec::new();
    for row in x[0].data.chunks(x[0].last()) {
        let lse = log_sum_exp(row);
        y.extend(row.iter().map(|x| x - lse));
    }
    vec![y]
}

pub(super) fn log_grad(x: &[Tensor]) -> Vec<Vec<f64>> {
    let c = x[0].last();
    let mut dx = Vec::new();
    for (y, dy) in x[0].data.chunks(c).zip(x[1].data.chunks(c)) {
        let sum: f64 = dy.iter().sum();
        dx.extend(y.iter().zip(dy).map(|(y, dy)| dy - y.exp() * sum));
    }
    vec![dx]
}
