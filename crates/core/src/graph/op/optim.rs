//! The update: the optimizers, as in `torch.optim`.

use super::adafactor::Moments;
use super::schedule_free::ScheduleFree;

/// An update rule with the constants that all tensors share. Names and formulas are those of `torch.optim`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// Gradient descent. State: `momentum_buffer` if `momentum ≠ 0`; at the first step it is the gradient itself.
    Sgd {
        /// Factor of the velocity.
        momentum: f32,
        /// The gradient enters the velocity as `(1 − dampening) · g`.
        dampening: f32,
        /// Look ahead (Sutskever et al. 2013).
        nesterov: bool,
    },
    /// Adam (Kingma & Ba 2015), or AdamW (Loshchilov & Hutter 2019) if `decoupled`.
    /// State: `exp_avg`, `exp_avg_sq`, and `max_exp_avg_sq` if `amsgrad`.
    Adam {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the denominator.
        eps: f32,
        /// Weight decay acts on the parameter, not on the gradient.
        decoupled: bool,
        /// Divide by the largest mean square seen (Reddi et al. 2018).
        amsgrad: bool,
    },
    /// NAdam (Dozat 2016). State: `exp_avg`, `exp_avg_sq`. What depends on the step alone is [`Nadam`].
    Nadam {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the denominator.
        eps: f32,
        /// How fast the momentum rises to `beta1`.
        momentum_decay: f64,
        /// Weight decay acts on the parameter, not on the gradient.
        decoupled: bool,
    },
    /// RAdam (Liu et al. 2020). State: `exp_avg`, `exp_avg_sq`. What depends on the step alone is [`radam_rectification`].
    Radam {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the denominator.
        eps: f32,
        /// Weight decay acts on the parameter, not on the gradient.
        decoupled: bool,
    },
    /// Adagrad (Duchi et al. 2011). State: `sum`.
    Adagrad {
        /// In step `t` the learning rate is divided by `1 + (t − 1) · lr_decay`.
        lr_decay: f64,
        /// Added to the denominator.
        eps: f32,
        /// What the sum of squares begins with.
        initial_accumulator_value: f32,
    },
    /// Adadelta (Zeiler 2012). State: `square_avg`, `acc_delta`.
    Adadelta {
        /// Decay of both means of squares.
        rho: f64,
        /// Added to both.
        eps: f32,
    },
    /// Adamax (Kingma & Ba 2015). State: `exp_avg`, `exp_inf`.
    Adamax {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the largest gradient.
        beta2: f64,
        /// Added to the size of each gradient.
        eps: f32,
    },
    /// Lion (Chen et al. 2023), with its decoupled weight decay. State: `exp_avg`.
    Lion {
        /// Share of the mean in a step.
        beta1: f64,
        /// Decay of the mean.
        beta2: f64,
    },
    /// RMSprop (Hinton 2012). State: `square_avg`, `momentum_buffer` if `momentum ≠ 0`, `grad_avg` if `centered`.
    RmsProp {
        /// Decay of the mean square.
        alpha: f64,
        /// Added to the denominator.
        eps: f32,
        /// Factor of the velocity.
        momentum: f32,
        /// Divide by an estimate of the standard deviation.
        centered: bool,
    },
    /// LAMB (You et al. 2020): a step of Adam, the decay times the parameter added, as long as [`Trust`] says. State:
    /// `exp_avg`, `exp_avg_sq`.
    Lamb {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the denominator.
        eps: f32,
        /// Also scale the steps of tensors without weight decay.
        always_adapt: bool,
    },
    /// LARS (You et al. 2017): the gradient, the decay times the parameter added, as long as [`Trust`] says, enters the velocity
    /// times the learning rate. State: `momentum_buffer`.
    Lars {
        /// Factor of the velocity.
        momentum: f32,
        /// Length of a step in proportion to the parameter.
        trust_coefficient: f32,
        /// Added to the denominator.
        eps: f32,
        /// Also scale the steps of tensors without weight decay.
        always_adapt: bool,
    },
    /// Adafactor (Shazeer & Stern 2018): the gradient over the root of its mean square, of which [`Moments`] are kept, in steps of the
    /// size of the parameter. State: `variance`, or `row_var` and `col_var`, whose shapes are those of [`super::Matrices`].
    Adafactor {
        /// The newest square has the share `t^beta2_decay` in a mean, in step `t`.
        beta2_decay: f64,
        /// Least root of a mean square, and least size of a parameter.
        eps: [f32; 2],
        /// Largest size of a step, in proportion to that of the parameter.
        d: f32,
        /// What is kept of the squares.
        moments: Moments,
    },
    /// AdamW without a schedule (Defazio et al. 2024). The parameter is where gradients are taken. State: `z`, which descends,
    /// `exp_avg_sq`, and `average`, the average of `z` that is evaluated. What depends on the step alone is in [`ScheduleFree`].
    ScheduleFreeAdamW {
        /// Share of the average in the parameter.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the denominator.
        eps: f32,
        /// Warm-up, and weights of the steps in the average.
        steps: ScheduleFree,
    },
}

