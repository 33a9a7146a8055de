//! Convolution with the batch normalisation that follows it in evaluation, joined by the folding pass.

use super::{Conv2d, OpRules, Output, ShapeError, Value, arity, singles, summand};
use crate::graph::DType;

/// `y = act(norm(x ⋆ w + b) + r)`, where `norm` is batch normalisation with the running statistics: a factor and a summand for
/// each channel. Operands: `x`, `w`, and `b` if the convolution has a bias, as of [`Conv2d`]; `gamma [O]`, `beta [O]` if
/// `affine`; `running_mean [O]`, `running_var [O]`; `r [N, OH, OW, O]` if `residual`. Output: `[N, OH, OW, O]`. All are
/// `F32`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dNorm {
    /// The convolution. Its `act` comes after the normalisation.
    pub conv: Conv2d,
    /// Added to the variance.
    pub eps: f32,
    /// There are `gamma` and `beta`.
    pub affine: bool,
    /// The last operand is of the output's shape and added to what is normalised, before the activation; the pass
    /// `residual` sets it. That of `conv` is not set.
    pub residual: bool,
}

impl Conv2dNorm {
    /// Number of the first operand behind the convolution's.
    pub fn first_parameter(&self) -> usize {
        2 + self.conv.bias as usize
    }

    /// Number of `running_mean`; `running_var` is the next.
    pub fn first_statistic(&self) -> usize {
        self.first_parameter() + 2 * self.affine as usize
    }
}

impl OpRules for Conv2dNorm {
    fn name(&self) -> &'static str {
        "conv2d_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let (first, all) = (self.first_parameter(), self.first_statistic() + 2 + self.residual as usize);
        arity("conv2d_norm", inputs, all)?;
        singles("conv2d_norm", inputs, 0..all)?;
        let y = self.conv.infer(&inputs[..first])?.remove(0).1;
        summand("conv2d_norm", inputs, self.residual, &y)?;
        for (i, value) in inputs.iter().enumerate().take(self.first_statistic() + 2).skip(first) {
            if value.shape.dims() != [y.last()] {
                let message =
                    format!("`conv2d_norm` has parameters of shape {} for {} channels", value.shape, y.last());
                return Err(ShapeError::of(i, message));
            }
        }
        Ok(vec![(DType::F32, y)])
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        self.conv.flops_of(&inputs[0].shape, &inputs[1].shape, &outputs[0].shape)
    }
}
