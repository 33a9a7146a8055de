//! The reordering pass: activations move after the max-pooling that follows them, where there is less to do.

use crate::graph::{Graph, Op, Role};

/// Turns `max_pool(act(x))` into `act(max_pool(x))` where `act` never decreases, so that the maximum is taken at the
/// same place; the activation and its gradient then run over the pooled image. Run it before the gradient pass.
///
/// Where several pixels of a window have the same activation (those that ReLU sets to zero), the gradient goes to the
/// largest of them before the activation rather than to the first; it is zero there in either order.
pub fn reorder(graph: &mut Graph) {
    let mut readers = vec![0usize; graph.values.len()];
    for input in graph.nodes.iter().flat_map(|n| &n.inputs) {
        readers[input.index()] += 1;
    }
    let mut at = 0;
    while at < graph.nodes.len() {
        if let Some(before) = activation_before(graph, &readers, at) {
            let pooled = graph.nodes[at].outputs[0];
            let value = graph.value(pooled);
            let (dtype, shape) = (value.dtype, value.shape.clone());
            let raw = graph.add_value(dtype, shape, Role::Temporary);
            readers.push(1);
            // The activation moves after the pooling, which moves up by one.
            graph.nodes[before..=at].rotate_left(1);
            let [pool, activation] = &mut graph.nodes[at - 1..=at] else { return };
            pool.inputs[0] = activation.inputs[0];
            pool.outputs[0] = raw;
            activation.inputs = vec![raw];
            activation.outputs = vec![pooled];
        }
        at += 1;
    }
}

/// The node before the pooling `at` that can move after it: an activation that never decreases, whose result no other
/// node reads.
fn activation_before(graph: &Graph, readers: &[usize], at: usize) -> Option<usize> {
    let Op::MaxPool2d(_) = graph.nodes[at].op else { return None };
    let input = graph.nodes[at].inputs[0];
    let alone = readers[input.index()] == 1 && graph.value(input).role == Role::Temporary;
    if !alone {
        return None;
    }
    let before = graph.nodes[..at].iter().rposition(|n| n.outputs.contains(&input))?;
    match &graph.nodes[before].op {
        Op::Activation(op) if op.act.facts().keeps_order => Some(before),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::reference::{Values, evaluate};
    use crate::graph::op::{Activation, ActivationOp, MaxPool2d};
    use crate::graph::{DType, Shape, ValueId, VarId, verify};
    use crate::passes::grad::backward;
    use crate::random::{Purpose, Stream};

    fn net(act: Activation, second_reader: bool) -> (Graph, ValueId, ValueId) {
        let mut g = Graph::new();
        let x = g.add_value(DType::F32, Shape::from([2, 5, 7, 3]), Role::State(VarId(0)));
        let a = g.add1(ActivationOp { act }, &[x]).unwrap();
        let pool = MaxPool2d { kernel: [3, 2], stride: [2, 2], padding: [1, 0], dilation: [1, 1], ceil_mode: true };
        let y = g.add1(pool, &[a]).unwrap();
        g.values[y.index()].role = Role::Output;
        if second_reader {
            let z = g.add1(ActivationOp { act: Activation::Tanh }, &[a]).unwrap();
            g.values[z.index()].role = Role::Output;
        }
        (g, x, y)
    }

    fn first_op(g: &Graph) -> &'static str {
        g.nodes[0].op.rules().name()
    }

    #[test]
    fn results_and_gradients_stay() {
        let hardtanh = Activation::Hardtanh { low: -2.0, high: 3.0 };
        let shrink = [Activation::Hardshrink { lambda: 2.0 }, Activation::Softshrink { lambda: 2.0 }];
        let others = [Activation::Relu, Activation::Relu6, Activation::LeakyRelu { slope: 0.1 }, hardtanh];
        for act in others.into_iter().chain(shrink) {
            let (plain, x, y) = net(act, false);
            let mut moved = plain.clone();
            reorder(&mut moved);
            verify(&moved).unwrap();
            assert_eq!(first_op(&moved), "max_pool2d");
            let mut stream = Stream::new(1, Purpose::Synthetic, 0, 0);
            let data: Vec<f64> = (0..plain.shape(x).len()).map(|_| 4.0 * stream.normal()).collect();
            let seed: Vec<f64> = (0..plain.shape(y).len()).map(|_| stream.normal()).collect();
            let run = |mut g: Graph| {
                let dy = g.add_value(DType::F32, g.shape(y).clone(), Role::State(VarId(1)));
                let dx = backward(&mut g, &[(y, dy)], &[x]).unwrap()[0].unwrap();
                let mut values = Values::from([(x, data.clone()), (dy, seed.clone())]);
                evaluate(&g, &mut values);
                (values[&y].clone(), values[&dx].clone())
            };
            assert_eq!(run(plain), run(moved), "{act:?}");
        }
    }

    #[test]
    fn what_others_read_or_what_is_not_monotone_stays() {
        for (act, second) in
            [(Activation::Relu, true), (Activation::Silu, false), (Activation::LeakyRelu { slope: -0.1 }, false)]
        {
            let (mut g, ..) = net(act, second);
            let before = g.clone();
            reorder(&mut g);
            assert_eq!(g, before, "{act:?}");
        }
    }
}
