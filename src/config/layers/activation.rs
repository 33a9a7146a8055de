//! Activations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};

/// Declares activations without arguments.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
            #[serde(deny_unknown_fields)]
            pub struct $name {}

            impl Check for $name {}
        )*
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

fn slope() -> f64 {
    0.01
}

fn one() -> f64 {
    1.0
}

fn last() -> i64 {
    -1
}

/// `x` where positive, else `negative_slope · x`. `torch.nn.LeakyReLU`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeakyRelu {
    /// Slope for negative inputs.
    #[serde(default = "slope")]
    pub negative_slope: f64,
}

impl Check for LeakyRelu {
    fn check(&self, part: &Part) {
        part.require("negative_slope", self.negative_slope.is_finite(), "must be a finite number");
    }
}

/// `x` where positive, else `alpha · (eˣ − 1)`. `torch.nn.ELU`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Elu {
    /// Minus the limit for very negative inputs.
    #[serde(default = "one")]
    pub alpha: f64,
}

impl Check for Elu {
    fn check(&self, part: &Part) {
        part.require("alpha", self.alpha.is_finite(), "must be a finite number");
    }
}

/// How the normal distribution in `gelu` is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approximate {
    /// Exactly.
    #[default]
    None,
    /// By the usual formula with a tanh.
    Tanh,
}

/// `x · Φ(x)`, with the normal distribution's Φ. `torch.nn.GELU`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gelu {
    /// Exact, or approximated with a tanh.
    #[serde(default)]
    pub approximate: Approximate,
}

impl Check for Gelu {}

/// Exponentials that sum to one. `torch.nn.Softmax`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Softmax {
    /// The dimension that sums to one: 1 (channels or classes, in PyTorch's order) or -1 (the last).
    #[serde(default = "last")]
    #[schemars(extend("enum" = [1, -1]))]
    pub dim: i64,
}

impl Check for Softmax {
    fn check(&self, part: &Part) {
        part.require("dim", matches!(self.dim, 1 | -1), "must be 1 or -1");
    }
}