/// How long the step of a tensor is in proportion to what its rule says by itself, from the norms of the whole parameter `w` and of
/// `d`: `coefficient · ‖w‖ / (‖d‖ + decay · ‖w‖ + eps)`; 1 where a norm is 0 or the tensor is not adapted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trust {
    /// Factor of the parameter's norm.
    pub coefficient: f32,
    /// Factor of the tensor's weight decay in the denominator.
    pub decay: f32,
    /// Added to the denominator.
    pub eps: f32,
    /// Also adapt tensors without weight decay.
    pub always_adapt: bool,
}

impl Trust {
    /// The ratio for a tensor of that weight decay, with the norms of parameter and direction.
    pub fn ratio(&self, weight_decay: f32, [parameter, direction]: [f64; 2]) -> f64 {
        let adapts = self.always_adapt || weight_decay != 0.0;
        if !adapts || parameter == 0.0 || direction == 0.0 {
            return 1.0;
        }
        let decay = f64::from(self.decay) * f64::from(weight_decay);
        f64::from(self.coefficient) * parameter / (direction + decay * parameter + f64::from(self.eps))
    }
}

impl Algorithm {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::Sgd { .. } => "sgd",
            Algorithm::Adam { decoupled: false, .. } => "adam",
            Algorithm::Adam { decoupled: true, .. } => "adamw",
            Algorithm::RmsProp { .. } => "rmsprop",
            Algorithm::Nadam { .. } => "nadam",
            Algorithm::Radam { .. } => "radam",
            Algorithm::Adagrad { .. } => "adagrad",
            Algorithm::Adadelta { .. } => "adadelta",
            Algorithm::Adamax { .. } => "adamax",
            Algorithm::Lion { .. } => "lion",
            Algorithm::Lamb { .. } => "lamb",
            Algorithm::Lars { .. } => "lars",
            Algorithm::Adafactor { .. } => "adafactor",
            Algorithm::ScheduleFreeAdamW { .. } => "adamw_schedule_free",
        }
    }

    /// How the norms of whole tensors scale its steps; `None` where each element changes by itself.
    pub fn trust(&self) -> Option<Trust> {
        match *self {
            Algorithm::Lamb { always_adapt, .. } => {
                Some(Trust { coefficient: 1.0, decay: 0.0, eps: 0.0, always_adapt })
            }
            Algorithm::Lars { trust_coefficient, eps, always_adapt, .. } => {
                Some(Trust { coefficient: trust_coefficient, decay: 1.0, eps, always_adapt })
            }
            _ => None,
        }
    }

    /// Whether each element changes by itself, so that a part of a tensor can be updated alone.
    pub fn is_elementwise(&self) -> bool {
        self.trust().is_none() && !matches!(self, Algorithm::Adafactor { .. })
    }

    /// True if weight decay acts on the parameter, not on the gradient.
    pub fn is_decoupled(&self) -> bool {
        match *self {
            Algorithm::Adam { decoupled, .. }
            | Algorithm::Nadam { decoupled, .. }
            | Algorithm::Radam { decoupled, .. } => decoupled,
            Algorithm::Lion { .. } | Algorithm::Adafactor { .. } | Algorithm::ScheduleFreeAdamW { .. } => true,
            Algorithm::Sgd { .. }
            | Algorithm::RmsProp { .. }
            | Algorithm::Adagrad { .. }
            | Algorithm::Adadelta { .. }
            | Algorithm::Adamax { .. }
            | Algorithm::Lamb { .. }
            | Algorithm::Lars { .. } => false,
        }
    }

    /// The decays `beta1`, `beta2` of means that start at zero, which is to be corrected; zeros if there are none.
    pub fn corrected(&self) -> [f64; 2] {
        match *self {
            Algorithm::Adam { beta1, beta2, .. }
            | Algorithm::Nadam { beta1, beta2, .. }
            | Algorithm::Radam { beta1, beta2, .. }
            | Algorithm::Lamb { beta1, beta2, .. } => [beta1, beta2],
            Algorithm::Adamax { beta1, .. } => [beta1, 0.0],
            Algorithm::ScheduleFreeAdamW { beta2, .. } => [0.0, beta2],
            Algorithm::Sgd { .. }
            | Algorithm::RmsProp { .. }
            | Algorithm::Adagrad { .. }
            | Algorithm::Adadelta { .. }
            | Algorithm::Lion { .. }
            | Algorithm::Lars { .. }
            | Algorithm::Adafactor { .. } => [0.0; 2],
        }
    }

    /// How fast the momentum of NAdam rises; `None` for others.
    pub fn momentum_decay(&self) -> Option<f64> {
        match *self {
            Algorithm::Nadam { momentum_decay, .. } => Some(momentum_decay),
            _ => None,
        }
    }

    /// What a state tensor begins with.
    pub fn initial(&self, slot: &str) -> f32 {
        match *self {
            Algorithm::Adagrad { initial_accumulator_value, .. } if slot == "sum" => initial_accumulator_value,
            _ => 0.0,
        }
    }

    /// The state tensors by the places that kernels know them by; `None` where the rule does without.
    pub fn state(&self) -> [Option<&'static str>; 3] {
        match *self {
            Algorithm::Sgd { momentum, .. } => [(momentum != 0.0).then_some("momentum_buffer"), None, None],
            Algorithm::Adam { amsgrad, .. } => {
                [Some("exp_avg"), Some("exp_avg_sq"), amsgrad.then_some("max_exp_avg_sq")]
            }
            Algorithm::RmsProp { momentum, centered, .. } => {
                [Some("square_avg"), (momentum != 0.0).then_some("momentum_buffer"), centered.then_some("grad_avg")]
            }
            Algorithm::Nadam { .. } | Algorithm::Radam { .. } | Algorithm::Lamb { .. } => {
                [Some("exp_avg"), Some("exp_avg_sq"), None]
            }
            Algorithm::Lars { .. } => [Some("momentum_buffer"), None, None],
            Algorithm::Adagrad { .. } => [Some("sum"), None, None],
            Algorithm::Adadelta { .. } => [Some("square_avg"), Some("acc_delta"), None],
            Algorithm::Adamax { .. } => [Some("exp_avg"), Some("exp_inf"), None],
            Algorithm::Lion { .. } => [Some("exp_avg"), None, None],
            Algorithm::Adafactor { moments: Moments::Elements | Moments::Points, .. } => [Some("variance"), None, None],
            Algorithm::Adafactor { moments: Moments::Factored, .. } => [Some("row_var"), Some("col_var"), None],
            Algorithm::ScheduleFreeAdamW { .. } => [Some("z"), Some("exp_avg_sq"), Some("average")],
        }
    }

    /// Names of the state tensors, in the order in which the operands come.
    pub fn slots(&self) -> impl Iterator<Item = &'static str> {
        self.state().into_iter().flatten()
    }
}

