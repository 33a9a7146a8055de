//! `[optimizer]`.

mod common;
mod muon;
mod rules;

pub use common::*;
pub use muon::*;
pub use rules::*;

use serde::Serialize;

use crate::config::declare::tagged::tagged;
use crate::graph::op::{Algorithm, Moments, ScheduleFree};

/// The `[optimizer]` section.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimizer {
    /// The rule with its arguments.
    #[serde(flatten)]
    pub rule: OptimizerRule,
    /// Parameters that are treated differently; a parameter belongs to the first group that matches it.
    pub groups: Vec<ParamGroup>,
    /// Factor of the learning rate from each layer to the one below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
    /// Parameters without weight decay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_decay: Vec<NoDecay>,
    /// A moving average of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<Ema>,
    /// The mean of the weights at the ends of the last epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swa: Option<Swa>,
    /// The batch that the learning rates are for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr_base_size: Option<usize>,
    /// How they change with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr_base_scale: Option<LrScale>,
}

impl Optimizer {
    /// What all learning rates are multiplied with where an update is made from so many samples.
    pub fn lr_factor(&self, samples: usize) -> f64 {
        let Some(base) = self.lr_base_size else { return 1.0 };
        let ratio = samples as f64 / base as f64;
        match self.lr_base_scale.unwrap_or(LrScale::Linear) {
            LrScale::Linear => ratio,
            LrScale::Sqrt => ratio.sqrt(),
        }
    }
}

tagged! {
    /// How a gradient changes a parameter.
    OptimizerRule by "type", resume Breaks:
    "sgd" => Sgd(Sgd),
    "adam" => Adam(Adam),
    "adamw" => AdamW(AdamW),
    "rmsprop" => RmsProp(RmsProp),
    "nadam" => Nadam(Nadam),
    "radam" => Radam(Radam),
    "adagrad" => Adagrad(Adagrad),
    "adadelta" => Adadelta(Adadelta),
    "adamax" => Adamax(Adamax),
    "lion" => Lion(Lion),
    "lamb" => Lamb(Lamb),
    "lars" => Lars(Lars),
    "muon" => Muon(Muon),
    "adafactor" => Adafactor(Adafactor),
    "adamw_schedule_free" => AdamWScheduleFree(AdamWScheduleFree),
}

/// What all rules have.
macro_rules! of_every_rule {
    ($rule:expr, $field:ident) => {
        match $rule {
            Self::Sgd(o) => o.$field,
            Self::Adam(o) => o.$field,
            Self::AdamW(o) => o.$field,
            Self::RmsProp(o) => o.$field,
            Self::Nadam(o) => o.$field,
            Self::Radam(o) => o.$field,
            Self::Adagrad(o) => o.$field,
            Self::Adadelta(o) => o.$field,
            Self::Adamax(o) => o.$field,
            Self::Lion(o) => o.$field,
            Self::Lamb(o) => o.$field,
            Self::Lars(o) => o.$field,
            Self::Muon(o) => o.$field,
            Self::Adafactor(o) => o.$field,
            Self::AdamWScheduleFree(o) => o.$field,
        }
    };
}

impl OptimizerRule {
    /// The engine's rule; with Muon, that of the parameters that it leaves.
    pub fn describe(&self) -> Algorithm {
        match self {
            Self::Sgd(s) => {
                Algorithm::Sgd { momentum: s.momentum as f32, dampening: s.dampening as f32, nesterov: s.nesterov }
            }
            Self::Adam(Adam { betas: [beta1, beta2], eps, amsgrad, .. }) => {
                Algorithm::Adam { beta1: *beta1, beta2: *beta2, eps: *eps as f32, decoupled: false, amsgrad: *amsgrad }
            }
            Self::AdamW(AdamW { betas: [beta1, beta2], eps, amsgrad, .. }) => {
                Algorithm::Adam { beta1: *beta1, beta2: *beta2, eps: *eps as f32, decoupled: true, amsgrad: *amsgrad }
            }
            Self::RmsProp(r) => Algorithm::RmsProp {
                alpha: r.alpha,
                eps: r.eps as f32,
                momentum: r.momentum as f32,
                centered: r.centered,
            },
            Self::Nadam(n) => Algorithm::Nadam {
                beta1: n.betas[0],
                beta2: n.betas[1],
                eps: n.eps as f32,
                momentum_decay: n.momentum_decay,
                decoupled: n.decoupled_weight_decay,
            },
            Self::Radam(r) => Algorithm::Radam {
                beta1: r.betas[0],
                beta2: r.betas[1],
                eps: r.eps as f32,
                decoupled: r.decoupled_weight_decay,
            },
            Self::Adagrad(a) => Algorithm::Adagrad {
                lr_decay: a.lr_decay,
                eps: a.eps as f32,
                initial_accumulator_value: a.initial_accumulator_value as f32,
            },
            Self::Adadelta(a) => Algorithm::Adadelta { rho: a.rho, eps: a.eps as f32 },
            Self::Adamax(a) => Algorithm::Adamax { beta1: a.betas[0], beta2: a.betas[1], eps: a.eps as f32 },
            Self::Lion(l) => Algorithm::Lion { beta1: l.betas[0], beta2: l.betas[1] },
            Self::Lamb(l) => Algorithm::Lamb {
                beta1: l.betas[0],
                beta2: l.betas[1],
                eps: l.eps as f32,
                always_adapt: l.always_adapt,
            },
            Self::Lars(l) => Algorithm::Lars {
                momentum: l.momentum as f32,
                trust_coefficient: l.trust_coefficient as f32,
                eps: l.eps as f32,
                always_adapt: l.always_adapt,
            },
            Self::Muon(m) => m.describe_rest(),
            Self::Adafactor(a) => Algorithm::Adafactor {
                beta2_decay: a.beta2_decay,
                eps: a.eps.map(|eps| eps as f32),
                d: a.d as f32,
                // What is kept depends on the parameter.
                moments: Moments::Factored,
            },
            Self::AdamWScheduleFree(s) => Algorithm::ScheduleFreeAdamW {
                beta1: s.betas[0],
                beta2: s.betas[1],
                eps: s.eps as f32,
                steps: ScheduleFree { warmup_steps: s.warmup_steps, r: s.r, lr_power: s.weight_lr_power },
            },
        }
    }

