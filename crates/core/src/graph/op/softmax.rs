//! Softmax and its logarithm over the last axis (channels of images), in `F32`.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, same, singles};
use crate::graph::DType;

/// `y = eˣ / Σ eˣ` over the last axis. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Softmax {}

/// `dx = y · (dy − Σ dy·y)`. Operands: `y`, `dy`.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxGrad {}

/// `y = x − ln Σ eˣ` over the last axis: the logarithm of [`Softmax`]. Operand: `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSoftmax {}

/// `dx = dy − eʸ · Σ dy`. Operands: `y`, `dy`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSoftmaxGrad {}

impl OpRules for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("log_softmax", inputs, 1)?;
        singles("log_softmax", inputs, [0])?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(LogSoftmaxGrad {}, &[cx.outputs[0], dy])?)])
    }
}

impl OpRules for LogSoftmaxGrad {
    fn name(&self) -> &'static str {
        "log_softmax_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("log_softmax_grad", inputs, 2)?;
        singles("log_softmax_grad", inputs, [0, 1])?;
        same("log_softmax_grad", inputs, 0, 1)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}

impl OpRules for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("softmax", inputs, 1)?;
        singles("softmax", inputs, [0])?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(SoftmaxGrad {}, &[cx.outputs[0], dy])?)])
    }
}

impl OpRules for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("softmax_grad", inputs, 2)?;
        singles("softmax_grad", inputs, [0, 1])?;
        same("softmax_grad", inputs, 0, 1)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}
