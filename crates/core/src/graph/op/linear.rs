//! Matrix products with a weight, as in `torch.nn.Linear`.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, floats, singles};
use crate::graph::{DType, Shape};

/// `y = x · wᵀ + b`. Operands: `x [.., in]`, `w [out, in]`, and `b [out]` if `bias`. Output: `[.., out]`. `x`, `w` and the
/// output are floats of one type, `b` is always `F32`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Linear {
    /// There is a bias.
    pub bias: bool,
}

/// `dx = dy · w`. Operands: `dy [.., out]`, `w [out, in]`. Output: `[.., in]`. All are floats of one type.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinearGradInput {}

/// `dw = dyᵀ · x`, and `db = Σ dy` if `bias`. Operands: `x [.., in]`, `dy [.., out]`. Outputs: `[out, in]`, `[out]`.
/// `x` and `dy` are floats of one type, the outputs always `F32`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinearGradWeight {
    /// There is a bias.
    pub bias: bool,
}

fn product_flops(rows: usize, a: usize, b: usize) -> u64 {
    2u64.saturating_mul(rows as u64).saturating_mul(a as u64).saturating_mul(b as u64)
}

impl OpRules for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("linear", inputs, 2 + self.bias as usize)?;
        let dtype = floats("linear", inputs, 0, 1)?;
        singles("linear", inputs, 2..inputs.len())?;
        let (x, w) = (inputs[0], inputs[1]);
        if w.shape.rank() != 2 || x.shape.rank() < 2 || x.shape.last() != w.shape.last() {
            return Err(ShapeError::of(
                0,
                format!(
                    "`linear` with a weight of shape {} cannot take an input of shape {}",
                    w.shape,
                    x.shape.to_pytorch()
                ),
            ));
        }
        let mut dims = x.shape.dims().to_vec();
        *dims.last_mut().expect("rank is at least 2") = w.shape.dims()[0];
        Ok(vec![(dtype, Shape(dims))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let dy = cx.dy();
        let dx = if cx.needs[0] { Some(cx.add1(LinearGradInput {}, &[dy, cx.inputs[1]])?) } else { None };
        let mut out = vec![dx, None];
        let bias = self.bias && cx.needs[2];
        if cx.needs[1] {
            let g = cx.graph.add(LinearGradWeight { bias }, &[cx.inputs[0], dy])?;
            out[1] = Some(g[0]);
            if self.bias {
                out.push(g.get(1).copied());
            }
        } else if self.bias {
            out.push(if bias { Some(super::elementwise::sum_to_last(cx, dy)?) } else { None });
        }
        Ok(out)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        product_flops(inputs[0].shape.rows(), inputs[1].shape.dims()[0], inputs[1].shape.dims()[1])
    }
}

impl OpRules for LinearGradInput {
    fn name(&self) -> &'static str {
        "linear_grad_input"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("linear_grad_input", inputs, 2)?;
        let dtype = floats("linear_grad_input", inputs, 0, 1)?;
        let mut dims = inputs[0].shape.dims().to_vec();
        *dims.last_mut().expect("rank is at least 2") = inputs[1].shape.last();
        Ok(vec![(dtype, Shape(dims))])
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        product_flops(inputs[0].shape.rows(), inputs[1].shape.dims()[0], inputs[1].shape.dims()[1])
    }
}

impl OpRules for LinearGradWeight {
    fn name(&self) -> &'static str {
        "linear_grad_weight"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("linear_grad_weight", inputs, 2)?;
        floats("linear_grad_weight", inputs, 0, 1)?;
        let (out, inp) = (inputs[1].shape.last(), inputs[0].shape.last());
        let mut outputs = vec![(DType::F32, Shape::from([out, inp]))];
        if self.bias {
            outputs.push((DType::F32, Shape::from([out])));
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        product_flops(inputs[0].shape.rows(), inputs[0].shape.last(), inputs[1].shape.last())
    }
}
