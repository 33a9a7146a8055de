//! The types of `[schedule]` with their options.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::Course;
use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;
use crate::config::language::sections::metrics::Metric;
use crate::config::language::sections::monitor::Monitor;
use crate::config::language::values::Anneal;

values!(By, ThresholdMode);

/// When the rate changes, and so what the numbers of a schedule count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// After each epoch.
    Epoch,
    /// After each update of the parameters.
    Step,
}

/// What `threshold` of `plateau` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdMode {
    /// A share of the best value.
    Rel,
    /// A difference from it.
    Abs,
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
        #[option(range = 1.., length = 1.., unit = "epochs", schema_by = rising, example = "[30, 60, 90]", resume = Differs)]
        pub milestones: Option<Vec<usize>>,
        /// What each drop multiplies the learning rate with.
        #[option(default = 0.1, range = above(0.0), resume = Differs)]
        pub gamma: f64,
    }

    /// The learning rate drops at certain epochs or steps: it is `lr · gamma^n` with the `n` milestones up to now.
    /// `torch.optim.lr_scheduler.MultiStepLR`.
    pub struct MultiStep {
        /// Drop after these numbers of epochs, or steps with `by = "step"`, in rising order.
        #[option(range = 1.., length = 1.., schema_by = rising, example = "[30, 60, 90]", resume = Differs)]
        pub milestones: Vec<usize>,
        /// What each drop multiplies the learning rate with.
        #[option(default = 0.1, range = above(0.0), resume = Differs)]
        pub gamma: f64,
        /// What `milestones` count.
        #[option(default = By::Epoch, resume = Differs)]
        pub by: By,
    }

    /// The learning rate falls by the same factor each time: after `t` epochs or steps it is `lr · gamma^t`.
    /// `torch.optim.lr_scheduler.ExponentialLR`.
    pub struct Exponential {
        /// What each epoch, or step, multiplies the learning rate with.
        #[option(range = above(0.0), example = "0.95", resume = Differs)]
        pub gamma: f64,
        /// When it does.
        #[option(default = By::Epoch, resume = Differs)]
        pub by: By,
    }

    /// The learning rate changes along a line: it is `lr · (start_factor + (end_factor − start_factor) · min(1, t / total_iters))`.
    /// `torch.optim.lr_scheduler.LinearLR`.
    pub struct Linear {
        /// Factor of the learning rate at the start. PyTorch's default is a third, for a warm-up, which is `warmup_steps` here.
        #[option(default = 1.0, range = 0.0..=1.0, resume = Differs)]
        pub start_factor: f64,
        /// Factor of the learning rate at the end.
        #[option(range = 0.0..=1.0, example = "0.0", resume = Differs)]
        pub end_factor: f64,
        /// How many steps it takes, or epochs with `by = "epoch"`.
        #[option(otherwise = "to the end", range = 1.., resume = Differs)]
        pub total_iters: Option<usize>,
        /// When the rate changes, and what `total_iters` counts.
        #[option(default = By::Step, resume = Differs)]
        pub by: By,
    }

    /// The learning rate falls to 0 along a power: it is `lr · (1 − min(1, t / total_iters))^power`.
    /// `torch.optim.lr_scheduler.PolynomialLR`.
    pub struct Polynomial {
        /// The power: 1 is a line, a higher one falls faster at first.
        #[option(default = 1.0, range = above(0.0), resume = Differs)]
        pub power: f64,
        /// How many steps it takes, or epochs with `by = "epoch"`.
        #[option(otherwise = "to the end", range = 1.., resume = Differs)]
        pub total_iters: Option<usize>,
        /// When the rate changes, and what `total_iters` counts.
        #[option(default = By::Step, resume = Differs)]
        pub by: By,
    }

    /// The learning rate falls along half a cosine, from the warm-up's end to the last step, anew at every step: in update `t` it is
    /// `min_lr + (lr − min_lr) · ½ (1 + cos(π · min(1, (t − w) / (T − w))))`, `w` being the updates of the warm-up and `T` those of
    /// `epochs` or of the run. `torch.optim.lr_scheduler.CosineAnnealingLR`.
    pub struct Cosine {
        /// Where it ends.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub min_lr: f64,
        /// The epoch, counted from the start of the run, after which it stays at `min_lr`.
        #[option(otherwise = "the end of the run", range = 1.., unit = "epochs", resume = Differs)]
        pub epochs: Option<usize>,
    }

    /// The learning rate falls along half a cosine again and again, each time from `lr` to `min_lr`. `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`
    /// (Loshchilov & Hutter 2017).
    pub struct CosineRestarts {
        /// How many epochs the first fall takes, or steps with `by = "step"`.
        #[option(range = 1.., example = "10", resume = Differs)]
        pub t_0: usize,
        /// How many times as long each fall takes as the one before.
        #[option(default = 1, range = 1.., resume = Differs)]
        pub t_mult: usize,
        /// Where each fall ends.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub min_lr: f64,
        /// When the rate changes, and what `t_0` counts.
        #[option(default = By::Epoch, resume = Differs)]
        pub by: By,
    }

    /// The learning rate rises to `lr`, and falls to next to nothing. `torch.optim.lr_scheduler.OneCycleLR` (Smith & Topin 2019) without its cycle
    /// of the momentum; `max_lr` is the optimizer's `lr`. It begins by rising, and takes no warm-up.
    pub struct OneCycle {
        /// How many steps the cycle takes, or epochs with `by = "epoch"`; from then on the rate stays where it is.
        #[option(otherwise = "to the end", range = 1.., resume = Differs)]
        pub total_steps: Option<usize>,
        /// Share of the cycle in which the rate rises.
        #[option(default = 0.3, range = 0.0..=1.0, resume = Differs)]
        pub pct_start: f64,
        /// How it rises and falls.
        #[option(default = Anneal::Cos, resume = Differs)]
        pub anneal_strategy: Anneal,
        /// The first rate is `lr` divided by this.
        #[option(default = 25.0, range = above(0.0), resume = Differs)]
        pub div_factor: f64,
        /// The last rate is the first one divided by this.
        #[option(default = 1e4, range = above(0.0), resume = Differs)]
        pub final_div_factor: f64,
        /// Fall to the first rate in as many steps as the rise has taken, and only then to the last one.
        #[option(default = false, resume = Differs)]
        pub three_phase: bool,
        /// When the rate changes, and what `total_steps` counts.
        #[option(default = By::Step, resume = Differs)]
        pub by: By,
    }

    /// The learning rate drops when a figure no longer improves. `torch.optim.lr_scheduler.ReduceLROnPlateau`; whether less or more of the
    /// figure is better is known.
    pub struct Plateau {
        /// The figure to watch, or one of a head, as `val_sold_loss`.
        #[option(default = Monitor::Model(Metric::ValLoss), resume = Differs)]
        pub monitor: Monitor,
        /// What each drop multiplies the learning rate with.
        #[option(default = 0.1, range = above(0.0).below(1.0), resume = Differs)]
        pub factor: f64,
        /// How many validations without improvement to put up with; the one after them lets the rate drop.
        #[option(default = 10, unit = "validations", resume = Differs)]
        pub patience: usize,
        /// What counts as an improvement must be larger than this.
        #[option(default = 1e-4, range = 0.0.., resume = Differs)]
        pub threshold: f64,
        /// Whether `threshold` is a share of the best value so far, or a difference from it.
        #[option(default = ThresholdMode::Rel, resume = Differs)]
        pub threshold_mode: ThresholdMode,
        /// How many validations after a drop do not count.
        #[option(default = 0, unit = "validations", resume = Differs)]
        pub cooldown: usize,
        /// The rate, that of the section, falls no lower; groups keep their share of it.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub min_lr: f64,
        /// A drop that would change the rate by no more than this is not made.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
    }

    /// Schedules one after the other. Each counts from the milestone where it begins; one that goes on `to the end` goes on to the next
    /// milestone. `torch.optim.lr_scheduler.SequentialLR`.
    pub struct Sequential {
        /// The schedules: tables with a `type` and its keys, of any type but `plateau` and `sequential`.
        #[option(length = 2.., example = r#"[{ type = "linear", start_factor = 0.1, end_factor = 1 }, "cosine"]"#, resume = Differs)]
        pub schedules: Vec<Course>,
        /// After how many epochs, or steps with `by = "step"`, each but the first begins.
        #[option(range = 1.., length = 1.., schema_by = rising, example = "[5]", resume = Differs)]
        pub milestones: Vec<usize>,
        /// What `milestones` count; each schedule has a `by` of its own.
        #[option(default = By::Epoch, resume = Differs)]
        pub by: By,
    }
}

impl Check for Constant {}

impl Check for Step {
    fn check(&self, part: &Part) {
        rises(part, self.milestones.iter().flatten());
    }
}

impl Check for MultiStep {
    fn check(&self, part: &Part) {
        rises(part, self.milestones.iter());
    }
}

impl Check for Exponential {}

impl Check for Linear {}

impl Check for Polynomial {}

impl Check for Cosine {}

impl Check for CosineRestarts {}

impl Check for OneCycle {}

impl Check for Plateau {}

impl Check for Sequential {
    fn check(&self, part: &Part) {
        rises(part, self.milestones.iter());
        let wanted = self.schedules.len().saturating_sub(1);
        let rule = format!("must be {wanted}, where each schedule but the first begins");
        part.require("milestones", self.milestones.len() == wanted, &rule);
    }
}

fn rises<'a>(part: &Part, milestones: impl Iterator<Item = &'a usize> + Clone) {
    let rising = milestones.clone().zip(milestones.skip(1)).all(|(before, after)| before < after);
    part.require("milestones", rising, "must be rising numbers");
}

fn rising(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "integer" }, "uniqueItems": true })
}
