//! Convolutions without groups as products of tiles of bf16, their gradients by the input and by the weight.

mod grad_weight;
mod pixels;
mod strips;

pub use grad_weight::Bf16GradWeight;
pub use pixels::Bf16Pixels;
