//! Normalised values that those who read them compute.

use super::AtOnce;
use crate::graph::op::{BatchNorm, BatchNormApply, Fused, Source};
use crate::graph::{Graph, Node, Op, Role, Value};
use crate::passes::edit::{Links, remove};

/// Batch normalisation, with an activation after it or not, becomes a part of each convolution and of each gradient by a
/// convolution's weight that reads it, if nothing else reads it and the device does each of these groups at once. In its place
/// are only the statistics made.
pub fn by_readers(graph: &mut Graph, at_once: &AtOnce) {
    let links = Links::of(graph);
    let mut gone = vec![false; graph.nodes.len()];
    for at in 0..graph.nodes.len() {
        let Op::BatchNorm(op) = graph.nodes[at].op.clone() else { continue };
        let Some(Spread { act, groups }) = spread(graph, &links, at, &op, at_once) else { continue };
        graph.nodes[at] = super::split::statistics(&graph.nodes[at], &op);
        act.into_iter().for_each(|act| gone[act] = true);
        groups.into_iter().for_each(|(reader, group)| graph.nodes[reader] = group);
    }
    remove(graph, &gone);
}

/// What becomes of a normalisation.
struct Spread {
    /// The node of the activation after it, which goes too.
    act: Option<usize>,
    /// The readers, each with what takes its place.
    groups: Vec<(usize, Node)>,
}

/// What becomes of the normalisation at `at`; `None` if it stays.
fn spread(graph: &Graph, links: &Links, at: usize, op: &BatchNorm, at_once: &AtOnce) -> Option<Spread> {
    let norm = &graph.nodes[at];
    let &[y, mean, invstd] = &norm.outputs[..] else { return None };
    let act = match links.readers(y) {
        &[reader] if matches!(graph.nodes[reader].op, Op::Activation(_)) => Some(reader),
        _ => None,
    };
    let value = act.map_or(y, |act| graph.nodes[act].outputs[0]);
    let readers = links.readers(value);
    if readers.is_empty() || [y, value].iter().any(|v| graph.value(*v).role != Role::Temporary) {
        return None;
    }
    let parameters = if op.affine { &norm.inputs[1..3] } else { &[] };
    let again = [&[norm.inputs[0], mean, invstd], parameters].concat();
    let groups = readers.iter().map(|reader| {
        let node = &graph.nodes[*reader];
        if node.inputs[0] != value || node.inputs[1..].iter().any(|v| *v == value || again.contains(v)) {
            return None;
        }
        let own = again.len();
        let mut group = Fused::of(BatchNormApply { affine: op.affine }.into(), own);
        if let Some(act) = act {
            group = group.then(graph.nodes[act].op.clone(), vec![Source::Step(0)]);
        }
        let last = group.steps.len();
        let rest = (own..own + node.inputs.len() - 1).map(Source::Operand);
        group = group.then(node.op.clone(), [Source::Step(last - 1)].into_iter().chain(rest).collect());
        for output in 1..node.outputs.len() {
            group = group.with_result(last, output);
        }
        let inputs = [&again[..], &node.inputs[1..]].concat();
        let operands: Vec<&Value> = inputs.iter().map(|v| graph.value(*v)).collect();
        let op: Op = group.into();
        let Node { ref outputs, origin, backward, .. } = *node;
        at_once(&op, &operands).then(|| (*reader, Node { op, inputs, outputs: outputs.clone(), origin, backward }))
    });
    Some(Spread { act, groups: groups.collect::<Option<_>>()? })
}
