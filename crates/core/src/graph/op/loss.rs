//! Losses, averaged over what counts of a batch as in `torch.nn` (`reduction="mean"`), in `F32`.
//!
//! A loss is described here once: what targets it takes, which shapes fit, how its mean is formed, and what is measured
//! with it. Formula and derivative are one line in each backend.

use super::{GradContext, OpRules, Output, ShapeError, Task, Value, ValueId, arity, singles};
use crate::graph::{DType, Shape};
use std::fmt;

/// A loss, named and defined as in `torch.nn`.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Softmax and negative log-likelihood of one class for each row of numbers.
    CrossEntropy(CrossEntropy),
    /// The mean over all elements of a function of prediction and target.
    Elementwise(ElementwiseLoss),
    /// Binary cross-entropy in which elements weigh differently.
    Binary(WeightedBinary),
}

/// The weighted mean, over the rows whose target `y` is not `ignore_index`, of
/// `(1 − ε) · w[y] · (lse − x[y]) + ε / C · Σ w[c] · (lse − x[c])`: `lse` is the row's log-sum-exp, `ε` the label smoothing
/// (Szegedy et al. 2016), and a row weighs `w[y]`. A target that is no class makes the loss NaN. Other forms have no smoothing.
///
/// A target may also be the shares `t` of all classes in a row (`CrossEntropyLoss` with probabilities): then it is the mean over all
/// rows of `Σ w[c] · ((1 − ε) · t[c] + ε / C) · (lse − x[c])`, and each row weighs 1. Other forms take no shares.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossEntropy {
    /// What the row's numbers are, and what is made of them.
    pub form: RowLoss,
    /// `ε`, in `0 ..= 1`.
    pub label_smoothing: f32,
    /// Rows with this target do not count.
    pub ignore_index: i32,
    /// `w`, one for each class; all are 1 if it is empty.
    pub weight: Vec<f32>,
}

/// The loss of a row of which the target has the probability `p`, before it is weighed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowLoss {
    /// `−ln p`, from logits
    CrossEntropy,
    /// `−(1 − p)^γ ln p`, from logits (Lin et al. 2017): what is right already counts little.
    Focal {
        /// `γ`, not negative.
        gamma: f32,
    },
    /// `−ln p`, where the numbers are the logarithms of probabilities.
    Nll,
}

/// `α(t) q^γ (w t ln(1 + e⁻ˣ) + (1 − t) ln(1 + eˣ))` of a logit `x` and a target `t`, with `q = t σ(−x) + (1 − t) σ(x)`, how far
/// the prediction is off, and `α(t) = α t + (1 − α)(1 − t)`.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedBinary {
    /// `w`, one for each label (the last axis) or one for all; 1 if it is empty.
    pub pos_weight: Vec<f32>,
    /// `γ` and `α` of a focal loss (Lin et al. 2017); without, `γ` is 0 and `α(t)` is 1. So it is with a negative `α`.
    pub focal: Option<[f32; 2]>,
}

/// A function of a prediction `x` and a target `t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ElementwiseLoss {
    /// `(x − t)²`
    Mse,
    /// `|x − t|`; its derivative at 0 is 0.
    L1,
    /// `(x − t)² / 2β` where `|x − t| < β`, else `|x − t| − β/2`
    SmoothL1 {
        /// `β`, not negative.
        beta: f32,
    },
    /// `(x − t)² / 2` where `|x − t| ≤ δ`, else `δ (|x − t| − δ/2)` (Huber 1964)
    Huber {
        /// `δ`, positive.
        delta: f32,
    },
    /// `−t ln σ(x) − (1 − t) ln(1 − σ(x))`, from the logit `x`
    BceWithLogits,
    /// `q (t − x)` where `x < t`, else `(1 − q)(x − t)` (Koenker and Bassett 1978); its derivative at 0 is 0.
    Quantile {
        /// `q`, between 0 and 1.
        quantile: f32,
    },
    /// `x − t ln(x + ε)` of the mean `x` of a Poisson distribution, with [`LEAST_MEAN`] for `ε`: `torch.nn.PoissonNLLLoss` with
    /// `log_input=False`.
    PoissonNll,
    /// `ln(x + ε) + t / (x + ε)` of the mean `x` of a gamma distribution: half its deviance, less what does not depend on `x`.
    GammaNll,
    /// `m^(2 − p) / (2 − p) − t m^(1 − p) / (1 − p)` with `m = x + ε`, of the mean `x` of a Tweedie distribution: half its deviance, less
    /// what does not depend on `x` (Jørgensen 1987).
    Tweedie {
        /// `p`, between 1 and 2.
        power: f32,
    },
}

