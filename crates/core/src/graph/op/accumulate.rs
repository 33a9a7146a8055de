//! Gradient accumulation over micro-batches: the sums, and their mean.
//!
//! The gradient of a micro-batch is that of a mean. For the sum over micro-batches to become the gradient of the mean over
//! all that counts in them, each enters with its share: what it weighs, divided by what a full one weighs. Full
//! micro-batches have a share of exactly 1.

use super::{OpRules, Output, ShapeError, Value, arity, same, singles};
use crate::graph::{DType, Shape};

/// `sum += grad`. Operands: `grad` (`F32` or `F64`), `sum` of the same type (updated in place).
#[derive(Debug, Clone, PartialEq)]
pub struct AccumulateGrad {}

/// Sets all operands to zero. Operands: variables (updated in place).
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroGrad {}

/// Adds a micro-batch to the sums `(Σ share · loss, Σ share)`, with `share = weight / full`. Operands: loss `[1]`, weight
/// `[1]`, sums (`F64 [2]`, updated in place). Outputs: the mean loss so far `[1]` (0 if nothing has counted), `share [1]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AccumulateLoss {
    /// What a full micro-batch weighs.
    pub full: f32,
}

/// The step's scalars with the gradient scale that makes a mean of sums over micro-batches: `schedule[1] / Σ share`, and 0
/// if nothing has counted. Operands: schedule `[4]`, sums (`F64 [2]`). Output: `[4]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanScale {}

impl OpRules for AccumulateGrad {
    fn name(&self) -> &'static str {
        "accumulate_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("accumulate_grad", inputs, 2)?;
        match (inputs[0].dtype, inputs[1].dtype) {
            (DType::F32, DType::F32) | (DType::F64, DType::F64) => {}
            (grad, sum) => {
                return Err(ShapeError::of(1, format!("`accumulate_grad` cannot add {grad} to {sum}")));
            }
        }
        same("accumulate_grad", inputs, 0, 1)?;
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![1]
    }
}

impl OpRules for ZeroGrad {
    fn name(&self) -> &'static str {
        "zero_grad"
    }

    fn infer(&self, _: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (0..inputs).collect()
    }
}

/// `infer` helper: operand `i` is the pair of sums.
fn pair(name: &str, inputs: &[&Value], i: usize) -> Result<(), ShapeError> {
    if inputs[i].dtype == DType::F64 && inputs[i].shape.len() == 2 {
        Ok(())
    } else {
        Err(ShapeError::of(i, format!("operand {i} of `{name}` must be two doubles")))
    }
}

impl OpRules for AccumulateLoss {
    fn name(&self) -> &'static str {
        "accumulate_loss"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("accumulate_loss", inputs, 3)?;
        singles("accumulate_loss", inputs, [0, 1])?;
        pair("accumulate_loss", inputs, 2)?;
        Ok(vec![(DType::F32, Shape::from([1])), (DType::F32, Shape::from([1]))])
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![2]
    }
}

impl OpRules for MeanScale {
    fn name(&self) -> &'static str {
        "mean_scale"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("mean_scale", inputs, 2)?;
        singles("mean_scale", inputs, [0])?;
        pair("mean_scale", inputs, 1)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}
