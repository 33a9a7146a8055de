//! The update: the gradient's norm, and the optimizers, as in `torch.optim`.

use super::{OpRules, Output, ShapeError, Value, arity, same, singles};
use crate::graph::{DType, Shape};

/// `‖scale · (g₁, g₂, …)‖₂` with `scale = schedule[1] / schedule[2]`. Operands: schedule, gradients. Output: `[1]`.
/// The squares are summed in double precision, so the norm is finite just if all gradients are (and it fits `F32`).
#[derive(Debug, Clone, PartialEq)]
pub struct GradNorm {}

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
}

/// A constant that a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// A single.
    Single(f32),
    /// A double.
    Double(f64),
    /// A flag.
    Flag(bool),
}

impl Algorithm {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::Sgd { .. } => "sgd",
            Algorithm::Adam { decoupled: false, .. } => "adam",
            Algorithm::Adam { decoupled: true, .. } => "adamw",
            Algorithm::RmsProp { .. } => "rmsprop",
        }
    }

    /// The kernel of a GPU that updates by this rule, and the constants that it takes.
    pub fn kernel(&self) -> (&'static str, Vec<Constant>) {
        use Constant::{Double, Flag, Single};
        match *self {
            Algorithm::Sgd { momentum, dampening, nesterov } => {
                ("sgd", vec![Single(momentum), Single(dampening), Flag(nesterov)])
            }
            Algorithm::Adam { beta1, beta2, eps, decoupled, .. } => {
                ("adam", vec![Double(beta1), Double(beta2), Single(eps), Flag(decoupled)])
            }
            Algorithm::RmsProp { alpha, eps, momentum, .. } => {
                ("rmsprop", vec![Double(alpha), Single(eps), Single(momentum)])
            }
        }
    }

    /// True if weight decay acts on the parameter, not on the gradient.
    pub fn is_decoupled(&self) -> bool {
        match *self {
            Algorithm::Adam { decoupled, .. } => decoupled,
            Algorithm::Sgd { .. } | Algorithm::RmsProp { .. } => false,
        }
    }

    /// The decays `beta1`, `beta2` of means that start at zero, which is to be corrected; zeros if there are none.
    pub fn corrected(&self) -> [f64; 2] {
        match *self {
            Algorithm::Adam { beta1, beta2, .. } => [beta1, beta2],
            Algorithm::Sgd { .. } | Algorithm::RmsProp { .. } => [0.0; 2],
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
        }
    }

    /// Names of the state tensors, in the order in which the operands come.
    pub fn slots(&self) -> impl Iterator<Item = &'static str> {
        self.state().into_iter().flatten()
    }
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

/// The update of all parameters in one operation. Operands: schedule (`F32 [4]`: learning rate, gradient scale, loss
/// scale, floor of the learning rate), loss `[1]`, `norm [1]` if `clip_norm` or `scaled`, `s [1]` if `scaled`, step counter
/// (`I64 [1]`), then for each tensor: parameter, gradient, and the state tensors of [`Algorithm::slots`]. Parameters,
/// state and the counter are updated in place.
///
/// With `s = 1` if not `scaled`, the gradient that the rule sees is
/// `g · schedule[1] / schedule[2] / s · min(1, clip_norm / (norm / s + 1e-6))`. If the loss is not finite nothing is
/// updated, so that the state that led there can be looked into; neither if `scaled` and the norm is not finite, since
/// then a gradient has left the range of its type.
///
/// The pass `update_early` splits it into several operations, each for some of the tensors. Only the first one increments the
/// step counter.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerStep {
    /// The rule.
    pub algorithm: Algorithm,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f32>,
    /// The gradients are those of the loss times the scale `s`, an operand ([`UpdateScale`] changes it).
    pub scaled: bool,
    /// This is the first operation of the update, which increments the step counter.
    pub counts: bool,
    /// One for each tensor.
    pub tensors: Vec<TensorOptions>,
}

impl OptimizerStep {
    /// Number of operands before the first tensor's.
    pub fn head(&self) -> usize {
        3 + self.has_norm() as usize + self.scaled as usize
    }

    /// True if the norm of the gradients is an operand.
    pub fn has_norm(&self) -> bool {
        self.clip_norm.is_some() || self.scaled
    }

    /// Number of operands of one tensor: parameter, gradient, state.
    pub fn stride(&self) -> usize {
        2 + self.algorithm.slots().count()
    }
}

/// Dynamic loss scaling, as `torch.amp.GradScaler` does it (Micikevicius et al. 2018). Operands: `norm [1]` of the
/// gradients, scale (`F32 [1]`), growth tracker (`I64 [1]`, the number of updates since the scale last changed), loss (`F32
/// [1]`); scale and tracker are updated in place.
///
/// If the loss is not finite, which no other scale would mend, nothing changes. If the norm is not: `scale ·= backoff`,
/// `tracker = 0`. Else `tracker += 1`, and when that reaches `interval`: `scale ·= growth` unless the product is infinite,
/// `tracker = 0`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateScale {
    /// `growth_factor`
    pub growth: f32,
    /// `backoff_factor`
    pub backoff: f32,
    /// `growth_interval`
    pub interval: u32,
}

impl OpRules for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        singles("grad_norm", inputs, 0..inputs.len())?;
        Ok(vec![(DType::F32, Shape::from([1]))])
    }
}

impl OpRules for OptimizerStep {
    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let (head, stride) = (self.head(), self.stride());
        arity(self.name(), inputs, head + stride * self.tensors.len())?;
        singles(self.name(), inputs, 0..head - 1)?;
        for t in 0..self.tensors.len() {
            for i in 1..stride {
                same(self.name(), inputs, head + t * stride, head + t * stride + i)?;
            }
            singles(self.name(), inputs, head + t * stride..head + (t + 1) * stride)?;
        }
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        let (head, stride) = (self.head(), self.stride());
        // Of each tensor's operands only the gradient is left as it is.
        let counter = self.counts.then_some(head - 1);
        counter.into_iter().chain((head..inputs).filter(|i| (i - head) % stride != 1)).collect()
    }
}

impl OpRules for UpdateScale {
    fn name(&self) -> &'static str {
        "update_scale"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("update_scale", inputs, 4)?;
        singles("update_scale", inputs, [0, 1, 3])?;
        if inputs[2].dtype != DType::I64 {
            return Err(ShapeError::of(2, "`update_scale` counts in i64"));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![1, 2]
    }
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
