//! Sums over shards.

use super::Tensor;
use crate::graph::op::ShardSum;

/// The sums of all tensors.
pub(super) fn sum(op: &ShardSum, x: &[Tensor]) -> Vec<Vec<f64>> {
    let place = x[0].data;
    let (slot, merged) = op.bounded([place[0] as i64, place[1] as i64]);
    let tensors = x[1..].chunks(op.stride());
    let of_tensor = |tensor: &[Tensor]| -> Vec<Vec<f64>> {
        let (value, sums) = (tensor[0].data, &tensor[1..]);
        let total = |i: usize| sums[slot..slot + merged].iter().rev().fold(value[i], |total, sum| sum.data[i] + total);
        let mut after: Vec<Vec<f64>> = sums.iter().map(|sum| sum.data.to_vec()).collect();
        after[slot] = (0..value.len()).map(total).collect();
        after
    };
    tensors.flat_map(of_tensor).collect()
}

/// The variables.
pub(super) fn mean(x: &[Tensor]) -> Vec<Vec<f64>> {
    let (finite, shards) = (x[0].data[0].is_finite(), x[1].data[2]);
    let mean = |pair: &[Tensor]| -> Vec<f64> {
        if finite { pair[1].data.iter().map(|sum| sum / shards).collect() } else { pair[0].data.to_vec() }
    };
    x[2..].chunks(2).map(mean).collect()
}

/// The mean.
pub(super) fn mean_loss(x: &[Tensor]) -> Vec<Vec<f64>> {
    let sums = x[0].data;
    vec![vec![if sums[1] > 0.0 { sums[0] / sums[1] } else { sums[0] }]]
}