/// What NAdam makes of the step's number: the shares of gradient and mean in a step, the latter with the momentum of the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nadam {
    /// `(1 − μ) / (1 − Π μ)`
    pub of_gradient: f64,
    /// `μ' / (1 − μ' Π μ)`, with the next step's `μ'`
    pub of_mean: f64,
}

impl Nadam {
    /// For the `step`-th update, from 1. The product over all steps is made anew each time, which leaves nothing to be kept; it soon
    /// is too small to matter.
    pub fn at(step: i64, beta1: f64, momentum_decay: f64) -> Self {
        let momentum = |t: i64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t as f64 * momentum_decay));
        let mut product = 1.0;
        for t in 1..=step {
            product *= momentum(t);
            if product < 1e-20 {
                product = 0.0;
                break;
            }
        }
        let next = momentum(step + 1);
        Self { of_gradient: (1.0 - momentum(step)) / (1.0 - product), of_mean: next / (1.0 - product * next) }
    }
}

/// RAdam's factor of a step, the `step`-th from 1; `None` as long as too little is known of the variance to divide by it.
pub fn radam_rectification(step: i64, beta2: f64) -> Option<f64> {
    let decayed = beta2.powf(step as f64);
    let limit = 2.0 / (1.0 - beta2) - 1.0;
    let length = limit - 2.0 * step as f64 * decayed / (1.0 - decayed);
    let ratio = (length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length);
    (length > 5.0).then(|| ratio.sqrt())
}

/// The options of one parameter tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorOptions {
    /// Factor of the scheduled learning rate above its floor: the tensor's rate is
    /// `(lr − floor) · lr_scale + floor`.
    pub lr_scale: f32,
    /// Weight decay.
    pub weight_decay: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_a_rule_does_without_keeps_its_place_free() {
        let rmsprop = |momentum, centered| Algorithm::RmsProp { alpha: 0.9, eps: 1e-8, momentum, centered };
        let [square, velocity, mean] = ["square_avg", "momentum_buffer", "grad_avg"].map(Some);
        assert_eq!(rmsprop(0.0, false).state(), [square, None, None]);
        assert_eq!(rmsprop(0.5, false).state(), [square, velocity, None]);
        assert_eq!(rmsprop(0.0, true).state(), [square, None, mean]);
        assert!(rmsprop(0.0, true).slots().eq([square, mean].into_iter().flatten()));
    }
}
