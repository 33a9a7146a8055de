//! From operations to kernels: the one place that names them all.

use super::fusions::{Behind, ConvStatistics, Known, NormGrad, Pooled, Reader};
use super::gemm::numbers::Rounded;
use super::ops::attention::{AttentionGradKernel, AttentionKernel, AttentionShape};
use super::ops::avg_pool::{MeanPoolGradKernel, MeanPoolKernel, Windows};
use super::ops::batch_norm::{
    BatchNormApplyKernel, BatchNormGradKernel, BatchNormInferKernel, BatchNormKernel, BatchNormStatisticsKernel,
    FromSumsKernel, GradFromSumsKernel, GradSumsKernel, NormConvKernel, NormGradWeightKernel, Statistics, SumsKernel,
};
use super::ops::cached_attention::CachedAttentionKernel;
use super::ops::chain::{ChainKernel, RoundedValues};
use super::ops::class_counts::ClassCountsKernel;
use super::ops::conv::pooled::{Conv2dMaxPoolGradInputKernel, Conv2dMaxPoolGradWeightKernel, Conv2dMaxPoolKernel};
use super::ops::conv::prepared::{PreparedConv2dGradWeightKernel, PreparedConv2dKernel};
use super::ops::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel, ConvShape};
use super::ops::dropout::DropoutKernel;
use super::ops::elementwise::{
    AccumulateGradKernel, AccumulateLossKernel, ActivationGradKernel, ActivationKernel, BinaryKernel, MeanScaleKernel,
    ZeroGradKernel,
};
use super::ops::embedding::{EmbeddingGradKernel, EmbeddingKernel};
use super::ops::error_sums::ErrorSumsKernel;
use super::ops::group_norm::{GroupNormGradKernel, GroupNormKernel, Layout};
use super::ops::layer_norm::{LayerNormGradKernel, LayerNormKernel};
use super::ops::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use super::ops::loss;
use super::ops::max_pool::adaptive::{AdaptiveMaxPoolGradKernel, AdaptiveMaxPoolKernel};
use super::ops::max_pool::{MaxPoolGradKernel, MaxPoolKernel};
use super::ops::metrics::MetricsKernel;
use super::ops::normalize::NormalizeKernel;
use super::ops::optim::{
    AdafactorKernel, AdaptiveClipKernel, GradNormKernel, GradSquaresKernel, MuonPolynomialKernel, MuonStartKernel,
    MuonStepKernel, NormOfSquaresKernel, OptimizerKernel, UpdateScaleKernel,
};
use super::ops::permute::Permute;
use super::ops::product_nodes::{ConvMaxPool, ConvNorm, Folded, Forward, GradInput, GradWeight};
use super::ops::recurrent::{RecurrentGradKernel, RecurrentKernel};
use super::ops::resize::{ResizeGradKernel, ResizeKernel};
use super::ops::response_norm::{LocalResponseNormGradKernel, LocalResponseNormKernel};
use super::ops::rotary::RotaryKernel;
use super::ops::shape::{Concat, NewFull, Pad, Slice};
use super::ops::shards::{
    MeanLossKernel, ShardBeginKernel, ShardGatherKernel, ShardMeanKernel, ShardReduceKernel, ShardSumKernel,
};
use super::ops::softmax::{LogSoftmaxGradKernel, LogSoftmaxKernel, SoftmaxGradKernel, SoftmaxKernel};
use super::ops::state::{KeepStateKernel, RestoreStateKernel};
use super::ops::sum_to::SumToKernel;
use super::run::frame::NodeKernel;
use super::simd::SimdLevel;
use super::simd::bf16::Instructions;
use crate::graph::op::{ActivationOp, Binary, Conv2d, Fused, Source};
use crate::graph::{Graph, Node, Op, Shape, op};

/// `[N, H, W, C]` of a value that the shape rules know to be a batch of images.
pub(super) fn images(shape: &Shape) -> [usize; 4] {
    shape.nhwc().expect("the operation's shape rule has checked the rank")
}

