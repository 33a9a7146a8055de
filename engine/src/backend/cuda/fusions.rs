//! What the CUDA backend does at once.

use crate::graph::Op;
use crate::graph::op::{Activation, Fused, Pattern, Source, Step};

/// Most operations of an element-wise group: as many as its kernel has room for.
const MAX_STEPS: usize = 12;

/// In the order in which they are looked for.
pub static FUSIONS: [Pattern; 2] = [
    // Activations with what makes their operand.
    Pattern {
        name: "fuse",
        has: |op| is_head(op) || matches!(op, Op::Activation(_)),
        takes: |group| activated(group.op).is_some(),
        repeats: |_| false,
    },
    // Element-wise operations.
    Pattern {
        name: "chain",
        has: |op| op.element_wise().is_some(),
        takes: |group| group.op.steps.len() <= MAX_STEPS && group.is_element_wise(),
        repeats: |_| false,
    },
];

fn is_head(op: &Op) -> bool {
    matches!(op, Op::Linear(_) | Op::Conv2d(_) | Op::BatchNorm(_) | Op::BatchNormInfer(_) | Op::Binary(_))
}

/// The operation of a group that has nothing but an activation behind it, which its kernel applies.
pub fn activated(op: &Fused) -> Option<(&Op, Activation)> {
    match &op.steps[..] {
        [Step { op: head, from: operands }, Step { op: Op::Activation(act), from }] => {
            let in_order = operands.iter().copied().eq((0..operands.len()).map(Source::Operand));
            // What lies between is not written.
            let alone = op.results.iter().all(|r| r.step == 1 || r.output > 0);
            (is_head(head) && in_order && alone && is_joined(act.act) && from[..] == [Source::Step(0)])
                .then_some((head, act.act))
        }
        _ => None,
    }
}

/// Whether the kernels of products, normalisations and sums have the formula: `activate` in `engine/kernels/common.cuh`. Those of
/// element-wise operations and groups have all of them. In every kernel the rest would make what is packed a fifth larger; and most
/// of them need their operand for the gradient, so that nothing joins them in training.
fn is_joined(act: Activation) -> bool {
    match act {
        Activation::Relu
        | Activation::Relu6
        | Activation::Hardtanh { .. }
        | Activation::LeakyRelu { .. }
        | Activation::Elu { .. }
        | Activation::Celu { .. }
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Silu
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Hardsigmoid
        | Activation::Hardswish => true,
        Activation::Mish
        | Activation::Softplus { .. }
        | Activation::Selu
        | Activation::Softsign
        | Activation::LogSigmoid
        | Activation::Tanhshrink
        | Activation::Hardshrink { .. }
        | Activation::Softshrink { .. } => false,
    }
}
