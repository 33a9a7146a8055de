//! The closed set of operations. Each family has a file with its payloads, shape rules and gradient rules.
//!
//! To add an operation: write its payload and [`OpRules`] in a family file, name it in `ops!` below, and follow the
//! compiler to the lowerings it misses. If it makes something of each sample by itself, [`Op::of_part`] may say so: evaluations
//! are then faster where images are large.

mod accumulate;
mod activation;
mod adafactor;
mod adaptive_clip;
mod attention;
mod batch_part;
mod cached_attention;
mod cast;
mod class_counts;
mod clipping;
mod conv;
mod dropout;
mod elementwise;
mod embedding;
mod error_sums;
mod fused;
mod input;
mod linear;
mod loss;
mod loss_scale;
mod metrics;
mod muon;
mod norm;
mod operands;
mod optim;
mod optimizer_step;
mod part;
mod pool;
mod recurrent;
mod resize;
mod response_norm;
mod rotary;
mod schedule_free;
mod shape;
mod shards;
mod softmax;
mod state;
mod sync_batch_norm;

pub use accumulate::{AccumulateGrad, AccumulateLoss, MeanScale, ZeroGrad};
pub use activation::{Activation, SELU_ALPHA, SELU_SCALE};
pub use adafactor::{Matrices, Moments};
pub use adaptive_clip::{AdaptiveClip, units};
pub use attention::{
    Attention, AttentionDropout, AttentionGrad, AttentionGradOperands, AttentionOperands, alibi_power, alibi_slope,
    attention_scale,
};
pub use batch_part::{BatchJoin, BatchPart};
pub use cached_attention::CachedAttention;
pub use cast::Cast;
pub use class_counts::{ClassCounts, Counted, RANKS};
pub use clipping::{Clipping, GradBlocks, GradNorm, GradSquares, NormOfSquares};
pub use conv::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
pub use dropout::Dropout;
pub use elementwise::{ActivationGrad, ActivationOp, Binary, BinaryKind, SumTo};
pub use embedding::{Embedding, EmbeddingGrad};
pub use error_sums::{ERROR_SUMS, ErrorSums, LEAST_TARGET, error_sum};
pub use fused::{ElementWise, Fused, Group, Pattern, Source, Step, StepOutput};
pub use input::Normalize;
pub use linear::{Linear, LinearGradInput, LinearGradWeight};
pub use loss::{
    CrossEntropy, ElementwiseLoss, IGNORE_INDEX, LEAST_MEAN, Loss, LossGrad, LossOp, RowLoss, TargetKind, TargetRange,
    WeightedBinary,
};
pub use loss_scale::UpdateScale;
pub use metrics::{Figure, Gathered, METRIC_SLOTS, Metrics, Task, metric_slot};
pub use muon::{MuonPolynomial, MuonStart, MuonStep, StepLength, as_matrix};
pub use norm::{
    BatchNorm, BatchNormApply, BatchNormApplyOperands, BatchNormGrad, BatchNormGradOperands, BatchNormInfer,
    BatchNormInferOperands, BatchNormOperands, BatchNormStatistics, BatchNormStatisticsOperands, GroupNorm,
    GroupNormGrad, GroupNormGradOperands, GroupNormOperands, LayerNorm, LayerNormGrad, LayerNormGradOperands,
    LayerNormOperands,
};
pub use optim::{Algorithm, Nadam, TensorOptions, Trust, radam_rectification};
pub use optimizer_step::OptimizerStep;
pub use part::Part;
pub use pool::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, AdaptiveMaxPool2d, AdaptiveMaxPool2dGrad, AvgPool2d, AvgPool2dGrad,
    MaxPool2d, MaxPool2dGrad, pool_out,
};
pub use recurrent::{Cell, Recurrent, RecurrentGrad, RecurrentGradOperands, RecurrentOperands};
pub use resize::{Resize2d, Resize2dGrad, ResizeMode, Taps, readers};
pub use response_norm::{LocalResponseNorm, LocalResponseNormGrad};
pub use rotary::Rotary;
pub use schedule_free::ScheduleFree;
pub use shape::{Concat, NewFull, Pad, Permute, Reshape, Slice};
pub use shards::{
    MAX_SHARD_SLOTS, MeanLoss, Receivers, SHARD_INPUTS, ShardBegin, ShardGather, ShardMean, ShardReduce, ShardSum,
};
pub use softmax::{LogSoftmax, LogSoftmaxGrad, Softmax, SoftmaxGrad};
pub use state::{KeepState, RestoreState};
pub use sync_batch_norm::{BatchNormFromSums, BatchNormGradFromSums, BatchNormGradSums, BatchNormSums};

