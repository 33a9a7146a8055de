//! The simplification pass: removes copies that change nothing, and results that nothing reads.
//!
//! Every rewrite leaves every bit of every result as it was.

use crate::graph::op::{Permute, Reshape};
use crate::graph::{DType, Graph, Op, Role, Shape, ValueId};

/// Merges or removes operations that only move elements, then removes dead nodes: those that update nothing, and none of
/// whose outputs is read by another node or has [`Role::Output`].
///
/// Values keep their numbers; those that are no longer computed have no node any more. A value that the host reads is
/// therefore safe only with [`Role::Output`].
pub fn simplify(graph: &mut Graph) {
    merge_moves(graph);
    remove_dead(graph);
}

/// One walk forward: nodes read the source of a chain of moves rather than its end.
fn merge_moves(graph: &mut Graph) {
    let mut stand_in: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
    let mut maker: Vec<Option<usize>> = vec![None; graph.values.len()];
    // A variable that is updated somewhere may hold something else by the time the end of the chain is read.
    let updated = updated(graph);
    for at in 0..graph.nodes.len() {
        for input in &mut graph.nodes[at].inputs {
            *input = stand_in[input.index()];
        }
        // Each rewrite shortens the chain or makes a reshape of a permutation, so this ends.
        while let Some((op, source)) = shorter(graph, at, &maker, &updated) {
            graph.nodes[at].op = op;
            graph.nodes[at].inputs[0] = source;
        }
        let node = &graph.nodes[at];
        if let Some(source) = is_identity(graph, at).filter(|s| !updated[s.index()])
            && graph.value(node.outputs[0]).role != Role::Output
        {
            stand_in[node.outputs[0].index()] = source;
        }
        for output in &node.outputs {
            maker[output.index()] = Some(at);
        }
    }
}

/// For every value, whether some node updates it in place.
fn updated(graph: &Graph) -> Vec<bool> {
    let mut updated = vec![false; graph.values.len()];
    for node in &graph.nodes {
        for m in node.op.rules().mutates(node.inputs.len()) {
            updated[node.inputs[m].index()] = true;
        }
    }
    updated
}

/// A cheaper operation in the place of node `at`, with its operand: one further back, or a cheaper form of the same.
fn shorter(graph: &Graph, at: usize, maker: &[Option<usize>], updated: &[bool]) -> Option<(Op, ValueId)> {
    let node = &graph.nodes[at];
    let input = *node.inputs.first()?;
    if let Op::Permute(op) = &node.op
        && !updated[input.index()]
        && keeps_order(&op.perm, graph.shape(input))
    {
        return Some((Reshape { shape: graph.shape(node.outputs[0]).clone() }.into(), input));
    }
    let before = &graph.nodes[maker[input.index()]?];
    let source = *before.inputs.first()?;
    if updated[source.index()] {
        return None;
    }
    match (&node.op, &before.op) {
        (Op::Reshape(_), Op::Reshape(_)) => Some((node.op.clone(), source)),
        (Op::Permute(second), Op::Permute(first)) => {
            let perm = second.perm.iter().map(|axis| first.perm[*axis]).collect();
            Some((Permute { perm }.into(), source))
        }
        // 32 bits hold every number of 16, so there and back changes nothing.
        (Op::Cast(_), Op::Cast(first)) if first.to == DType::F32 => Some((node.op.clone(), source)),
        _ => None,
    }
}

/// True if only axes of length 1 change places, so that no element does.
fn keeps_order(perm: &[usize], shape: &Shape) -> bool {
    perm.iter().filter(|axis| shape.dims()[**axis] != 1).is_sorted()
}

/// The operand of node `at` if its output is the same again.
fn is_identity(graph: &Graph, at: usize) -> Option<ValueId> {
    let node = &graph.nodes[at];
    let same_shape = || graph.shape(node.inputs[0]) == graph.shape(node.outputs[0]);
    let identity = match &node.op {
        Op::Reshape(_) | Op::Slice(_) | Op::Pad(_) => same_shape(),
        Op::Concat(_) => node.inputs.len() == 1,
        Op::Permute(op) => op.perm.is_sorted(),
        Op::Dropout(op) => op.p == 0.0,
        Op::Cast(op) => op.to == graph.value(node.inputs[0]).dtype,
        _ => false,
    };
    identity.then(|| node.inputs[0])
}

