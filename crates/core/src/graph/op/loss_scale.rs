//! Scaling of the loss, which keeps gradients of 16 bits in range.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

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