use super::{DType, Graph, Shape, Value, ValueId};
use std::fmt;

/// An operation's operands do not fit it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// What is wrong, with the shapes as PyTorch shows them.
    pub message: String,
    /// The operand that is at fault, if one is.
    pub input: Option<usize>,
}

impl ShapeError {
    /// An error about operand `input`.
    pub fn of(input: usize, message: impl Into<String>) -> Self {
        ShapeError { message: message.into(), input: Some(input) }
    }

    /// An error about the operation as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        ShapeError { message: message.into(), input: None }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShapeError {}

/// Element type and shape of an output.
pub type Output = (DType, Shape);

/// What a gradient rule sees: the node it differentiates, and the graph to which it adds the backward operations.
pub struct GradContext<'a> {
    /// The graph that grows.
    pub graph: &'a mut Graph,
    /// Operands of the node.
    pub inputs: &'a [ValueId],
    /// Results of the node.
    pub outputs: &'a [ValueId],
    /// Gradient of the loss by each result; `None` where the loss does not depend on it.
    pub grads: &'a [Option<ValueId>],
    /// Which operands a gradient is wanted for.
    pub needs: &'a [bool],
}

impl GradContext<'_> {
    /// The gradient by the first output, which a rule may count on: the pass calls it only if there is one.
    pub fn dy(&self) -> ValueId {
        self.grads[0].expect("the gradient pass calls a rule only for a node whose first output has a gradient")
    }

    /// `op` added on `inputs`; its first output.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn add1(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, ShapeError> {
        self.graph.add1(op, inputs)
    }
}

/// The rules that define an operation, whatever the device.
pub trait OpRules {
    /// Its name in listings (`conv2d`).
    fn name(&self) -> &'static str;

    /// Types and shapes of the outputs.
    ///
    /// # Errors
    /// The operands do not fit.
    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError>;

    /// Adds the operations that compute the gradient by each operand (`None`: no gradient reaches it).
    ///
    /// # Errors
    /// The operation has no derivative (it is itself part of a backward pass or of the update).
    fn grad(&self, _cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        Err(ShapeError::new(format!("`{}` has no gradient rule", self.name())))
    }

    /// Operands that are updated in place; they are variables.
    fn mutates(&self, _inputs: usize) -> Vec<usize> {
        Vec::new()
    }

    /// Operand whose memory the first output may take over: same size, and every element is read before or when the
    /// output element in its place is written.
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// True if the first output is the first operand's memory under another shape, or a part of it, or what it is a part of.
    fn is_alias(&self) -> bool {
        false
    }

    /// Floating-point operations, a multiply-add counted as two; 0 for what is bound by memory alone.
    fn flops(&self, _inputs: &[&Value], _outputs: &[&Value]) -> u64 {
        0
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident ( $payload:ty )),* $(,)?) => {
        /// An operation with its arguments.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op { $($(#[$doc])* $name($payload)),* }

        impl Op {
            /// The rules of the operation.
            pub fn rules(&self) -> &dyn OpRules {
                match self { $(Op::$name(p) => p),* }
            }
        }

        $(impl From<$payload> for Op {
            fn from(p: $payload) -> Op { Op::$name(p) }
        })*
    };
}

