//! The update of all parameters.

use super::adafactor::{Matrices, Moments};
use super::clipping::Clipping;
use super::optim::{Algorithm, TensorOptions};
use super::part::Part;
use super::{OpRules, Output, ShapeError, Value, arity, same, singles};
use crate::graph::Shape;

/// The update of all parameters in one operation. Operands: schedule (`F32 [4]`: learning rate, gradient scale, loss
/// scale, floor of the learning rate), loss `[1]`, `norm [1]` if `clip_norm` or `scaled`, `s [1]` if `scaled`, step counter
/// (`I64 [1]`), then for each tensor: parameter, gradient, and the state tensors of [`Algorithm::slots`]. Parameters,
/// state and the counter are updated in place.
///
/// With `s = 1` if not `scaled`, the gradient that the rule sees is
/// `g · schedule[1] / schedule[2] / s · min(1, clip_norm / (norm / s + 1e-6))`, and no further from 0 than `clip_value`. If the loss is not finite nothing is
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
    /// Largest absolute value of an element of a gradient.
    pub clip_value: Option<f32>,
    /// The gradients are those of the loss times the scale `s`, an operand ([`super::UpdateScale`] changes it).
    pub scaled: bool,
    /// This is the first operation of the update, which increments the step counter.
    pub counts: bool,
    /// One for each tensor.
    pub tensors: Vec<TensorOptions>,
    /// The elements of each tensor that are updated, of which alone there is state; empty where all are. For rules that look at single elements.
    pub parts: Vec<Part>,
}

impl OptimizerStep {
    /// The elements of tensor `t`, of that length, that are updated.
    pub fn part(&self, t: usize, length: usize) -> Part {
        self.parts.get(t).copied().unwrap_or(Part { start: 0, len: length })
    }

    /// What is done to gradients before the rule sees them.
    pub fn clipping(&self) -> Clipping {
        Clipping { clip_norm: self.clip_norm, clip_value: self.clip_value, scaled: self.scaled }
    }

    /// Number of operands before the first tensor's.
    pub fn head(&self) -> usize {
        3 + self.has_norm() as usize + self.scaled as usize
    }

    /// True if the norm of the gradients is an operand.
    pub fn has_norm(&self) -> bool {
        self.clip_norm.is_some() || self.scaled
    }

    /// The matrices of tensor `t` whose rows and columns state is kept of. `shape` is that of an operand.
    pub fn matrices<'a>(&self, t: usize, shape: impl Fn(usize) -> &'a Shape) -> Option<Matrices> {
        let at = self.head() + t * self.stride();
        match self.algorithm {
            Algorithm::Adafactor { moments: Moments::Factored, .. } => {
                Matrices::with_shapes(shape(at + 2), shape(at + 3)).filter(|of| of.len() == shape(at).len())
            }
            _ => None,
        }
    }

    /// Number of operands of one tensor: parameter, gradient, state.
    pub fn stride(&self) -> usize {
        2 + self.algorithm.slots().count()
    }
}

impl OpRules for OptimizerStep {
    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let (head, stride) = (self.head(), self.stride());
        arity(self.name(), inputs, head + stride * self.tensors.len())?;
        if !self.parts.is_empty() && (self.parts.len() != self.tensors.len() || !self.algorithm.is_elementwise()) {
            return Err(ShapeError::new(format!("`{}` cannot update these parts of tensors", self.name())));
        }
        singles(self.name(), inputs, 0..head - 1)?;
        for t in 0..self.tensors.len() {
            let factored = matches!(self.algorithm, Algorithm::Adafactor { moments: Moments::Factored, .. });
            let at = head + t * stride;
            for i in 1..if factored || !self.parts.is_empty() { 2 } else { stride } {
                same(self.name(), inputs, at, at + i)?;
            }
            let Part { start, len } = self.part(t, inputs[at].shape.len());
            let is_inside = start.checked_add(len).is_some_and(|end| end <= inputs[at].shape.len());
            let fits = |state: &&Value| state.shape.len() == len;
            let all_fit = is_inside && inputs[at + 2..at + stride].iter().all(fits);
            if !self.parts.is_empty() && !all_fit {
                let message = format!("`{}` has state that is not of {len} elements from {start} on", self.name());
                return Err(ShapeError::of(at, message));
            }
            if factored && self.matrices(t, |i| &inputs[i].shape).is_none() {
                let [rows, columns] = [2, 3].map(|i| &inputs[head + t * stride + i].shape);
                let message = format!("{rows} and {columns} are no means of {}", inputs[head + t * stride].shape);
                return Err(ShapeError::of(head + t * stride + 2, message));
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
