//! The folding pass: in evaluation batch normalisation is a factor and a summand for each channel, which the convolution
//! before it applies to its sums while they are in registers.

use crate::graph::op::{Conv2d, Conv2dNorm};
use crate::graph::{DType, Graph, Op, Role};
use crate::passes::Kernels;

/// Joins `conv2d` and the `batch_norm_infer` behind it, where nothing else reads what lies between. The
/// normalised image is the same but for rounding.
pub fn fold(graph: &mut Graph, kernels: Kernels) {
    let mut readers = vec![0usize; graph.values.len()];
    for input in graph.nodes.iter().flat_map(|n| &n.inputs) {
        readers[input.index()] += 1;
    }
    let mut maker: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut gone = vec![false; graph.nodes.len()];
    for at in 0..graph.nodes.len() {
        let node = &graph.nodes[at];
        if let Op::BatchNormInfer(norm) = node.op.clone() {
            let input = node.inputs[0];
            let value = graph.value(input);
            let alone = readers[input.index()] == 1 && value.role == Role::Temporary && value.dtype == DType::F32;
            let before = maker[input.index()].filter(|_| alone);
            if let Some((before, Op::Conv2d(conv))) = before.map(|before| (before, graph.nodes[before].op.clone()))
                && conv.act.is_none()
            {
                let conv = Conv2d { act: norm.act, ..conv };
                let joined = Op::from(Conv2dNorm { conv, eps: norm.eps, affine: norm.affine, residual: false });
                if kernels(&joined) {
                    let mut inputs = graph.nodes[before].inputs.clone();
                    inputs.extend(&graph.nodes[at].inputs[1..]);
                    graph.nodes[at].inputs = inputs;
                    graph.nodes[at].op = joined;
                    gone[before] = true;
                }
            }
        }
        for output in &graph.nodes[at].outputs {
            maker[output.index()] = Some(at);
        }
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| gone.next() != Some(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::reference::{Values, evaluate};
    use crate::graph::op::{Activation, ActivationOp, BatchNormInfer};
    use crate::graph::{Shape, ValueId, VarId, verify};
    use crate::random::{Purpose, Stream};

    /// A convolution, normalisation and ReLU on drawn numbers: the graph, its variables, what lies between the first two,
    /// and the result.
    fn net(bias: bool, affine: bool) -> (Graph, Values, ValueId, ValueId) {
        let (mut g, mut values, mut draw) = (Graph::new(), Values::new(), Stream::new(3, Purpose::Synthetic, 0, 0));
        let mut variable = |g: &mut Graph, shape: &[usize]| {
            let id = g.add_value(DType::F32, Shape::from(shape), Role::State(VarId(g.values.len() as u32)));
            let len = shape.iter().product();
            values.insert(id, (0..len).map(|_| 0.5 + draw.uniform()).collect());
            id
        };
        let mut operands = vec![variable(&mut g, &[2, 5, 4, 3]), variable(&mut g, &[6, 3, 3, 3])];
        operands.extend(bias.then(|| variable(&mut g, &[6])));
        let parameters: Vec<ValueId> = (0..2 + 2 * usize::from(affine)).map(|_| variable(&mut g, &[6])).collect();
        let conv =
            Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias, residual: false, act: None };
        let between = g.add1(conv, &operands).unwrap();
        let norm = BatchNormInfer { eps: 1e-3, affine, residual: false, act: None };
        let y = g.add1(norm, &[&[between], &parameters[..]].concat()).unwrap();
        let y = g.add1(ActivationOp { act: Activation::Relu }, &[y]).unwrap();
        g.values[y.index()].role = Role::Output;
        (g, values, between, y)
    }

    fn names(g: &Graph) -> Vec<&'static str> {
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    #[test]
    fn a_normalised_convolution_is_one_operation() {
        for (bias, affine) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut g, mut before, _, y) = net(bias, affine);
            let mut after = before.clone();
            evaluate(&g, &mut before);
            fold(&mut g, &|_| true);
            verify(&g).unwrap();
            assert_eq!(names(&g), ["conv2d_norm", "relu"]);
            evaluate(&g, &mut after);
            assert_eq!(before[&y], after[&y]);
        }
    }

    #[test]
    fn what_is_read_elsewhere_stays() {
        let (mut g, _, between, _) = net(true, true);
        g.add1(ActivationOp { act: Activation::Tanh }, &[between]).unwrap();
        fold(&mut g, &|_| true);
        assert_eq!(names(&g), ["conv2d", "batch_norm_infer", "relu", "tanh"]);
        let (mut g, _, between, _) = net(true, true);
        g.values[between.index()].role = Role::Output;
        fold(&mut g, &|_| true);
        assert_eq!(names(&g), ["conv2d", "batch_norm_infer", "relu"]);
    }
}
