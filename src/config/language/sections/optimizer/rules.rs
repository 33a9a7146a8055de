//! The types of `[optimizer]` with their options.

use crate::config::declare::bounds::{Bounds, above};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::text::diagnostics::Diagnostic;

options! {
    /// Stochastic gradient descent. `torch.optim.SGD`.
    #[schema(
        "if": { "properties": { "nesterov": { "const": true } }, "required": ["nesterov"] },
        "then": {
            "properties": { "momentum": { "exclusiveMinimum": 0 }, "dampening": { "const": 0 } },
            "required": ["momentum"],
        },
    )]
    pub struct Sgd {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), example = "0.1", resume = Differs)]
        pub lr: f64,
        /// Share of the last update that is kept.
        #[option(default = 0.0, range = 0.0..)]
        pub momentum: f64,
        /// Share of the gradient that momentum leaves out.
        #[option(default = 0.0, range = 0.0..=1.0, resume = Differs)]
        pub dampening: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Nesterov's momentum; needs `momentum`, and no `dampening`.
        #[option(default = false, resume = Differs)]
        pub nesterov: bool,
    }
}

impl Check for Sgd {
    fn check(&self, part: &Part) {
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            let (key, reason) = match self.dampening != 0.0 {
                true => ("dampening", "must be 0 with `nesterov`"),
                false => ("momentum", "must be above 0 with `nesterov`"),
            };
            let mut error =
                Diagnostic::error(format!("`nesterov` in {} needs `momentum` and no `dampening`", part.what));
            error = match part.table.get(key) {
                Some(node) => error.at(node.span, reason).context(part.span_of("nesterov"), ""),
                None => error.at(part.span_of("nesterov"), "`momentum` is not set"),
            };
            part.sink.push(error);
        }
    }
}

options! {
    /// `torch.optim.Adam`.
    pub struct Adam {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Divide by the largest mean of squares so far.
        #[option(default = false)]
        pub amsgrad: bool,
    }

    /// Adam with decoupled weight decay. `torch.optim.AdamW`.
    pub struct AdamW {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 1e-2, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Divide by the largest mean of squares so far.
        #[option(default = false)]
        pub amsgrad: bool,
    }

    /// `torch.optim.RMSprop`.
    pub struct RmsProp {
        /// Learning rate.
        #[option(default = 1e-2, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running mean of squares.
        #[option(default = 0.99, range = 0.0..1.0, resume = Differs)]
        pub alpha: f64,
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Share of the last update that is kept.
        #[option(default = 0.0, range = 0.0..)]
        pub momentum: f64,
        /// Divide by an estimate of the gradient's variance.
        #[option(default = false)]
        pub centered: bool,
    }
}

impl Check for Adam {}

impl Check for AdamW {}

impl Check for RmsProp {}

options! {
    /// Adam with Nesterov's momentum (Dozat 2016). `torch.optim.NAdam`.
    pub struct Nadam {
        /// Learning rate.
        #[option(default = 2e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// How fast the momentum rises to the first of `betas`, from half of it.
        #[option(default = 4e-3, range = 0.0.., resume = Differs)]
        pub momentum_decay: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Take `weight_decay` times the learning rate of a parameter away with each step, as AdamW does.
        #[option(default = false, resume = Differs)]
        pub decoupled_weight_decay: bool,
    }

    /// Adam that does not divide by the squares before they are well known (Liu et al. 2020). `torch.optim.RAdam`.
    pub struct Radam {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Take `weight_decay` times the learning rate of a parameter away with each step, as AdamW does.
        #[option(default = false, resume = Differs)]
        pub decoupled_weight_decay: bool,
    }

    /// `torch.optim.Adagrad` (Duchi et al. 2011).
    pub struct Adagrad {
        /// Learning rate.
        #[option(default = 1e-2, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// In step `t`, from 1, the rate is divided by `1 + (t − 1) · lr_decay`.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub lr_decay: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// What the sums of squares begin with.
        #[option(default = 0.0, range = 0.0..)]
        pub initial_accumulator_value: f64,
        /// Added to the denominator.
        #[option(default = 1e-10, range = 0.0.., resume = Differs)]
        pub eps: f64,
    }

    /// `torch.optim.Adadelta` (Zeiler 2012).
    pub struct Adadelta {
        /// Learning rate.
        #[option(default = 1.0, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of squares.
        #[option(default = 0.9, range = 0.0..=1.0, resume = Differs)]
        pub rho: f64,
        /// Added to both of them.
        #[option(default = 1e-6, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
    }

    /// Adam that divides by the largest gradient (Kingma & Ba 2015). `torch.optim.Adamax`.
    pub struct Adamax {
        /// Learning rate.
        #[option(default = 2e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running mean of the gradient, and of the largest gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the size of each gradient.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
    }

    /// Steps of the same size for all elements, by the sign of a mean of gradients (Chen et al. 2023). It wants a learning rate three to
    /// ten times lower than AdamW, and as much more weight decay.
    pub struct Lion {
        /// Learning rate.
        #[option(default = 1e-4, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Share of the mean in a step, and decay of the mean.
        #[option(default = [0.9, 0.99], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
    }
}

