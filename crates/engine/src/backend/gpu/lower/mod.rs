//! Lowers operations to launches: one match over all operations, and a file for each family.

mod adafactor;
mod attention;
mod attention_far;
mod batch_norm;
mod cached_attention;
mod chain;
mod columns;
mod conv;
mod dropout;
mod elementwise;
mod embedding;
mod group_norm;
mod layer_norm;
mod layout;
mod linear;
mod loss;
mod metrics;
mod muon;
mod normalize;
mod optim;
mod pool;
mod ranks;
mod recurrent;
mod resize;
mod response_norm;
mod rows;
mod shape;
mod shards;
mod softmax;
mod state;
mod sync_batch_norm;

use super::launch::{Arg, Lowered, Memory};
use super::target::Target;
use crate::backend::gpu::fusions::{CastRows, activated, cast_rows, norm_sum};
use crate::graph::op::{Activation, Algorithm};
use crate::graph::{DType, Graph, Node, Op, Shape, Value};

/// A node with what its lowering needs to know.
pub struct Context<'a> {
    /// The node's graph.
    pub graph: &'a Graph,
    /// The node.
    pub node: &'a Node,
    /// The activation that is fused into its operation, if there is one.
    pub act: Option<Activation>,
    /// The device.
    pub target: &'a Target,
}

impl<'a> Context<'a> {
    /// Operand `i`.
    pub fn input(&self, i: usize) -> &'a Value {
        self.graph.value(self.node.inputs[i])
    }

    /// Result `i`.
    pub fn output(&self, i: usize) -> &'a Value {
        self.graph.value(self.node.outputs[i])
    }

    /// Shape of operand `i`.
    pub fn x(&self, i: usize) -> &'a Shape {
        &self.input(i).shape
    }

    /// Shape of result `i`.
    pub fn y(&self, i: usize) -> &'a Shape {
        &self.output(i).shape
    }

    /// Element type of operand `i`.
    pub fn x_type(&self, i: usize) -> DType {
        self.input(i).dtype
    }

    /// Element type of result `i`.
    pub fn y_type(&self, i: usize) -> DType {
        self.output(i).dtype
    }
}

/// A pointer to an operand, or null if the node has no such operand.
fn operand(place: Option<usize>) -> Arg {
    place.map_or(Arg::Null, |i| Memory::Input(i).into())
}

