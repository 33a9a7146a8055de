//! Batch normalisation over all shards of a step.

use super::Tensor;
use crate::graph::op::{BatchNormFromSums, BatchNormGradSums};

/// For each of `channels`, the sum of `f(i)` over its elements `i`.
fn by_channel(len: usize, channels: usize, f: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; channels];
    (0..len).for_each(|i| sums[i % channels] += f(i));
    sums
}

pub(super) fn sums(x: &[Tensor]) -> Vec<Vec<f64>> {
    let [x] = x else { unreachable!("one operand") };
    let of = |f: &dyn Fn(f64) -> f64| by_channel(x.data.len(), x.last(), |i| f(x.data[i]));
    vec![[of(&|x| x), of(&|x| x * x), vec![x.rows() as f64]].concat()]
}

pub(super) fn from_sums(op: &BatchNormFromSums, x: &[Tensor]) -> Vec<Vec<f64>> {
    let sums = x[0].data;
    let (c, n) = (sums.len() / 2, sums[sums.len() - 1]);
    let mean: Vec<f64> = sums[..c].iter().map(|sum| sum / n).collect();
    let var: Vec<f64> = (0..c).map(|i| (sums[c + i] / n - mean[i] * mean[i]).max(0.0)).collect();
    let mut results = vec![mean.clone(), var.iter().map(|v| 1.0 / (v + f64::from(op.eps)).sqrt()).collect()];
    if op.track {
        let batches = x[3].data[0] + 1.0;
        let weight = op.momentum.map_or(1.0 / batches, f64::from);
        let blend = |old: &[f64], new: &dyn Fn(usize) -> f64| -> Vec<f64> {
            old.iter().enumerate().map(|(i, old)| (1.0 - weight) * old + weight * new(i)).collect()
        };
        results.push(blend(x[1].data, &|i| mean[i]));
        results.push(blend(x[2].data, &|i| var[i] * (n / (n - 1.0).max(1.0))));
        results.push(vec![batches]);
    }
    results
}

pub(super) fn grad_sums(op: &BatchNormGradSums, x: &[Tensor]) -> Vec<Vec<f64>> {
    let [x, dy, mean, invstd] = x else { unreachable!("four operands") };
    let (len, c) = (x.data.len(), x.last());
    let dys = by_channel(len, c, |i| dy.data[i]);
    let dots = by_channel(len, c, |i| dy.data[i] * (x.data[i] - mean.data[i % c]));
    let dgamma = dots.iter().zip(invstd.data).map(|(dot, invstd)| dot * invstd).collect();
    let mut results = vec![[dys.clone(), dots].concat()];
    results.extend(op.affine.then_some([dgamma, dys]).into_iter().flatten());
    results
}

pub(super) fn grad_from_sums(x: &[Tensor]) -> Vec<Vec<f64>> {
    let [of_x, dy, mean, invstd, sums, grad_sums] = x[..6] else { unreachable!("six operands or more") };
    let (c, n) = (of_x.last(), sums.data[sums.data.len() - 1]);
    let one = |i: usize| {
        let (c, invstd) = (i % c, invstd.data[i % c]);
        let of_x = (of_x.data[i] - mean.data[c]) * invstd * invstd * grad_sums.data[mean.data.len() + c] / n;
        (dy.data[i] - grad_sums.data[c] / n - of_x) * invstd * x.get(6).map_or(1.0, |gamma| gamma.data[c])
    };
    vec![(0..of_x.data.len()).map(one).collect()]
}
