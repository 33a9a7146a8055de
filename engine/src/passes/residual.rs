//! The residual pass: a sum becomes part of the operation that makes one of its operands, and costs one trip through memory
//! instead of three.

use super::Kernels;
use super::links::Links;
use crate::graph::op::{
    BatchNorm, BatchNormInfer, Binary, BinaryKind, Conv2d, Conv2dGradInput, Conv2dNorm, GradAfter, Linear,
    LinearGradInput,
};
use crate::graph::{DType, Graph, Node, Op, ValueId};

/// Joins sums of two values of one shape with the convolution, linear layer or batch normalisation that makes the later one
/// of them, or with the gradient by the input of one of the first two, where nothing else reads that. Run it after the gradient pass, and before activations are joined.
pub fn residual(graph: &mut Graph, kernels: Kernels) {
    let links = Links::of(graph);
    let mut gone = vec![false; graph.nodes.len()];
    for at in 0..graph.nodes.len() {
        if let Some((before, op, summand)) = found(graph, &links, at).filter(|(_, op, _)| kernels(op)) {
            // In the place of the sum, where both operands are known.
            let Node { mut inputs, mut outputs, origin, backward, .. } = graph.nodes[before].clone();
            inputs.push(summand);
            outputs[0] = graph.nodes[at].outputs[0];
            graph.nodes[at] = Node { op, inputs, outputs, origin, backward };
            gone[before] = true;
        }
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| gone.next() != Some(true));
}

/// What the sum at `at` can be joined with: the node, the operation that comes of it, and the other operand.
fn found(graph: &Graph, links: &Links, at: usize) -> Option<(usize, Op, ValueId)> {
    let node = &graph.nodes[at];
    let Op::Binary(Binary { kind: BinaryKind::Add, act: None }) = node.op else { return None };
    let [a, b] = [node.inputs[0], node.inputs[1]];
    let whole = |v: ValueId| graph.value(v).dtype == DType::F32 && graph.shape(v) == graph.shape(node.outputs[0]);
    if !whole(a) || !whole(b) {
        return None;
    }
    // The later one, so that no operation moves past a long way of others and keeps its operands waiting.
    let (made, other) = if links.maker(a) > links.maker(b) { (a, b) } else { (b, a) };
    let before = links.maker(made)?;
    let by = &graph.nodes[before];
    let moves = links.only_reader(graph, made) == Some(at)
        && by.outputs[0] == made
        && by.outputs[1..].iter().all(|v| links.readers(*v).iter().all(|reader| *reader > at));
    Some((before, with_summand(&by.op).filter(|_| moves)?, other))
}

/// A gradient with another one added.
const ADDED: GradAfter = GradAfter { residual: true, relu: false };

/// The operation with one more operand, which is added to its result before an activation.
fn with_summand(op: &Op) -> Option<Op> {
    Some(match op {
        Op::Conv2d(op) if op.act.is_none() && !op.residual => Conv2d { residual: true, ..op.clone() }.into(),
        Op::Conv2dNorm(op) if op.conv.act.is_none() && !op.residual => {
            Conv2dNorm { residual: true, ..op.clone() }.into()
        }
        Op::Linear(op) if op.act.is_none() && !op.residual => Linear { residual: true, ..op.clone() }.into(),
        Op::LinearGradInput(op) if op.after == GradAfter::default() => LinearGradInput { after: ADDED }.into(),
        Op::Conv2dGradInput(op) if op.after == GradAfter::default() => {
            Conv2dGradInput { after: ADDED, ..op.clone() }.into()
        }
        Op::BatchNorm(op) if op.act.is_none() && !op.residual => BatchNorm { residual: true, ..op.clone() }.into(),
        Op::BatchNormInfer(op) if op.act.is_none() && !op.residual => {
            BatchNormInfer { residual: true, ..op.clone() }.into()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Activation, ActivationOp};
    use crate::graph::{Role, Shape, VarId, verify};
    use crate::passes::fuse::fuse;

    /// `x`, a weight, and a graph that has nothing else.
    fn start() -> (Graph, ValueId, ValueId) {
        let mut g = Graph::new();
        let x = g.add_value(DType::F32, Shape::from([2, 3]), Role::State(VarId(0)));
        let w = g.add_value(DType::F32, Shape::from([3, 3]), Role::Parameter(VarId(1)));
        (g, x, w)
    }

    fn sum(g: &mut Graph, a: ValueId, b: ValueId) -> ValueId {
        g.add1(Binary { kind: BinaryKind::Add, act: None }, &[a, b]).unwrap()
    }

    fn names(mut g: Graph) -> Vec<&'static str> {
        residual(&mut g, &|_| true);
        fuse(&mut g, &|_| true);
        verify(&g).unwrap();
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    #[test]
    fn a_sum_joins_its_later_operand_on_either_side() {
        for swap in [false, true] {
            let (mut g, x, w) = start();
            let first = g.add1(Linear::default(), &[x, w]).unwrap();
            let second = g.add1(Linear::default(), &[first, w]).unwrap();
            let third = g.add1(Linear::default(), &[second, w]).unwrap();
            let y = if swap { sum(&mut g, third, second) } else { sum(&mut g, second, third) };
            g.add1(ActivationOp { act: Activation::Relu }, &[y]).unwrap();
            residual(&mut g, &|_| true);
            assert_eq!(g.nodes[2].inputs, [second, w, second]);
            assert_eq!(names(g), ["linear", "linear", "linear"]);
        }
    }

    #[test]
    fn what_is_read_elsewhere_or_stretched_stays() {
        let (mut g, x, w) = start();
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        sum(&mut g, y, x);
        g.add1(ActivationOp { act: Activation::Tanh }, &[y]).unwrap();
        assert_eq!(names(g), ["linear", "add", "tanh"]);
        let (mut g, x, w) = start();
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        sum(&mut g, y, y);
        assert_eq!(names(g), ["linear", "add"]);
        let (mut g, x, w) = start();
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        let row = g.add_value(DType::F32, Shape::from([1, 3]), Role::State(VarId(2)));
        sum(&mut g, y, row);
        assert_eq!(names(g), ["linear", "add"]);
    }

    #[test]
    fn an_operation_takes_one_sum() {
        let (mut g, x, w) = start();
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        let y = sum(&mut g, y, x);
        sum(&mut g, y, x);
        assert_eq!(names(g), ["linear", "add"]);
    }

    #[test]
    fn a_device_without_the_kernel_gets_none() {
        let (mut g, x, w) = start();
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        sum(&mut g, y, x);
        let before = g.clone();
        residual(&mut g, &|_| false);
        assert_eq!(g, before);
    }
}
