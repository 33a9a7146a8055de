//! Conversion between element types.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity};
use crate::graph::DType;

/// `y = x` as elements of another float type (`F32`, `BF16`, `F16`), rounded to nearest, ties to even; what is too large
/// for the type becomes infinite. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cast {
    /// Element type of the result.
    pub to: DType,
}

impl OpRules for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("cast", inputs, 1)?;
        let from = inputs[0].dtype;
        if !from.is_activation() || !self.to.is_activation() {
            return Err(ShapeError::of(
                0,
                format!("`cast` converts between f32, bf16 and f16, not {from} to {}", self.to),
            ));
        }
        Ok(vec![(self.to, inputs[0].shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let to = cx.graph.value(cx.inputs[0]).dtype;
        let dy = cx.dy();
        let same = cx.graph.value(dy).dtype == to;
        Ok(vec![Some(if same { dy } else { cx.add1(Cast { to }, &[dy])? })])
    }
}