/// Sizes of a convolution from the shapes of its input, weight and output.
pub(super) fn conv_shape(x: &Shape, w: &Shape, y: &Shape) -> ConvShape {
    let ([n, h, width, c], [_, kh, kw, _], [.., o]) = (images(x), images(w), images(y));
    ConvShape { images: n, input: [h, width], channels: c, kernel: [kh, kw], outputs: o }
}

/// The program makes gradients.
fn trains(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.backward)
}

/// The products of Muon's iteration, which stay in single precision: of a matrix with itself, and with what [`op::MuonPolynomial`] makes.
fn is_of_muon(graph: &Graph, node: &Node) -> bool {
    let [a, b] = node.inputs[..] else { return false };
    let polynomial = |v: &crate::graph::ValueId| {
        graph.nodes.iter().any(|n| matches!(n.op, Op::MuonPolynomial(_)) && n.outputs.contains(v))
    };
    a == b || node.inputs.iter().any(polynomial)
}

/// The kernel of `node`; `None` if the node only gives memory another shape.
pub fn lower(graph: &Graph, node: &Node, how: Instructions, threads: usize) -> Option<Box<dyn NodeKernel>> {
    let is_linear = matches!(node.op, Op::Linear(_) | Op::LinearGradInput(_) | Op::LinearGradWeight(_));
    let how = if how.bf16.is_some() && is_linear && is_of_muon(graph, node) { how.level.into() } else { how };
    let level = how.level;
    let x = |i: usize| graph.shape(node.inputs[i]);
    let y = |i: usize| graph.shape(node.outputs[i]);
    Some(match &node.op {
        Op::Normalize(op) => Box::new(NormalizeKernel::new(op, x(0).last(), level)),
        // From `F32` to itself: `CpuExecutable` refuses programs with any other float.
        Op::Cast(_) => Box::new(Permute::new(&op::Permute { perm: (0..x(0).rank()).collect() }, x(0))),
        Op::Linear(_)
        | Op::LinearGradInput(_)
        | Op::Conv2d(_)
        | Op::Conv2dGradInput(_)
        | Op::BatchNorm(_)
        | Op::BatchNormApply(_)
        | Op::BatchNormInfer(_)
        | Op::LayerNormGrad(_) => return product(graph, node, &node.op, Behind::default(), how, threads),
        Op::LinearGradWeight(op) => {
            let shape = LinearShape { rows: x(0).rows(), inputs: x(0).last(), outputs: x(1).last() };
            Box::new(GradWeight { kernel: LinearGradWeightKernel::new(op, shape, how, threads), bias: op.bias })
        }
        Op::Conv2dGradWeight(op) => {
            let kernel = Conv2dGradWeightKernel::new(op, conv_shape(x(0), y(0), x(1)), how, threads);
            Box::new(GradWeight { kernel, bias: op.bias })
        }
        Op::Activation(op) => Box::new(ActivationKernel { act: op.act, level }),
        Op::ActivationGrad(op) => Box::new(ActivationGradKernel { act: op.act, level }),
        Op::Binary(op) => return Some(binary(graph, node, op, None, level, threads)),
        Op::Fused(op) => return fused(graph, node, op, how, threads),
        Op::SumTo(_) => Box::new(SumToKernel::new(x(0), y(0), level)),
        Op::Reshape(_) | Op::BatchPart(_) | Op::BatchJoin(_) => return None,
        Op::Permute(op) => Box::new(Permute::new(op, x(0))),
        Op::Concat(op) => {
            let shapes: Vec<&Shape> = node.inputs.iter().map(|v| graph.shape(*v)).collect();
            Box::new(Concat::new(op, &shapes))
        }
        Op::Slice(op) => Box::new(Slice::new(op, x(0))),
        Op::Pad(op) => Box::new(Pad::new(op, x(0))),
        Op::NewFull(op) => Box::new(NewFull { value: op.value }),
        Op::MaxPool2d(op) => Box::new(MaxPoolKernel::new(op, images(x(0)), images(y(0)), level)),
        Op::MaxPool2dGrad(op) => Box::new(MaxPoolGradKernel::new(&op.pool, images(x(0)), images(y(0)), level)),
        Op::AvgPool2d(op) => {
            Box::new(MeanPoolKernel { windows: Windows::average(op, images(x(0)), images(y(0))), level })
        }
        Op::AvgPool2dGrad(op) => {
            Box::new(MeanPoolGradKernel { windows: Windows::average(&op.pool, images(y(0)), images(x(0))), level })
        }
        Op::AdaptiveAvgPool2d(_) => {
            Box::new(MeanPoolKernel { windows: Windows::adaptive(images(x(0)), images(y(0))), level })
        }
        Op::AdaptiveAvgPool2dGrad(_) => {
            Box::new(MeanPoolGradKernel { windows: Windows::adaptive(images(y(0)), images(x(0))), level })
        }
        Op::AdaptiveMaxPool2d(_) => Box::new(AdaptiveMaxPoolKernel::new(images(x(0)), images(y(0)), level)),
        Op::AdaptiveMaxPool2dGrad(_) => Box::new(AdaptiveMaxPoolGradKernel::new(images(x(0)), images(y(0)), level)),
        Op::Resize2d(op) => Box::new(ResizeKernel::new(op, images(x(0)), level)),
        Op::Resize2dGrad(op) => Box::new(ResizeGradKernel::new(&op.resize, images(y(0)), level)),
        Op::BatchNormStatistics(op) => Box::new(BatchNormStatisticsKernel::new(op, x(0).rows(), x(0).last(), level)),
        Op::BatchNormSums(_) => Box::new(SumsKernel::new(x(0).rows(), x(0).last(), level)),
        Op::BatchNormFromSums(op) => Box::new(FromSumsKernel { op: op.clone() }),
        Op::BatchNormGradSums(op) => Box::new(GradSumsKernel::new(op, x(0).rows(), x(0).last(), level)),
        Op::BatchNormGradFromSums(op) => Box::new(GradFromSumsKernel::new(op, x(0).rows(), x(0).last(), level)),
        Op::BatchNormGrad(op) => {
            Box::new(BatchNormGradKernel::new(NormGrad::alone(op), x(0).rows(), x(0).last(), level))
        }
        Op::GroupNorm(op) => {
            let layout = Layout::new(x(0), op.groups);
            Box::new(GroupNormKernel { layout, eps: op.eps, affine: op.affine, level })
        }
        Op::GroupNormGrad(op) => {
            Box::new(GroupNormGradKernel { layout: Layout::new(x(0), op.groups), affine: op.affine, level })
        }
        Op::LayerNorm(op) => {
            let row = x(0).len() / y(1).len().max(1);
            Box::new(LayerNormKernel { row, op: op.clone(), level })
        }
        Op::LocalResponseNorm(op) => Box::new(LocalResponseNormKernel { op: op.clone(), channels: x(0).last() }),
        Op::LocalResponseNormGrad(op) => {
            Box::new(LocalResponseNormGradKernel { op: op.norm.clone(), channels: x(0).last() })
        }
        Op::Dropout(op) => Box::new(DropoutKernel { op: op.clone(), level }),
        Op::Softmax(_) => Box::new(SoftmaxKernel { row: x(0).last(), level }),
        Op::SoftmaxGrad(_) => Box::new(SoftmaxGradKernel { row: x(0).last(), level }),
        Op::LogSoftmax(_) => Box::new(LogSoftmaxKernel { row: x(0).last(), level }),
        Op::LogSoftmaxGrad(_) => Box::new(LogSoftmaxGradKernel { row: x(0).last(), level }),
        Op::Attention(op) => {
            let places = op.places();
            let shape = AttentionShape::new(op, x(places.q), x(places.kv.unwrap_or(places.q)), places.bias.map(x));
            Box::new(AttentionKernel::new(shape, places, how, threads))
        }
        Op::AttentionGrad(op) => {
            let (of, places) = (&op.attention, op.places());
            let shape = AttentionShape::new(of, x(places.q), x(places.kv.unwrap_or(places.q)), places.bias.map(x));
            Box::new(AttentionGradKernel::new(shape, places, how, threads))
        }
        Op::CachedAttention(op) => Box::new(CachedAttentionKernel::new(op, x(0), x(1), level, threads)),
        Op::Rotary(op) => Box::new(RotaryKernel::new(op, x(0), level)),
        Op::Recurrent(op) => Box::new(RecurrentKernel::new(op, y(0), how, threads)),
        Op::RecurrentGrad(op) => Box::new(RecurrentGradKernel::new(op, y(1), how, threads)),
        Op::Embedding(_) => Box::new(EmbeddingKernel { rows: x(0).rows(), width: x(0).last() }),
        Op::EmbeddingGrad(op) => Box::new(EmbeddingGradKernel::new(op, x(1).len(), x(0).last(), level)),
        Op::Loss(op) => loss::kernel(op, x(0), graph.value(node.inputs[1]).dtype, level),
        Op::LossGrad(op) => loss::grad_kernel(op, x(0), graph.value(node.inputs[1]).dtype, level),
        Op::Metrics(op) => Box::new(MetricsKernel::new(op, x(2), level)),
        Op::ClassCounts(op) => Box::new(ClassCountsKernel::new(op, x(1))),
        Op::ErrorSums(op) => Box::new(ErrorSumsKernel { outputs: op.outputs, elements: x(1).len() }),
        Op::AccumulateGrad(_) => Box::new(AccumulateGradKernel { level }),
        Op::AccumulateLoss(op) => Box::new(AccumulateLossKernel { full: op.full }),
        Op::MeanScale(_) => Box::new(MeanScaleKernel {}),
        Op::ZeroGrad(_) => Box::new(ZeroGradKernel { operands: node.inputs.len() }),
        Op::ShardSum(op) => Box::new(ShardSumKernel::new(op, node.inputs.len())),
        Op::ShardReduce(op) => Box::new(ShardReduceKernel { op: op.clone(), operands: node.inputs.len() }),
        Op::ShardBegin(op) => Box::new(ShardBeginKernel { op: op.reduce.clone(), operands: node.inputs.len() }),
        Op::ShardGather(op) => Box::new(ShardGatherKernel { op: op.clone(), operands: node.inputs.len() }),
        Op::ShardMean(_) => Box::new(ShardMeanKernel { operands: node.inputs.len() }),
        Op::MeanLoss(_) => Box::new(MeanLossKernel {}),
        Op::GradNorm(_) => Box::new(GradNormKernel::new((1..node.inputs.len()).map(|i| x(i).len()), level)),
        Op::GradSquares(op) => Box::new(GradSquaresKernel { op: op.clone(), level }),
        Op::NormOfSquares(_) => Box::new(NormOfSquaresKernel {}),
        Op::AdaptiveClip(op) => Box::new(AdaptiveClipKernel { op: *op, level }),
        Op::OptimizerStep(op) => {
            if let Some(kernel) = AdafactorKernel::new(op, x, level) {
                return Some(Box::new(kernel));
            }
            let length = |t: usize| x(op.head() + t * op.stride()).len();
            let lengths = (0..op.tensors.len()).map(|t| op.part(t, length(t)).len);
            Box::new(OptimizerKernel::new(op, lengths, level))
        }
        Op::UpdateScale(op) => Box::new(UpdateScaleKernel { op: *op }),
        Op::MuonStart(op) => Box::new(MuonStartKernel::new(op, y(0).len(), level)),
        Op::MuonPolynomial(op) => Box::new(MuonPolynomialKernel { op: *op, side: x(0).last(), level }),
        Op::MuonStep(op) => Box::new(MuonStepKernel { op: *op, level }),
        Op::KeepState(op) => {
            let firsts = (usize::from(op.once)..node.inputs.len()).step_by(2);
            let copies = firsts.map(|i| (i, i + 1, graph.value(node.inputs[i]).dtype)).collect();
            Box::new(KeepStateKernel { once: op.once, copies })
        }
        Op::RestoreState(_) => {
            let firsts = (1..node.inputs.len()).step_by(2);
            let copies = firsts.map(|i| (i + 1, i, graph.value(node.inputs[i]).dtype)).collect();
            Box::new(RestoreStateKernel { copies })
        }
    })
}

