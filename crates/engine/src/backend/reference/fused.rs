//! Groups: their operations, one by one.

use super::{Tensor, compute};
use crate::graph::Value;
use crate::graph::op::{Fused, Group, Source};

/// The results, then the new elements of operands that steps update. `values` describes the operands `x`.
pub(super) fn fused(op: &Fused, values: &[&Value], x: &[Tensor]) -> Vec<Vec<f64>> {
    let group = Group::new(op, values.to_vec()).expect("checked by the shape rule");
    let mut known: Vec<Vec<Vec<f64>>> = Vec::with_capacity(op.steps.len());
    let mut updated: Vec<Vec<f64>> = Vec::new();
    for (step, made) in op.steps.iter().zip(&group.made) {
        let operands: Vec<Tensor> = step
            .from
            .iter()
            .map(|from| match from {
                Source::Operand(i) => x[*i],
                Source::Step(i) => Tensor { dims: group.made[*i][0].shape.dims(), data: &known[*i][0] },
            })
            .collect();
        let outputs: Vec<&[usize]> = made.iter().map(|v| v.shape.dims()).collect();
        let mut results = compute(&step.op, &operands, &outputs);
        updated.extend(results.split_off(outputs.len()));
        known.push(results);
    }
    op.results.iter().map(|r| known[r.step][r.output].clone()).chain(updated).collect()
}
