//! `[loss]`: the keys of each loss, and which of the engine's losses they make.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::quantiles::Quantiles;
use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::tagged;
use crate::config::declare::value::Value;
use crate::config::text::tree::Node;
use crate::graph::op::{self, ElementwiseLoss, IGNORE_INDEX, RowLoss, WeightedBinary};

tagged! {
    /// The `[loss]` section.
    Loss by "type", resume Breaks:
    "cross_entropy" => CrossEntropy(CrossEntropy),
    "nll" => Nll(Nll),
    "focal" => Focal(Focal),
    "ordinal" => Ordinal(Ordinal),
    "bce_with_logits" => BceWithLogits(BceWithLogits),
    "sigmoid_focal" => SigmoidFocal(SigmoidFocal),
    "mse" => Mse(Mse),
    "l1" => L1(L1),
    "smooth_l1" => SmoothL1(SmoothL1),
    "huber" => Huber(Huber),
    "quantile" => Quantile(Quantile),
    "poisson_nll" => PoissonNll(PoissonNll),
    "gamma_nll" => GammaNll(GammaNll),
    "tweedie" => Tweedie(Tweedie),
}

/// What each class weighs.
#[derive(Debug, Clone, PartialEq)]
pub enum ClassWeights {
    /// By how rare it is among the training samples, which are not counted yet.
    Balanced,
    /// So much.
    Numbers(Vec<f64>),
}

/// What stands for [`ClassWeights::Balanced`].
const BALANCED: &str = "balanced";

impl ClassWeights {
    /// As the engine takes them: none where they are not known.
    fn numbers(weights: Option<&Self>) -> Vec<f32> {
        match weights {
            Some(ClassWeights::Numbers(list)) => list.iter().map(|w| *w as f32).collect(),
            Some(ClassWeights::Balanced) | None => Vec::new(),
        }
    }

    fn check(weights: Option<&Self>, part: &Part) {
        let Some(ClassWeights::Numbers(list)) = weights else { return };
        let sound = list.iter().all(|w| w.is_finite() && *w >= 0.0);
        part.require("weight", sound, "must be finite numbers of at least 0");
        if !sound {
            return;
        }
        part.require("weight", list.iter().any(|w| *w > 0.0), "must have a number above 0");
    }
}

impl Value for ClassWeights {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match node.as_str() {
            Some(BALANCED) => Some(ClassWeights::Balanced),
            Some(_) => {
                part.wrong_value(key, node, "expected a list of numbers or \"balanced\"");
                None
            }
            None => Vec::read(part, key, node).map(ClassWeights::Numbers),
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let numbers = json_schema!({ "type": "array", "items": { "type": "number", "minimum": 0 }, "minItems": 1 });
        json_schema!({ "anyOf": [numbers, { "const": BALANCED }] })
    }
}

impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ClassWeights::Balanced => serializer.serialize_str(BALANCED),
            ClassWeights::Numbers(list) => list.serialize(serializer),
        }
    }
}

impl Loss {
    /// The field that is learnt in place of the targets: one that the model takes.
    pub fn target(&self) -> Option<&str> {
        match self {
            Loss::BceWithLogits(BceWithLogits { target, .. })
            | Loss::Mse(Mse { target })
            | Loss::L1(L1 { target })
            | Loss::SmoothL1(SmoothL1 { target, .. })
            | Loss::Huber(Huber { target, .. })
            | Loss::Quantile(Quantile { target, .. }) => target.as_deref(),
            Loss::PoissonNll(_) | Loss::GammaNll(_) | Loss::Tweedie(_) => None,
            Loss::CrossEntropy(_) | Loss::Nll(_) | Loss::Focal(_) | Loss::Ordinal(_) | Loss::SigmoidFocal(_) => None,
        }
    }

