//! Losses, averaged over the batch as in `torch.nn` (`reduction="mean"`), in `F32`.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, singles};
use crate::graph::{DType, Shape};

/// Softmax and negative log-likelihood: the mean over rows of
/// `(1 − ε) · (lse − x[target]) + ε / C · Σ (lse − x)`, with `ε` the label smoothing (Szegedy et al. 2016).
/// Operands: logits `[.., C]`, targets `I32` with one element a row, each in `0 .. C`.
/// Outputs: loss `[1]`, and for the gradient each row's log-sum-exp `lse [rows]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossEntropy {
    /// `ε`, in `0 ..= 1`.
    pub label_smoothing: f32,
}

/// `dlogits = dloss / rows · (softmax(x) − (1 − ε) onehot − ε / C)`.
/// Operands: logits, targets, `lse`, `dloss [1]`. Output: of the logits' shape.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossEntropyGrad {
    /// `ε`.
    pub label_smoothing: f32,
}

/// Mean over all elements of `(x − t)²`. Operands: prediction, target (`F32`, as many elements). Output: loss `[1]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mse {}

/// `dx = dloss · 2 / elements · (x − t)`. Operands: prediction, target, `dloss [1]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MseGrad {}

fn class_targets(inputs: &[&Value]) -> Result<(), ShapeError> {
    let (x, t) = (inputs[0], inputs[1]);
    if t.dtype != DType::I32 || t.shape.len() != x.shape.rows() {
        return Err(ShapeError::of(
            0,
            format!(
                "`cross_entropy` takes one class a row, but the output is {} and the targets are {} of shape {}",
                x.shape.to_pytorch(),
                t.dtype,
                t.shape
            ),
        ));
    }
    Ok(())
}

impl OpRules for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("cross_entropy", inputs, 2)?;
        singles("cross_entropy", inputs, [0])?;
        class_targets(inputs)?;
        Ok(vec![(DType::F32, Shape::from([1])), (DType::F32, Shape::from([inputs[0].shape.rows()]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dloss = cx.dy();
        let op = CrossEntropyGrad { label_smoothing: self.label_smoothing };
        Ok(vec![Some(cx.add1(op, &[cx.inputs[0], cx.inputs[1], cx.outputs[1], dloss])?), None])
    }
}

impl OpRules for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("cross_entropy_grad", inputs, 4)?;
        singles("cross_entropy_grad", inputs, [0, 2, 3])?;
        class_targets(inputs)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}

impl OpRules for Mse {
    fn name(&self) -> &'static str {
        "mse"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("mse", inputs, 2)?;
        singles("mse", inputs, [0])?;
        if inputs[0].shape.len() != inputs[1].shape.len() || inputs[1].dtype != DType::F32 {
            return Err(ShapeError::of(
                0,
                format!(
                    "`mse` compares the output ({}) with targets of {} {}",
                    inputs[0].shape.to_pytorch(),
                    inputs[1].dtype,
                    inputs[1].shape.to_pytorch()
                ),
            ));
        }
        Ok(vec![(DType::F32, Shape::from([1]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dloss = cx.dy();
        Ok(vec![Some(cx.add1(MseGrad {}, &[cx.inputs[0], cx.inputs[1], dloss])?), None])
    }
}

impl OpRules for MseGrad {
    fn name(&self) -> &'static str {
        "mse_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("mse_grad", inputs, 3)?;
        singles("mse_grad", inputs, 0..3)?;
        Ok(vec![(DType::F32, inputs[0].shape.clone())])
    }
}
