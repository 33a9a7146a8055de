//! A graph in which segments are computed again.

use super::Segments;
use crate::graph::op::{BatchNorm, BatchNormApply};
use crate::graph::{Graph, Node, Op, Role, Value, ValueId};
use crate::passes::edit::Links;
use std::collections::HashMap;

/// `graph`, with what is made in `segments` made again where the backward pass needs it first.
pub fn again(graph: &Graph, segments: &Segments) -> Graph {
    let needs = Needs::of(graph, segments);
    let mut copies: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, segment) in segments.iter().enumerate() {
        if let Some(segment) = segment.filter(|_| needs.again[at]) {
            copies.entry(segment).or_default().push(at);
        }
    }
    let mut copied = graph.clone();
    // What the backward pass reads in the place of what, and the node before which that is made.
    let mut stand_in: HashMap<ValueId, ValueId> = HashMap::new();
    let mut made: HashMap<usize, Vec<Node>> = HashMap::new();
    let mut order: Vec<usize> = copies.keys().copied().collect();
    order.sort_unstable();
    for segment in order {
        let nodes: Vec<Node> = copies[&segment].iter().map(|at| copy(&mut copied, *at, &mut stand_in)).collect();
        let of_segment = |v: &&ValueId| needs.links.maker(**v).is_some_and(|maker| segments[maker] == Some(segment));
        let reads = |node: &Node| node.inputs.iter().filter(of_segment).any(|v| stand_in.contains_key(v));
        let first = graph.nodes.iter().position(|node| node.backward && reads(node));
        made.entry(first.unwrap_or(graph.nodes.len())).or_default().extend(nodes);
    }
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for (at, node) in std::mem::take(&mut copied.nodes).into_iter().enumerate() {
        nodes.extend(made.remove(&at).into_iter().flatten());
        let mut node = node;
        if node.backward {
            redirect(&mut node.inputs, &stand_in);
        }
        nodes.push(node);
    }
    copied.nodes = nodes;
    copied
}

fn redirect(inputs: &mut [ValueId], stand_in: &HashMap<ValueId, ValueId>) {
    for input in inputs {
        *input = stand_in.get(input).copied().unwrap_or(*input);
    }
}

/// Node `at` once more, with new values for its results: activations like those that it made first.
fn copy(graph: &mut Graph, at: usize, stand_in: &mut HashMap<ValueId, ValueId>) -> Node {
    let Node { op, mut inputs, mut outputs, origin, backward } = graph.nodes[at].clone();
    let op = match op {
        Op::BatchNorm(BatchNorm { affine, .. }) => {
            let parameters = if affine { &inputs[1..3] } else { &[] };
            inputs = [&inputs[..1], &outputs[1..], parameters].concat();
            outputs.truncate(1);
            BatchNormApply { affine }.into()
        }
        op => op,
    };
    redirect(&mut inputs, stand_in);
    for output in &mut outputs {
        let Value { dtype, shape, .. } = graph.value(*output).clone();
        let value = graph.add_value(dtype, shape, Role::Temporary);
        stand_in.insert(std::mem::replace(output, value), value);
    }
    Node { op, inputs, outputs, origin, backward }
}

/// What is made again.
struct Needs {
    links: Links,
    /// For every node.
    again: Vec<bool>,
}

impl Needs {
    fn of(graph: &Graph, segments: &Segments) -> Needs {
        let links = Links::of(graph);
        let kept = kept(graph, segments, &links);
        let mut again = vec![false; graph.nodes.len()];
        // From behind, so that readers come before what they read.
        for at in (0..graph.nodes.len()).rev() {
            let Some(segment) = segments[at].filter(|_| is_repeatable(&graph.nodes[at])) else { continue };
            let needed = |(i, output): (usize, &ValueId)| {
                let free = !kept[output.index()];
                let mut readers = links.readers(*output).iter();
                // A further result, such as a mean, is small, and does not make an operation worth repeating.
                free && readers
                    .any(|r| (i == 0 && graph.nodes[*r].backward) || (segments[*r] == Some(segment) && again[*r]))
            };
            again[at] = graph.nodes[at].outputs.iter().enumerate().any(needed);
        }
        Needs { links, again }
    }
}

/// Whether running `node` twice does no more than once. Of batch normalisation, that is the part after its statistics.
pub fn is_repeatable(node: &Node) -> bool {
    matches!(node.op, Op::BatchNorm(_)) || node.op.rules().mutates(node.inputs.len()).is_empty()
}

/// For every value whether its memory is needed until the backward pass in any case, as something outside its segment reads it, or
/// the host.
fn kept(graph: &Graph, segments: &Segments, links: &Links) -> Vec<bool> {
    let roots = graph.roots();
    let mut kept = vec![false; graph.values.len()];
    for (at, root) in roots.iter().enumerate() {
        let value = ValueId(at as u32);
        let home = links.maker(*root).and_then(|maker| segments[maker]);
        let outside = |r: &usize| !graph.nodes[*r].backward && segments[*r] != home;
        let own = graph.value(value).role == Role::Temporary && home.is_some();
        if !own || links.readers(value).iter().any(outside) {
            kept[root.index()] = true;
        }
    }
    roots.iter().map(|root| kept[root.index()]).collect()
}
