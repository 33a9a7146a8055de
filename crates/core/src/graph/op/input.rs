//! Preprocessing of a batch, before the first layer.

use super::{OpRules, Output, ShapeError, Value, arity};
use crate::graph::DType;

/// `y = (x · scale − mean[c]) / std[c]` over channels-last images or vectors. Operands: `x` (`U8` or `F32`, `[…, C]`).
/// `scale` is 1/255 for bytes (torchvision's `ToTensor`), else 1. `mean` and `std` hold one number, or one a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// Factor applied first.
    pub scale: f32,
    /// Subtracted.
    pub mean: Vec<f32>,
    /// Divided by.
    pub std: Vec<f32>,
    /// Float type of the result: `F32`, `BF16` or `F16`.
    pub to: DType,
}

impl OpRules for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("normalize", inputs, 1)?;
        let c = inputs[0].shape.last();
        for (what, list) in [("mean", &self.mean), ("std", &self.std)] {
            if list.len() != 1 && list.len() != c {
                let (n, s) = (list.len(), if c == 1 { "" } else { "s" });
                let message = format!("`normalize` has {n} values in `{what}`, but the data has {c} channel{s}");
                return Err(ShapeError::of(0, message));
            }
        }
        if !matches!(inputs[0].dtype, DType::U8 | DType::F32) {
            return Err(ShapeError::of(0, "`normalize` takes bytes or floats"));
        }
        if !self.to.is_activation() {
            return Err(ShapeError::new(format!("`normalize` makes floats (f32, bf16 or f16), not {}", self.to)));
        }
        Ok(vec![(self.to, inputs[0].shape.clone())])
    }
}
