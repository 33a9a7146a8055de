//! `[optimizer]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::diagnostics::Diagnostic;
use crate::config::experiment::Pattern;
use crate::config::part::{Check, Part};
use crate::config::tagged::tagged;

/// The `[optimizer]` section.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimizer {
    /// The rule with its arguments.
    #[serde(flatten)]
    pub rule: OptimizerRule,
    /// Parameters that are treated differently; a parameter belongs to the first group that matches it.
    pub groups: Vec<ParamGroup>,
}

tagged! {
    /// How a gradient changes a parameter.
    OptimizerRule by "type":
    "sgd" => Sgd(Sgd),
    "adam" => Adam(Adam),
    "adamw" => AdamW(AdamW),
    "rmsprop" => RmsProp(RmsProp),
}

impl OptimizerRule {
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

/// What some parameters have of their own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParamGroup {
    /// Names of parameters, `*` standing for any characters.
    #[serde(rename = "match")]
    pub patterns: Vec<Pattern>,
    /// Learning rate, if not the section's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Weight decay, if not the section's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}

/// Stochastic gradient descent. `torch.optim.SGD`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "if" = { "properties": { "nesterov": { "const": true } }, "required": ["nesterov"] },
    "then" = {
        "properties": { "momentum": { "exclusiveMinimum": 0 }, "dampening": { "const": 0 } },
        "required": ["momentum"],
    },
))]
pub struct Sgd {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Share of the last update that is kept.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub momentum: f64,
    /// Share of the gradient that momentum leaves out.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub dampening: f64,
    /// L2 penalty, added to the gradient.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Nesterov's momentum; needs `momentum`, and no `dampening`.
    #[serde(default)]
    pub nesterov: bool,
}

impl Check for Sgd {
    fn check(&self, part: &Part) {
        part.require_positive("lr", self.lr);
        part.require_not_negative("momentum", self.momentum);
        part.require("dampening", (0.0..=1.0).contains(&self.dampening), "must be from 0 to 1");
        part.require_not_negative("weight_decay", self.weight_decay);
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

/// `torch.optim.Adam`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Adam {
    /// Learning rate.
    #[serde(default = "lr_adam")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Decay of the running means of gradient and squared gradient.
    #[serde(default = "betas")]
    #[schemars(extend("items" = { "type": "number", "minimum": 0, "exclusiveMaximum": 1 }))]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[serde(default = "eps")]
    #[schemars(range(min = 0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Divide by the largest mean of squares so far.
    #[serde(default)]
    pub amsgrad: bool,
}

impl Check for Adam {
    fn check(&self, part: &Part) {
        part.require_positive("lr", self.lr);
        part.require("betas", self.betas.iter().all(|b| (0.0..1.0).contains(b)), "must both be at least 0 and below 1");
        part.require_not_negative("eps", self.eps);
        part.require_not_negative("weight_decay", self.weight_decay);
    }
}

/// Adam with decoupled weight decay. `torch.optim.AdamW`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdamW {
    /// Learning rate.
    #[serde(default = "lr_adam")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Decay of the running means of gradient and squared gradient.
    #[serde(default = "betas")]
    #[schemars(extend("items" = { "type": "number", "minimum": 0, "exclusiveMaximum": 1 }))]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[serde(default = "eps")]
    #[schemars(range(min = 0))]
    pub eps: f64,
    /// Share of a parameter, times the learning rate, that each step takes away.
    #[serde(default = "decay_adamw")]
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Divide by the largest mean of squares so far.
    #[serde(default)]
    pub amsgrad: bool,
}

impl Check for AdamW {
    fn check(&self, part: &Part) {
        part.require_positive("lr", self.lr);
        part.require("betas", self.betas.iter().all(|b| (0.0..1.0).contains(b)), "must both be at least 0 and below 1");
        part.require_not_negative("eps", self.eps);
        part.require_not_negative("weight_decay", self.weight_decay);
    }
}

/// `torch.optim.RMSprop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RmsProp {
    /// Learning rate.
    #[serde(default = "lr_rmsprop")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Decay of the running mean of squares.
    #[serde(default = "alpha")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub alpha: f64,
    /// Added to the denominator.
    #[serde(default = "eps")]
    #[schemars(range(min = 0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Share of the last update that is kept.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub momentum: f64,
    /// Divide by an estimate of the gradient's variance.
    #[serde(default)]
    pub centered: bool,
}

impl Check for RmsProp {
    fn check(&self, part: &Part) {
        part.require_positive("lr", self.lr);
        part.require("alpha", (0.0..1.0).contains(&self.alpha), "must be at least 0 and below 1");
        part.require_not_negative("eps", self.eps);
        part.require_not_negative("weight_decay", self.weight_decay);
        part.require_not_negative("momentum", self.momentum);
    }
}

fn lr_adam() -> f64 {
    1e-3
}

fn lr_rmsprop() -> f64 {
    1e-2
}

fn betas() -> [f64; 2] {
    [0.9, 0.999]
}

fn eps() -> f64 {
    1e-8
}

fn decay_adamw() -> f64 {
    1e-2
}

fn alpha() -> f64 {
    0.99
}
