//! `[schedule]`: how the learning rate changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::diagnostics::Diagnostic;
use crate::config::part::{Check, Part};
use crate::config::tagged::tagged;

/// The `[schedule]` section. The learning rate of each parameter group is its own times a factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedule {
    /// The factor after warm-up.
    #[serde(flatten)]
    pub curve: Curve,
    /// How it starts.
    #[serde(flatten)]
    pub warmup: Warmup,
}

tagged! {
    /// The course of the learning rate.
    Curve by "type":
    "constant" => Constant(Constant),
    "step" => Step(Step),
    "cosine" => Cosine(Cosine),
}

/// The learning rate stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {}

impl Check for Constant {}

/// The learning rate drops at certain epochs. `torch.optim.lr_scheduler.StepLR` and `MultiStepLR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "anyOf" = [{ "required": ["step_epochs"] }, { "required": ["milestones"] }],
    "not" = { "required": ["step_epochs", "milestones"] },
))]
pub struct Step {
    /// Drop after every so many epochs, counted from the start of the run; either this or `milestones`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub step_epochs: Option<usize>,
    /// Drop after these numbers of epochs, in rising order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), inner(range(min = 1)), extend("uniqueItems" = true))]
    pub milestones: Option<Vec<usize>>,
    /// What each drop multiplies the learning rate with.
    #[serde(default = "gamma")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub gamma: f64,
}

impl Check for Step {
    fn check(&self, part: &Part) {
        part.conflict("step_epochs", "milestones", "either a fixed distance, or a list of epochs");
        part.one_of("step_epochs", "milestones");
        part.require("step_epochs", self.step_epochs != Some(0), "must be at least 1");
        if let Some(milestones) = &self.milestones {
            let rising = milestones.windows(2).all(|pair| pair[0] < pair[1]) && milestones.first() != Some(&0);
            part.require("milestones", rising && !milestones.is_empty(), "must be rising numbers of at least 1");
        }
        part.require_positive("gamma", self.gamma);
    }
}

fn gamma() -> f64 {
    0.1
}

/// The learning rate falls along half a cosine, from the warm-up's end to the last epoch, anew at every step.
/// `torch.optim.lr_scheduler.CosineAnnealingLR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cosine {
    /// Where it ends.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_lr: f64,
    /// The epoch, counted from the start of the run, after which it stays at `min_lr`; by default the run's last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub epochs: Option<usize>,
}

impl Check for Cosine {
    fn check(&self, part: &Part) {
        part.require_not_negative("min_lr", self.min_lr);
        part.require("epochs", self.epochs != Some(0), "must be at least 1");
    }
}

/// A rise at the start of the run: at step `i` of `w` the rate is `s + (1 − s) · i / w` of the schedule's, `s` being
/// `warmup_start_factor`. `torch.optim.lr_scheduler.LinearLR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "dependentSchemas" = {
        "warmup_start_factor": { "anyOf": [{ "required": ["warmup_epochs"] }, { "required": ["warmup_steps"] }] },
    },
    "not" = { "required": ["warmup_epochs", "warmup_steps"] },
))]
pub struct Warmup {
    /// Length of the warm-up in epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_epochs: Option<usize>,
    /// Length of the warm-up in steps; either this or `warmup_epochs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_steps: Option<usize>,
    /// Factor of the first step; by default 1 divided by the number of warm-up steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub warmup_start_factor: Option<f64>,
}

impl Check for Warmup {
    fn check(&self, part: &Part) {
        part.conflict("warmup_epochs", "warmup_steps", "the same length is given twice");
        if let Some(factor) = self.warmup_start_factor {
            part.require("warmup_start_factor", (0.0..=1.0).contains(&factor), "must be from 0 to 1");
            if self.warmup_epochs.is_none() && self.warmup_steps.is_none() {
                part.sink.push(
                    Diagnostic::error(format!("`warmup_start_factor` in {} has no warm-up to start", part.what))
                        .at(part.span_of("warmup_start_factor"), "needs `warmup_epochs` or `warmup_steps`"),
                );
            }
        }
    }
}