/// One walk backward over the nodes that have an effect.
fn remove_dead(graph: &mut Graph) {
    let mut read: Vec<bool> = graph.values.iter().map(|v| v.role == Role::Output).collect();
    let mut live = vec![false; graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate().rev() {
        let updates = !node.op.rules().mutates(node.inputs.len()).is_empty();
        live[at] = updates || node.outputs.iter().any(|o| read[o.index()]);
        if live[at] {
            for input in &node.inputs {
                read[input.index()] = true;
            }
        }
    }
    let mut live = live.into_iter();
    graph.nodes.retain(|_| live.next() == Some(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{AccumulateGrad, Activation, ActivationOp, Cast, Concat, Dropout, Slice, Softmax};
    use crate::graph::{VarId, verify};

    fn variable(g: &mut Graph, id: u32, shape: impl Into<Shape>) -> ValueId {
        g.add_value(DType::F32, shape.into(), Role::State(VarId(id)))
    }

    /// The names of the nodes after the pass, with `last` as the only output.
    fn names(mut g: Graph, last: ValueId) -> Vec<&'static str> {
        g.values[last.index()].role = Role::Output;
        simplify(&mut g);
        verify(&g).unwrap();
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    #[test]
    fn moves_that_cancel_are_dropped() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 3, 4, 5]);
        let a = g.add1(Permute { perm: vec![0, 3, 1, 2] }, &[x]).unwrap();
        let b = g.add1(Permute { perm: vec![0, 2, 3, 1] }, &[a]).unwrap();
        let c = g.add1(Reshape { shape: Shape::from([6, 20]) }, &[b]).unwrap();
        let d = g.add1(Reshape { shape: Shape::from([2, 3, 4, 5]) }, &[c]).unwrap();
        let e = g.add1(Slice { axis: 1, start: 0, len: 3 }, &[d]).unwrap();
        let f = g.add1(Concat { axis: 2 }, &[e]).unwrap();
        let key = g.add_value(DType::U32, Shape::from([4]), Role::State(VarId(1)));
        let h = g.add1(Dropout { p: 0.0, stream: 0 }, &[f, key]).unwrap();
        let y = g.add1(Softmax {}, &[h]).unwrap();
        assert_eq!(names(g, y), ["softmax"]);
    }

    #[test]
    fn casts_that_cancel_are_dropped() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 3]);
        let same = g.add1(Cast { to: DType::F32 }, &[x]).unwrap();
        let half = g.add1(Cast { to: DType::F16 }, &[same]).unwrap();
        // What has been rounded stays rounded.
        let single = g.add1(Cast { to: DType::F32 }, &[half]).unwrap();
        let half = g.add1(Cast { to: DType::F16 }, &[single]).unwrap();
        let relu = g.add1(ActivationOp { act: Activation::Relu }, &[half]).unwrap();
        let y = g.add1(Cast { to: DType::F32 }, &[relu]).unwrap();
        assert_eq!(names(g, y), ["cast", "relu", "cast"]);
    }

    #[test]
    fn moves_that_do_not_cancel_become_one() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 3, 4, 5]);
        let a = g.add1(Permute { perm: vec![0, 3, 1, 2] }, &[x]).unwrap();
        let b = g.add1(Permute { perm: vec![1, 0, 2, 3] }, &[a]).unwrap();
        let c = g.add1(Reshape { shape: Shape::from([10, 12]) }, &[b]).unwrap();
        let y = g.add1(Reshape { shape: Shape::from([120]) }, &[c]).unwrap();
        assert_eq!(names(g, y), ["permute", "reshape"]);
    }

    #[test]
    fn flattening_single_pixels_costs_nothing() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 1, 1, 5]);
        let a = g.add1(Permute { perm: vec![0, 3, 1, 2] }, &[x]).unwrap();
        let y = g.add1(Reshape { shape: Shape::from([2, 5]) }, &[a]).unwrap();
        assert_eq!(names(g, y), ["reshape"]);
    }

    #[test]
    fn what_is_read_or_updates_stays() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 3]);
        let sum = variable(&mut g, 1, [2, 3]);
        let lost = g.add1(Softmax {}, &[x]).unwrap();
        g.add1(Softmax {}, &[lost]).unwrap();
        let kept = g.add1(Softmax {}, &[x]).unwrap();
        g.add(AccumulateGrad {}, &[kept, sum]).unwrap();
        // An output, though it is the same as its operand.
        let y = g.add1(Reshape { shape: Shape::from([2, 3]) }, &[kept]).unwrap();
        assert_eq!(names(g, y), ["softmax", "accumulate_grad", "reshape"]);
    }

    #[test]
    fn a_copy_of_what_changes_stays() {
        let mut g = Graph::new();
        let x = variable(&mut g, 0, [2, 3]);
        let sum = variable(&mut g, 1, [2, 3]);
        let before = g.add1(Permute { perm: vec![0, 1] }, &[sum]).unwrap();
        g.add(AccumulateGrad {}, &[x, sum]).unwrap();
        let y = g.add1(Softmax {}, &[before]).unwrap();
        assert_eq!(names(g, y), ["permute", "accumulate_grad", "softmax"]);
    }
}