    /// Share of the last update that is kept, and of the gradient that this leaves out.
    pub fn momentum(&self) -> [f64; 2] {
        match self {
            Self::Sgd(o) => [o.momentum, o.dampening],
            Self::RmsProp(o) => [o.momentum, 0.0],
            Self::Lars(o) => [o.momentum, 0.0],
            _ => [0.0; 2],
        }
    }

    /// Decays of the running means of gradient and squared gradient, of Adam and its like.
    pub fn betas(&self) -> Option<[f64; 2]> {
        match self {
            Self::Adam(Adam { betas, .. })
            | Self::AdamW(AdamW { betas, .. })
            | Self::Nadam(Nadam { betas, .. })
            | Self::Radam(Radam { betas, .. })
            | Self::Lamb(Lamb { betas, .. }) => Some(*betas),
            _ => None,
        }
    }

    /// True if it has an average of the weights itself, which is what is evaluated, and the rate that it wants.
    pub fn is_schedule_free(&self) -> bool {
        matches!(self, Self::AdamWScheduleFree(_))
    }

    /// The share of the learning rate that the rule itself uses in an update, counted from 1: below 1 in a warm-up of its own. In
    /// `fp16`, updates that are left out because a gradient overflows do not count in that warm-up, so that it ends as many later.
    pub fn warmth(&self, update: u64) -> f64 {
        match self.describe() {
            Algorithm::ScheduleFreeAdamW { steps, .. } => steps.warmth(i64::try_from(update).unwrap_or(i64::MAX)),
            _ => 1.0,
        }
    }

    /// Leaves out a warm-up of the rule's own, for those who say themselves what the rate is.
    pub fn without_warmup(&mut self) {
        if let Self::AdamWScheduleFree(rule) = self {
            rule.warmup_steps = 0;
        }
    }

    /// True if `weight_decay` times the learning rate is the share of a parameter that a step takes away. Decay that is added to
    /// a scaled gradient is scaled as well.
    pub fn decays_by_share(&self) -> bool {
        matches!(self, Self::Sgd(_)) || self.describe().is_decoupled()
    }

    /// The learning rate that schedules scale.
    pub fn lr(&self) -> f64 {
        of_every_rule!(self, lr)
    }

    /// A learning rate to begin with, and the largest that is of use anywhere. Of rules whose updates have about the size of the rate,
    /// whatever the gradient, parameters change by that in every step.
    pub fn usual_rates(&self) -> [f64; 2] {
        match self {
            Self::Sgd(_) | Self::Lars(_) => [0.1, 100.0],
            Self::Adagrad(_) => [0.01, 10.0],
            Self::Adadelta(_) => [1.0, 100.0],
            Self::Lion(_) => [1e-4, 0.03],
            Self::Lamb(_) | Self::Muon(_) => [0.01, 1.0],
            // Its steps are in proportion to the size of a parameter.
            Self::Adafactor(_) => [0.01, 1.0],
            Self::RmsProp(_) | Self::Adam(_) | Self::AdamW(_) | Self::Nadam(_) | Self::Radam(_) | Self::Adamax(_) => {
                [1e-3, 0.2]
            }
            // It is steadier, and its own paper goes higher.
            Self::AdamWScheduleFree(_) => [2.5e-3, 0.5],
        }
    }

    /// The weight decay of parameters in no group.
    pub fn weight_decay(&self) -> f64 {
        of_every_rule!(self, weight_decay)
    }
}
