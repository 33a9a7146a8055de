//! Normalisation over neighbouring channels, as `torch.nn.LocalResponseNorm`, in `F32`.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, same, singles};
use crate::graph::DType;
use std::ops::Range;

/// `y = x / s^beta`, `s = k + alpha / size · Σ x²` over `size` neighbours along the last axis; beyond its ends there are zeros.
/// (Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012.) Operand: `x [.., C]`. Outputs: `y`
/// and, for the gradient, `s`.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalResponseNorm {
    /// Neighbours, the channel itself among them.
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
    /// Added to the mean square.
    pub k: f32,
}

/// `dx = dy / s^beta − 2 · alpha · beta / size · x · Σ dy · x / s^(beta + 1)` over the channels whose neighbour this one is.
/// Operands: `x`, `s`, `dy`.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalResponseNormGrad {
    /// The operation.
    pub norm: LocalResponseNorm,
}

impl LocalResponseNorm {
    /// The neighbours of channel `c` of `channels`: of an even number, one more before it than after it.
    pub fn neighbours(&self, c: usize, channels: usize) -> Range<usize> {
        c.saturating_sub(self.size / 2)..(c + (self.size - 1) / 2 + 1).min(channels)
    }

    /// The channels that have `c` among their neighbours.
    pub fn readers(&self, c: usize, channels: usize) -> Range<usize> {
        c.saturating_sub((self.size - 1) / 2)..(c + self.size / 2 + 1).min(channels)
    }
}

impl OpRules for LocalResponseNorm {
    fn name(&self) -> &'static str {
        "local_response_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("local_response_norm", inputs, 1)?;
        singles("local_response_norm", inputs, [0])?;
        let shape = &inputs[0].shape;
        Ok(vec![(DType::F32, shape.clone()), (DType::F32, shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        let op = LocalResponseNormGrad { norm: self.clone() };
        Ok(vec![Some(cx.add1(op, &[cx.inputs[0], cx.outputs[1], dy])?)])
    }
}

impl OpRules for LocalResponseNormGrad {
    fn name(&self) -> &'static str {
        "local_response_norm_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("local_response_norm_grad", inputs, 3)?;
        singles("local_response_norm_grad", inputs, 0..3)?;
        same("local_response_norm_grad", inputs, 0, 1)?;
        same("local_response_norm_grad", inputs, 0, 2)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}
