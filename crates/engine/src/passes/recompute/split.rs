//! Batch normalisation in two parts, the first of which is made while the values come into being.

use super::AtOnce;
use crate::graph::op::{BatchNorm, BatchNormApply, Fused, Source};
use crate::graph::{Graph, Node, Op, Value};
use crate::passes::edit::Links;

/// Batch normalisation of what a convolution makes becomes statistics and their application, if the device makes these
/// statistics and the convolution at once.
pub fn by_makers(graph: &mut Graph, at_once: &AtOnce) {
    let links = Links::of(graph);
    let takes = |at: &usize| match &graph.nodes[*at].op {
        Op::BatchNorm(op) => is_made_with(graph, &links, &statistics(&graph.nodes[*at], op), at_once),
        _ => false,
    };
    let found: Vec<usize> = (0..graph.nodes.len()).filter(takes).collect();
    // From behind, so that places stay.
    for at in found.into_iter().rev() {
        let Op::BatchNorm(op) = graph.nodes[at].op.clone() else { continue };
        let statistics = statistics(&graph.nodes[at], &op);
        let norm = &mut graph.nodes[at];
        let parameters = if op.affine { &norm.inputs[1..3] } else { &[] };
        norm.inputs = [&norm.inputs[..1], &statistics.outputs, parameters].concat();
        norm.outputs.truncate(1);
        norm.op = BatchNormApply { affine: op.affine }.into();
        graph.nodes.insert(at, statistics);
    }
}

/// The node of the statistics of `norm`, whose operation is `op`.
pub fn statistics(norm: &Node, op: &BatchNorm) -> Node {
    let running = &norm.inputs[1 + 2 * usize::from(op.affine)..];
    let Node { origin, backward, .. } = *norm;
    Node {
        op: op.statistics().into(),
        inputs: [&norm.inputs[..1], running].concat(),
        outputs: norm.outputs[1..].to_vec(),
        origin,
        backward,
    }
}

/// True if the device makes the operand and its statistics at once.
fn is_made_with(graph: &Graph, links: &Links, statistics: &Node, at_once: &AtOnce) -> bool {
    let Some(maker) = links.maker(statistics.inputs[0]).map(|maker| &graph.nodes[maker]) else { return false };
    let group = match &maker.op {
        Op::Fused(op) => op.clone(),
        op => Fused::of(op.clone(), maker.inputs.len()),
    };
    if maker.outputs.len() > 1 {
        return false;
    }
    let (last, own) = (group.steps.len() - 1, maker.inputs.len());
    let from = [Source::Step(last)].into_iter().chain((own..).take(statistics.inputs.len() - 1).map(Source::Operand));
    let group = group.then(statistics.op.clone(), from.collect()).with_result(last, 0).with_result(last + 1, 1);
    let operands: Vec<&Value> = maker.inputs.iter().chain(&statistics.inputs[1..]).map(|v| graph.value(*v)).collect();
    at_once(&group.into(), &operands)
}
