//! `[optimizer]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::tagged::tagged;
use crate::config::declare::value::{Value, values};
use crate::config::language::pattern::Pattern;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;
use crate::graph::op::Algorithm;

/// The `[optimizer]` section.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimizer {
    /// The rule with its arguments.
    #[serde(flatten)]
    pub rule: OptimizerRule,
    /// Parameters that are treated differently; a parameter belongs to the first group that matches it.
    pub groups: Vec<ParamGroup>,
    /// Factor of the learning rate from each layer to the one below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
    /// Parameters without weight decay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_decay: Vec<NoDecay>,
    /// A moving average of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<Ema>,
}

tagged! {
    /// How a gradient changes a parameter.
    OptimizerRule by "type", resume Breaks:
    "sgd" => Sgd(Sgd),
    "adam" => Adam(Adam),
    "adamw" => AdamW(AdamW),
    "rmsprop" => RmsProp(RmsProp),
}

impl OptimizerRule {
    /// The engine's rule.
    pub fn describe(&self) -> Algorithm {
        match self {
            Self::Sgd(s) => {
                Algorithm::Sgd { momentum: s.momentum as f32, dampening: s.dampening as f32, nesterov: s.nesterov }
            }
            Self::Adam(Adam { betas: [beta1, beta2], eps, amsgrad, .. }) => {
                Algorithm::Adam { beta1: *beta1, beta2: *beta2, eps: *eps as f32, decoupled: false, amsgrad: *amsgrad }
            }
            Self::AdamW(AdamW { betas: [beta1, beta2], eps, amsgrad, .. }) => {
                Algorithm::Adam { beta1: *beta1, beta2: *beta2, eps: *eps as f32, decoupled: true, amsgrad: *amsgrad }
            }
            Self::RmsProp(r) => Algorithm::RmsProp {
                alpha: r.alpha,
                eps: r.eps as f32,
                momentum: r.momentum as f32,
                centered: r.centered,
            },
        }
    }

    /// Share of the last update that is kept, and of the gradient that this leaves out.
    pub fn momentum(&self) -> [f64; 2] {
        match self {
            Self::Sgd(o) => [o.momentum, o.dampening],
            Self::RmsProp(o) => [o.momentum, 0.0],
            Self::Adam(_) | Self::AdamW(_) => [0.0; 2],
        }
    }

    /// Decays of the running means of gradient and squared gradient.
    pub fn betas(&self) -> Option<[f64; 2]> {
        match self {
            Self::Adam(Adam { betas, .. }) | Self::AdamW(AdamW { betas, .. }) => Some(*betas),
            Self::Sgd(_) | Self::RmsProp(_) => None,
        }
    }

    /// True if `weight_decay` times the learning rate is the share of a parameter that a step takes away. Decay that is added to
    /// a scaled gradient is scaled as well.
    pub fn decays_by_share(&self) -> bool {
        match self {
            Self::Sgd(_) | Self::AdamW(_) => true,
            Self::Adam(_) | Self::RmsProp(_) => false,
        }
    }

    /// The learning rate that schedules scale.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.lr,
            Self::Adam(o) => o.lr,
            Self::AdamW(o) => o.lr,
            Self::RmsProp(o) => o.lr,
        }
    }

    /// The weight decay of parameters in no group.
    pub fn weight_decay(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.weight_decay,
            Self::Adam(o) => o.weight_decay,
            Self::AdamW(o) => o.weight_decay,
            Self::RmsProp(o) => o.weight_decay,
        }
    }
}

options! {
    /// The keys of `[optimizer]` that every rule has.
    pub struct ParamGroups {
        /// Parameters that are treated differently; a parameter belongs to the first group that matches it.
        #[option(default = Vec::new(), resume = Differs)]
        pub groups: Vec<ParamGroup>,
        /// Factor of the learning rate from each layer to the one below it: the last of the model's own layers that have parameters has
        /// the full rate, the one before it this factor of it, the next its square. A group's own `lr` is taken as it is. `check`
        /// shows the rates.
        #[option(range = above(0.0).to(1.0), resume = Differs)]
        pub layer_decay: Option<f64>,
        /// Parameters without weight decay: `"norm"`, those of normalisation layers, `"bias"`, all whose name ends with `bias`. A group's own
        /// `weight_decay` is taken as it is.
        #[option(default = Vec::new(), example = r#"["norm", "bias"]"#, resume = Differs)]
        pub no_decay: Vec<NoDecay>,
        /// Keep an exponential moving average of the weights, which is what is validated, and what `eval`, `predict` and `export` take
        /// from a checkpoint.
        #[option(example = "{ decay = 0.999 }")]
        pub ema: Option<Ema>,
    }

    /// An exponential moving average of parameters, and of the statistics of batch norm.
    pub struct Ema {
        /// Share of the average that an update keeps; the rest is the new value.
        #[option(default = 0.999, range = 0.0..1.0)]
        pub decay: f64,
        /// Keep less at first: after `n` updates at most `(1 + n) / (10 + n)`, so that the average soon forgets where it began.
        #[option(default = true)]
        pub warmup: bool,
    }

    /// What some parameters have of their own.
    #[schema("anyOf": [{ "required": ["lr"] }, { "required": ["weight_decay"] }])]
    pub struct ParamGroup {
        /// Names of parameters, `*` standing for any characters, or of layers, for all of their parameters.
        #[option(length = 1.., example = r#"["*.bias"]"#)]
        pub patterns as "match": Vec<Pattern>,
        /// Learning rate.
        #[option(otherwise = "the section's", range = 0.0..)]
        pub lr: Option<f64>,
        /// Weight decay.
        #[option(otherwise = "the section's", range = 0.0..)]
        pub weight_decay: Option<f64>,
    }
}