    /// The engine's loss, which knows what it takes and what is measured with it.
    pub fn describe(&self) -> op::Loss {
        match self {
            Loss::CrossEntropy(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                form: RowLoss::CrossEntropy,
                label_smoothing: l.label_smoothing as f32,
                ignore_index: l.ignore_index,
                weight: ClassWeights::numbers(l.weight.as_ref()),
            }),
            Loss::Nll(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                form: RowLoss::Nll,
                label_smoothing: 0.0,
                ignore_index: l.ignore_index,
                weight: ClassWeights::numbers(l.weight.as_ref()),
            }),
            // The model's outputs are made logarithms of probabilities first (`src/model/ordinal.rs`).
            Loss::Ordinal(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                form: RowLoss::Nll,
                label_smoothing: 0.0,
                ignore_index: l.ignore_index,
                weight: Vec::new(),
            }),
            Loss::Focal(l) => op::Loss::CrossEntropy(op::CrossEntropy {
                form: RowLoss::Focal { gamma: l.gamma as f32 },
                label_smoothing: 0.0,
                ignore_index: l.ignore_index,
                weight: ClassWeights::numbers(l.weight.as_ref()),
            }),
            Loss::BceWithLogits(BceWithLogits { pos_weight: None, .. }) => ElementwiseLoss::BceWithLogits.into(),
            Loss::BceWithLogits(BceWithLogits { pos_weight: Some(list), .. }) => {
                WeightedBinary { pos_weight: list.iter().map(|w| *w as f32).collect(), focal: None }.into()
            }
            Loss::SigmoidFocal(l) => {
                WeightedBinary { pos_weight: Vec::new(), focal: Some([l.gamma as f32, l.alpha as f32]) }.into()
            }
            Loss::Mse(_) => ElementwiseLoss::Mse.into(),
            Loss::L1(_) => ElementwiseLoss::L1.into(),
            Loss::SmoothL1(l) => ElementwiseLoss::SmoothL1 { beta: l.beta as f32 }.into(),
            Loss::Huber(l) => ElementwiseLoss::Huber { delta: l.delta as f32 }.into(),
            // Of several the model has a form of its own for (`src/model/quantiles.rs`).
            Loss::Quantile(l) => ElementwiseLoss::Quantile { quantile: l.quantile.middle() as f32 }.into(),
            Loss::PoissonNll(_) => ElementwiseLoss::PoissonNll.into(),
            Loss::GammaNll(_) => ElementwiseLoss::GammaNll.into(),
            Loss::Tweedie(l) => ElementwiseLoss::Tweedie { power: l.power as f32 }.into(),
        }
    }

    /// The quantiles of each target that the model puts out, if there are several; else none.
    pub fn quantiles(&self) -> &[f64] {
        match self {
            Loss::Quantile(l) => l.quantile.several(),
            _ => &[],
        }
    }

    /// True if its classes have an order, and the model puts out a number for each step from one to the next.
    pub fn is_ordinal(&self) -> bool {
        matches!(self, Loss::Ordinal(_))
    }

    /// How many numbers a model puts out for so many classes.
    pub fn outputs(&self, classes: usize) -> usize {
        if self.is_ordinal() { classes.saturating_sub(1).max(1) } else { classes }
    }

    /// What its classes weigh, if they can weigh differently.
    pub fn class_weights(&mut self) -> Option<&mut Option<ClassWeights>> {
        match self {
            Loss::CrossEntropy(l) => Some(&mut l.weight),
            Loss::Nll(l) => Some(&mut l.weight),
            Loss::Focal(l) => Some(&mut l.weight),
            Loss::Ordinal(_) | Loss::BceWithLogits(_) | Loss::SigmoidFocal(_) => None,
            Loss::Mse(_) | Loss::L1(_) | Loss::SmoothL1(_) | Loss::Huber(_) => None,
            Loss::Quantile(_) | Loss::PoissonNll(_) | Loss::GammaNll(_) | Loss::Tweedie(_) => None,
        }
    }

    /// True while its classes weigh by how rare they are among the training samples, and those are not counted yet.
    pub fn is_to_be_balanced(&self) -> bool {
        self.clone().class_weights().is_some_and(|weights| *weights == Some(ClassWeights::Balanced))
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
        /// What each class weighs in the mean, a number for each. `"balanced"`: the number of training samples, divided by that of
        /// classes and by that of the class's samples; it is counted as a run begins, and kept.
        #[option(otherwise = "all weigh the same", example = "[0.5, 1.0, 2.0]", resume = Differs)]
        pub weight: Option<ClassWeights>,
    }

    /// Negative log-likelihood of classes, from the logarithms of probabilities, which `log_softmax` puts out; else as `cross_entropy`. `torch.nn.NLLLoss`.
    pub struct Nll {
        /// Targets of this class do not count.
        #[option(default = IGNORE_INDEX, resume = Differs)]
        pub ignore_index: i32,
        /// As of `cross_entropy`.
        #[option(otherwise = "all weigh the same", example = "[0.5, 1.0, 2.0]", resume = Differs)]
        pub weight: Option<ClassWeights>,
    }

    /// Focal loss of classes, from logits: `cross_entropy` in which a target of probability `p` counts `(1 − p)^gamma` as much, so
    /// that what is right already counts little ([Lin et al. 2017](https://arxiv.org/abs/1708.02002)). The `α` of that article is
    /// `weight`, as of `cross_entropy`; with a `gamma` of 0 it is that.
    pub struct Focal {
        /// How much less counts what is right already.
        #[option(default = 2.0, range = 0.0.., resume = Differs)]
        pub gamma: f64,
        /// Targets of this class do not count.
        #[option(default = IGNORE_INDEX, resume = Differs)]
        pub ignore_index: i32,
        /// As of `cross_entropy`.
        #[option(otherwise = "all weigh the same", example = "[0.5, 1.0, 2.0]", resume = Differs)]
        pub weight: Option<ClassWeights>,
    }

    /// Classes that have an order, such as grades or stages, the least first. The model puts out one number for each step from a class to the next, so one fewer than there
    /// are classes: the logit of being above that class, given that a sample is not below it. The loss is the negative log-likelihood of the class, a sum of binary
    /// cross-entropies over the steps up to it: CORN ([Shi, Cao and Raschka 2021](https://arxiv.org/abs/2111.08851)).
    pub struct Ordinal {
        /// Targets of this class do not count.
        #[option(default = IGNORE_INDEX, resume = Differs)]
        pub ignore_index: i32,
    }

    /// Binary cross-entropy of numbers from 0 to 1, from logits of the targets' shape: any number of questions of yes or no,
    /// averaged over all elements of the batch. `torch.nn.BCEWithLogitsLoss`.
    pub struct BceWithLogits {
        /// What a yes weighs, where a no weighs 1: a number for each label (the last dimension; the channels of an image), or one for
        /// all.
        #[option(otherwise = "1", range = 0.0.., length = 1.., example = "[3.0]", resume = Differs)]
        pub pos_weight: Option<Vec<f64>>,
        /// As of `mse`.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }

    /// Focal loss of questions of yes or no, from logits; else as `bce_with_logits`. `torchvision.ops.sigmoid_focal_loss` with
    /// `reduction="mean"`.
    pub struct SigmoidFocal {
        /// What a yes weighs, where a no weighs 1 − `alpha`; −1: both weigh 1.
        #[option(default = 0.25, range = -1.0..=1.0, resume = Differs)]
        pub alpha: f64,
        /// How much less counts what is right already.
        #[option(default = 2.0, range = 0.0.., resume = Differs)]
        pub gamma: f64,
    }

    /// Mean squared error of numbers of the targets' shape, averaged over all elements of the batch; `[N]` and `[N, 1]` are the
    /// same. `torch.nn.MSELoss`.
    pub struct Mse {
        /// What is learnt: a field that the model takes, by name, as it is after the transforms, in place of the targets. With `"inputs"` an
        /// autoencoder learns to put out what it is given.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }

    /// Mean absolute error, likewise. `torch.nn.L1Loss`.
    pub struct L1 {
        /// As of `mse`.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }

    /// Squared error, divided by twice `beta`, up to an error of `beta`, and from there on absolute error. `torch.nn.SmoothL1Loss`.
    pub struct SmoothL1 {
        /// The error at which one goes over into the other.
        #[option(default = 1.0, range = 0.0.., resume = Differs)]
        pub beta: f64,
        /// As of `mse`.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }

    /// Half the squared error up to an error of `delta`, and from there on `delta` times the absolute error. `torch.nn.HuberLoss`.
    pub struct Huber {
        /// The error at which one goes over into the other.
        #[option(default = 1.0, range = above(0.0), resume = Differs)]
        pub delta: f64,
        /// As of `mse`.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }
}

options! {
    /// What is learnt is a quantile of the targets, not their mean: an error below the target weighs `quantile`, one above it 1 −
    /// `quantile` (the pinball loss). `sklearn.metrics.mean_pinball_loss`.
    pub struct Quantile {
        /// The share of targets that is to lie below the predictions; 0.5 is the median. Or a list of several, in ascending order: the model puts out a
        /// number for each target and quantile, all quantiles of a target side by side, and the loss is the mean of theirs. Figures such as
        /// `rmse` go by the quantile that is nearest to the median.
        #[option(default = Quantiles::one(0.5), example = "[0.05, 0.5, 0.95]", resume = Differs)]
        pub quantile: Quantiles,
        /// As of `mse`. There is none of several quantiles.
        #[option(otherwise = "the targets", example = "\"inputs\"")]
        pub target: Option<String>,
    }

    /// Negative log-likelihood of counts (0, 1, 2 …), from their mean, which is above 0: the model ends with `softplus`. Numbers of a
    /// table are not standardised for it. `torch.nn.PoissonNLLLoss` with `log_input=False`.
    pub struct PoissonNll {}

    /// Negative log-likelihood of numbers above 0 whose deviation grows with their mean, such as costs or times, from that mean; else as
    /// `poisson_nll`. Half the gamma deviance, less what does not depend on the model: `sklearn.metrics.mean_gamma_deviance`.
    pub struct GammaNll {}

    /// The same for numbers of which some are 0 and the others above it, such as sums of claims; else as `poisson_nll`. Half the Tweedie
    /// deviance, less what does not depend on the model: `sklearn.metrics.mean_tweedie_deviance`.
    pub struct Tweedie {
        /// The variance grows as this power of the mean: near 1 as that of counts, near 2 as of `gamma_nll`.
        #[option(default = 1.5, range = above(1.0).below(2.0), resume = Differs)]
        pub power: f64,
    }
}

impl Check for Quantile {
    fn check(&self, part: &Part) {
        self.quantile.check(part);
        let learns_inputs = self.target.is_some() && !self.quantile.several().is_empty();
        part.require("target", !learns_inputs, "cannot be learnt by several quantiles");
    }
}

impl Check for PoissonNll {}

impl Check for GammaNll {}

impl Check for Tweedie {}

impl Check for CrossEntropy {
    fn check(&self, part: &Part) {
        ClassWeights::check(self.weight.as_ref(), part);
    }
}

impl Check for Nll {
    fn check(&self, part: &Part) {
        ClassWeights::check(self.weight.as_ref(), part);
    }
}

impl Check for Ordinal {}

impl Check for Focal {
    fn check(&self, part: &Part) {
        ClassWeights::check(self.weight.as_ref(), part);
    }
}

impl Check for SigmoidFocal {
    fn check(&self, part: &Part) {
        part.require("alpha", self.alpha >= 0.0 || self.alpha == -1.0, "must be from 0 to 1, or -1");
    }
}

impl Check for BceWithLogits {}

impl Check for Mse {}

impl Check for L1 {}

impl Check for SmoothL1 {}

impl Check for Huber {}