ops! {
    /// Bytes or floats to normalised floats.
    Normalize(Normalize),
    /// Conversion between element types.
    Cast(Cast),
    /// Matrix product with a weight, and bias.
    Linear(Linear),
    /// Gradient of [`Linear`] by its input.
    LinearGradInput(LinearGradInput),
    /// Gradient of [`Linear`] by weight and bias.
    LinearGradWeight(LinearGradWeight),
    /// Two-dimensional convolution, and bias.
    Conv2d(Conv2d),
    /// Gradient of [`Conv2d`] by its input.
    Conv2dGradInput(Conv2dGradInput),
    /// Gradient of [`Conv2d`] by weight and bias.
    Conv2dGradWeight(Conv2dGradWeight),
    /// Element-wise activation.
    Activation(ActivationOp),
    /// Gradient of an activation.
    ActivationGrad(ActivationGrad),
    /// Element-wise sum or product of two values, with broadcast.
    Binary(Binary),
    /// Operations that a device does at once.
    Fused(Fused),
    /// Sum over the axes that a broadcast had stretched.
    SumTo(SumTo),
    /// The same elements under another shape.
    Reshape(Reshape),
    /// A part of a batch.
    BatchPart(BatchPart),
    /// All parts of a batch.
    BatchJoin(BatchJoin),
    /// Axes in another order.
    Permute(Permute),
    /// Values joined along an axis.
    Concat(Concat),
    /// A range along an axis.
    Slice(Slice),
    /// Zeros before and after an axis.
    Pad(Pad),
    /// The same number everywhere.
    NewFull(NewFull),
    /// Maximum over windows.
    MaxPool2d(MaxPool2d),
    /// Gradient of [`MaxPool2d`].
    MaxPool2dGrad(MaxPool2dGrad),
    /// Mean over windows.
    AvgPool2d(AvgPool2d),
    /// Gradient of [`AvgPool2d`].
    AvgPool2dGrad(AvgPool2dGrad),
    /// Mean over windows that tile the image.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// Gradient of [`AdaptiveAvgPool2d`].
    AdaptiveAvgPool2dGrad(AdaptiveAvgPool2dGrad),
    /// Maximum over windows that tile the image.
    AdaptiveMaxPool2d(AdaptiveMaxPool2d),
    /// Gradient of [`AdaptiveMaxPool2d`].
    AdaptiveMaxPool2dGrad(AdaptiveMaxPool2dGrad),
    /// An image of another size.
    Resize2d(Resize2d),
    /// Gradient of [`Resize2d`].
    Resize2dGrad(Resize2dGrad),
    /// Batch normalisation with the batch's statistics.
    BatchNorm(BatchNorm),
    /// Gradient of [`BatchNorm`].
    BatchNormGrad(BatchNormGrad),
    /// The statistics of [`BatchNorm`].
    BatchNormStatistics(BatchNormStatistics),
    /// The result of [`BatchNorm`] from its statistics.
    BatchNormApply(BatchNormApply),
    /// Batch normalisation with the running statistics.
    BatchNormInfer(BatchNormInfer),
    /// What a shard has for the statistics of all shards.
    BatchNormSums(BatchNormSums),
    /// The statistics of all shards.
    BatchNormFromSums(BatchNormFromSums),
    /// What a shard has for the gradients of all shards.
    BatchNormGradSums(BatchNormGradSums),
    /// A shard's gradient of [`BatchNorm`] over all shards.
    BatchNormGradFromSums(BatchNormGradFromSums),
    /// Group normalisation.
    GroupNorm(GroupNorm),
    /// Gradient of [`GroupNorm`].
    GroupNormGrad(GroupNormGrad),
    /// Layer normalisation.
    LayerNorm(LayerNorm),
    /// Gradient of [`LayerNorm`].
    LayerNormGrad(LayerNormGrad),
    /// Normalisation over neighbouring channels.
    LocalResponseNorm(LocalResponseNorm),
    /// Gradient of [`LocalResponseNorm`].
    LocalResponseNormGrad(LocalResponseNormGrad),
    /// Random zeros; the same draw serves the backward pass.
    Dropout(Dropout),
    /// Softmax over the last axis.
    Softmax(Softmax),
    /// Gradient of [`Softmax`].
    SoftmaxGrad(SoftmaxGrad),
    /// Logarithm of [`Softmax`].
    LogSoftmax(LogSoftmax),
    /// Gradient of [`LogSoftmax`].
    LogSoftmaxGrad(LogSoftmaxGrad),
    /// Scaled dot-product attention, of one sequence or of one to another.
    Attention(Attention),
    /// Gradient of [`Attention`].
    AttentionGrad(AttentionGrad),
    /// Attention to positions before, which are kept.
    CachedAttention(CachedAttention),
    /// Rotary positions.
    Rotary(Rotary),
    /// States of recurrent layers.
    Recurrent(Recurrent),
    /// Gradient of [`Recurrent`].
    RecurrentGrad(RecurrentGrad),
    /// Rows of a table.
    Embedding(Embedding),
    /// Gradient of [`Embedding`].
    EmbeddingGrad(EmbeddingGrad),
    /// A loss.
    Loss(LossOp),
    /// Gradient of [`LossOp`].
    LossGrad(LossGrad),
    /// Adds a batch to the running metric sums.
    Metrics(Metrics),
    /// Adds a batch to the counts of what was taken for what.
    ClassCounts(ClassCounts),
    /// Adds a batch to the sums of errors and targets of each output.
    ErrorSums(ErrorSums),
    /// Adds a gradient to its sum over micro-batches.
    AccumulateGrad(AccumulateGrad),
    /// Adds a loss to its mean over micro-batches.
    AccumulateLoss(AccumulateLoss),
    /// The gradient scale that makes a mean of sums over micro-batches.
    MeanScale(MeanScale),
    /// Clears the sums of gradients.
    ZeroGrad(ZeroGrad),
    /// Takes tensors of a shard into the sums over shards.
    ShardSum(ShardSum),
    /// Joins the sums of all ranks.
    ShardReduce(ShardReduce),
    /// Begins that ahead.
    ShardBegin(ShardBegin),
    /// Gives all ranks what belongs to each.
    ShardGather(ShardGather),
    /// Sets variables to means over shards.
    ShardMean(ShardMean),
    /// The mean loss of a step.
    MeanLoss(MeanLoss),
    /// Norm of all gradients together.
    GradNorm(GradNorm),
    /// Sums of squares of single gradients.
    GradSquares(GradSquares),
    /// The norm of all gradients from these.
    NormOfSquares(NormOfSquares),
    /// Gradients of single units brought within a share of the weights.
    AdaptiveClip(AdaptiveClip),
    /// The optimizer's update of all parameters.
    OptimizerStep(OptimizerStep),
    /// The factor of the loss that keeps gradients in range.
    UpdateScale(UpdateScale),
    /// The start of Muon's iteration.
    MuonStart(MuonStart),
    /// What Muon's iteration multiplies with.
    MuonPolynomial(MuonPolynomial),
    /// Muon's update of one parameter.
    MuonStep(MuonStep),
    /// Copies variables aside, before a step changes them.
    KeepState(KeepState),
    /// Gives variables back what they were, unless the loss is finite.
    RestoreState(RestoreState),
}

