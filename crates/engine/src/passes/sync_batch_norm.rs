//! Batch normalisation over all shards of a step (`torch.nn.SyncBatchNorm`): its statistics, and the sums of its gradient, become sums over shards.
//!
//! After each sum a shard must know those of all others, so a program that has these operations computes all shards of a rank together ([`super::lockstep`]).

use super::shards::{place, sums_like};
use crate::graph::op::{
    BatchNorm, BatchNormApply, BatchNormFromSums, BatchNormGrad, BatchNormGradFromSums, BatchNormGradSums,
    BatchNormSums, Receivers, ShardReduce, ShardSum,
};
use crate::graph::{DType, Graph, Node, Op, Role, Shape, ShapeError, ValueId, Variables};
use crate::shards::Shards;
use std::collections::HashMap;

/// What the names of the sums of statistics begin with.
const STATISTICS: &str = "batch_norm_sums";

/// What the names of the sums of gradients begin with.
const GRADIENTS: &str = "batch_norm_grad_sums";

/// A batch normalisation that has been taken apart: its number in the graph, and its sums over all shards.
type Apart = (usize, ValueId);

/// Takes every batch normalisation of a training graph apart, with its gradient.
///
/// Run it after the gradient pass, and after those that look for whole normalisations.
///
/// # Errors
/// None, unless there is a bug.
pub fn synchronize(graph: &mut Graph, vars: &mut Variables, shards: Shards) -> Result<(), ShapeError> {
    let mut of_mean: HashMap<ValueId, Apart> = HashMap::new();
    for node in std::mem::take(&mut graph.nodes) {
        graph.current_origin = node.origin;
        graph.in_backward = node.backward;
        match &node.op {
            Op::BatchNorm(op) => {
                let number = of_mean.len();
                let own = graph.add1(BatchNormSums {}, &node.inputs[..1])?;
                let all = join(graph, vars, own, shards, &format!("{STATISTICS}.{number}"))?;
                forward(graph, op, &node, all);
                of_mean.insert(node.outputs[1], (number, all));
            }
            Op::BatchNormGrad(op) => {
                let Some((number, sums)) = of_mean.get(&node.inputs[2]).copied() else {
                    return Err(ShapeError::new("a gradient without its batch normalisation"));
                };
                backward(graph, vars, op, &node, (shards, number, sums))?;
            }
            _ => graph.nodes.push(node),
        }
    }
    Ok(())
}

/// The sum over all shards of what a shard has.
fn join(
    graph: &mut Graph,
    vars: &mut Variables,
    own: ValueId,
    shards: Shards,
    name: &str,
) -> Result<ValueId, ShapeError> {
    let (place, slots) = (place(graph), shards.slots());
    let sums = sums_like(vars, graph.value(own), name, slots);
    let sums: Vec<ValueId> = sums.into_iter().map(|sum| graph.variable(vars, sum)).collect();
    graph.add(ShardSum { slots }, &[&[place, own], &sums[..]].concat())?;
    let reduce = ShardReduce { slots, shards, to: Receivers::All, bucket: None };
    graph.add(reduce, &[&[place], &sums[..]].concat())?;
    Ok(sums[0])
}

/// `op` on `inputs` in the place of `node`, with these of its results.
fn in_place_of(graph: &mut Graph, node: &Node, op: impl Into<Op>, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
    graph.nodes.push(Node { op: op.into(), inputs, outputs, ..node.clone() });
}

fn forward(graph: &mut Graph, op: &BatchNorm, node: &Node, sums: ValueId) {
    let BatchNorm { eps, momentum, affine, track } = *op;
    let (x, rest) = (node.inputs[0], &node.inputs[1..]);
    let (parameters, tracked) = rest.split_at(2 * usize::from(affine));
    let statistics = BatchNormFromSums { eps, momentum, track };
    in_place_of(graph, node, statistics, [&[sums], tracked].concat(), node.outputs[1..].to_vec());
    let operands = [&[x], &node.outputs[1..], parameters].concat();
    in_place_of(graph, node, BatchNormApply { affine }, operands, vec![node.outputs[0]]);
}

fn backward(
    graph: &mut Graph,
    vars: &mut Variables,
    op: &BatchNormGrad,
    node: &Node,
    (shards, number, sums): (Shards, usize, ValueId),
) -> Result<(), ShapeError> {
    let affine = op.affine;
    let channels = graph.shape(node.inputs[0]).last();
    let own = graph.add_value(DType::F64, Shape::from([2 * channels]), Role::Temporary);
    let (operands, gamma) = node.inputs.split_at(4);
    let made = [&[own], &node.outputs[1..]].concat();
    in_place_of(graph, node, BatchNormGradSums { affine }, operands.to_vec(), made);
    let all = join(graph, vars, own, shards, &format!("{GRADIENTS}.{number}"))?;
    let operands = [operands, &[sums, all], gamma].concat();
    in_place_of(graph, node, BatchNormGradFromSums { affine }, operands, vec![node.outputs[0]]);
    Ok(())
}
