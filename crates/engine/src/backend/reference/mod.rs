//! The arbiter: a plain interpreter of graphs in double precision.
//!
//! Every operation is a few short loops written from its documented formula, with no thought of speed, so that it can be
//! checked by reading. Other backends are compared with it, and gradient rules are checked by differences of what it
//! computes. It takes any element type as `f64`, which holds 32-bit floats and integers, bytes and counters exactly. A
//! result of a 16-bit type is rounded to that type, once, when it is complete; results of `F32` are not rounded.

mod adafactor;
mod attention;
mod cached_attention;
mod conv;
mod dropout;
pub mod elements;
mod elementwise;
mod embedding;
mod fused;
mod input;
mod linear;
mod loss;
mod metrics;
mod muon;
mod norm;
mod optim;
mod pool;
mod recurrent;
mod resize;
mod response_norm;
mod shape;
mod shards;
mod softmax;
mod state;
mod sync_batch_norm;

use crate::graph::{DType, Graph, Node, Op, Rounds, Value, ValueId};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// The elements of values, row-major.
pub type Values = BTreeMap<ValueId, Vec<f64>>;

/// An operand: its dimensions and its elements.
#[derive(Clone, Copy)]
struct Tensor<'a> {
    dims: &'a [usize],
    data: &'a [f64],
}

impl Tensor<'_> {
    /// The last dimension.
    fn last(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last.
    fn rows(&self) -> usize {
        self.dims.split_last().map_or(1, |(_, lead)| lead.iter().product())
    }

    /// Its dimensions, if there are four.
    fn dims4(&self) -> [usize; 4] {
        dims4(self.dims)
    }

    /// The element at an index.
    fn at<const N: usize>(&self, index: [usize; N]) -> f64 {
        self.data[offset(self.dims, &index)]
    }
}

/// The dimensions of a batch of images, or of a convolution's weight.
fn dims4(dims: &[usize]) -> [usize; 4] {
    dims.try_into().expect("the shape rule asks for four dimensions")
}

/// Place of the element at `index` in a row-major tensor of the shape `dims`.
#[inline]
fn offset(dims: &[usize], index: &[usize]) -> usize {
    debug_assert_eq!(dims.len(), index.len());
    dims.iter().zip(index).fold(0, |at, (d, i)| {
        debug_assert!(i < d);
        at * d + i
    })
}

/// All indices of a tensor of the shape `dims`, in row-major order.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let dims = dims.to_vec();
    (0..dims.iter().product()).map(move |mut at: usize| {
        let mut index = vec![0; dims.len()];
        for (i, d) in index.iter_mut().zip(&dims).rev() {
            *i = at % d;
            at /= d;
        }
        index
    })
}

/// Runs all nodes in order. `values` holds what no node computes, and afterwards everything; operands that are updated
/// in place are updated there.
///
/// # Panics
/// If a value that no node computes is missing or has the wrong number of elements, or if an index (a class, a position
/// in a pooling window) is out of range. [`crate::graph::verify`] accepts the graph.
pub fn evaluate(graph: &Graph, values: &mut Values) {
    for Rounds { nodes, parts } in graph.rounds() {
        for part in 0..parts {
            graph.nodes[nodes.clone()].iter().for_each(|node| evaluate_node(graph, node, part, values));
        }
    }
}

/// One node, in the round of that number.
fn evaluate_node(graph: &Graph, node: &Node, part: usize, values: &mut Values) {
    let operands: Vec<Tensor> = node
        .inputs
        .iter()
        .map(|i| {
            let data = values.get(i).unwrap_or_else(|| panic!("value {} is missing", i.0));
            let dims = graph.shape(*i).dims();
            assert_eq!(data.len(), dims.iter().product::<usize>(), "elements of value {}", i.0);
            Tensor { dims, data }
        })
        .collect();
    let outputs: Vec<&[usize]> = node.outputs.iter().map(|o| graph.shape(*o).dims()).collect();
    let results = match &node.op {
        Op::Fused(op) => {
            let values: Vec<&Value> = node.inputs.iter().map(|i| graph.value(*i)).collect();
            fused::fused(op, &values, &operands)
        }
        Op::BatchPart(op) => vec![shape::batch_part(operands[0].data, op.parts, part)],
        Op::BatchJoin(_) => vec![shape::batch_join(values.get(&node.outputs[0]), operands[0].data, part)],
        op => compute(op, &operands, &outputs),
    };
    store(graph, node, results, values);
}

