//! Muon (Jordan 2024, <https://kellerjordan.github.io/posts/muon/>): descent with momentum whose steps are made nearly orthogonal
//! by a Newton–Schulz iteration. Its products are [`super::Linear`] and its gradients; what is here is what lies between them.

use super::clipping::Clipping;
use super::{OpRules, Output, ShapeError, TensorOptions, Value, arity, same, singles};
use crate::graph::{DType, Shape};

/// Takes a gradient into the momentum, `m ← m + (1 − momentum) · (g − m)`, and makes the start of the iteration of it:
/// `d / max(‖d‖, eps)`, where `d = g + momentum · (m − g)` if `nesterov`, else `d = m`. Operands: those of [`Clipping`], gradient,
/// momentum buffer, which is updated in place. Output: `[rows, columns]`, the first dimension and all others.
///
/// Where the update is not made, because loss or norm are not finite, the output is zeros and the buffer stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonStart {
    /// What is done to the gradient before.
    pub clipping: Clipping,
    /// Share of the buffer that is kept.
    pub momentum: f64,
    /// Look ahead.
    pub nesterov: bool,
    /// Least norm to divide by.
    pub eps: f32,
}

/// What an iteration multiplies its matrix with: `a · I + b · G + c · G²`. Operands: `G [n, n]`, `G² [n, n]`. Output: `[n, n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonPolynomial {
    /// `a`, `b`, `c`.
    pub coefficients: [f32; 3],
}

/// The step: `p ← p · (1 − lr · weight_decay) − length · lr · d`. Operands: those of [`Clipping`], the direction `d`, and the
/// parameter `p`, which is updated in place, unless loss or norm are not finite. The gradient's scale has no part in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonStep {
    /// As in [`MuonStart`].
    pub clipping: Clipping,
    /// Factor of the learning rate, from the shape of the parameter.
    pub length: f32,
    /// Of the parameter.
    pub options: TensorOptions,
}

/// How long a step is in proportion to the learning rate, for a parameter of `rows · columns` elements. Names are those of
/// `torch.optim.Muon`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepLength {
    /// `√max(1, rows / columns)` (Jordan 2024).
    Original,
    /// `0.2 · √max(rows, columns)`: about the size of AdamW's steps (Liu et al. 2025).
    MatchRmsAdamw,
    /// `√(rows / columns)`.
    SpectralUnclamped,
}

impl StepLength {
    /// The factor of the learning rate.
    pub fn factor(self, [rows, columns]: [usize; 2]) -> f64 {
        let (rows, columns) = (rows as f64, columns as f64);
        match self {
            StepLength::Original => (rows / columns).max(1.0).sqrt(),
            StepLength::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
            StepLength::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

/// Rows and columns of a parameter of more than one dimension as a matrix: the first dimension, and all others.
pub fn as_matrix(shape: &Shape) -> [usize; 2] {
    let rows = shape.dims().first().copied().unwrap_or(1);
    [rows, shape.len() / rows.max(1)]
}

impl OpRules for MuonStart {
    fn name(&self) -> &'static str {
        "muon_start"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let head = self.clipping.operands();
        arity(self.name(), inputs, head + 2)?;
        singles(self.name(), inputs, 0..head + 2)?;
        same(self.name(), inputs, head, head + 1)?;
        Ok(vec![(DType::F32, Shape::from(as_matrix(&inputs[head].shape)))])
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        vec![inputs - 1]
    }
}

impl OpRules for MuonPolynomial {
    fn name(&self) -> &'static str {
        "muon_polynomial"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2)?;
        singles(self.name(), inputs, 0..2)?;
        same(self.name(), inputs, 0, 1)?;
        match inputs[0].shape.dims() {
            [a, b] if a == b => Ok(vec![(DType::F32, inputs[0].shape.clone())]),
            _ => Err(ShapeError::of(0, format!("`muon_polynomial` takes no {}", inputs[0].shape))),
        }
    }
}

impl OpRules for MuonStep {
    fn name(&self) -> &'static str {
        "muon"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let head = self.clipping.operands();
        arity(self.name(), inputs, head + 2)?;
        singles(self.name(), inputs, 0..head + 2)?;
        let (direction, parameter) = (&inputs[head].shape, &inputs[head + 1].shape);
        if direction.dims() != as_matrix(parameter) {
            return Err(ShapeError::of(head, format!("`muon` cannot change {parameter} by {direction}")));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        vec![inputs - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_long_as_their_names_say() {
        let of = |rule: StepLength, rows, columns| rule.factor([rows, columns]);
        assert_eq!([of(StepLength::Original, 16, 4), of(StepLength::Original, 4, 16)], [2.0, 1.0]);
        assert_eq!([of(StepLength::MatchRmsAdamw, 25, 4), of(StepLength::MatchRmsAdamw, 4, 25)], [1.0, 1.0]);
        assert_eq!([of(StepLength::SpectralUnclamped, 16, 4), of(StepLength::SpectralUnclamped, 4, 16)], [2.0, 0.5]);
    }
}
