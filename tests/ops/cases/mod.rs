//! The list of cases, a file for each family of operations.

mod attention;
mod chain;
mod conv;
mod conv_pool;
mod elementwise;
mod half;
mod input;
mod linear;
mod long;
mod loss;
mod norm;
mod optim;
mod pool;
mod residual;
mod shape;
mod softmax;
mod tiles;

use crate::case::Case;
use runner::graph::DType;
use runner::graph::op::Activation;

/// Every activation, with slopes and scales on both sides of zero.
pub const ACTIVATIONS: [Activation; 13] = [
    Activation::Relu,
    Activation::Relu6,
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: -0.2 },
    Activation::Elu { alpha: 1.3 },
    Activation::Elu { alpha: -0.7 },
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Hardsigmoid,
    Activation::Hardswish,
];

/// All cases on values of type `dtype`.
pub fn on(dtype: DType) -> Vec<Case> {
    if dtype == DType::F32 { all() } else { half::cases(all(), dtype) }
}

/// All cases on 32-bit floats.
pub fn all() -> Vec<Case> {
    let mut list: Vec<Case> = [
        attention::cases(),
        chain::cases(),
        conv::cases(),
        conv_pool::cases(),
        elementwise::cases(),
        input::cases(),
        linear::cases(),
        long::cases(),
        loss::cases(),
        norm::cases(),
        optim::cases(),
        pool::cases(),
        shape::cases(),
        softmax::cases(),
        tiles::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    list.extend(residual::cases(&list));
    list
}