/// `results` are the outputs, then the new elements of the operands that are updated.
fn store(graph: &Graph, node: &Node, results: Vec<Vec<f64>>, values: &mut Values) {
    let updated = node.op.rules().mutates(node.inputs.len()).into_iter().map(|m| node.inputs[m]);
    let places: Vec<ValueId> = node.outputs.iter().copied().chain(updated).collect();
    assert_eq!(places.len(), results.len(), "results of `{}`", node.op.rules().name());
    for (place, mut data) in places.into_iter().zip(results) {
        round(graph.value(place).stored(), &mut data);
        values.insert(place, data);
    }
}

/// Rounds `data` to the nearest numbers of a 16-bit type; other types are left as they are.
fn round(dtype: DType, data: &mut [f64]) {
    match dtype {
        DType::BF16 => data.iter_mut().for_each(|v| *v = bf16::from_f64(*v).to_f64()),
        DType::F16 => data.iter_mut().for_each(|v| *v = f16::from_f64(*v).to_f64()),
        _ => {}
    }
}

/// One operation: the elements of its outputs, whose shapes are `y`, then those of the operands that it updates, in the
/// order of [`crate::graph::OpRules::mutates`].
fn compute(op: &Op, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    match op {
        Op::Normalize(op) => input::normalize(op, x),
        Op::Linear(op) => linear::forward(op, x),
        Op::LinearGradInput(_) => linear::grad_input(x),
        Op::LinearGradWeight(op) => linear::grad_weight(op, x),
        Op::Conv2d(op) => conv::forward(op, x, y),
        Op::Conv2dGradInput(op) => conv::grad_input(op, x, y),
        Op::Conv2dGradWeight(op) => conv::grad_weight(op, x, y),
        Op::Activation(op) => elementwise::activation(op, x),
        Op::ActivationGrad(op) => elementwise::activation_grad(op, x),
        Op::Binary(op) => elementwise::binary(op, x, y),
        Op::Fused(_) => unreachable!("its steps are computed one by one"),
        Op::BatchPart(_) | Op::BatchJoin(_) => unreachable!("they depend on the round"),
        Op::SumTo(_) => elementwise::sum_to(x, y),
        Op::Cast(_) | Op::Reshape(_) => vec![x[0].data.to_vec()],
        Op::Permute(op) => shape::permute(op, x, y),
        Op::Concat(op) => shape::concat(op, x, y),
        Op::Slice(op) => shape::slice(op, x, y),
        Op::Pad(op) => shape::pad(op, x, y),
        Op::NewFull(op) => vec![vec![f64::from(op.value); op.shape.len()]],
        Op::MaxPool2d(op) => pool::max(op, x, y),
        Op::MaxPool2dGrad(op) => pool::max_grad(op, x, y),
        Op::AvgPool2d(op) => pool::avg(op, x, y),
        Op::AvgPool2dGrad(op) => pool::avg_grad(op, x, y),
        Op::AdaptiveAvgPool2d(_) => pool::adaptive_avg(x, y),
        Op::AdaptiveAvgPool2dGrad(_) => pool::adaptive_avg_grad(x, y),
        Op::AdaptiveMaxPool2d(_) => pool::adaptive_max(x, y),
        Op::AdaptiveMaxPool2dGrad(_) => pool::adaptive_max_grad(x, y),
        Op::Resize2d(op) => resize::resize(op, x, y),
        Op::Resize2dGrad(op) => resize::grad(op, x, y),
        Op::BatchNorm(op) => norm::batch_norm(op, x),
        Op::BatchNormGrad(op) => norm::batch_norm_grad(op, x),
        Op::BatchNormStatistics(op) => norm::batch_norm_statistics(op, x),
        Op::BatchNormApply(op) => norm::batch_norm_apply(op, x),
        Op::BatchNormInfer(op) => norm::batch_norm_infer(op, x),
        Op::BatchNormSums(_) => sync_batch_norm::sums(x),
        Op::BatchNormFromSums(op) => sync_batch_norm::from_sums(op, x),
        Op::BatchNormGradSums(op) => sync_batch_norm::grad_sums(op, x),
        Op::BatchNormGradFromSums(_) => sync_batch_norm::grad_from_sums(x),
        Op::GroupNorm(op) => norm::group_norm(op, x),
        Op::GroupNormGrad(op) => norm::group_norm_grad(op, x),
        Op::LayerNorm(op) => norm::layer_norm(op, x),
        Op::LayerNormGrad(op) => norm::layer_norm_grad(op, x),
        Op::LocalResponseNorm(op) => response_norm::forward(op, x),
        Op::LocalResponseNormGrad(op) => response_norm::grad(op, x),
        Op::Dropout(op) => dropout::dropout(op, x),
        Op::Softmax(_) => softmax::forward(x),
        Op::SoftmaxGrad(_) => softmax::grad(x),
        Op::LogSoftmax(_) => softmax::log_forward(x),
        Op::LogSoftmaxGrad(_) => softmax::log_grad(x),
        Op::Attention(op) => attention::forward(op, x),
        Op::AttentionGrad(op) => attention::grad(op, x),
        Op::CachedAttention(op) => cached_attention::cached(op, x),
        Op::Rotary(op) => cached_attention::rotary(op, x),
        Op::Recurrent(op) => recurrent::forward(op, x),
        Op::RecurrentGrad(op) => recurrent::grad(op, x),
        Op::Embedding(_) => embedding::forward(x),
        Op::EmbeddingGrad(op) => embedding::grad(op, x),
        Op::Loss(op) => loss::loss(op, x),
        Op::LossGrad(op) => loss::loss_grad(op, x),
        Op::Metrics(op) => metrics::metrics(op, x),
        Op::ClassCounts(op) => metrics::class_counts(op, x),
        Op::ErrorSums(op) => metrics::error_sums(op, x),
        Op::AccumulateGrad(_) => optim::accumulate_grad(x),
        Op::AccumulateLoss(op) => optim::accumulate_loss(op, x),
        Op::MeanScale(_) => optim::mean_scale(x),
        Op::ZeroGrad(_) => optim::zero_grad(x),
        Op::ShardSum(op) => shards::sum(op, x),
        // There is one rank.
        Op::ShardReduce(_) | Op::ShardBegin(_) => x[1..].iter().map(|sum| sum.data.to_vec()).collect(),
        Op::ShardGather(_) => x.iter().map(|tensor| tensor.data.to_vec()).collect(),
        Op::ShardMean(_) => shards::mean(x),
        Op::MeanLoss(_) => shards::mean_loss(x),
        Op::KeepState(op) => state::keep(op, x),
        Op::RestoreState(_) => state::restore(x),
        Op::GradNorm(_) => optim::grad_norm(x),
        Op::GradSquares(op) => optim::grad_squares(op, x),
        Op::NormOfSquares(_) => optim::norm_of_squares(x),
        Op::AdaptiveClip(op) => adafactor::adaptive_clip(op, x),
        Op::OptimizerStep(op) => optim::step(op, x),
        Op::MuonStart(op) => muon::start(op, x),
        Op::MuonPolynomial(op) => muon::polynomial(op, x),
        Op::MuonStep(op) => muon::step(op, x),
        Op::UpdateScale(op) => optim::update_scale(op, x),
    }
}

#[cfg(test)]
mod tests;
