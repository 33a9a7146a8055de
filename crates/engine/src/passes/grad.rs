//! The gradient pass: one reverse walk over the graph that asks every operation for its gradient rule.

use crate::graph::op::{Binary, BinaryKind, GradContext};
use crate::graph::{Graph, Node, ShapeError, ValueId};

/// Adds to `graph` the operations that compute the gradients of `wrt`, and returns them in that order.
///
/// `seeds` are the ends of the walk: pairs of a value and its gradient (of the value's shape), such as the loss and a one.
/// A value of `wrt` that no seed depends on, or that is not made of floats, has no gradient: `None`.
///
/// Nodes are visited from the last to the first, and nothing is drawn or hashed, so the same graph always grows the same
/// way. What is added counts as backward ([`Graph::in_backward`]) and belongs to the layer that is differentiated.
/// Gradients that meet at one value are added in the order in which the walk finds them.
///
/// # Errors
/// An operation between a seed and `wrt` has no gradient rule.
pub fn backward(
    graph: &mut Graph,
    seeds: &[(ValueId, ValueId)],
    wrt: &[ValueId],
) -> Result<Vec<Option<ValueId>>, ShapeError> {
    let (origin, in_backward) = (graph.current_origin, graph.in_backward);
    graph.in_backward = true;
    let result = walk(graph, seeds, wrt);
    graph.current_origin = origin;
    graph.in_backward = in_backward;
    result
}

fn walk(graph: &mut Graph, seeds: &[(ValueId, ValueId)], wrt: &[ValueId]) -> Result<Vec<Option<ValueId>>, ShapeError> {
    let needed = depends_on(graph, wrt);
    let mut grads = vec![None; graph.values.len()];
    let nodes = graph.nodes.len();
    for (value, grad) in seeds {
        meet(graph, &mut grads, *value, *grad)?;
    }
    for at in (0..nodes).rev() {
        let node = &graph.nodes[at];
        let has_grad = node.outputs.first().is_some_and(|o| grads[o.index()].is_some());
        let needs: Vec<bool> = node.inputs.iter().map(|i| needed[i.index()]).collect();
        if !has_grad || !needs.contains(&true) {
            continue;
        }
        let Node { op, inputs, outputs, origin, .. } = node.clone();
        graph.current_origin = origin;
        let dys: Vec<Option<ValueId>> = outputs.iter().map(|o| grads[o.index()]).collect();
        let dxs = op.rules().grad(&mut GradContext {
            graph,
            inputs: &inputs,
            outputs: &outputs,
            grads: &dys,
            needs: &needs,
        })?;
        for ((input, dx), need) in inputs.iter().zip(dxs).zip(needs) {
            if let (Some(dx), true) = (dx, need) {
                meet(graph, &mut grads, *input, dx)?;
            }
        }
    }
    Ok(wrt.iter().map(|v| if needed[v.index()] { grads[v.index()] } else { None }).collect())
}

/// For every value, whether it is differentiable and depends on one of `wrt`.
fn depends_on(graph: &Graph, wrt: &[ValueId]) -> Vec<bool> {
    let is_real = |v: &ValueId| graph.value(*v).dtype.is_activation();
    let mut needed = vec![false; graph.values.len()];
    for v in wrt {
        needed[v.index()] = is_real(v);
    }
    for node in &graph.nodes {
        if node.inputs.iter().any(|i| needed[i.index()]) {
            for o in node.outputs.iter().filter(|o| is_real(o)) {
                needed[o.index()] = true;
            }
        }
    }
    needed
}