/// A group, as its pattern in [`super::fusions`] has it.
fn fused(graph: &Graph, node: &Node, op: &Fused, how: Instructions, threads: usize) -> Option<Box<dyn NodeKernel>> {
    let level = how.level;
    let x = |i: usize| graph.shape(node.inputs[i]);
    let y = |i: usize| graph.shape(node.outputs[i]);
    Some(match Known::of(op) {
        Known::Head(head, behind) => return product(graph, node, head, behind, how, threads),
        Known::Activated(sum, act) => binary(graph, node, sum, Some(act), level, threads),
        Known::NormGrad(norm) => Box::new(BatchNormGradKernel::new(norm, x(0).rows(), x(0).last(), level)),
        Known::NormRead(norm, Reader::Conv(conv)) => {
            let kernel = prepared(conv, conv_shape(x(0), x(norm.own), y(0)), how, threads);
            Box::new(NormConvKernel::normalised(norm, kernel, conv.bias, x(0).last(), None, level))
        }
        Known::NormRead(norm, Reader::GradWeight(grad)) => {
            let shape = conv_shape(x(0), y(0), x(norm.own));
            let kernel = PreparedConv2dGradWeightKernel::new(grad, shape, how, threads);
            let kernel = kernel.expect("the pattern takes what there is a kernel for");
            Box::new(NormGradWeightKernel::new(norm, kernel, grad.bias, x(0).last(), level))
        }
        Known::NormStatistics(ConvStatistics { read, conv, statistics, first }) => {
            let statistics = Statistics::new(statistics.clone(), [y(1).rows(), y(1).last()], first, level);
            let weight = read.as_ref().map_or(1, |read| read.own);
            let shape = conv_shape(x(0), x(weight), y(1));
            Box::new(match read {
                Some(read) => {
                    let (kernel, channels) = (prepared(conv, shape, how, threads), x(0).last());
                    NormConvKernel::normalised(read, kernel, conv.bias, channels, Some(statistics), level)
                }
                None => NormConvKernel::plain(
                    Conv2dKernel::new(conv, None, shape, how, threads, trains(graph)),
                    conv.bias,
                    statistics,
                ),
            })
        }
        Known::Pooled(Pooled::Forward { conv, norm, act }) => {
            let kernel =
                Conv2dMaxPoolKernel::new(conv, act, conv_shape(x(0), x(1), y(0)), level, threads, trains(graph));
            let norm = norm.map(|norm| Folded { norm, bias: conv.bias, channels: y(0).last() });
            Box::new(ConvMaxPool { kernel, bias: conv.bias, norm })
        }
        Known::Pooled(Pooled::GradInput(op)) => {
            Box::new(Conv2dMaxPoolGradInputKernel::new(op, conv_shape(y(0), x(2), x(0)), level, threads))
        }
        Known::Pooled(Pooled::GradWeight(op)) => {
            let kernel = Conv2dMaxPoolGradWeightKernel::new(op, conv_shape(x(2), y(0), x(0)), level, threads);
            Box::new(GradWeight { kernel, bias: op.bias })
        }
        Known::Chain => {
            let shapes: Vec<&Shape> = node.inputs.iter().map(|v| graph.shape(*v)).collect();
            Box::new(ChainKernel::rounded(op, &shapes, y(0), &rounded_values(graph, node), level, threads))
        }
    })
}

