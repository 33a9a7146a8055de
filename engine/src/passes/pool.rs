//! The pooling pass: a convolution and the max-pooling behind it become one operation, and so do their gradients. The
//! image between the two, four times the size of what is left of it, is never stored: neither forward nor backward.

use super::Kernels;
use super::links::Links;
use crate::graph::op::{Conv2d, Conv2dMaxPool, Conv2dMaxPoolGradInput, Conv2dMaxPoolGradWeight, MaxPool2d};
use crate::graph::{DType, Graph, Node, Op, Role, ValueId};
use std::collections::BTreeSet;

/// Joins `conv2d`, `max_pool2d` over windows of 2 × 2 pixels, 2 apart, and the ReLU or ReLU6 behind them (where pass
/// `reorder` puts it), with their backward operations, where nothing else reads what lies between. Run it after the
/// gradient pass; a device that has the forward kernel has the others.
pub fn pool(graph: &mut Graph, kernels: Kernels) {
    let links = Links::of(graph);
    let mut gone = BTreeSet::new();
    for at in 0..graph.nodes.len() {
        if let Some(found) = Found::at(graph, &links, at).filter(|found| kernels(&found.joined(graph))) {
            gone.extend(found.apply(graph));
        }
    }
    let mut at = 0;
    graph.nodes.retain(|_| {
        at += 1;
        !gone.contains(&(at - 1))
    });
}

/// Nodes that can be joined, by their places.
struct Found {
    conv: usize,
    pool: usize,
    /// The activation behind the pooling.
    act: Option<usize>,
    /// What the gradient of the convolution's output is made by, if there is one.
    back: Option<Back>,
}

struct Back {
    /// Gradient of the result of all three.
    dy: ValueId,
    /// The activation's gradient.
    act: Option<usize>,
    pool: usize,
    /// The convolution's gradients.
    conv: Vec<usize>,
}

impl Found {
    /// What belongs to the pooling at `at`.
    fn at(graph: &Graph, links: &Links, at: usize) -> Option<Found> {
        let Op::MaxPool2d(op) = &graph.nodes[at].op else { return None };
        let input = graph.nodes[at].inputs[0];
        let conv = links.maker(input)?;
        let Op::Conv2d(by) = &graph.nodes[conv].op else { return None };
        let fits = by.act.is_none() && in_pairs(graph, op, at) && graph.value(input).dtype == DType::F32;
        if !fits || links.only_reader(graph, input) != Some(at) {
            return None;
        }
        let (pooled, positions) = (graph.nodes[at].outputs[0], graph.nodes[at].outputs[1]);
        let act = links.only_reader(graph, pooled).filter(
            |&reader| matches!(&graph.nodes[reader].op, Op::Activation(op) if Conv2dMaxPool::takes(Some(op.act))),
        );
        let back = match links.readers(positions) {
            [] => None,
            [back] => Some(Back::at(graph, links, *back, act)?),
            _ => return None,
        };
        Some(Found { conv, pool: at, act, back })
    }

    /// The convolution.
    fn conv(&self, graph: &Graph) -> Conv2d {
        let Op::Conv2d(conv) = &graph.nodes[self.conv].op else { unreachable!("found as one") };
        conv.clone()
    }

    /// The forward operation that comes of it.
    fn joined(&self, graph: &Graph) -> Op {
        let act = self.act.map(|at| match &graph.nodes[at].op {
            Op::Activation(op) => op.act,
            _ => unreachable!("found as one"),
        });
        Conv2dMaxPool { conv: Conv2d { act, ..self.conv(graph) } }.into()
    }

    /// Puts the joined operations in; the nodes that are gone.
    fn apply(self, graph: &mut Graph) -> Vec<usize> {
        let (conv, op) = (self.conv(graph), self.joined(graph));
        let (y, positions) = (graph.nodes[self.act.unwrap_or(self.pool)].outputs[0], graph.nodes[self.pool].outputs[1]);
        // In the place of the pooling: the operands are known there, and nobody reads the result before.
        let Node { inputs, origin, backward, .. } = graph.nodes[self.conv].clone();
        graph.nodes[self.pool] = Node { op, inputs, outputs: vec![y, positions], origin, backward };
        let mut gone = vec![self.conv];
        gone.extend(self.act);
        let Some(back) = self.back else { return gone };
        gone.push(back.pool);
        gone.extend(back.act);
        for at in back.conv {
            let node = &mut graph.nodes[at];
            match node.op.clone() {
                Op::Conv2dGradInput(op) => {
                    node.inputs = vec![back.dy, positions, node.inputs[1]];
                    node.op = Conv2dMaxPoolGradInput { conv: conv.clone(), input: op.input }.into();
                }
                Op::Conv2dGradWeight(op) => {
                    node.inputs = vec![node.inputs[0], back.dy, positions];
                    node.op = Conv2dMaxPoolGradWeight { conv: conv.clone(), kernel: op.kernel, bias: op.bias }.into();
                }
                _ => unreachable!("found as gradients of a convolution"),
            }
        }
        gone
    }
}

impl Back {
    /// The backward operations around the pooling's gradient at `at`.
    fn at(graph: &Graph, links: &Links, at: usize, act: Option<usize>) -> Option<Back> {
        let Op::MaxPool2dGrad(_) = graph.nodes[at].op else { return None };
        let mut dy = graph.nodes[at].inputs[0];
        let mut act_back = None;
        if let Some(act) = act {
            let before = links.maker(dy)?;
            let y = graph.nodes[act].outputs[0];
            // Operands of an activation's gradient: what was saved, and the gradient by its output.
            let fits = matches!(graph.nodes[before].op, Op::ActivationGrad(_)) && graph.nodes[before].inputs[0] == y;
            if !fits || links.only_reader(graph, dy) != Some(at) {
                return None;
            }
            dy = graph.nodes[before].inputs[1];
            act_back = Some(before);
        }
        let between = graph.nodes[at].outputs[0];
        let conv = links.readers(between).to_vec();
        let fits = conv.iter().all(|&reader| match graph.nodes[reader].op {
            Op::Conv2dGradInput(_) => graph.nodes[reader].inputs[0] == between,
            Op::Conv2dGradWeight(_) => graph.nodes[reader].inputs[1] == between,
            _ => false,
        });
        (fits && graph.value(between).role == Role::Temporary).then_some(Back { dy, act: act_back, pool: at, conv })
    }
}

/// True for windows of 2 × 2 pixels that touch and lie within the image.
fn in_pairs(graph: &Graph, op: &MaxPool2d, at: usize) -> bool {
    let touch = op.kernel == [2, 2] && op.stride == [2, 2] && op.padding == [0, 0] && op.dilation == [1, 1];
    let node = &graph.nodes[at];
    let (x, y) = (graph.shape(node.inputs[0]).nhwc(), graph.shape(node.outputs[0]).nhwc());
    touch && x.zip(y).is_some_and(|(x, y)| y[1] == x[1] / 2 && y[2] == x[2] / 2)
}
