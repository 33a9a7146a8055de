//! The layers: a table of options for each, with PyTorch's names and defaults.
//!
//! A new layer is a struct in the file of its family and a line in the list below; a new activation is an entry of the list in
//! `activation.rs`.

mod activation;
mod attention;
mod combine;
mod container;
mod conv;
mod norm;
mod pool;
mod recurrent;
mod resize;
mod sequence;
mod shape;
mod softmax;
mod tabular;
mod transformer;
mod transformer_layer;

pub use activation::*;
pub use attention::*;
pub use combine::*;
pub use container::*;
pub use conv::*;
pub use norm::*;
pub use pool::*;
pub use recurrent::*;
pub use resize::*;
pub use sequence::*;
pub use shape::*;
pub use softmax::*;
pub use tabular::*;
pub use transformer::*;
pub use transformer_layer::*;

use crate::config::declare::tagged::tagged;

tagged! {
    /// One layer with its arguments.
    Layer by "type", resume Breaks:
    "linear" => Linear(Linear),
    "embedding" => Embedding(Embedding),
    "conv2d" => Conv2d(Conv2d),
    "conv1d" => Conv1d(Conv1d),
    "conv_transpose2d" => ConvTranspose2d(ConvTranspose2d),
    "conv_transpose1d" => ConvTranspose1d(ConvTranspose1d),
    "batch_norm1d" => BatchNorm1d(BatchNorm1d),
    "batch_norm2d" => BatchNorm2d(BatchNorm2d),
    "group_norm" => GroupNorm(GroupNorm),
    "layer_norm" => LayerNorm(LayerNorm),
    "rms_norm" => RmsNorm(RmsNorm),
    "local_response_norm" => LocalResponseNorm(LocalResponseNorm),
    "instance_norm2d" => InstanceNorm2d(InstanceNorm2d),
    "multihead_attention" => MultiheadAttention(MultiheadAttention),
    "scaled_dot_product_attention" => ScaledDotProductAttention(ScaledDotProductAttention),
    "shifted_window_attention" => ShiftedWindowAttention(ShiftedWindowAttention),
    "lstm" => Lstm(Lstm),
    "gru" => Gru(Gru),
    "rnn" => Rnn(Rnn),
    "merge_patches" => MergePatches(MergePatches),
    "class_token" => ClassToken(ClassToken),
    "position_embedding" => PositionEmbedding(PositionEmbedding),
    "token_type_embedding" => TokenTypeEmbedding(TokenTypeEmbedding),
    "layer_scale" => LayerScale(LayerScale),
    "max_pool2d" => MaxPool2d(MaxPool2d),
    "avg_pool2d" => AvgPool2d(AvgPool2d),
    "adaptive_avg_pool2d" => AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    "adaptive_max_pool2d" => AdaptiveMaxPool2d(AdaptiveMaxPool2d),
    "max_pool1d" => MaxPool1d(MaxPool1d),
    "avg_pool1d" => AvgPool1d(AvgPool1d),
    "adaptive_avg_pool1d" => AdaptiveAvgPool1d(AdaptiveAvgPool1d),
    "sequence_pool" => SequencePool(SequencePool),
    "embedding_bag" => EmbeddingBag(EmbeddingBag),
    "flatten" => Flatten(Flatten),
    "unflatten" => Unflatten(Unflatten),
    "reshape" => Reshape(Reshape),
    "permute" => Permute(Permute),
    "transpose" => Transpose(Transpose),
    "chunk" => Chunk(Chunk),
    "slice" => Slice(Slice),
    "select" => Select(Select),
    "mean" => Mean(Mean),
    "sum" => Sum(Sum),
    "roll" => Roll(Roll),
    "channel_shuffle" => ChannelShuffle(ChannelShuffle),
    "upsample" => Upsample(Upsample),
    "pixel_shuffle" => PixelShuffle(PixelShuffle),
    "pixel_unshuffle" => PixelUnshuffle(PixelUnshuffle),
    "zero_pad2d" => ZeroPad2d(ZeroPad2d),
    "reflection_pad2d" => ReflectionPad2d(ReflectionPad2d),
    "replication_pad2d" => ReplicationPad2d(ReplicationPad2d),
    "dropout" => Dropout(Dropout),
    "stochastic_depth" => StochasticDepth(StochasticDepth),
    family Activation(ActivationLayer),
    "prelu" => Prelu(Prelu),
    "glu" => Glu(Glu),
    "swiglu" => Swiglu(Swiglu),
    "geglu" => Geglu(Geglu),
    "softmax" => Softmax(Softmax),
    "log_softmax" => LogSoftmax(LogSoftmax),
    "add" => Add(Add),
    "multiply" => Multiply(Multiply),
    "concat" => Concat(Concat),
    "piecewise_linear_embedding" => PiecewiseLinearEmbedding(PiecewiseLinearEmbedding),
    "periodic_embedding" => PeriodicEmbedding(PeriodicEmbedding),
    "feature_tokenizer" => FeatureTokenizer(FeatureTokenizer),
    "tabular_input" => TabularInput(TabularInput),
    "dot_interaction" => DotInteraction(DotInteraction),
    "ensemble_affine" => EnsembleAffine(EnsembleAffine),
    "ensemble_linear" => EnsembleLinear(EnsembleLinear),
    "ensemble_mean" => EnsembleMean(EnsembleMean),
    "identity" => Identity(Identity),
}
