//! What a batch goes through before the first layer.

use super::Tensor;
use crate::graph::op::Normalize;

pub(super) fn normalize(op: &Normalize, x: &[Tensor]) -> Vec<Vec<f64>> {
    let c = x[0].last();
    let of = |list: &[f32], i: usize| f64::from(if list.len() == 1 { list[0] } else { list[i % c] });
    let one = |(i, v): (usize, &f64)| (v * f64::from(op.scale) - of(&op.mean, i)) / of(&op.std, i);
    vec![x[0].data.iter().enumerate().map(one).collect()]
}