/// What is added to the mean of a distribution of positive numbers: PyTorch's `eps`.
pub const LEAST_MEAN: f64 = 1e-8;

/// What a loss compares the model's output with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// One class (`I32`) for each row of numbers that the model puts out.
    Classes,
    /// A number (`F32`) for each that the model puts out.
    Numbers,
}

/// The numbers that a loss is for, where those are not all: outside its formula means nothing, or has no least value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetRange {
    loss: &'static str,
    bounds: Bounds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounds {
    AboveZero,
    FromZero,
    ZeroToOne,
}

impl TargetRange {
    /// Whether `target` is in it.
    pub fn contains(self, target: f64) -> bool {
        match self.bounds {
            Bounds::AboveZero => target > 0.0,
            Bounds::FromZero => target >= 0.0,
            Bounds::ZeroToOne => (0.0..=1.0).contains(&target),
        }
    }
}

impl fmt::Display for TargetRange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let bounds = match self.bounds {
            Bounds::AboveZero => "above 0",
            Bounds::FromZero => "of at least 0",
            Bounds::ZeroToOne => "from 0 to 1",
        };
        write!(f, "the loss `{}` is for numbers {bounds}", self.loss)
    }
}

/// What `torch.nn.CrossEntropyLoss` ignores by default.
pub const IGNORE_INDEX: i32 = -100;

impl WeightedBinary {
    /// `γ` and `α`, which is negative where there is none.
    pub fn gamma_and_alpha(&self) -> [f32; 2] {
        self.focal.unwrap_or([0.0, -1.0])
    }
}

impl CrossEntropy {
    /// With nothing but label smoothing.
    pub fn smoothed(label_smoothing: f32) -> Self {
        CrossEntropy { form: RowLoss::CrossEntropy, label_smoothing, ignore_index: IGNORE_INDEX, weight: Vec::new() }
    }
}

