//! Dropout (Srivastava et al. 2014). The mask is not stored: the backward pass draws it again.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float};

/// `y = x · mask / (1 − p)`, where each element of the mask is 0 with probability `p`. Operands: `x`, and the random
/// key ([`crate::graph::Input::Random`]). Element `i` of layer `stream` draws from
/// [`crate::random::dropout_keeps`]; the gradient is the same operation on `dy`, with the same key and so the same mask.
/// The output has the type of `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// Probability of a zero, `0 ≤ p < 1`.
    pub p: f32,
    /// Number of the dropout layer in its model.
    pub stream: u32,
}

impl OpRules for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("dropout", inputs, 2)?;
        Ok(vec![(float("dropout", inputs, 0)?, inputs[0].shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(self.clone(), &[dy, cx.inputs[1]])?), None])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}