/// Adds `grad` to the gradient by `value` so far.
fn meet(graph: &mut Graph, grads: &mut [Option<ValueId>], value: ValueId, grad: ValueId) -> Result<(), ShapeError> {
    debug_assert_eq!(graph.shape(value), graph.shape(grad), "a gradient has the shape of its value");
    let sum = match grads[value.index()] {
        None => grad,
        Some(before) => graph.add1(Binary { kind: BinaryKind::Add }, &[before, grad])?,
    };
    grads[value.index()] = Some(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Activation, ActivationGrad, ActivationOp, Linear, Softmax};
    use crate::graph::{DType, Role, Shape, VarId, verify};

    const ADD: Binary = Binary { kind: BinaryKind::Add };

    fn parameter(g: &mut Graph, id: u32, shape: impl Into<Shape>) -> ValueId {
        g.add_value(DType::F32, shape.into(), Role::Parameter(VarId(id)))
    }

    fn names(g: &Graph) -> Vec<&'static str> {
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    #[test]
    fn only_what_is_wanted_is_differentiated() {
        let mut g = Graph::new();
        let x = parameter(&mut g, 0, [2, 3]);
        let w1 = parameter(&mut g, 1, [4, 3]);
        let w2 = parameter(&mut g, 2, [5, 4]);
        let dy = parameter(&mut g, 3, [2, 5]);
        g.set_origin("first");
        let h = g.add1(Linear::default(), &[x, w1]).unwrap();
        g.set_origin("second");
        let y = g.add1(Linear::default(), &[h, w2]).unwrap();
        g.set_origin("elsewhere");
        let origin = g.current_origin;

        let grads = backward(&mut g, &[(y, dy)], &[w2, x]).unwrap();
        verify(&g).unwrap();
        // The first layer's weight is left alone.
        let expected = ["linear", "linear", "linear_grad_input", "linear_grad_weight", "linear_grad_input"];
        assert_eq!(names(&g), expected);
        assert_eq!(grads, [Some(g.nodes[3].outputs[0]), Some(g.nodes[4].outputs[0])]);
        assert!(g.nodes[..2].iter().all(|n| !n.backward) && g.nodes[2..].iter().all(|n| n.backward));
        let origins: Vec<&str> = g.nodes.iter().map(|n| g.origin(n)).collect();
        assert_eq!(origins, ["first", "second", "second", "second", "first"]);
        assert!(!g.in_backward && g.current_origin == origin);
    }

    #[test]
    fn gradients_that_meet_are_added() {
        let mut g = Graph::new();
        let x = parameter(&mut g, 0, [2, 3]);
        let dy = parameter(&mut g, 1, [2, 3]);
        let a = g.add1(ActivationOp { act: Activation::Tanh }, &[x]).unwrap();
        let b = g.add1(ADD, &[a, x]).unwrap();
        // Twice the same operand, and two seeds for one value.
        let y = g.add1(ADD, &[b, b]).unwrap();
        let grads = backward(&mut g, &[(y, dy), (y, dy)], &[x]).unwrap();
        verify(&g).unwrap();
        assert_eq!(names(&g)[3..], ["add", "add", "activation_grad", "add"]);
        assert_eq!(grads, [Some(g.nodes[6].outputs[0])]);
    }

    #[test]
    fn what_no_seed_depends_on_has_no_gradient() {
        let mut g = Graph::new();
        let x = parameter(&mut g, 0, [2, 3]);
        let other = parameter(&mut g, 1, [2, 3]);
        let labels = g.add_value(DType::I32, Shape::from([2]), Role::Parameter(VarId(2)));
        let dy = parameter(&mut g, 3, [2, 3]);
        let y = g.add1(Softmax {}, &[x]).unwrap();
        g.add1(Softmax {}, &[other]).unwrap();
        let grads = backward(&mut g, &[(y, dy)], &[other, labels, y]).unwrap();
        assert_eq!(grads, [None, None, Some(dy)]);
        assert_eq!(g.nodes.len(), 2);
    }

    #[test]
    fn an_operation_without_a_rule_is_an_error_only_on_the_way() {
        let mut g = Graph::new();
        let x = parameter(&mut g, 0, [2, 3]);
        let dy = parameter(&mut g, 1, [2, 3]);
        let y = g.add1(ActivationGrad { act: Activation::Tanh }, &[x, x]).unwrap();
        assert!(backward(&mut g, &[(y, dy)], &[x]).is_err());
        assert!(!g.in_backward);
        assert_eq!(backward(&mut g, &[(y, dy)], &[dy]).unwrap(), [None]);
    }
}
