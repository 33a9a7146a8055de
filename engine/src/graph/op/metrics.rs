//! Running sums of what is reported, gathered on the device.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

/// What the model does, and so what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One class a row: loss and accuracy.
    Classification,
    /// Real numbers: loss, MAE, RMSE.
    Regression,
}

/// Length of the metric sums.
pub const METRIC_SLOTS: usize = 8;

/// Places in the metric sums (`F64 [METRIC_SLOTS]`).
pub mod metric_slot {
    /// Σ loss · rows
    pub const LOSS: usize = 0;
    /// Σ rows
    pub const ROWS: usize = 1;
    /// Rows whose largest logit is the target's (the first of equals counts)
    pub const CORRECT: usize = 2;
    /// Σ |x − t|
    pub const ABS_ERROR: usize = 3;
    /// Σ (x − t)²
    pub const SQUARED_ERROR: usize = 4;
    /// Number of elements compared
    pub const ELEMENTS: usize = 5;
    /// Batches whose loss was not finite
    pub const NOT_FINITE: usize = 6;
}

/// Adds a batch to the sums. Operands: loss `[1]` and prediction (both `F32`), target, sums (`F64 [METRIC_SLOTS]`, updated in place).
/// A loss that is not finite is counted in its slot and left out of the sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// What to measure.
    pub task: Task,
}

impl OpRules for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("metrics", inputs, 4)?;
        singles("metrics", inputs, [0, 1])?;
        if inputs[3].dtype != DType::F64 || inputs[3].shape.len() != METRIC_SLOTS {
            return Err(ShapeError::of(3, "`metrics` adds to eight doubles"));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![3]
    }
}
