//! What is done to gradients before the update.

use super::{OpRules, Output, ShapeError, Value, singles};
use crate::graph::{DType, Shape};

/// What is done to gradients before a rule sees them, as in [`super::OptimizerStep`]. Its operands come first: schedule (`F32
/// [4]`), loss `[1]`, `norm [1]` if `clip_norm` or `scaled`, the scale `[1]` if `scaled`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Clipping {
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f32>,
    /// Largest absolute value of an element of a gradient.
    pub clip_value: Option<f32>,
    /// The gradients are those of the loss times a scale.
    pub scaled: bool,
}

impl Clipping {
    /// True if the norm of the gradients is an operand.
    pub fn has_norm(&self) -> bool {
        self.clip_norm.is_some() || self.scaled
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        2 + usize::from(self.has_norm()) + usize::from(self.scaled)
    }
}

/// `‖scale · (g₁, g₂, …)‖₂` with `scale = schedule[1] / schedule[2]`. Operands: schedule, gradients. Output: `[1]`.
/// The squares are summed in double precision, so the norm is finite just if all gradients are (and it fits `F32`).
#[derive(Debug, Clone, PartialEq)]
pub struct GradNorm {}

impl OpRules for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        singles("grad_norm", inputs, 0..inputs.len())?;
        Ok(vec![(DType::F32, Shape::from([1]))])
    }
}
