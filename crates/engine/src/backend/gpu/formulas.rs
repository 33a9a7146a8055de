//! The names and numbers by which kernels know formulas, and the constants that they take.

use crate::graph::op::{Activation, Algorithm, ElementwiseLoss, RowLoss};

/// A constant that a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// A single.
    Single(f32),
    /// A double.
    Double(f64),
    /// A flag.
    Flag(bool),
}

/// The number of an activation's formula in `enum Activation` of `kernels/cuda/common.cuh`, and its constants, 0 where it takes none. Several activations
/// may share a formula.
pub fn activation(act: Activation) -> (u32, [f32; 2]) {
    let number = match act {
        Activation::Relu => 1,
        Activation::Relu6 | Activation::Hardtanh { .. } => 2,
        Activation::LeakyRelu { .. } => 3,
        Activation::Elu { .. } | Activation::Celu { .. } => 4,
        Activation::Gelu => 5,
        Activation::GeluTanh => 6,
        Activation::Silu => 7,
        Activation::Tanh => 8,
        Activation::Sigmoid => 9,
        Activation::Hardsigmoid => 10,
        Activation::Hardswish => 11,
        Activation::Mish => 12,
        Activation::Softplus { .. } => 13,
        Activation::Selu => 14,
        Activation::Softsign => 15,
        Activation::LogSigmoid => 16,
        Activation::Tanhshrink => 17,
        Activation::Hardshrink { .. } => 18,
        Activation::Softshrink { .. } => 19,
        Activation::Sin | Activation::Cos => 20,
    };
    let constants = match act {
        Activation::Relu6 => [0.0, 6.0],
        Activation::Hardtanh { low, high } => [low, high],
        // The scale, and the factor in the exponent.
        Activation::Elu { alpha } => [alpha, 1.0],
        Activation::Celu { alpha } => [alpha, 1.0 / alpha],
        // The sine of what is half of π more.
        Activation::Cos => [0.5, 0.0],
        _ => act.facts().parameters.map(|parameter| parameter.unwrap_or(0.0)),
    };
    (number, constants)
}

/// The last formula that the kernels of products, normalisations and sums apply to their results, too: `activate` in
/// `kernels/cuda/common.cuh`. With all others in every kernel, what is packed would be a fifth larger. Most of those need their operand
/// for the gradient, so that nothing joins them in training.
const LAST_JOINED: u32 = 11;

/// Whether these kernels apply it. Those of element-wise operations and groups have all formulas.
pub fn is_joined(act: Activation) -> bool {
    activation(act).0 <= LAST_JOINED
}

/// The number of a loss in `enum Elementwise` of `kernels/cuda/loss.cu`, and its parameter.
pub fn elementwise_loss(loss: ElementwiseLoss) -> (usize, f32) {
    match loss {
        ElementwiseLoss::Mse => (0, 0.0),
        ElementwiseLoss::L1 => (1, 0.0),
        ElementwiseLoss::SmoothL1 { beta } => (2, beta),
        ElementwiseLoss::Huber { delta } => (3, delta),
        ElementwiseLoss::BceWithLogits => (4, 0.0),
        ElementwiseLoss::Quantile { quantile } => (5, quantile),
        ElementwiseLoss::PoissonNll => (6, 0.0),
        ElementwiseLoss::GammaNll => (7, 0.0),
        ElementwiseLoss::Tweedie { power } => (8, power),
    }
}

/// The number of a loss in `enum RowLoss` of `kernels/cuda/loss.cu`, and its parameter.
pub fn row_loss(loss: RowLoss) -> (usize, f32) {
    match loss {
        RowLoss::CrossEntropy => (0, 0.0),
        RowLoss::Focal { gamma } => (1, gamma),
        RowLoss::Nll => (2, 0.0),
    }
}

/// The kernel that updates by a rule, and its constants.
pub fn update(algorithm: &Algorithm) -> (&'static str, Vec<Constant>) {
    use Constant::{Double, Flag, Single};
    match *algorithm {
        Algorithm::Sgd { momentum, dampening, nesterov } => {
            ("sgd", vec![Single(momentum), Single(dampening), Flag(nesterov)])
        }
        Algorithm::Adam { beta1, beta2, eps, decoupled, .. } => {
            ("adam", vec![Double(beta1), Double(beta2), Single(eps), Flag(decoupled)])
        }
        Algorithm::RmsProp { alpha, eps, momentum, .. } => {
            ("rmsprop", vec![Double(alpha), Single(eps), Single(momentum)])
        }
        Algorithm::Nadam { beta1, beta2, eps, decoupled, .. } => {
            ("nadam", vec![Double(beta1), Double(beta2), Single(eps), Flag(decoupled)])
        }
        Algorithm::Radam { beta1, beta2, eps, decoupled } => {
            ("radam", vec![Double(beta1), Double(beta2), Single(eps), Flag(decoupled)])
        }
        Algorithm::Adagrad { lr_decay, eps, .. } => ("adagrad", vec![Double(lr_decay), Single(eps)]),
        Algorithm::Adadelta { rho, eps } => ("adadelta", vec![Double(rho), Single(eps)]),
        Algorithm::Adamax { beta1, beta2, eps } => ("adamax", vec![Double(beta1), Double(beta2), Single(eps)]),
        Algorithm::Lion { beta1, beta2 } => ("lion", vec![Double(beta1), Double(beta2)]),
        Algorithm::Lamb { beta1, beta2, eps, .. } => ("lamb", vec![Double(beta1), Double(beta2), Single(eps)]),
        Algorithm::Lars { momentum, .. } => ("lars", vec![Single(momentum)]),
        // Its launches are their own.
        Algorithm::Adafactor { .. } => ("adafactor", Vec::new()),
        Algorithm::ScheduleFreeAdamW { beta1, beta2, eps, .. } => {
            ("schedule_free_adamw", vec![Double(beta1), Double(beta2), Single(eps)])
        }
    }
}
