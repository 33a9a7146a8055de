//! What is done to gradients before the update.

use super::part::Part;
use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::{DType, Shape};
use crate::shards::BLOCK;

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

/// `Σ g²` of each block of some gradients, of [`BLOCK`] elements and one with the rest. Operands: sums (`F64 [n]`, updated in place), gradients. The sums of other
/// blocks stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradSquares {
    /// One for each gradient.
    pub gradients: Vec<GradBlocks>,
}

/// The blocks of a gradient whose squares are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradBlocks {
    /// The element that the sum of the first of them goes to; those of the others come after it.
    pub first: usize,
    /// The elements of these blocks.
    pub part: Part,
}

impl OpRules for GradSquares {
    fn name(&self) -> &'static str {
        "grad_squares"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("grad_squares", inputs, 1 + self.gradients.len())?;
        singles("grad_squares", inputs, 1..inputs.len())?;
        for (i, GradBlocks { first, part: Part { start, len } }) in self.gradients.iter().enumerate() {
            let end = first.checked_add(len.div_ceil(BLOCK));
            let is_inside = start.checked_add(*len).is_some_and(|end| end <= inputs[1 + i].shape.len());
            if inputs[0].dtype != DType::F64 || end.is_none_or(|end| end > inputs[0].shape.len()) || !is_inside {
                return Err(ShapeError::of(1 + i, "`grad_squares` has no double for each block of a gradient"));
            }
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