/// The launches of `node`; `None` for a view, which only gives memory another shape.
pub fn lower(graph: &Graph, node: &Node, target: &Target) -> Option<Lowered> {
    let (op, act) = match &node.op {
        Op::Fused(op) => activated(op).map_or((&node.op, None), |(head, act)| (head, Some(act))),
        op => (op, None),
    };
    let cx = &Context { graph, node, act, target };
    Some(match op {
        Op::Normalize(op) => normalize::normalize(cx, op),
        Op::Cast(_) => elementwise::cast(cx),
        Op::Linear(op) => linear::linear(cx, op),
        Op::LinearGradInput(op) => linear::grad_input(cx, op),
        Op::LinearGradWeight(op) => linear::grad_weight(cx, op),
        Op::Conv2d(op) => conv::conv2d(cx, op),
        Op::Conv2dGradInput(op) => conv::grad_input(cx, op),
        Op::Conv2dGradWeight(op) => conv::grad_weight(cx, op),
        Op::Activation(op) => elementwise::activation(cx, op),
        Op::ActivationGrad(op) => elementwise::activation_grad(cx, op),
        Op::Binary(op) => elementwise::binary(cx, op),
        Op::Fused(op) => match (cast_rows(op), norm_sum(op)) {
            (Some(CastRows::Forward(norm)), _) => layer_norm::layer_norm(cx, norm),
            (Some(CastRows::Backward(norm)), _) => layer_norm::grad_of_cast(cx, norm),
            (None, Some(sum)) => batch_norm::with_sum(cx, &sum),
            (None, None) => chain::chain(cx, op),
        },
        Op::SumTo(_) => elementwise::sum_to(cx),
        Op::Reshape(_) => return None,
        Op::BatchPart(_) | Op::BatchJoin(_) => unreachable!("batches are not divided for this device"),
        Op::Permute(op) => shape::permute(cx, op),
        Op::Concat(op) => shape::concat(cx, op),
        Op::Slice(op) => shape::slice(cx, op),
        Op::Pad(op) => shape::pad(cx, op),
        Op::NewFull(op) => elementwise::new_full(cx, op),
        Op::MaxPool2d(op) => pool::max_pool(cx, op),
        Op::MaxPool2dGrad(op) => pool::max_pool_grad(cx, op),
        Op::AvgPool2d(op) => pool::avg_pool(cx, op),
        Op::AvgPool2dGrad(op) => pool::avg_pool_grad(cx, op),
        Op::AdaptiveAvgPool2d(_) => pool::adaptive_avg_pool(cx),
        Op::AdaptiveAvgPool2dGrad(_) => pool::adaptive_avg_pool_grad(cx),
        Op::AdaptiveMaxPool2d(_) => pool::adaptive_max_pool(cx),
        Op::AdaptiveMaxPool2dGrad(_) => pool::adaptive_max_pool_grad(cx),
        Op::Resize2d(op) => resize::resize(cx, op),
        Op::Resize2dGrad(op) => resize::grad(cx, op),
        Op::BatchNorm(op) => batch_norm::batch_norm(cx, op),
        Op::BatchNormGrad(op) => batch_norm::grad(cx, op),
        Op::BatchNormStatistics(op) => batch_norm::statistics(cx, op),
        Op::BatchNormApply(op) => batch_norm::again(cx, op),
        Op::BatchNormInfer(op) => batch_norm::infer(cx, op),
        Op::BatchNormSums(_) => sync_batch_norm::sums(cx),
        Op::BatchNormFromSums(op) => sync_batch_norm::from_sums(cx, op),
        Op::BatchNormGradSums(op) => sync_batch_norm::grad_sums(cx, op),
        Op::BatchNormGradFromSums(op) => sync_batch_norm::grad_from_sums(cx, op),
        Op::GroupNorm(op) => group_norm::group_norm(cx, op),
        Op::GroupNormGrad(op) => group_norm::grad(cx, op),
        Op::LayerNorm(op) => layer_norm::layer_norm(cx, op),
        Op::LayerNormGrad(op) => layer_norm::grad(cx, op),
        Op::LocalResponseNorm(op) => response_norm::forward(cx, op),
        Op::LocalResponseNormGrad(op) => response_norm::grad(cx, op),
        Op::Dropout(op) => dropout::dropout(cx, op),
        Op::Softmax(_) => softmax::softmax(cx),
        Op::SoftmaxGrad(_) => softmax::grad(cx),
        Op::LogSoftmax(_) => softmax::log_softmax(cx),
        Op::LogSoftmaxGrad(_) => softmax::log_grad(cx),
        Op::Attention(op) if attention_far::is_far(op) => attention_far::attention(cx, op),
        Op::Attention(op) => attention::attention(cx, op),
        Op::AttentionGrad(op) if attention_far::is_far(&op.attention) => attention_far::grad(cx, op),
        Op::AttentionGrad(op) => attention::grad(cx, op),
        Op::CachedAttention(op) => cached_attention::cached(cx, op),
        Op::Rotary(op) => cached_attention::rotary(cx, op),
        Op::Recurrent(op) => recurrent::recurrent(cx, op),
        Op::RecurrentGrad(op) => recurrent::grad(cx, op),
        Op::Embedding(_) => embedding::embedding(cx),
        Op::EmbeddingGrad(op) => embedding::grad(cx, op),
        Op::Loss(op) => loss::loss(cx, op),
        Op::LossGrad(op) => loss::grad(cx, op),
        Op::Metrics(op) => metrics::metrics(cx, op),
        Op::ClassCounts(op) => metrics::class_counts(cx, op),
        Op::ErrorSums(op) => metrics::error_sums(cx, op),
        Op::AccumulateGrad(_) => optim::accumulate(cx),
        Op::AccumulateLoss(op) => optim::accumulate_loss(op),
        Op::MeanScale(_) => optim::mean_scale(),
        Op::ZeroGrad(_) => optim::zero(cx),
        Op::ShardSum(op) => shards::sum(cx, op),
        Op::ShardReduce(op) => ranks::reduce(cx, op),
        Op::ShardBegin(op) => ranks::reduce(cx, &op.reduce),
        Op::ShardGather(op) => ranks::gather(cx, op),
        Op::ShardMean(_) => shards::mean(cx),
        Op::MeanLoss(_) => shards::mean_loss(),
        Op::KeepState(op) => state::keep(cx, op),
        Op::RestoreState(_) => state::restore(cx),
        Op::GradNorm(_) => optim::grad_norm(cx),
        Op::GradSquares(op) => shards::grad_squares(op),
        Op::NormOfSquares(_) => shards::norm_of_squares(cx),
        Op::AdaptiveClip(op) => adafactor::clip(cx, op),
        Op::OptimizerStep(op) => match op.algorithm {
            Algorithm::Adafactor { .. } => adafactor::step(cx, op),
            _ => optim::step(cx, op),
        },
        Op::UpdateScale(op) => optim::update_scale(op),
        Op::MuonStart(op) => muon::start(cx, op),
        Op::MuonPolynomial(op) => muon::polynomial(cx, op),
        Op::MuonStep(op) => muon::step(cx, op),
    })
}
