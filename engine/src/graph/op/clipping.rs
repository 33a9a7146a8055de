//! What is done to gradients before the update.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
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

/// `Σ g²` of each of some gradients. Operands: sums (`F64 [n]`, updated in place), gradients. Gradient `i` goes to element `at[i]`; the other
/// elements stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradSquares {
    /// The element for each gradient.
    pub at: Vec<usize>,
}

impl OpRules for GradSquares {
    fn name(&self) -> &'static str {
        "grad_squares"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("grad_squares", inputs, 1 + self.at.len())?;
        singles("grad_squares", inputs, 1..inputs.len())?;
        if inputs[0].dtype != DType::F64 || self.at.iter().any(|at| *at >= inputs[0].shape.len()) {
            return Err(ShapeError::of(0, "`grad_squares` has no double for each gradient"));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![0]
    }
}

/// [`GradNorm`] from sums of squares: `|schedule[1] / schedule[2]| · √(Σ sums)`. Operands: schedule, sums (`F64 [n]`). Output: `[1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormOfSquares {}

impl OpRules for NormOfSquares {
    fn name(&self) -> &'static str {
        "norm_of_squares"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("norm_of_squares", inputs, 2)?;
        singles("norm_of_squares", inputs, [0])?;
        if inputs[1].dtype != DType::F64 {
            return Err(ShapeError::of(1, "`norm_of_squares` takes doubles"));
        }
        Ok(vec![(DType::F32, Shape::from([1]))])
    }
}
