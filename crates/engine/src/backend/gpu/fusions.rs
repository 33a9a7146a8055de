//! What GPUs do at once: the groups of operations that have a kernel.

use super::formulas;
use crate::graph::op::{
    Activation, BatchNorm, Binary, BinaryKind, Fused, Group, LayerNorm, LayerNormGrad, Pattern, Source, Step,
};
use crate::graph::{Op, Shape};

/// Most operations of an element-wise group: what the last of them reads later fits the shared memory of its kernel.
const MAX_STEPS: usize = 12;

/// In the order in which they are looked for.
pub static FUSIONS: [Pattern; 3] = [
    // The sum after a batch normalisation: of two that a sum has, the later one.
    Pattern {
        name: "residual",
        has: |op| matches!(op, Op::BatchNorm(_) | Op::Binary(_)),
        takes: |group| norm_sum(group.op).is_some_and(|sum| sum.act.is_none() && sum.fits(group)),
        repeats: |_| false,
    },
    // Activations with what makes their operand, and casts of what layer normalisation makes or takes.
    Pattern {
        name: "fuse",
        has: |op| {
            is_head(op) || matches!(op, Op::Activation(_) | Op::LayerNorm(_) | Op::LayerNormGrad(_) | Op::Cast(_))
        },
        takes: |group| {
            activated(group.op).is_some()
                || takes_rows(group)
                || norm_sum(group.op).is_some_and(|sum| sum.act.is_some() && sum.fits(group))
        },
        repeats: |_| false,
    },
    // Element-wise operations, and casts between them.
    Pattern {
        name: "chain",
        has: Op::keeps_places,
        takes: |group| group.op.steps.len() <= MAX_STEPS && group.is_element_wise_with_casts(),
        repeats: |_| false,
    },
];

fn is_head(op: &Op) -> bool {
    matches!(op, Op::Linear(_) | Op::Conv2d(_) | Op::BatchNorm(_) | Op::BatchNormInfer(_) | Op::Binary(_))
}

/// The operation of a group that has nothing but an activation after it, which its kernel applies.
pub fn activated(op: &Fused) -> Option<(&Op, Activation)> {
    match &op.steps[..] {
        [Step { op: head, from: operands }, Step { op: Op::Activation(act), from }] => {
            let in_order = operands.iter().copied().eq((0..operands.len()).map(Source::Operand));
            // What lies between is not written.
            let alone = op.results.iter().all(|r| r.step == 1 || r.output > 0);
            (is_head(head) && in_order && alone && formulas::is_joined(act.act) && from[..] == [Source::Step(0)])
                .then_some((head, act.act))
        }
        _ => None,
    }
}

/// A group of batch normalisation, the sum of its result and another value, and perhaps ReLU.
pub struct NormSum<'a> {
    /// The normalisation; its operands are the group's first.
    pub norm: &'a BatchNorm,
    /// The operand that is added.
    pub summand: usize,
    /// ReLU, or none.
    pub act: Option<Activation>,
}

impl NormSum<'_> {
    /// True if what is added is like the result.
    fn fits(&self, group: &Group) -> bool {
        let (summand, result) = (group.operands[self.summand], group.result());
        (summand.dtype, &summand.shape) == (result.dtype, &result.shape)
    }
}

/// The group as a [`NormSum`]; nothing else reads what lies between.
pub fn norm_sum(op: &Fused) -> Option<NormSum<'_>> {
    let [first, sum, rest @ ..] = &op.steps[..] else { return None };
    let (Op::BatchNorm(norm), Op::Binary(Binary { kind: BinaryKind::Add })) = (&first.op, &sum.op) else { return None };
    let act = match rest {
        [] => None,
        [Step { op: Op::Activation(act), from }] if act.act == Activation::Relu && from[..] == [Source::Step(1)] => {
            Some(act.act)
        }
        _ => return None,
    };
    let summand = match sum.from[..] {
        [Source::Step(0), Source::Operand(i)] | [Source::Operand(i), Source::Step(0)] => i,
        _ => return None,
    };
    let in_order = first.from.iter().copied().eq((0..first.from.len()).map(Source::Operand));
    let alone = op.results.iter().all(|r| r.step + 1 == op.steps.len() || r.step == 0 && r.output > 0);
    (in_order && alone && summand == first.from.len()).then_some(NormSum { norm, summand, act })
}

/// A group of layer normalisation or its gradient, and a cast.
pub enum CastRows<'a> {
    /// The result is cast.
    Forward(&'a LayerNorm),
    /// The gradient of the result is cast. Its operands are that gradient and those of the operation, without the second one.
    Backward(&'a LayerNormGrad),
}

/// Layer normalisation whose result is cast, or the gradient of one that is given what is cast; nothing else reads what lies
/// between.
pub fn cast_rows(op: &Fused) -> Option<CastRows<'_>> {
    let [first, last] = &op.steps[..] else { return None };
    let first_in_order = first.from.iter().copied().eq((0..first.from.len()).map(Source::Operand));
    match (&first.op, &last.op) {
        (Op::LayerNorm(norm), Op::Cast(_)) => {
            let alone = op.results.iter().all(|r| r.step == 1 || r.output > 0);
            (first_in_order && alone && last.from[..] == [Source::Step(0)]).then_some(CastRows::Forward(norm))
        }
        (Op::Cast(_), Op::LayerNormGrad(norm)) => {
            let alone = op.results.iter().all(|r| r.step == 1);
            let rest = (2..last.from.len()).map(Source::Operand);
            let order = [Source::Operand(1), Source::Step(0)].into_iter().chain(rest);
            (first_in_order && alone && last.from.iter().copied().eq(order)).then_some(CastRows::Backward(norm))
        }
        _ => None,
    }
}