impl Loss {
    /// Its name in configurations and listings.
    pub fn name(&self) -> &'static str {
        self.names()[0]
    }

    /// The name of the loss, and of its gradient.
    fn names(&self) -> [&'static str; 2] {
        match self {
            Loss::CrossEntropy(l) => match l.form {
                RowLoss::CrossEntropy => ["cross_entropy", "cross_entropy_grad"],
                RowLoss::Focal { .. } => ["focal", "focal_grad"],
                RowLoss::Nll => ["nll", "nll_grad"],
            },
            Loss::Binary(WeightedBinary { focal: None, .. }) => ["bce_with_logits", "bce_with_logits_grad"],
            Loss::Binary(WeightedBinary { focal: Some(_), .. }) => ["sigmoid_focal", "sigmoid_focal_grad"],
            Loss::Elementwise(ElementwiseLoss::Mse) => ["mse", "mse_grad"],
            Loss::Elementwise(ElementwiseLoss::L1) => ["l1", "l1_grad"],
            Loss::Elementwise(ElementwiseLoss::SmoothL1 { .. }) => ["smooth_l1", "smooth_l1_grad"],
            Loss::Elementwise(ElementwiseLoss::Huber { .. }) => ["huber", "huber_grad"],
            Loss::Elementwise(ElementwiseLoss::BceWithLogits) => ["bce_with_logits", "bce_with_logits_grad"],
            Loss::Elementwise(ElementwiseLoss::Quantile { .. }) => ["quantile", "quantile_grad"],
            Loss::Elementwise(ElementwiseLoss::PoissonNll) => ["poisson_nll", "poisson_nll_grad"],
            Loss::Elementwise(ElementwiseLoss::GammaNll) => ["gamma_nll", "gamma_nll_grad"],
            Loss::Elementwise(ElementwiseLoss::Tweedie { .. }) => ["tweedie", "tweedie_grad"],
        }
    }

    /// The task of a model that is trained with it, which decides what is measured.
    pub fn task(&self) -> Task {
        match self {
            Loss::CrossEntropy(_) => Task::Classification,
            Loss::Elementwise(ElementwiseLoss::BceWithLogits) | Loss::Binary(_) => Task::BinaryClassification,
            Loss::Elementwise(
                ElementwiseLoss::Mse
                | ElementwiseLoss::L1
                | ElementwiseLoss::SmoothL1 { .. }
                | ElementwiseLoss::Huber { .. }
                | ElementwiseLoss::Quantile { .. }
                | ElementwiseLoss::PoissonNll
                | ElementwiseLoss::GammaNll
                | ElementwiseLoss::Tweedie { .. },
            ) => Task::Regression,
        }
    }

    /// What it compares the model's output with.
    pub fn targets(&self) -> TargetKind {
        match self {
            Loss::CrossEntropy(_) => TargetKind::Classes,
            Loss::Elementwise(_) | Loss::Binary(_) => TargetKind::Numbers,
        }
    }

    /// The numbers that it is for, if those are not all.
    pub fn target_range(&self) -> Option<TargetRange> {
        let bounds = match self {
            Loss::CrossEntropy(_) => return None,
            Loss::Binary(_) | Loss::Elementwise(ElementwiseLoss::BceWithLogits) => Bounds::ZeroToOne,
            Loss::Elementwise(ElementwiseLoss::GammaNll) => Bounds::AboveZero,
            Loss::Elementwise(ElementwiseLoss::PoissonNll | ElementwiseLoss::Tweedie { .. }) => Bounds::FromZero,
            Loss::Elementwise(
                ElementwiseLoss::Mse
                | ElementwiseLoss::L1
                | ElementwiseLoss::SmoothL1 { .. }
                | ElementwiseLoss::Huber { .. }
                | ElementwiseLoss::Quantile { .. },
            ) => return None,
        };
        Some(TargetRange { loss: self.name(), bounds })
    }

    /// True if it applies softmax or sigmoid itself, so that the model's output may be any number.
    pub fn takes_logits(&self) -> bool {
        match self {
            Loss::CrossEntropy(l) => l.form != RowLoss::Nll,
            Loss::Elementwise(ElementwiseLoss::BceWithLogits) | Loss::Binary(_) => true,
            Loss::Elementwise(_) => false,
        }
    }

    /// True if the model's output is to be logarithms of the probabilities of classes.
    pub fn takes_log_probabilities(&self) -> bool {
        matches!(self, Loss::CrossEntropy(l) if l.form == RowLoss::Nll)
    }

    /// True if the model's output is to be the mean of a distribution of positive numbers, as it is: neither its logarithm nor standardised.
    pub fn takes_positive_mean(&self) -> bool {
        matches!(
            self,
            Loss::Elementwise(
                ElementwiseLoss::PoissonNll | ElementwiseLoss::GammaNll | ElementwiseLoss::Tweedie { .. }
            )
        )
    }

    /// True if it is the negative logarithm of the probability of a target, and nothing else: its exponential is a perplexity.
    pub fn is_likelihood(&self) -> bool {
        let Loss::CrossEntropy(l) = self else { return false };
        let plain = match l.form {
            RowLoss::CrossEntropy | RowLoss::Nll => true,
            RowLoss::Focal { .. } => false,
        };
        plain && l.label_smoothing == 0.0 && l.weight.is_empty()
    }

    /// Targets that do not count.
    pub fn ignore_index(&self) -> Option<i32> {
        match self {
            Loss::CrossEntropy(l) => Some(l.ignore_index),
            Loss::Elementwise(_) | Loss::Binary(_) => None,
        }
    }

    /// What a batch weighs with a model's output of shape `prediction`, if all of its items count and none has a weight of
    /// its own: rows of classes, or samples of numbers.
    pub fn items(&self, prediction: &Shape) -> usize {
        match self.targets() {
            TargetKind::Classes => prediction.rows(),
            TargetKind::Numbers => prediction.dims().first().copied().unwrap_or(1),
        }
    }

    /// How many weights a prediction of that shape takes: one for each row of classes, or one for each number.
    pub fn weights(&self, prediction: &Shape) -> usize {
        match self.targets() {
            TargetKind::Classes => prediction.rows(),
            TargetKind::Numbers => prediction.len(),
        }
    }

    /// Whether operand `i` has the weights of the prediction.
    fn weights_fit(&self, inputs: &[&Value], i: usize) -> Result<(), ShapeError> {
        singles(self.name(), inputs, [i])?;
        let (wanted, found) = (self.weights(&inputs[0].shape), inputs[i].shape.len());
        match wanted == found {
            true => Ok(()),
            false => Err(ShapeError::of(i, format!("`{}` takes {wanted} weights, not {found}", self.name()))),
        }
    }

    /// Whether prediction and target go together.
    fn fits(&self, x: &Value, t: &Value) -> Result<(), ShapeError> {
        // Only one form is defined for shares of classes.
        let has_shares = matches!(self, Loss::CrossEntropy(l) if l.form == RowLoss::CrossEntropy);
        let shares = has_shares && t.dtype == DType::F32 && t.shape == x.shape;
        let classes = t.dtype == DType::I32 && t.shape.len() == x.shape.rows();
        match self {
            Loss::CrossEntropy(_) if !shares && !classes => Err(ShapeError::of(
                0,
                format!(
                    "`{}` takes one class a row, but the output is {} and the targets are {} of shape {}",
                    self.name(),
                    x.shape.to_pytorch(),
                    t.dtype,
                    t.shape
                ),
            )),
            Loss::CrossEntropy(l) if !l.weight.is_empty() && l.weight.len() != x.shape.last() => Err(ShapeError::of(
                0,
                format!("`{}` has {} weights, but the output is {}", self.name(), l.weight.len(), x.shape.to_pytorch()),
            )),
            Loss::Elementwise(_) | Loss::Binary(_) if x.shape.len() != t.shape.len() || t.dtype != DType::F32 => {
                Err(ShapeError::of(
                    0,
                    format!(
                        "`{}` compares the output ({}) with targets of {} {}",
                        self.name(),
                        x.shape.to_pytorch(),
                        t.dtype,
                        t.shape.to_pytorch()
                    ),
                ))
            }
            Loss::Binary(l) if !l.pos_weight.is_empty() && !x.shape.len().is_multiple_of(l.pos_weight.len()) => {
                let (name, weights) = (self.name(), l.pos_weight.len());
                let message = format!("`{name}` has {weights} weights, but the output is {}", x.shape.to_pytorch());
                Err(ShapeError::of(0, message))
            }
            Loss::CrossEntropy(_) | Loss::Elementwise(_) | Loss::Binary(_) => Ok(()),
        }
    }
}

