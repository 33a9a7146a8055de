//! `init` in `[model]`: the values that parameters start with. The words, their arguments and defaults are those of `torch.nn.init`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, Options, options};
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::{Tagged, tagged};
use crate::config::declare::value::{Value, values};
use crate::config::language::pattern::Pattern;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::tree::Node;

/// Types of layers that have parameters.
const WITH_PARAMETERS: [&str; 29] = [
    "linear",
    "embedding",
    "conv2d",
    "conv1d",
    "conv_transpose2d",
    "conv_transpose1d",
    "batch_norm1d",
    "batch_norm2d",
    "group_norm",
    "layer_norm",
    "rms_norm",
    "instance_norm2d",
    "multihead_attention",
    "shifted_window_attention",
    "lstm",
    "gru",
    "rnn",
    "class_token",
    "position_embedding",
    "token_type_embedding",
    "embedding_bag",
    "layer_scale",
    "prelu",
    "piecewise_linear_embedding",
    "periodic_embedding",
    "feature_tokenizer",
    "tabular_input",
    "ensemble_affine",
    "ensemble_linear",
];

/// A rule of `init`: which parameters it is for, and how they start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InitRule {
    /// For which parameters.
    #[serde(flatten)]
    pub keys: InitKeys,
    /// How they start.
    #[serde(flatten)]
    pub init: Init,
    /// Where it is written.
    #[serde(skip)]
    pub span: Span,
}

impl InitRule {
    /// Whether it is for the parameter of that name in a layer of that type.
    pub fn fits(&self, layer: &str, name: &str) -> bool {
        let InitKeys { patterns, layers } = &self.keys;
        layers.as_ref().is_none_or(|words| words.iter().any(|word| word.word == layer))
            && patterns.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
    }
}

tagged! {
    /// How a parameter starts.
    Init by "type", resume Harmless:
    "zeros" => Zeros(Zeros),
    "ones" => Ones(Ones),
    "constant" => Constant(ConstantInit),
    "uniform" => Uniform(UniformInit),
    "normal" => Normal(NormalInit),
    "trunc_normal" => TruncNormal(TruncNormal),
    "xavier_uniform" => XavierUniform(XavierUniform),
    "xavier_normal" => XavierNormal(XavierNormal),
    "kaiming_uniform" => KaimingUniform(KaimingUniform),
    "kaiming_normal" => KaimingNormal(KaimingNormal),
}

options! {
    /// The keys that every rule of `init` has.
    #[rules(OneOf("layers", "match"))]
    pub struct InitKeys {
        /// Names of parameters, `*` standing for any characters, or of layers, for all of their parameters.
        #[option(otherwise = "all", length = 1.., example = r#"["*.weight"]"#, resume = Harmless)]
        pub patterns as "match": Option<Vec<Pattern>>,
        /// Types of layers: the rule is for the parameters of these alone.
        #[option(otherwise = "all", length = 1.., example = r#"["conv2d"]"#, resume = Harmless)]
        pub layers: Option<Vec<LayerType>>,
    }

    /// `torch.nn.init.zeros_`.
    pub struct Zeros {}

    /// `torch.nn.init.ones_`.
    pub struct Ones {}

    /// The same number everywhere. `torch.nn.init.constant_`.
    pub struct ConstantInit {
        /// The number.
        #[option(example = "0.1", resume = Harmless)]
        pub val: f64,
    }

    /// Uniform between two numbers. `torch.nn.init.uniform_`.
    pub struct UniformInit {
        /// The least number.
        #[option(default = 0.0, resume = Harmless)]
        pub a: f64,
        /// The largest number.
        #[option(default = 1.0, resume = Harmless)]
        pub b: f64,
    }

    /// Normal. `torch.nn.init.normal_`.
    pub struct NormalInit {
        /// Mean.
        #[option(default = 0.0, resume = Harmless)]
        pub mean: f64,
        /// Standard deviation.
        #[option(default = 1.0, range = 0.0.., resume = Harmless)]
        pub std: f64,
    }

    /// Normal with mean 0, without what lies beyond two numbers. `torch.nn.init.trunc_normal_`.
    pub struct TruncNormal {
        /// Standard deviation before numbers are left out.
        #[option(default = 1.0, range = above(0.0), resume = Harmless)]
        pub std: f64,
        /// The least number that is kept.
        #[option(default = -2.0, range = f64::NEG_INFINITY..=0.0, resume = Harmless)]
        pub a: f64,
        /// The largest number that is kept.
        #[option(default = 2.0, range = 0.0.., resume = Harmless)]
        pub b: f64,
    }

    /// Uniform within ± `gain · √(6 / (fan_in + fan_out))` (Glorot and Bengio 2010). `torch.nn.init.xavier_uniform_`.
    pub struct XavierUniform {
        /// A factor.
        #[option(default = 1.0, range = 0.0.., resume = Harmless)]
        pub gain: f64,
    }

    /// Normal with the standard deviation `gain · √(2 / (fan_in + fan_out))`. `torch.nn.init.xavier_normal_`.
    pub struct XavierNormal {
        /// A factor.
        #[option(default = 1.0, range = 0.0.., resume = Harmless)]
        pub gain: f64,
    }

    /// Uniform within ± `gain · √(3 / fan)` (He et al. 2015). `torch.nn.init.kaiming_uniform_`.
    pub struct KaimingUniform {
        /// Slope below zero of the `leaky_relu` after the layer.
        #[option(default = 0.0, resume = Harmless)]
        pub a: f64,
        /// Which fan: `"fan_in"` keeps the variance of the activations, `"fan_out"` that of their gradients.
        #[option(default = FanMode::FanIn, resume = Harmless)]
        pub mode: FanMode,
        /// What the gain is that of.
        #[option(default = Nonlinearity::LeakyRelu, resume = Harmless)]
        pub nonlinearity: Nonlinearity,
    }

    /// Normal with the standard deviation `gain / √fan`. `torch.nn.init.kaiming_normal_`.
    pub struct KaimingNormal {
        /// Slope below zero of the `leaky_relu` after the layer.
        #[option(default = 0.0, resume = Harmless)]
        pub a: f64,
        /// As of `kaiming_uniform`.
        #[option(default = FanMode::FanIn, resume = Harmless)]
        pub mode: FanMode,
        /// What the gain is that of.
        #[option(default = Nonlinearity::LeakyRelu, resume = Harmless)]
        pub nonlinearity: Nonlinearity,
    }
}

