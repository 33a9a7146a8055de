//! Sums of errors and targets for each output of a regression, gathered on the device in evaluation.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

/// Sums for each output.
pub const ERROR_SUMS: usize = 5;

/// A target is taken to be at least this far from 0 in a percentage error: scikit-learn's, the epsilon of doubles.
pub const LEAST_TARGET: f64 = f64::EPSILON;

/// Places in the sums of an output (`F64 [outputs, ERROR_SUMS]`).
pub mod error_sum {
    /// Σ t
    pub const TARGET: usize = 0;
    /// Σ t²
    pub const SQUARED_TARGET: usize = 1;
    /// Σ (x − t)²
    pub const SQUARED_ERROR: usize = 2;
    /// Σ |x − t| / max(|t|, ε)
    pub const RELATIVE_ERROR: usize = 3;
    /// Σ |x − t|
    pub const ABSOLUTE_ERROR: usize = 4;
}

/// Adds the sums of a batch. Operands: loss `[1]` and prediction (both `F32`), target (`F32`, as many as predictions), sums
/// (`F64 [outputs, ERROR_SUMS]`, updated in place), where element `i` is of the output `i mod outputs`. Sums are of doubles. A
/// batch whose loss is not finite is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorSums {
    /// Numbers that are predicted of each sample and have sums of their own; 1: all have one.
    pub outputs: usize,
}

impl OpRules for ErrorSums {
    fn name(&self) -> &'static str {
        "error_sums"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("error_sums", inputs, 4)?;
        singles("error_sums", inputs, [0, 1])?;
        let (x, t) = (inputs[1], inputs[2]);
        if t.dtype != DType::F32 || t.shape.len() != x.shape.len() {
            let (x, t) = (x.shape.to_pytorch(), t.shape.to_pytorch());
            return Err(ShapeError::of(2, format!("`error_sums` cannot compare predictions {x} with targets {t}")));
        }
        if self.outputs == 0 || !x.shape.len().is_multiple_of(self.outputs) {
            let (x, n) = (x.shape.to_pytorch(), self.outputs);
            return Err(ShapeError::of(1, format!("`error_sums` cannot see {n} outputs in predictions {x}")));
        }
        let len = self.outputs * ERROR_SUMS;
        if inputs[3].dtype != DType::F64 || inputs[3].shape.len() != len {
            return Err(ShapeError::of(3, format!("`error_sums` adds to {len} doubles")));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![3]
    }
}