impl From<CrossEntropy> for Loss {
    fn from(l: CrossEntropy) -> Loss {
        Loss::CrossEntropy(l)
    }
}

impl From<ElementwiseLoss> for Loss {
    fn from(l: ElementwiseLoss) -> Loss {
        Loss::Elementwise(l)
    }
}

impl From<WeightedBinary> for Loss {
    fn from(l: WeightedBinary) -> Loss {
        Loss::Binary(l)
    }
}

/// A loss. Operands: prediction (`F32`; rows of logits `[.., C]` for classes), targets (`I32`, one for each row; or
/// `F32`, as many as the prediction has: numbers, or shares of classes in the prediction's shape) and, if it is `weighted`, weights
/// (`F32`, none below 0).
/// Outputs: loss `[1]`, and what the batch weighs `[1]`: the weights of the rows that count, or the number of samples. Where
/// nothing counts both are 0, and so is the gradient.
///
/// There is a weight for each row of classes, by which its loss and what it weighs are multiplied; or for each number, and then
/// the loss is `Σ w f(x, t) / Σ w`, and the batch weighs the samples' mean weights together.
#[derive(Debug, Clone, PartialEq)]
pub struct LossOp {
    /// Which.
    pub loss: Loss,
    /// Rows or numbers have weights.
    pub weighted: bool,
}

/// Gradient of a [`LossOp`] by the prediction. Operands: prediction, targets, weight `[1]`, `dloss [1]` and, if it is `weighted`, the
/// weights.
#[derive(Debug, Clone, PartialEq)]
pub struct LossGrad {
    /// Which.
    pub loss: Loss,
    /// Rows or numbers have weights.
    pub weighted: bool,
}

impl<L: Into<Loss>> From<L> for LossOp {
    fn from(loss: L) -> LossOp {
        LossOp { loss: loss.into(), weighted: false }
    }
}

impl OpRules for LossOp {
    fn name(&self) -> &'static str {
        self.loss.name()
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2 + usize::from(self.weighted))?;
        singles(self.name(), inputs, [0])?;
        self.loss.fits(inputs[0], inputs[1])?;
        if self.weighted {
            self.loss.weights_fit(inputs, 2)?;
        }
        Ok(vec![(DType::F32, Shape::from([1])), (DType::F32, Shape::from([1]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dloss = cx.dy();
        let op = LossGrad { loss: self.loss.clone(), weighted: self.weighted };
        let mut operands = vec![cx.inputs[0], cx.inputs[1], cx.outputs[1], dloss];
        operands.extend(&cx.inputs[2..]);
        let mut grads = vec![Some(cx.add1(op, &operands)?)];
        grads.resize(cx.inputs.len(), None);
        Ok(grads)
    }
}

impl OpRules for LossGrad {
    fn name(&self) -> &'static str {
        self.loss.names()[1]
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 4 + usize::from(self.weighted))?;
        singles(self.name(), inputs, [0, 2, 3])?;
        self.loss.fits(inputs[0], inputs[1])?;
        if self.weighted {
            self.loss.weights_fit(inputs, 4)?;
        }
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}
