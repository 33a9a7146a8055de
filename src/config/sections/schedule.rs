//! `[schedule]`: how the learning rate changes.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::config::bounds::above;
use crate::config::diagnostics::Diagnostic;
use crate::config::options::options;
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
    Curve by "type", resume Differs:
    "constant" => Constant(Constant),
    "step" => Step(Step),
    "cosine" => Cosine(Cosine),
}

options! {
    /// The learning rate stays as it is.
    pub struct Constant {}

    /// The learning rate drops at certain epochs: after `e` whole epochs it is `lr · gamma^⌊e / step_epochs⌋`, or `lr · gamma^n` with
    /// the `n` milestones up to `e`. `torch.optim.lr_scheduler.StepLR` and `MultiStepLR`.
    #[rules(
        Excludes("step_epochs", "milestones", "either a fixed distance, or a list of epochs"),
        OneOf("step_epochs", "milestones"),
    )]
    pub struct Step {
        /// Drop after every so many epochs, counted from the start of the run; either this or `milestones`.
        #[option(range = 1.., unit = "epochs", resume = Differs)]
        pub step_epochs: Option<usize>,
        /// Drop after these numbers of epochs, in rising order.
        #[option(range = 1.., length = 1.., unit = "epochs", schema_by = milestones, example = "[30, 60, 90]", resume = Differs)]
        pub milestones: Option<Vec<usize>>,
        /// What each drop multiplies the learning rate with.
        #[option(default = 0.1, range = above(0.0), resume = Differs)]
        pub gamma: f64,
    }
}

impl Check for Constant {}

impl Check for Step {
    fn check(&self, part: &Part) {
        let rising = self.milestones.iter().all(|all| all.windows(2).all(|pair| pair[0] < pair[1]));
        part.require("milestones", rising, "must be rising numbers");
    }
}

fn milestones(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "integer" }, "uniqueItems": true })
}

options! {
    /// The learning rate falls along half a cosine, from the warm-up's end to the last epoch, anew at every step: in update `t` it is
    /// `min_lr + (lr − min_lr) · ½ (1 + cos(π · min(1, (t − w) / (T − w))))`, `w` being the updates of the warm-up and `T` those of
    /// `epochs`. `torch.optim.lr_scheduler.CosineAnnealingLR`.
    pub struct Cosine {
        /// Where it ends.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub min_lr: f64,
        /// The epoch, counted from the start of the run, after which it stays at `min_lr`.
        #[option(otherwise = "`train.epochs`", range = 1.., unit = "epochs", resume = Differs)]
        pub epochs: Option<usize>,
    }

    /// A rise at the start of the run: at step `i` of `w` the rate is `s + (1 − s) · i / w` of the schedule's, `s` being
    /// `warmup_start_factor`. `torch.optim.lr_scheduler.LinearLR`.
    #[rules(Excludes("warmup_epochs", "warmup_steps", "the same length is given twice"))]
    #[schema(
        "dependentSchemas": {
            "warmup_start_factor": { "anyOf": [{ "required": ["warmup_epochs"] }, { "required": ["warmup_steps"] }] },
        },
    )]
    pub struct Warmup {
        /// Length of the warm-up in epochs.
        #[option(unit = "epochs", resume = Differs)]
        pub warmup_epochs: Option<usize>,
        /// Length of the warm-up in steps; either this or `warmup_epochs`.
        #[option(unit = "steps", resume = Differs)]
        pub warmup_steps: Option<usize>,
        /// Factor of the first step.
        #[option(otherwise = "1 / steps of the warm-up", range = 0.0..=1.0, resume = Differs)]
        pub warmup_start_factor: Option<f64>,
    }
}

impl Check for Cosine {}

impl Check for Warmup {
    fn check(&self, part: &Part) {
        if self.warmup_start_factor.is_some() && self.warmup_epochs.is_none() && self.warmup_steps.is_none() {
            part.sink.push(
                Diagnostic::error(format!("`warmup_start_factor` in {} has no warm-up to start", part.what))
                    .at(part.span_of("warmup_start_factor"), "needs `warmup_epochs` or `warmup_steps`"),
            );
        }
    }
}
