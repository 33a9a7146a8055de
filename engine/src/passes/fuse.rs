//! The fusion pass: an activation becomes part of the operation before it and costs no trip through memory.

use super::Kernels;
use crate::graph::op::{Activation, ActivationGrad, Conv2dGradInput, GradAfter, LinearGradInput};
use crate::graph::{DType, Graph, Op, Role};

/// Moves activations into the `act` field of the operation whose result they read, where nothing else reads that
/// result: no other layer, no host, and in a training graph no gradient rule
/// ([`Activation::grad_from_output`] says which activations are differentiated without it). Run it after the gradient
/// pass; the gradient rules refuse fused operations.
///
/// The gradient of a ReLU likewise becomes part of the product that makes the gradient by its output, on devices that have a
/// kernel for that.
///
/// The operation keeps its place and origin, and writes the activation's output. Values keep their numbers; the result
/// before the activation is no longer computed.
pub fn fuse(graph: &mut Graph, kernels: Kernels) {
    let mut readers = vec![0usize; graph.values.len()];
    for input in graph.nodes.iter().flat_map(|n| &n.inputs) {
        readers[input.index()] += 1;
    }
    let mut maker: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut keep = Vec::with_capacity(graph.nodes.len());
    for at in 0..graph.nodes.len() {
        let node = &graph.nodes[at];
        let mut fused = false;
        if let Op::Activation(op) = &node.op {
            let (act, input, output) = (op.act, node.inputs[0], node.outputs[0]);
            let alone = readers[input.index()] == 1 && graph.value(input).role == Role::Temporary;
            if let Some(before) = maker[input.index()].filter(|_| alone)
                && let Some(field) = act_field(&mut graph.nodes[before].op)
                && field.is_none()
            {
                *field = Some(act);
                graph.nodes[before].outputs[0] = output;
                fused = true;
            }
        }
        let node = &graph.nodes[at];
        if let Op::ActivationGrad(ActivationGrad { act: Activation::Relu }) = &node.op {
            let (saved, input, output) = (node.inputs[0], node.inputs[1], node.outputs[0]);
            let alone = readers[input.index()] == 1 && graph.value(input).role == Role::Temporary;
            if let Some(before) = maker[input.index()].filter(|_| alone && graph.value(output).dtype == DType::F32)
                && maker[saved.index()].is_none_or(|maker| maker < before)
                && let Some(op) = with_relu(&graph.nodes[before].op).filter(|op| kernels(op))
            {
                graph.nodes[before].op = op;
                graph.nodes[before].inputs.push(saved);
                graph.nodes[before].outputs[0] = output;
                fused = true;
            }
        }
        // Only first outputs go through the activation.
        if let Some(output) = graph.nodes[at].outputs.first() {
            maker[output.index()] = Some(at);
        }
        keep.push(!fused);
    }
    let mut keep = keep.into_iter();
    graph.nodes.retain(|_| keep.next() == Some(true));
}

/// The gradient by an input with that of a ReLU behind it.
fn with_relu(op: &Op) -> Option<Op> {
    Some(match op {
        Op::LinearGradInput(op) if !op.after.relu => {
            LinearGradInput { after: GradAfter { relu: true, ..op.after } }.into()
        }
        Op::Conv2dGradInput(op) if !op.after.relu => {
            Conv2dGradInput { after: GradAfter { relu: true, ..op.after }, ..op.clone() }.into()
        }
        _ => return None,
    })
}

/// The activation that an operation can apply to its first output.
fn act_field(op: &mut Op) -> Option<&mut Option<Activation>> {
    match op {
        Op::Conv2d(op) => Some(&mut op.act),
        Op::Conv2dNorm(op) => Some(&mut op.conv.act),
        Op::Linear(op) => Some(&mut op.act),
        Op::BatchNorm(op) => Some(&mut op.act),
        Op::BatchNormInfer(op) => Some(&mut op.act),
        Op::Binary(op) => Some(&mut op.act),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{ActivationOp, Linear, Softmax};
    use crate::graph::{Shape, ValueId, VarId, verify};
    use crate::passes::grad::backward;

    /// `act(x · wᵀ)`: the graph, the product, the result, and a gradient for the result.
    fn layer(act: Activation) -> (Graph, ValueId, ValueId, ValueId) {
        let mut g = Graph::new();
        let x = g.add_value(DType::F32, Shape::from([2, 3]), Role::State(VarId(0)));
        let w = g.add_value(DType::F32, Shape::from([4, 3]), Role::Parameter(VarId(1)));
        let dy = g.add_value(DType::F32, Shape::from([2, 4]), Role::State(VarId(2)));
        let h = g.add1(Linear::default(), &[x, w]).unwrap();
        let y = g.add1(ActivationOp { act }, &[h]).unwrap();
        (g, h, y, dy)
    }

    fn names(mut g: Graph) -> Vec<&'static str> {
        fuse(&mut g, &|_| true);
        verify(&g).unwrap();
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    #[test]
    fn what_is_differentiated_from_its_output_is_fused_for_training() {
        for (act, nodes) in [
            (Activation::Relu, vec!["linear", "activation_grad", "linear_grad_weight"]),
            (Activation::Silu, vec!["linear", "silu", "activation_grad", "linear_grad_weight"]),
        ] {
            let (mut g, _, y, dy) = layer(act);
            backward(&mut g, &[(y, dy)], &[ValueId(1)]).unwrap();
            assert_eq!(names(g), nodes);
            // Without a gradient there is no second reader.
            let (g, ..) = layer(act);
            assert_eq!(names(g), ["linear"]);
        }
    }

    #[test]
    fn a_result_that_is_wanted_itself_stays() {
        let (mut g, h, ..) = layer(Activation::Relu);
        g.values[h.index()].role = Role::Output;
        assert_eq!(names(g), ["linear", "relu"]);
        let (mut g, h, ..) = layer(Activation::Relu);
        g.add1(Softmax {}, &[h]).unwrap();
        assert_eq!(names(g), ["linear", "relu", "softmax"]);
    }

    #[test]
    fn an_operation_takes_one_activation() {
        let (mut g, _, y, _) = layer(Activation::Relu);
        g.add1(ActivationOp { act: Activation::Tanh }, &[y]).unwrap();
        assert_eq!(names(g), ["linear", "tanh"]);
    }

    /// Two layers with a ReLU between, and their gradients.
    #[test]
    fn the_gradient_of_a_relu_joins_the_product_before() {
        for kernels in [true, false] {
            let (mut g, _, y, _) = layer(Activation::Relu);
            let w = g.add_value(DType::F32, Shape::from([5, 4]), Role::Parameter(VarId(3)));
            let z = g.add1(Linear::default(), &[y, w]).unwrap();
            let dz = g.add_value(DType::F32, Shape::from([2, 5]), Role::State(VarId(4)));
            backward(&mut g, &[(z, dz)], &[ValueId(1)]).unwrap();
            fuse(&mut g, &|_| kernels);
            verify(&g).unwrap();
            let names: Vec<_> = g.nodes.iter().map(|n| n.op.rules().name()).collect();
            let expected: &[&str] = match kernels {
                true => &["linear", "linear", "linear_grad_input", "linear_grad_weight"],
                false => &["linear", "linear", "linear_grad_input", "activation_grad", "linear_grad_weight"],
            };
            assert_eq!(names, expected);
        }
    }
}
