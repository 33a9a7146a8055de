//! The recomputation pass: what would be kept in memory, but is computed again as cheaply.

mod reads;
mod split;

use super::edit::Links;
use crate::graph::op::{ActivationOp, BatchNormApply, Fused, Source};
use crate::graph::{Graph, Node, Op, Role, Value, ValueId};

/// Whether the device does a group on these operands at once.
pub type AtOnce<'a> = dyn Fn(&Op, &Vec<&Value>) -> bool + 'a;

/// Lets the gradient of an activation after batch normalisation compute the normalised value once more from what the gradient
/// of the normalisation reads anyway, where the device does these three at once. The value then has one reader, the
/// activation, and needs no memory where those two are one operation as well. The result of an activation that clamps, by which
/// its gradient would go else, is read once less.
///
/// Then, normalised values that only convolutions and their gradients read are computed by each of them, where the device does
/// that at once: such values need no memory at all.
///
/// Last, the statistics of what a convolution makes are parted from the normalisation, where the device makes both at once.
///
/// Run it after the gradient pass.
pub fn recompute(graph: &mut Graph, at_once: &AtOnce) {
    for_gradients(graph, at_once);
    reads::by_readers(graph, at_once);
    split::by_makers(graph, at_once);
}

fn for_gradients(graph: &mut Graph, at_once: &AtOnce) {
    let links = Links::of(graph);
    let mut found: Vec<(usize, Node)> =
        (0..graph.nodes.len()).filter_map(|at| Some((at, again(graph, &links, at, at_once)?))).collect();
    for (at, node) in found.iter_mut().rev() {
        let saved = graph.value(graph.nodes[*at].inputs[0]);
        let (dtype, shape) = (saved.dtype, saved.shape.clone());
        let value = graph.add_value(dtype, shape, Role::Temporary);
        node.outputs.push(value);
        graph.nodes[*at].inputs[0] = value;
    }
    // All at once: to move the nodes after for each of them takes long where there are many.
    let mut nodes = Vec::with_capacity(graph.nodes.len() + found.len());
    let mut found = found.into_iter().peekable();
    for (at, node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        nodes.extend(found.next_if(|(before, _)| *before == at).map(|(_, again)| again));
        nodes.push(node);
    }
    graph.nodes = nodes;
}

/// What computes the operand of node `at` once more, without its result; `None` if that is not to be.
fn again(graph: &Graph, links: &Links, at: usize, at_once: &AtOnce) -> Option<Node> {
    let node = &graph.nodes[at];
    let Op::ActivationGrad(act) = &node.op else { return None };
    let &[saved, dz] = &node.inputs[..] else { return None };
    // The gradient of what clamps is the same from its operand as from its result.
    let clamped =
        |maker: usize| act.act.facts().clamps && graph.nodes[maker].op == ActivationOp { act: act.act }.into();
    let forward = links.maker(saved).filter(|maker| clamped(*maker));
    let y = forward.map_or(saved, |forward| graph.nodes[forward].inputs[0]);
    let norm = &graph.nodes[links.maker(y)?];
    let Op::BatchNorm(op) = &norm.op else { return None };
    let is_forward = |reader: usize| matches!(graph.nodes[reader].op, Op::Activation(_));
    let alone = match *links.readers(y) {
        [f] => forward == Some(f),
        [f, b] => is_forward(f) && b == at,
        _ => false,
    };
    if y != norm.outputs[0] || graph.value(y).role != Role::Temporary || !alone {
        return None;
    }
    let &[reader] = links.readers(node.outputs[0]) else { return None };
    let gradient = &graph.nodes[reader];
    let Op::BatchNormGrad(grad) = &gradient.op else { return None };
    let (x, mean, invstd) = (norm.inputs[0], norm.outputs[1], norm.outputs[2]);
    if [x, node.outputs[0], mean, invstd] != gradient.inputs[..4] {
        return None;
    }
    let parameters = if op.affine { &norm.inputs[1..3] } else { &[] };
    let inputs: Vec<ValueId> = [&[x, mean, invstd], parameters].concat();
    // The group that is to come of it.
    let again = BatchNormApply { affine: op.affine };
    let own = inputs.len();
    let mut from = vec![Source::Operand(0), Source::Step(1), Source::Operand(1), Source::Operand(2)];
    from.extend(op.affine.then_some(Source::Operand(3)));
    let mut group = Fused::of(again.clone().into(), own)
        .then(act.clone(), vec![Source::Step(0), Source::Operand(own)])
        .then(grad.clone(), from);
    if op.affine {
        group = group.with_result(2, 1).with_result(2, 2);
    }
    let operands: Vec<&Value> = inputs.iter().chain([&dz]).map(|v| graph.value(*v)).collect();
    let Node { origin, backward, .. } = node;
    at_once(&group.into(), &operands).then_some(Node {
        op: again.into(),
        inputs,
        outputs: Vec::new(),
        origin: *origin,
        backward: *backward,
    })
}

#[cfg(test)]
mod tests;
