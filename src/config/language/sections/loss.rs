//! `[loss]`: the keys of each loss, and which of the engine's losses they make.

use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::tagged;
use crate::graph::op::{self, ElementwiseLoss, IGNORE_INDEX};

tagged! {
    /// The `[loss]` section.
    Loss by "type", resume Breaks:
    "cross_entropy" => CrossEntropy(CrossEntropy),
    "bce_with_logits" => BceWithLogits(BceWithLogits),
    "mse" => Mse(Mse),
    "l1" => L1(L1),
    "smooth_l1" => SmoothL1(SmoothL1),
    "huber" => Huber(Huber),
}

impl Loss {
    /// The engine's loss, which knows what it takes and what is measured with it.
    pub fn describe(&self) -> op::Loss {
        match self {
            Loss::CrossEntropy(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                label_smoothing: l.label_smoothing as f32,
                ignore_index: l.ignore_index,
                weight: l.weight.iter().flatten().map(|w| *w as f32).collect(),
            }),
            Loss::BceWithLogits(_) => ElementwiseLoss::BceWithLogits.into(),
            Loss::Mse(_) => ElementwiseLoss::Mse.into(),
            Loss::L1(_) => ElementwiseLoss::L1.into(),
            Loss::SmoothL1(l) => ElementwiseLoss::SmoothL1 { beta: l.beta as f32 }.into(),
            Loss::Huber(l) => ElementwiseLoss::Huber { delta: l.delta as f32 }.into(),
        }
    }
}

options! {
    /// Cross-entropy of classes, from logits `[N, classes]` or, where each position has a class, `[N, …, classes]`; averaged over
    /// the targets that count. `torch.nn.CrossEntropyLoss`.
    pub struct CrossEntropy {
        /// Share of each target that is spread evenly over all classes.
        #[option(default = 0.0, range = 0.0..1.0, resume = Differs)]
        pub label_smoothing: f64,
        /// Targets of this class do not count: not in the loss, its mean, its gradient, nor in the accuracy.
        #[option(default = IGNORE_INDEX, resume = Differs)]
        pub ignore_index: i32,
        /// What each class weighs in the mean, a number for each.
        #[option(otherwise = "all weigh the same", range = 0.0.., length = 1.., example = "[0.5, 1.0, 2.0]", resume = Differs)]
        pub weight: Option<Vec<f64>>,
    }

    /// Binary cross-entropy of numbers from 0 to 1, from logits of the targets' shape: any number of questions of yes or no,
    /// averaged over all elements of the batch. `torch.nn.BCEWithLogitsLoss`.
    pub struct BceWithLogits {}

    /// Mean squared error of numbers of the targets' shape, averaged over all elements of the batch; `[N]` and `[N, 1]` are the
    /// same. `torch.nn.MSELoss`.
    pub struct Mse {}

    /// Mean absolute error, likewise. `torch.nn.L1Loss`.
    pub struct L1 {}

    /// Squared error, divided by twice `beta`, up to an error of `beta`, and from there on absolute error. `torch.nn.SmoothL1Loss`.
    pub struct SmoothL1 {
        /// The error at which one goes over into the other.
        #[option(default = 1.0, range = 0.0.., resume = Differs)]
        pub beta: f64,
    }

    /// Half the squared error up to an error of `delta`, and from there on `delta` times the absolute error. `torch.nn.HuberLoss`.
    pub struct Huber {
        /// The error at which one goes over into the other.
        #[option(default = 1.0, range = above(0.0), resume = Differs)]
        pub delta: f64,
    }
}

impl Check for CrossEntropy {
    fn check(&self, part: &Part) {
        let some = self.weight.as_ref().is_none_or(|weight| weight.iter().any(|w| *w > 0.0));
        part.require("weight", some, "must have a number above 0");
    }
}

impl Check for BceWithLogits {}

impl Check for Mse {}

impl Check for L1 {}

impl Check for SmoothL1 {}

impl Check for Huber {}
