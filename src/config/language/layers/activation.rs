//! Activations: each is one entry of the list below, and the engine's [`Activation`] that it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::options::{Check, options};
use crate::config::declare::tagged::tagged;
use crate::config::declare::value::values;
use crate::graph::op::Activation;

/// Declares activations: what each is for, its type, the struct of its options (none are written for one that has none), and the
/// engine's activation.
macro_rules! activations {
    ($(
        $(#[doc = $doc:literal])*
        $word:literal => $name:ident $({ $($options:tt)* })? = $engine:expr;
    )*) => {
        options! {
            $($(#[doc = $doc])* pub struct $name { $($($options)*)? })*
        }

        $(impl Check for $name {})*

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
    /// `min(max(x + 3, 0), 6) / 6`. `torch.nn.Hardsigmoid`.
    "hardsigmoid" => Hardsigmoid = |_| Activation::Hardsigmoid;
    /// `x · hardsigmoid(x)`. `torch.nn.Hardswish`.
    "hardswish" => Hardswish = |_| Activation::Hardswish;
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
