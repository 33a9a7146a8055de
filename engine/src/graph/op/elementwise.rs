//! Element-wise operations and the sums that undo a broadcast.

use super::{Cast, GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, floats, same};
use crate::graph::{DType, Shape};

/// An element-wise function, named and defined as in `torch.nn`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `x` where positive, else `slope · x`
    LeakyRelu {
        /// Slope for negative inputs.
        slope: f32,
    },
    /// `x` where positive, else `alpha · (eˣ − 1)`
    Elu {
        /// Scale for negative inputs.
        alpha: f32,
    },
    /// `x · Φ(x)` with the error function (Hendrycks & Gimpel 2016)
    Gelu,
    /// GELU's approximation by tanh: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`
    GeluTanh,
    /// `x · sigmoid(x)` (Elfwing et al. 2017)
    Silu,
    /// Hyperbolic tangent
    Tanh,
    /// `1 / (1 + e⁻ˣ)`
    Sigmoid,
    /// `min(max(x + 3, 0), 6) / 6`
    Hardsigmoid,
    /// `x · hardsigmoid(x)` (Howard et al. 2019)
    Hardswish,
}

impl Activation {
    /// The layer's name.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::Relu6 => "relu6",
            Activation::LeakyRelu { .. } => "leaky_relu",
            Activation::Elu { .. } => "elu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::Silu => "silu",
            Activation::Tanh => "tanh",
            Activation::Sigmoid => "sigmoid",
            Activation::Hardsigmoid => "hardsigmoid",
            Activation::Hardswish => "hardswish",
        }
    }

    /// True if the derivative is computed from the function's output, false if from its input. The former can be
    /// fused into the operation before it, whose own output then need not be kept.
    pub fn grad_from_output(self) -> bool {
        match self {
            Activation::Relu | Activation::Relu6 | Activation::Tanh | Activation::Sigmoid | Activation::Hardsigmoid => {
                true
            }
            // With a negative slope or scale the output's sign no longer tells the input's.
            Activation::LeakyRelu { slope } => slope >= 0.0,
            Activation::Elu { alpha } => alpha >= 0.0,
            Activation::Gelu | Activation::GeluTanh | Activation::Silu | Activation::Hardswish => false,
        }
    }
}

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
        Err(ShapeError::new(format!("`sum_to` of {} has no gradient rule", cx.graph.shape(cx.inputs[0]))))
    }
}
