//! The list of cases against the set of operations.

use crate::case::Case;
use crate::cases::{all, on};
use runner::backend::{cpu, gpu};
use runner::graph::op::Pattern;
use runner::graph::{DType, Op};
use std::collections::BTreeSet;

macro_rules! variants {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The variant's name. An operation that the list below lacks does not compile.
        fn name(op: &Op) -> &'static str {
            match op {
                $(Op::$name(_) => stringify!($name),)*
                // They compute nothing, and devices that never divide a batch do not know them: whole programs test them.
                Op::BatchPart(_) | Op::BatchJoin(_) => "parts of a batch",
            }
        }
    };
}

variants![
    Normalize,
    Cast,
    Linear,
    LinearGradInput,
    LinearGradWeight,
    Conv2d,
    Conv2dGradInput,
    Conv2dGradWeight,
    Activation,
    ActivationGrad,
    Binary,
    Fused,
    SumTo,
    Reshape,
    Permute,
    Concat,
    Slice,
    Pad,
    NewFull,
    MaxPool2d,
    MaxPool2dGrad,
    AvgPool2d,
    AvgPool2dGrad,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dGrad,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool2dGrad,
    Resize2d,
    Resize2dGrad,
    BatchNorm,
    BatchNormGrad,
    BatchNormStatistics,
    BatchNormApply,
    BatchNormInfer,
    BatchNormSums,
    BatchNormFromSums,
    BatchNormGradSums,
    BatchNormGradFromSums,
    GroupNorm,
    GroupNormGrad,
    LayerNorm,
    LayerNormGrad,
    LocalResponseNorm,
    LocalResponseNormGrad,
    Dropout,
    Softmax,
    SoftmaxGrad,
    LogSoftmax,
    LogSoftmaxGrad,
    Attention,
    AttentionGrad,
    CachedAttention,
    Rotary,
    Recurrent,
    RecurrentGrad,
    Embedding,
    EmbeddingGrad,
    Loss,
    LossGrad,
    Metrics,
    ClassCounts,
    ErrorSums,
    AccumulateGrad,
    AccumulateLoss,
    MeanScale,
    ZeroGrad,
    ShardSum,
    ShardReduce,
    ShardBegin,
    ShardGather,
    ShardMean,
    MeanLoss,
    GradNorm,
    GradSquares,
    NormOfSquares,
    AdaptiveClip,
    OptimizerStep,
    UpdateScale,
    MuonStart,
    MuonPolynomial,
    MuonStep,
    KeepState,
    RestoreState,
];

#[test]
fn every_operation_has_a_case() {
    let mut seen = BTreeSet::new();
    for case in all() {
        seen.extend(case.build().graph.nodes.iter().map(|n| name(&n.op)));
    }
    let missing: Vec<_> = NAMES.iter().filter(|n| !seen.contains(*n)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn every_pattern_has_a_case() {
    let cases = all();
    for pattern in cpu::fusions::FUSIONS.iter().chain(&gpu::fusions::FUSIONS) {
        let takes = |case: &Case| {
            let built = case.build();
            let node = &built.graph.nodes[0];
            let operands = node.inputs.iter().map(|v| built.graph.value(*v)).collect();
            matches!(node.op, Op::Fused(_)) && Pattern::any_takes(std::slice::from_ref(pattern), &node.op, operands)
        };
        assert!(cases.iter().copied().any(takes), "no case for `{}`", pattern.name);
    }
}

#[test]
fn cases_have_names_of_their_own() {
    let mut seen = BTreeSet::new();
    for case in [DType::F32, DType::BF16, DType::F16].into_iter().flat_map(on) {
        assert!(seen.insert(case.name.clone()), "two cases are named {}", case.name);
    }
}
