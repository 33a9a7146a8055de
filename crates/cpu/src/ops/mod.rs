//! The kernels, a file or folder for each family of operations.

mod activation;
pub mod attention;
pub mod avg_pool;
pub mod batch_norm;
pub mod cached_attention;
pub mod chain;
pub mod class_counts;
pub mod conv;
pub mod dropout;
pub mod elementwise;
mod elementwise_loss;
pub mod embedding;
pub mod error_sums;
pub mod group_norm;
pub mod layer_norm;
pub mod linear;
pub mod loss;
mod loss_weights;
pub mod max_pool;
pub mod metrics;
pub mod normalize;
pub mod optim;
pub mod permute;
pub mod product_nodes;
pub mod recurrent;
mod reduce_columns;
mod reduce_rows;
pub mod resize;
pub mod response_norm;
pub mod rotary;
pub mod shape;
pub mod shards;
pub mod soft_cross_entropy;
pub mod softmax;
pub mod state;
pub mod sum_to;
mod weighted_binary;

/// Calls `$f::<T>(…)` with the element type of `$dtype`.
macro_rules! for_type {
    ($dtype:expr, $self:ident . $f:ident ( $($arg:expr),* )) => {
        match $dtype {
            $crate::graph::DType::F32 => $self.$f::<f32>($($arg),*),
            $crate::graph::DType::BF16 => $self.$f::<half::bf16>($($arg),*),
            $crate::graph::DType::F16 => $self.$f::<half::f16>($($arg),*),
            $crate::graph::DType::F64 => $self.$f::<f64>($($arg),*),
            $crate::graph::DType::U8 => $self.$f::<u8>($($arg),*),
            $crate::graph::DType::U32 => $self.$f::<u32>($($arg),*),
            $crate::graph::DType::I32 => $self.$f::<i32>($($arg),*),
            $crate::graph::DType::I64 => $self.$f::<i64>($($arg),*),
        }
    };
}
use for_type;
