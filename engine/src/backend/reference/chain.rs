//! Element-wise operations one behind the other.

use super::{Tensor, dropout, elementwise};
use crate::graph::op::{ActivationGrad, ActivationOp, Binary, Chain, LinkOp, Source};

/// The results, each link computed as an operation of its own.
pub(super) fn chain(op: &Chain, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut known: Vec<Vec<f64>> = Vec::new();
    for link in &op.links {
        let operands: Vec<Tensor> = link
            .from
            .iter()
            .map(|from| match from {
                Source::Operand(i) => x[*i],
                Source::Link(i) => Tensor { dims: y[0], data: &known[*i] },
            })
            .collect();
        let result = match &link.op {
            LinkOp::Activation(act) => elementwise::activation(&ActivationOp { act: *act }, &operands),
            LinkOp::ActivationGrad(act) => elementwise::activation_grad(&ActivationGrad { act: *act }, &operands),
            LinkOp::Binary(kind) => elementwise::binary(&Binary { kind: *kind, act: None }, &operands, y),
            LinkOp::Dropout(op) => dropout::dropout(op, &operands),
        };
        known.extend(result);
    }
    op.results.iter().map(|i| known[*i].clone()).collect()
}
