//! Activations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::options::Check;
use crate::config::declare::options::options;
use crate::config::declare::value::values;

/// Declares activations without arguments.
macro_rules! plain {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        options! {
            $($(#[doc = $doc])* pub struct $name {})*
        }

        $(impl Check for $name {})*
    };
}

plain! {
    /// `max(x, 0)`. `torch.nn.ReLU`.
    Relu;
    /// `min(max(x, 0), 6)`. `torch.nn.ReLU6`.
    Relu6;
    /// `x · sigmoid(x)`. `torch.nn.SiLU`.
    Silu;
    /// The hyperbolic tangent. `torch.nn.Tanh`.
    Tanh;
    /// `1 / (1 + e⁻ˣ)`. `torch.nn.Sigmoid`.
    Sigmoid;
    /// `min(max(x + 3, 0), 6) / 6`. `torch.nn.Hardsigmoid`.
    Hardsigmoid;
    /// `x · hardsigmoid(x)`. `torch.nn.Hardswish`.
    Hardswish;
}

options! {
    /// `x` where positive, else `negative_slope · x`. `torch.nn.LeakyReLU`.
    pub struct LeakyRelu {
        /// Slope for negative inputs.
        #[option(default = 0.01)]
        pub negative_slope: f64,
    }

    /// `x` where positive, else `alpha · (eˣ − 1)`. `torch.nn.ELU`.
    pub struct Elu {
        /// Minus the limit for very negative inputs.
        #[option(default = 1.0)]
        pub alpha: f64,
    }

    /// `x · Φ(x)`, with the normal distribution's Φ. `torch.nn.GELU`.
    pub struct Gelu {
        /// Exact, or approximated with a tanh.
        #[option(default = Approximate::None)]
        pub approximate: Approximate,
    }

    /// Exponentials that sum to one. Not before `cross_entropy`, which takes logits. `torch.nn.Softmax`.
    pub struct Softmax {
        /// The dimension that sums to one: 1 (channels or classes, in PyTorch's order) or -1 (the last).
        #[option(default = -1, one_of = &[1, -1])]
        pub dim: i64,
    }
}

impl Check for LeakyRelu {}

impl Check for Elu {}

impl Check for Gelu {}

impl Check for Softmax {}

values!(Approximate);

/// How the normal distribution in `gelu` is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approximate {
    /// Exactly.
    None,
    /// By the usual formula with a tanh.
    Tanh,
}
