//! `[schedule]`: how the learning rate changes.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::optimizer::Optimizer;
use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::tagged;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;
use crate::config::text::origins::Reporter;

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

impl Curve {
    /// The number of epochs after which the learning rate no longer changes, in a run of `epochs`; `None` if it does not matter
    /// how long the run is.
    pub fn end(&self, epochs: usize) -> Option<usize> {
        match self {
            Curve::Constant(_) | Curve::Step(_) => None,
            Curve::Cosine(cosine) => Some(cosine.epochs.unwrap_or(epochs)),
        }
    }
}

impl Schedule {
    /// Reports what a schedule must agree on with the length of the run and with the learning rates.
    pub fn check(&self, epochs: usize, optimizer: &Optimizer, reporter: &Reporter) {
        let run = format!("the run has {epochs} epoch{}", if epochs == 1 { "" } else { "s" });
        let beyond = |message: &str| Diagnostic::warning(Lint::ScheduleBeyondRun, message);
        let mut end = usize::MAX;
        match &self.curve {
            Curve::Constant(_) => {}
            Curve::Step(step) => {
                if let Some(late) = step.milestones.iter().flatten().position(|&milestone| milestone >= epochs) {
                    let warning = beyond("a milestone of the schedule is never reached");
                    let key = format!("schedule.milestones.{late}");
                    reporter.at_keys(warning, &key, "not within the run", "train.epochs", &run);
                }
                if step.gamma > 1.0 {
                    let message =
                        format!("each step of the schedule raises the learning rate, by a factor of {}", step.gamma);
                    let warning = Diagnostic::warning(Lint::RisingSchedule, message);
                    reporter.at_key(
                        warning.help("a `gamma` below 1 lowers it: 0.1, the default, to a tenth"),
                        "schedule.gamma",
                        "above 1",
                    );
                }
                if step.step_epochs.is_some_and(|every| every >= epochs) {
                    let warning = beyond("the schedule never takes a step");
                    reporter.at_keys(warning, "schedule.step_epochs", "not within the run", "train.epochs", &run);
                }
            }
            Curve::Cosine(cosine) => {
                let lr = optimizer.rule.lr();
                if cosine.min_lr > lr {
                    let error = Diagnostic::error("`min_lr` in `[schedule]` is above the learning rate");
                    reporter.at_keys(error, "schedule.min_lr", "where it ends", "optimizer.lr", "where it starts");
                }
                for (i, group) in optimizer.groups.iter().enumerate() {
                    if group.lr.is_some_and(|own| own < cosine.min_lr && cosine.min_lr <= lr) {
                        let message =
                            "`min_lr` in `[schedule]` is above the learning rate of a group, which rises to it";
                        let warning = Diagnostic::warning(Lint::RisingSchedule, message);
                        let key = format!("optimizer.groups.{i}.lr");
                        reporter.at_keys(
                            warning,
                            &key,
                            "where this group starts",
                            "schedule.min_lr",
                            "where all of them end",
                        );
                    }
                }
                end = cosine.epochs.unwrap_or(epochs);
                if end > epochs {
                    let warning = beyond("the cosine ends after the run: the learning rate never falls to `min_lr`");
                    reporter.at_keys(warning, "schedule.epochs", "not within the run", "train.epochs", &run);
                }
                if self.warmup.warmup_epochs.is_some_and(|warmup| warmup >= end) {
                    let error = Diagnostic::error("the warm-up leaves no time for the schedule");
                    let key = if cosine.epochs.is_some() { "schedule.epochs" } else { "train.epochs" };
                    reporter.at_keys(
                        error,
                        "schedule.warmup_epochs",
                        "too long",
                        key,
                        "the schedule ends with these epochs",
                    );
                }
            }
        }
        if self.warmup.warmup_epochs.is_some_and(|warmup| (epochs..end).contains(&warmup)) {
            let warning = beyond("the warm-up takes the whole run: the full learning rate is never reached");
            reporter.at_keys(warning, "schedule.warmup_epochs", "not within the run", "train.epochs", &run);
        }
    }
}
