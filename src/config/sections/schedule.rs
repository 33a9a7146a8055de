//! `[schedule]`: how the learning rate changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// The learning rate drops at certain epochs. `torch.optim.lr_scheduler.StepLR` and `MultiStepLR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Drop after every so many epochs, counted from the start of the run; either this or `milestones`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub step_epochs: Option<usize>,
    /// Drop after these numbers of epochs, in rising order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milestones: Option<Vec<usize>>,
    /// What each drop multiplies the learning rate with.
    #[serde(default = "gamma")]
    #[schemars(range(min = 0))]
    pub gamma: f64,
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

/// A rise at the start of the run: at step `i` of `w` the rate is `s + (1 − s) · i / w` of the schedule's, `s` being
/// `warmup_start_factor`. `torch.optim.lr_scheduler.LinearLR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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