impl Check for ParamGroups {}

impl Check for Ema {}

impl Ema {
    /// The share of the new value in the average after `update`, counted from 1.
    pub fn share(&self, update: u64) -> f64 {
        let n = update as f64;
        let decay = if self.warmup { self.decay.min((1.0 + n) / (10.0 + n)) } else { self.decay };
        1.0 - decay
    }
}

impl Value for Ema {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for Ema {
    fn schema_name() -> Cow<'static, str> {
        "Ema".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

values!(NoDecay);

/// Parameters that are often left without weight decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoDecay {
    /// Those of normalisation layers.
    Norm,
    /// Those whose name ends with `bias`.
    Bias,
}

impl Check for ParamGroup {
    fn check(&self, part: &Part) {
        if self.lr.is_none() && self.weight_decay.is_none() {
            part.sink.push(
                Diagnostic::error(format!("{} changes nothing", part.what)).at(part.span, "set `lr` or `weight_decay`"),
            );
        }
    }
}

impl Value for ParamGroup {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, "a group of parameters")
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

options! {
    /// Stochastic gradient descent. `torch.optim.SGD`.
    #[schema(
        "if": { "properties": { "nesterov": { "const": true } }, "required": ["nesterov"] },
        "then": {
            "properties": { "momentum": { "exclusiveMinimum": 0 }, "dampening": { "const": 0 } },
            "required": ["momentum"],
        },
    )]
    pub struct Sgd {
        /// Learning rate.
        #[option(range = above(0.0), example = "0.1", resume = Differs)]
        pub lr: f64,
        /// Share of the last update that is kept.
        #[option(default = 0.0, range = 0.0..)]
        pub momentum: f64,
        /// Share of the gradient that momentum leaves out.
        #[option(default = 0.0, range = 0.0..=1.0, resume = Differs)]
        pub dampening: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Nesterov's momentum; needs `momentum`, and no `dampening`.
        #[option(default = false, resume = Differs)]
        pub nesterov: bool,
    }
}

impl Check for Sgd {
    fn check(&self, part: &Part) {
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            let (key, reason) = match self.dampening != 0.0 {
                true => ("dampening", "must be 0 with `nesterov`"),
                false => ("momentum", "must be above 0 with `nesterov`"),
            };
            let mut error =
                Diagnostic::error(format!("`nesterov` in {} needs `momentum` and no `dampening`", part.what));
            error = match part.table.get(key) {
                Some(node) => error.at(node.span, reason).context(part.span_of("nesterov"), ""),
                None => error.at(part.span_of("nesterov"), "`momentum` is not set"),
            };
            part.sink.push(error);
        }
    }
}

options! {
    /// `torch.optim.Adam`.
    pub struct Adam {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Divide by the largest mean of squares so far.
        #[option(default = false)]
        pub amsgrad: bool,
    }

    /// Adam with decoupled weight decay. `torch.optim.AdamW`.
    pub struct AdamW {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 1e-2, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Divide by the largest mean of squares so far.
        #[option(default = false)]
        pub amsgrad: bool,
    }

    /// `torch.optim.RMSprop`.
    pub struct RmsProp {
        /// Learning rate.
        #[option(default = 1e-2, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running mean of squares.
        #[option(default = 0.99, range = 0.0..1.0, resume = Differs)]
        pub alpha: f64,
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Share of the last update that is kept.
        #[option(default = 0.0, range = 0.0..)]
        pub momentum: f64,
        /// Divide by an estimate of the gradient's variance.
        #[option(default = false)]
        pub centered: bool,
    }
}

impl Check for Adam {}

impl Check for AdamW {}

impl Check for RmsProp {}