impl Check for InitKeys {}

impl Check for Zeros {}

impl Check for Ones {}

impl Check for ConstantInit {}

impl Check for UniformInit {
    fn check(&self, part: &Part) {
        part.require("b", self.a <= self.b, "must be at least `a`");
    }
}

impl Check for NormalInit {}

impl Check for TruncNormal {
    fn check(&self, part: &Part) {
        part.require("b", self.a < self.b, "must be more than `a`");
    }
}

impl Check for XavierUniform {}

impl Check for XavierNormal {}

impl Check for KaimingUniform {}

impl Check for KaimingNormal {}

values!(FanMode, Nonlinearity);

/// Which of the numbers of a weight's inputs and outputs counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanMode {
    /// That of the inputs.
    FanIn,
    /// That of the outputs.
    FanOut,
}

/// What follows a layer: it decides on a factor, the gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// 1.
    Linear,
    /// 1.
    Sigmoid,
    /// 5/3.
    Tanh,
    /// √2.
    Relu,
    /// √(2 / (1 + a²)).
    LeakyRelu,
    /// 3/4.
    Selu,
}

impl Nonlinearity {
    /// `torch.nn.init.calculate_gain`, `a` being the slope of a `leaky_relu`.
    pub fn gain(self, a: f64) -> f64 {
        match self {
            Self::Linear | Self::Sigmoid => 1.0,
            Self::Tanh => 5.0 / 3.0,
            Self::Relu => 2f64.sqrt(),
            Self::LeakyRelu => (2.0 / (1.0 + a * a)).sqrt(),
            Self::Selu => 0.75,
        }
    }
}

/// The type of a layer that has parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerType {
    /// Its word.
    pub word: &'static str,
    /// Where it is written.
    pub span: Span,
}

impl Value for LayerType {
    fn read(part: &Part, _: &str, node: &Node) -> Option<Self> {
        let word = known_word(node, "layer", part.what, &WITH_PARAMETERS, part.sink)?;
        Some(Self { word, span: node.span })
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": WITH_PARAMETERS })
    }
}

impl Serialize for LayerType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word)
    }
}

impl Value for InitRule {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let Some(table) = node.as_table() else {
            part.wrong_value(key, node, "expected a table");
            return None;
        };
        let part = Part { table, span: node.span, what: "a rule of `init`", bad: &[], sink: part.sink };
        let keys = part.read::<InitKeys>();
        let word = part.word::<Init>(None)?;
        part.known_keys(&[&[Init::TAG], InitKeys::KEYS, Init::fields(word)]);
        let init = <Init as Tagged>::read(word, &part)?;
        Some(Self { keys: keys?, init, span: node.span })
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/$defs/Init" })
    }
}

impl InitRule {
    /// The error for a type of layers that the model has none of.
    pub fn no_layer(word: &LayerType) -> Diagnostic {
        Diagnostic::error(format!("a rule of `init` is for `{}`, but no layer of the model is one", word.word))
            .at(word.span, "there is none")
    }
}
