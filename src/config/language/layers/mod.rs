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
mod shape;
mod softmax;

pub use activation::*;
pub use attention::*;
pub use combine::*;
pub use container::*;
pub use conv::*;
pub use norm::*;
pub use pool::*;
pub use shape::*;
pub use softmax::*;

use crate::config::declare::tagged::tagged;

tagged! {
    /// One layer with its arguments.
    Layer by "type", resume Breaks:
    "linear" => Linear(Linear),
    "conv2d" => Conv2d(Conv2d),
    "batch_norm1d" => BatchNorm1d(BatchNorm1d),
    "batch_norm2d" => BatchNorm2d(BatchNorm2d),
    "group_norm" => GroupNorm(GroupNorm),
    "layer_norm" => LayerNorm(LayerNorm),
    "multihead_attention" => MultiheadAttention(MultiheadAttention),
    "max_pool2d" => MaxPool2d(MaxPool2d),
    "avg_pool2d" => AvgPool2d(AvgPool2d),
    "adaptive_avg_pool2d" => AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    "flatten" => Flatten(Flatten),
    "dropout" => Dropout(Dropout),
    family Activation(ActivationLayer),
    "softmax" => Softmax(Softmax),
    "add" => Add(Add),
    "multiply" => Multiply(Multiply),
    "concat" => Concat(Concat),
    "identity" => Identity(Identity),
}