/// `infer` helper: exactly `n` operands.
pub(crate) fn arity(name: &str, inputs: &[&Value], n: usize) -> Result<(), ShapeError> {
    if inputs.len() == n {
        Ok(())
    } else {
        Err(ShapeError::new(format!("`{name}` takes {n} operands, not {}", inputs.len())))
    }
}

/// `infer` helper: the type of operand `i`, a float of 32 or 16 bits.
pub(crate) fn float(name: &str, inputs: &[&Value], i: usize) -> Result<DType, ShapeError> {
    let dtype = inputs[i].dtype;
    if dtype.is_activation() {
        Ok(dtype)
    } else {
        Err(ShapeError::of(i, format!("operand {i} of `{name}` must be of floats (f32, bf16 or f16), not of {dtype}")))
    }
}

/// `infer` helper: the type of operands `a` and `b`, floats of one type.
pub(crate) fn floats(name: &str, inputs: &[&Value], a: usize, b: usize) -> Result<DType, ShapeError> {
    let (first, second) = (float(name, inputs, a)?, float(name, inputs, b)?);
    if first == second {
        Ok(first)
    } else {
        Err(ShapeError::of(b, format!("`{name}` needs operands of one type, not {first} and {second}")))
    }
}

/// `infer` helper: the operands of the given numbers are of 32-bit floats.
pub(crate) fn singles(name: &str, inputs: &[&Value], of: impl IntoIterator<Item = usize>) -> Result<(), ShapeError> {
    for i in of {
        if inputs[i].dtype != DType::F32 {
            let dtype = inputs[i].dtype;
            return Err(ShapeError::of(i, format!("operand {i} of `{name}` must be of f32, not of {dtype}")));
        }
    }
    Ok(())
}

/// `infer` helper: operand `i` is a batch of images.
pub(crate) fn images(name: &str, inputs: &[&Value], i: usize) -> Result<[usize; 4], ShapeError> {
    inputs[i].shape.nhwc().ok_or_else(|| {
        ShapeError::of(
            i,
            format!("`{name}` needs images (N, C, H, W), but its input has the shape {}", inputs[i].shape.to_pytorch()),
        )
    })
}

/// `infer` helper: two operands have one shape.
pub(crate) fn same(name: &str, inputs: &[&Value], a: usize, b: usize) -> Result<(), ShapeError> {
    if inputs[a].shape == inputs[b].shape {
        Ok(())
    } else {
        Err(ShapeError::of(
            b,
            format!(
                "`{name}` needs operands of one shape, not {} and {}",
                inputs[a].shape.to_pytorch(),
                inputs[b].shape.to_pytorch()
            ),
        ))
    }
}
