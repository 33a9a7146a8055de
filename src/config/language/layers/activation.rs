//! Activations: each is one entry of the list below, and the engine's [`Activation`] that it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::tagged;
use crate::config::declare::value::values;
use crate::graph::op::Activation;

/// Declares activations: what each is for, its type, the struct of its options (none are written for one that has none), and the
/// engine's activation.
macro_rules! activations {
    ($(
        $(#[doc = $doc:literal])*
        $word:literal => $name:ident $({ $($options:tt)* })? $(checked by $check:ident)? = $engine:expr;
    )*) => {
        options! {
            $($(#[doc = $doc])* pub struct $name { $($($options)*)? })*
        }

        $(impl Check for $name {
            $(fn check(&self, part: &Part) {
                $check(self, part);
            })?
        })*

        tagged! {
            /// The activations among the layers.
            ActivationLayer by "type", resume Breaks:
            $($word => $name($name),)*
        }

        impl ActivationLayer {
            /// The engine's activation, which knows what goes with it.
            pub fn describe(&self) -> Activation {
                match self {
                    $(Self::$name(options) => {
                        let describe: fn(&$name) -> Activation = $engine;
                        describe(options)
                    })*
                }
            }
        }
    };
}

activations! {
    /// `max(x, 0)`. `torch.nn.ReLU`.
    "relu" => Relu = |_| Activation::Relu;
    /// `min(max(x, 0), 6)`. `torch.nn.ReLU6`.
    "relu6" => Relu6 = |_| Activation::Relu6;
    /// `x` where positive, else `negative_slope · x`. `torch.nn.LeakyReLU`.
    "leaky_relu" => LeakyRelu {
        /// Slope for negative inputs.
        #[option(default = 0.01)]
        pub negative_slope: f64,
    } = |options| Activation::LeakyRelu { slope: options.negative_slope as f32 };
    /// `x` where positive, else `alpha · (eˣ − 1)`. `torch.nn.ELU`.
    "elu" => Elu {
        /// Minus the limit for very negative inputs.
        #[option(default = 1.0)]
        pub alpha: f64,
    } = |options| Activation::Elu { alpha: options.alpha as f32 };
    /// `x · Φ(x)`, with the normal distribution's Φ. `torch.nn.GELU`.
    "gelu" => Gelu {
        /// Exact, or approximated with a tanh.
        #[option(default = Approximate::None)]
        pub approximate: Approximate,
    } = |options| match options.approximate {
        Approximate::None => Activation::Gelu,
        Approximate::Tanh => Activation::GeluTanh,
    };
    /// `x · sigmoid(x)`. `torch.nn.SiLU`.
    "silu" => Silu = |_| Activation::Silu;
    /// The hyperbolic tangent. `torch.nn.Tanh`.
    "tanh" => Tanh = |_| Activation::Tanh;
    /// `1 / (1 + e⁻ˣ)`. `torch.nn.Sigmoid`.
    "sigmoid" => Sigmoid = |_| Activation::Sigmoid;
    /// The sine of radians. `torch.sin`.
    "sin" => Sin = |_| Activation::Sin;
    /// The cosine. `torch.cos`.
    "cos" => Cos = |_| Activation::Cos;
    /// `min(max(x + 3, 0), 6) / 6`. `torch.nn.Hardsigmoid`.
    "hardsigmoid" => Hardsigmoid = |_| Activation::Hardsigmoid;
    /// `x · hardsigmoid(x)`. `torch.nn.Hardswish`.
    "hardswish" => Hardswish = |_| Activation::Hardswish;
    /// `x · tanh(softplus(x))`. `torch.nn.Mish`.
    "mish" => Mish = |_| Activation::Mish;
    /// `ln(1 + e^(beta · x)) / beta`, and `x` itself where `beta · x` is above the threshold. `torch.nn.Softplus`.
    "softplus" => Softplus {
        /// How sharp the bend at 0 is.
        #[option(default = 1.0, range = above(0.0))]
        pub beta: f64,
        /// Where it goes over into the identity.
        #[option(default = 20.0)]
        pub threshold: f64,
    } = |options| Activation::Softplus { beta: positive(options.beta), threshold: options.threshold as f32 };
    /// `1.0507 · x` where positive, else `1.7581 · (eˣ − 1)`. `torch.nn.SELU`.
    "selu" => Selu = |_| Activation::Selu;
    /// `x` where positive, else `alpha · (e^(x / alpha) − 1)`. `torch.nn.CELU`.
    "celu" => Celu {
        /// Minus the limit for very negative inputs.
        #[option(default = 1.0, range = above(0.0))]
        pub alpha: f64,
    } = |options| Activation::Celu { alpha: positive(options.alpha) };
    /// `x / (1 + |x|)`. `torch.nn.Softsign`.
    "softsign" => Softsign = |_| Activation::Softsign;
    /// `ln(sigmoid(x))`. `torch.nn.LogSigmoid`.
    "log_sigmoid" => LogSigmoid = |_| Activation::LogSigmoid;
    /// `x − tanh(x)`. `torch.nn.Tanhshrink`.
    "tanhshrink" => Tanhshrink = |_| Activation::Tanhshrink;
    /// `min(max(x, min_val), max_val)`. `torch.nn.Hardtanh`.
    "hardtanh" => Hardtanh {
        /// The least value.
        #[option(default = -1.0)]
        pub min_val: f64,
        /// The largest value.
        #[option(default = 1.0)]
        pub max_val: f64,
    } checked by in_order = |options| Activation::Hardtanh { low: options.min_val as f32, high: options.max_val as f32 };
    /// `x` where it is further from 0 than `lambd`, else 0. `torch.nn.Hardshrink`.
    "hardshrink" => Hardshrink {
        /// Half the width of what becomes 0.
        #[option(default = 0.5, range = 0.0..)]
        pub lambd: f64,
    } = |options| Activation::Hardshrink { lambda: options.lambd as f32 };
    /// `x` brought nearer to 0 by `lambd`, and 0 where it is as near as that. `torch.nn.Softshrink`.
    "softshrink" => Softshrink {
        /// Half the width of what becomes 0.
        #[option(default = 0.5, range = 0.0..)]
        pub lambd: f64,
    } = |options| Activation::Softshrink { lambda: options.lambd as f32 };
}

/// In single precision; what is positive stays so, and neither it nor its inverse is infinite.
fn positive(x: f64) -> f32 {
    (x as f32).clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// Reports bounds that leave nothing between them in single precision.
fn in_order(options: &Hardtanh, part: &Part) {
    let holds = (options.min_val as f32) < options.max_val as f32;
    match part.table.get("max_val") {
        Some(_) => part.require("max_val", holds, "must be above `min_val`"),
        None => part.require("min_val", holds, "must be below `max_val`, which is 1"),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::declare::tagged::Tagged;

    /// A type is called what the engine calls it, by which listings show it.
    #[test]
    fn a_type_is_the_activation_of_its_name() {
        let all = ActivationLayer::defaults();
        let types: Vec<&str> = all.iter().map(Tagged::type_name).collect();
        let described: Vec<&str> = all.iter().map(|layer| layer.describe().name()).collect();
        assert_eq!(types, ActivationLayer::TYPES, "each has defaults for its options");
        assert_eq!(described, types);
    }
}