/// True if the group is layer normalisation with a cast, of rows that a kernel with casts takes.
fn takes_rows(group: &Group) -> bool {
    match cast_rows(group.op) {
        Some(CastRows::Forward(norm)) => fits_warps(&group.operands[0].shape, norm.dims),
        Some(CastRows::Backward(norm)) => fits_warps(&group.operands[1].shape, norm.dims),
        None => false,
    }
}

/// Longest rows that one warp reduces, if there are few and if there are many.
pub const WARP_LENGTHS: [usize; 2] = [256, 1024];

/// From this number of rows on there are many.
pub const MANY_ROWS: usize = 1024;

/// Whether layer normalisation of the last `dims` axes of `x` is the work of a warp a row, which keeps it in registers: rows of whole
/// packs of four floats.
pub fn fits_warps(x: &Shape, dims: usize) -> bool {
    let length: usize = x.dims()[x.rank() - dims..].iter().product();
    let longest = WARP_LENGTHS[usize::from(x.len() / length.max(1) >= MANY_ROWS)];
    (64..=longest).contains(&length) && length.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{ActivationOp, Cast, Linear};
    use crate::graph::{DType, Graph, Role, ValueId, VarId, verify};
    use crate::passes::fuse::fuse;
    use crate::passes::grad::backward;

    fn variable(g: &mut Graph, dtype: DType, shape: &[usize]) -> ValueId {
        let id = VarId(g.values.len() as u32);
        g.add_value(dtype, Shape::from(shape), Role::State(id))
    }

    /// The residual stream of a transformer is in 32 bits, its products are in 16: no cast between them is a launch of its own.
    #[test]
    fn casts_around_the_products_of_a_transformer_go_along() {
        const ADD: Binary = Binary { kind: BinaryKind::Add };
        let mut g = Graph::new();
        let [x, a, b] = [(); 3].map(|()| variable(&mut g, DType::F32, &[5, 128]));
        let [gamma, beta] = [(); 2].map(|()| variable(&mut g, DType::F32, &[128]));
        let w = variable(&mut g, DType::BF16, &[128, 128]);
        let norm = LayerNorm { dims: 1, eps: 1e-5, weight: true, bias: true, centered: true };
        let normed = g.add(norm, &[x, gamma, beta]).unwrap()[0];
        let low = g.add1(Cast { to: DType::BF16 }, &[normed]).unwrap();
        let product = g.add1(Linear { bias: false }, &[low, w]).unwrap();
        let wide = g.add1(Cast { to: DType::F32 }, &[product]).unwrap();
        let y = g.add1(ADD, &[x, wide]).unwrap();
        let dy = g.add1(ADD, &[a, b]).unwrap();
        backward(&mut g, &[(y, dy)], &[x, gamma, beta]).unwrap();
        for pattern in &FUSIONS {
            fuse(&mut g, pattern);
            verify(&g).unwrap();
        }
        let names: Vec<String> = g.nodes.iter().map(|n| n.op.label()).collect();
        assert!(!names.contains(&"cast".to_owned()), "{names:?}");
        for joined in ["layer_norm + cast", "cast + add", "add + cast", "cast + layer_norm_grad"] {
            assert!(names.contains(&joined.to_owned()), "{joined} is not among {names:?}");
        }
    }

    /// Rows that the kernels with casts do not take keep theirs.
    #[test]
    fn long_and_odd_rows_are_cast_apart() {
        for (length, joined) in [(256, true), (258, false), (2048, false), (16, false)] {
            let mut g = Graph::new();
            let x = variable(&mut g, DType::F32, &[5, length]);
            let norm = LayerNorm { dims: 1, eps: 1e-5, weight: false, bias: false, centered: true };
            let normed = g.add(norm, &[x]).unwrap()[0];
            g.add1(Cast { to: DType::F16 }, &[normed]).unwrap();
            fuse(&mut g, FUSIONS.iter().find(|pattern| pattern.name == "fuse").unwrap());
            assert_eq!(g.nodes.len() == 1, joined, "{length}");
        }
    }

    /// What residual networks have at the end of a block, on whichever side the sum has it.
    #[test]
    fn a_batch_norm_takes_the_sum_and_the_relu_behind_it() {
        for flipped in [false, true] {
            let mut g = Graph::new();
            let [x, other] = [(); 2].map(|()| variable(&mut g, DType::BF16, &[2, 3, 3, 8]));
            let norm = BatchNorm { eps: 1e-5, momentum: None, affine: false, track: false };
            let normed = g.add(norm, &[x]).unwrap()[0];
            let pair = if flipped { [other, normed] } else { [normed, other] };
            let sum = g.add1(Binary { kind: BinaryKind::Add }, &pair).unwrap();
            g.add1(ActivationOp { act: Activation::Relu }, &[sum]).unwrap();
            for pattern in &FUSIONS {
                fuse(&mut g, pattern);
                verify(&g).unwrap();
            }
            let names: Vec<String> = g.nodes.iter().map(|n| n.op.label()).collect();
            assert_eq!(names, ["batch_norm + add + relu"]);
        }
    }
}
