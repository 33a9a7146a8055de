//! `[loss]`: the keys of each loss, and which of the engine's losses they make.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};
use crate::config::tagged::{Tagged, tagged};
use crate::graph::op::{self, Elementwise, IGNORE_INDEX};

tagged! {
    /// The `[loss]` section.
    Loss by "type":
    "cross_entropy" => CrossEntropy(CrossEntropy),
    "mse" => Mse(Mse),
    "l1" => L1(L1),
    "smooth_l1" => SmoothL1(SmoothL1),
    "huber" => Huber(Huber),
    "bce_with_logits" => BceWithLogits(BceWithLogits),
}

impl Loss {
    /// Each with its defaults.
    pub const DEFAULTS: [Loss; Loss::TYPES.len()] = [
        Loss::CrossEntropy(CrossEntropy { label_smoothing: 0.0, ignore_index: IGNORE_INDEX, weight: None }),
        Loss::Mse(Mse {}),
        Loss::L1(L1 {}),
        Loss::SmoothL1(SmoothL1 { beta: 1.0 }),
        Loss::Huber(Huber { delta: 1.0 }),
        Loss::BceWithLogits(BceWithLogits {}),
    ];

    /// The engine's loss, which knows what it takes and what is measured with it.
    pub fn describe(&self) -> op::Loss {
        match self {
            Loss::CrossEntropy(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                label_smoothing: l.label_smoothing as f32,
                ignore_index: l.ignore_index,
                weight: l.weight.iter().flatten().map(|w| *w as f32).collect(),
            }),
            Loss::Mse(_) => Elementwise::Mse.into(),
            Loss::L1(_) => Elementwise::L1.into(),
            Loss::SmoothL1(l) => Elementwise::SmoothL1 { beta: l.beta as f32 }.into(),
            Loss::Huber(l) => Elementwise::Huber { delta: l.delta as f32 }.into(),
            Loss::BceWithLogits(_) => Elementwise::BceWithLogits.into(),
        }
    }
}

/// Cross-entropy of classes, from logits, averaged over what counts of the batch. `torch.nn.CrossEntropyLoss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrossEntropy {
    /// Share of each target that is spread evenly over all classes.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Targets of this class do not count: not in the loss, its mean, its gradient, nor in the accuracy.
    #[serde(default = "ignore_index")]
    pub ignore_index: i32,
    /// What each class weighs in the mean; by default all weigh the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), inner(range(min = 0)))]
    pub weight: Option<Vec<f64>>,
}

impl Check for CrossEntropy {
    fn check(&self, part: &Part) {
        part.require("label_smoothing", (0.0..1.0).contains(&self.label_smoothing), "must be at least 0 and below 1");
        if let Some(weight) = &self.weight {
            let sound =
                weight.iter().all(|w| (0.0..=f64::from(f32::MAX)).contains(w)) && weight.iter().any(|w| *w > 0.0);
            part.require("weight", sound, "must be a number of at least 0 for each class, one of them above 0");
        }
    }
}

/// Mean squared error. `torch.nn.MSELoss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mse {}

impl Check for Mse {}

/// Mean absolute error. `torch.nn.L1Loss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L1 {}

impl Check for L1 {}

/// Squared error, divided by twice `beta`, where it is small, and absolute error where it is large.
/// `torch.nn.SmoothL1Loss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmoothL1 {
    /// Error at which one goes over into the other.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub beta: f64,
}

impl Check for SmoothL1 {
    fn check(&self, part: &Part) {
        part.require_not_negative("beta", self.beta);
    }
}

/// Half the squared error where it is small, and `delta` times the absolute error where it is large.
/// `torch.nn.HuberLoss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Huber {
    /// Error at which one goes over into the other.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub delta: f64,
}

impl Check for Huber {
    fn check(&self, part: &Part) {
        part.require_positive("delta", self.delta);
    }
}

/// Binary cross-entropy of numbers from 0 to 1, from logits: any number of independent yes-or-no questions.
/// `torch.nn.BCEWithLogitsLoss`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BceWithLogits {}

impl Check for BceWithLogits {}

fn ignore_index() -> i32 {
    IGNORE_INDEX
}

fn one() -> f64 {
    1.0
}
