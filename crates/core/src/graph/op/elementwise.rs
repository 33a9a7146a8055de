//! Element-wise operations and the sums that undo a broadcast.

use super::{
    Activation, AdaptiveAvgPool2d, Cast, GradContext, OpRules, Output, Reshape, ShapeError, Value, ValueId, arity,
    float, floats, same,
};
use crate::graph::{DType, Shape};

/// `y = act(x)`. Operand: `x`. The output has its type.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivationOp {
    /// The function.
    pub act: Activation,
}

/// `dx = dy · act'`. Operands: `saved` (the output where [`Activation::grad_from_output`], else the input), `dy`.
/// At a kink the derivative is PyTorch's (0 for ReLU at 0). All values are floats of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivationGrad {
    /// The function.
    pub act: Activation,
}

/// Which function of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryKind {
    /// `a + b`
    Add,
    /// `a · b`
    Mul,
}

/// `y = a ∘ b`. Operands of equal rank; where they differ, one of the two dimensions is 1 and is stretched.
/// Operands and output are floats of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
}

/// Sum over the axes where `shape` has a 1 (equal rank), or over all leading axes (`shape` of rank 1). Operand: `x`.
/// Whatever its type, the output is `F32`.
#[derive(Debug, Clone, PartialEq)]
pub struct SumTo {
    /// Shape of the result.
    pub shape: Shape,
}

/// Sum of `x [.., C]` over all axes but the last.
pub(super) fn sum_to_last(cx: &mut GradContext, x: ValueId) -> Result<ValueId, ShapeError> {
    let shape = Shape::from([cx.graph.shape(x).last()]);
    cx.add1(SumTo { shape }, &[x])
}

impl OpRules for ActivationOp {
    fn name(&self) -> &'static str {
        self.act.name()
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 1)?;
        Ok(vec![(float(self.name(), inputs, 0)?, inputs[0].shape.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let saved = if self.act.grad_from_output() { cx.outputs[0] } else { cx.inputs[0] };
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(ActivationGrad { act: self.act }, &[saved, dy])?)])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl OpRules for ActivationGrad {
    fn name(&self) -> &'static str {
        "activation_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("activation_grad", inputs, 2)?;
        same("activation_grad", inputs, 0, 1)?;
        Ok(vec![(floats("activation_grad", inputs, 0, 1)?, inputs[0].shape.clone())])
    }

    fn in_place(&self) -> Option<usize> {
        Some(1)
    }
}

impl OpRules for Binary {
    fn name(&self) -> &'static str {
        match self.kind {
            BinaryKind::Add => "add",
            BinaryKind::Mul => "multiply",
        }
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 2)?;
        let dtype = floats(self.name(), inputs, 0, 1)?;
        let (a, b) = (&inputs[0].shape, &inputs[1].shape);
        let fits = a.rank() == b.rank() && a.dims().iter().zip(b.dims()).all(|(x, y)| x == y || *x == 1 || *y == 1);
        if !fits {
            return Err(ShapeError::of(
                1,
                format!("`{}` cannot combine the shapes {} and {}", self.name(), a.to_pytorch(), b.to_pytorch()),
            ));
        }
        let dims: Vec<usize> = a.dims().iter().zip(b.dims()).map(|(x, y)| if *x == 1 { *y } else { *x }).collect();
        Ok(vec![(dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        let mut out = vec![None, None];
        for (i, gradient) in out.iter_mut().enumerate() {
            if !cx.needs[i] {
                continue;
            }
            let mut d = match self.kind {
                BinaryKind::Add => dy,
                BinaryKind::Mul => cx.add1(Binary { kind: BinaryKind::Mul }, &[dy, cx.inputs[1 - i]])?,
            };
            let shape = cx.graph.shape(cx.inputs[i]).clone();
            if *cx.graph.shape(d) != shape {
                d = cx.add1(SumTo { shape }, &[d])?;
                let to = cx.graph.value(cx.inputs[i]).dtype;
                if to != DType::F32 {
                    d = cx.add1(Cast { to }, &[d])?;
                }
            }
            *gradient = Some(d);
        }
        Ok(out)
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl OpRules for SumTo {
    fn name(&self) -> &'static str {
        "sum_to"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("sum_to", inputs, 1)?;
        float("sum_to", inputs, 0)?;
        let (x, s) = (&inputs[0].shape, &self.shape);
        let tail = s.rank() == 1 && s.last() == x.last();
        let stretched = s.rank() == x.rank() && s.dims().iter().zip(x.dims()).all(|(a, b)| a == b || *a == 1);
        if !tail && !stretched {
            return Err(ShapeError::of(0, format!("`sum_to` cannot sum {x} to {s}")));
        }
        Ok(vec![(DType::F32, s.clone())])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let x = cx.graph.value(cx.inputs[0]);
        let (to, whole) = (x.dtype, x.shape.clone());
        let mut d = cx.dy();
        let mut dims = self.shape.dims().to_vec();
        if dims.len() != whole.rank() {
            return Err(ShapeError::new(format!("`sum_to` of {whole} to {} has no gradient rule", self.shape)));
        }
        // Each element has the gradient of the sum that it is in: a mean over windows of one element stretches it.
        for axis in (0..dims.len()).filter(|axis| self.shape.dims()[*axis] != whole.dims()[*axis]) {
            let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(|part| part.iter().product::<usize>());
            let image = cx.add1(Reshape { shape: Shape::from([outer, 1, 1, inner]) }, &[d])?;
            let stretched = cx.add1(AdaptiveAvgPool2d { output: [whole.dims()[axis], 1] }, &[image])?;
            dims[axis] = whole.dims()[axis];
            d = cx.add1(Reshape { shape: Shape(dims.clone()) }, &[stretched])?;
        }
        if to != DType::F32 {
            d = cx.add1(Cast { to }, &[d])?;
        }
        Ok(vec![Some(d)])
    }
}