/// The values of `node` that are narrow.
fn rounded_values(graph: &Graph, node: &Node) -> RoundedValues {
    let narrow = |list: &[crate::graph::ValueId]| {
        list.iter().enumerate().filter(|(_, v)| graph.value(**v).narrow).map(|(i, _)| i).collect()
    };
    RoundedValues { operands: narrow(&node.inputs), results: narrow(&node.outputs) }
}

/// The kernel of a convolution of normalised values.
fn prepared(conv: &Conv2d, shape: ConvShape, how: Instructions, threads: usize) -> PreparedConv2dKernel {
    PreparedConv2dKernel::new(conv, shape, how, threads).expect("the pattern takes what there is a kernel for")
}

/// Which of the operands of a product, and of what is behind it, are narrow.
fn rounded(graph: &Graph, node: &Node, behind: Behind) -> Rounded {
    let narrow = |v: &crate::graph::ValueId| graph.value(*v).narrow;
    let summand = behind.summand.is_some_and(|i| narrow(&node.inputs[i]));
    Rounded { source: narrow(&node.inputs[0]), summand, result: narrow(&node.outputs[0]) }
}

/// `head`, the first operation of `node`, with what is behind it; `None` if nothing can be behind it.
fn product(
    graph: &Graph,
    node: &Node,
    head: &Op,
    behind: Behind,
    how: Instructions,
    threads: usize,
) -> Option<Box<dyn NodeKernel>> {
    let level = how.level;
    let x = |i: usize| graph.shape(node.inputs[i]);
    let y = graph.shape(node.outputs[0]);
    Some(match head {
        Op::Linear(op) => {
            let shape = LinearShape { rows: x(0).rows(), inputs: x(0).last(), outputs: y.last() };
            let rounded = rounded(graph, node, behind);
            let kernel = match rounded.any() {
                true => LinearKernel::rounded(behind.act, shape, how, threads, rounded),
                false => LinearKernel::new(behind.act, shape, how, threads, trains(graph)),
            };
            Box::new(Forward { kernel, bias: op.bias, behind, level })
        }
        Op::LinearGradInput(_) => {
            let shape = LinearShape { rows: x(0).rows(), inputs: y.last(), outputs: x(0).last() };
            Box::new(GradInput { kernel: LinearGradInputKernel::new(shape, how, threads), behind })
        }
        Op::Conv2d(op) => {
            let (shape, rounded) = (conv_shape(x(0), x(1), y), rounded(graph, node, behind));
            let kernel = match rounded.any() {
                true => Conv2dKernel::rounded(op, behind.act, shape, how, threads, rounded),
                false => Conv2dKernel::new(op, behind.act, shape, how, threads, trains(graph)),
            };
            let conv = Forward { kernel, bias: op.bias, behind, level };
            match behind.norm {
                Some(norm) => Box::new(ConvNorm { conv, norm: Folded { norm, bias: op.bias, channels: y.last() } }),
                None => Box::new(conv),
            }
        }
        Op::Conv2dGradInput(op) => {
            let kernel = Conv2dGradInputKernel::new(op, conv_shape(y, x(1), x(0)), how, threads);
            Box::new(GradInput { kernel, behind })
        }
        Op::BatchNorm(op) => Box::new(BatchNormKernel::new(op, behind, x(0).rows(), x(0).last(), level)),
        Op::BatchNormApply(op) => Box::new(BatchNormApplyKernel::new(op, behind, x(0).rows(), x(0).last(), level)),
        Op::BatchNormInfer(op) => Box::new(BatchNormInferKernel::new(op, behind, x(0).rows(), x(0).last(), level)),
        Op::LayerNormGrad(op) => {
            let rows = x(2).len();
            Box::new(LayerNormGradKernel::new(op, behind, rows, x(0).len() / rows.max(1), level))
        }
        _ => return None,
    })
}

/// A sum or product, with an activation after it.
fn binary(
    graph: &Graph,
    node: &Node,
    op: &Binary,
    act: Option<op::Activation>,
    level: SimdLevel,
    threads: usize,
) -> Box<dyn NodeKernel> {
    let [a, b] = [0, 1].map(|i| graph.shape(node.inputs[i]));
    let y = graph.shape(node.outputs[0]);
    // Channels times a factor each; long rows are better read where they are. What is narrow goes through blocks of floats.
    let rounded = rounded_values(graph, node);
    let is_narrow = !rounded.operands.is_empty() || !rounded.results.is_empty();
    if is_narrow || (a == y) != (b == y) && y.last() < 512 {
        let alone = Fused::of(op.clone().into(), 2);
        let chain = act.map(|act| alone.clone().then(ActivationOp { act }, vec![Source::Step(0)])).unwrap_or(alone);
        return Box::new(ChainKernel::rounded(&chain, &[a, b], y, &rounded, level, threads));
    }
    Box::new(BinaryKernel::new(op.kind, act, a, b, level))
}
