//! What keeps a step that goes wrong from leaving anything behind.

use super::Tensor;
use crate::graph::op::KeepState;

/// The mark, if there is one, and the copies.
pub(super) fn keep(op: &KeepState, x: &[Tensor]) -> Vec<Vec<f64>> {
    let first = usize::from(op.once);
    let keeps = !op.once || x[0].data[0] == 0.0;
    let mark = op.once.then(|| vec![1.0]);
    let of = |p: &[Tensor]| if keeps { p[0].data.to_vec() } else { p[1].data.to_vec() };
    mark.into_iter().chain(x[first..].chunks(2).map(of)).collect()
}

/// The variables.
pub(super) fn restore(x: &[Tensor]) -> Vec<Vec<f64>> {
    let finite = x[0].data[0].is_finite();
    x[1..].chunks(2).map(|p| if finite { p[0].data.to_vec() } else { p[1].data.to_vec() }).collect()
}
