//! The kernels, a file or folder for each family of operations.

mod activation;
pub mod attention;
pub mod avg_pool;
pub mod batch_norm;
pub mod chain;
pub mod class_counts;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod group_norm;
pub mod layer_norm;
pub mod linear;
pub mod loss;
pub mod max_pool;
pub mod metrics;
pub mod normalize;
pub mod optim;
pub mod product_nodes;
mod reduce_columns;
mod reduce_rows;
pub mod shape;
pub mod soft_cross_entropy;
pub mod softmax;
pub mod state;
pub mod sum_to;
mod weighted_binary;