options! {
    /// AdamW for large batches: the step of each tensor is as long as the tensor, times the learning rate (You et al. 2020).
    pub struct Lamb {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-6, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// Share of a parameter that is added to Adam's step before it is scaled.
        #[option(default = 1e-2, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Scale the steps of parameters without weight decay, too. By default `no_decay` leaves biases and norms a step of Adam.
        #[option(default = false, resume = Differs)]
        pub always_adapt: bool,
    }

    /// Gradient descent for large batches: the step of each tensor is in proportion to its norm, whatever that of its gradient
    /// (You et al. 2017). The learning rate is in the velocity, as in the paper.
    pub struct Lars {
        /// Learning rate.
        #[option(range = above(0.0), example = "1.0", resume = Differs)]
        pub lr: f64,
        /// Share of the last update that is kept.
        #[option(default = 0.9, range = 0.0.., resume = Differs)]
        pub momentum: f64,
        /// L2 penalty, added to the gradient.
        #[option(default = 5e-4, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Length of a step in proportion to the parameter, where the learning rate is 1.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub trust_coefficient: f64,
        /// Added to the denominator of that proportion.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// Scale the steps of parameters without weight decay, too. By default `no_decay` leaves biases and norms plain steps.
        #[option(default = false, resume = Differs)]
        pub always_adapt: bool,
    }
}

impl Check for Lamb {}

impl Check for Lars {}

impl Check for Nadam {}

impl Check for Radam {}

impl Check for Adagrad {}

impl Check for Adadelta {}

impl Check for Adamax {}

impl Check for Lion {}

options! {
    /// Adam that keeps means of squares by rows and columns, instead of one for each weight, and steps in proportion to the size of
    /// each parameter (Shazeer & Stern 2018). `torch.optim.Adafactor`.
    pub struct Adafactor {
        /// Largest learning rate: step `t` has 1 / √t if that is less. It is multiplied by the size of the parameter, the root of the mean of
        /// its squares.
        #[option(default = 1e-2, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// The newest squares have the share `t^beta2_decay` in their means, in step `t`.
        #[option(default = -0.8, range = Bounds::NONE.to(0.0), resume = Differs)]
        pub beta2_decay: f64,
        /// Least root of a mean of squares, and least size of a parameter.
        #[option(default = [1.1920929e-7, 1e-3], range = 0.0.., resume = Differs)]
        pub eps: [f64; 2],
        /// Largest size of a step, in proportion to the learning rate times the size of the parameter.
        #[option(default = 1.0, range = 1.0.., resume = Differs)]
        pub d: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
    }

    /// AdamW without a schedule: what is evaluated, and made of checkpoints, is an average of the weights that the steps go by (Defazio et
    /// al. 2024). Formulas are those of the paper's `AdamWScheduleFree`.
    pub struct AdamWScheduleFree {
        /// Learning rate. It stays as it is after the warm-up; it may be up to ten times that of AdamW with a schedule.
        #[option(default = 2.5e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Share of the average in the weights at which gradients are taken, and decay of the running mean of squared gradients.
        #[option(default = [0.9, 0.999], range = 0.0..1.0, resume = Differs)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0.., resume = Differs)]
        pub eps: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 0.0, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Steps in which the learning rate rises to its value.
        #[option(default = 0, range = 0..=1 << 30, unit = "steps", resume = Differs)]
        pub warmup_steps: u64,
        /// Step `t` has the weight `t^r` in the average: more than 0 counts later steps for more.
        #[option(default = 0.0, range = 0.0..=100.0, resume = Differs)]
        pub r: f64,
        /// Power of the learning rate in that weight, which makes the steps of the warm-up count less.
        #[option(default = 2.0, range = 0.0..=100.0, resume = Differs)]
        pub weight_lr_power: f64,
    }
}

impl Check for Adafactor {}

impl Check for AdamWScheduleFree {}
