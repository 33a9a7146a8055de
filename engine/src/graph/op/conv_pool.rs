//! Convolution with the pooling that follows it, joined by the pooling pass: the image between the two is never stored.

use super::{Activation, Conv2d, OpRules, Output, ShapeError, Value, arity, images, singles};
use crate::graph::{DType, Shape};

/// In the place of a position within a window: no gradient passes, because the activation is flat there.
pub const NO_GRADIENT: u8 = 4;

/// `y = act(max_pool(x ⋆ w + b))` over windows of 2 × 2 pixels, 2 apart; a last odd row or column is left out. Operands as
/// of [`Conv2d`], all `F32`. Outputs: `y [N, OH / 2, OW / 2, O]`, and for the gradient where each maximum lay
/// (`row · 2 + column`, `U8`), or [`NO_GRADIENT`] where ReLU or ReLU6 is flat.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dMaxPool {
    /// The convolution. Its `act` comes after the pooling: none, ReLU or ReLU6.
    pub conv: Conv2d,
}

/// Gradient by the input. Operands: `dy [N, OH / 2, OW / 2, O]`, the positions, `w`. Output: `[N, H, W, I]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dMaxPoolGradInput {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Gradient by the weight, and by the bias if `bias`. Operands: `x [N, H, W, I]`, `dy [N, OH / 2, OW / 2, O]`, the positions.
/// Outputs: `[O, KH, KW, I / groups]`, `[O]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dMaxPoolGradWeight {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// The bias gradient is wanted too.
    pub bias: bool,
}

impl Conv2dMaxPool {
    /// True if `act` can come after the pooling.
    pub fn takes(act: Option<Activation>) -> bool {
        matches!(act, None | Some(Activation::Relu | Activation::Relu6))
    }

    /// The shapes `[N, OH, OW, O]` before and after pooling.
    fn shapes(conv: &Conv2d, x: &Value, w: &Value) -> Result<[Shape; 2], ShapeError> {
        let out = Conv2d { bias: false, ..conv.clone() }.infer(&[x, w])?;
        let [n, h, w, o] = out[0].1.nhwc().expect("a convolution makes images");
        Ok([out[0].1.clone(), Shape::from([n, h / 2, w / 2, o])])
    }
}

/// Checks that operand `i` holds a position for each element of operand `of`.
fn positions(name: &str, inputs: &[&Value], i: usize, of: usize) -> Result<(), ShapeError> {
    if inputs[i].dtype == DType::U8 && inputs[i].shape == inputs[of].shape {
        Ok(())
    } else {
        Err(ShapeError::of(i, format!("operand {i} of `{name}` must be a byte for each element of operand {of}")))
    }
}

impl OpRules for Conv2dMaxPool {
    fn name(&self) -> &'static str {
        "conv2d_max_pool"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_max_pool", inputs, 2 + self.conv.bias as usize)?;
        singles("conv2d_max_pool", inputs, 0..inputs.len())?;
        if !Self::takes(self.conv.act) {
            return Err(ShapeError::new("`conv2d_max_pool` takes ReLU and ReLU6 alone"));
        }
        let [_, pooled] = Self::shapes(&self.conv, inputs[0], inputs[1])?;
        Ok(vec![(DType::F32, pooled.clone()), (DType::U8, pooled)])
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        Self::shapes(&self.conv, inputs[0], inputs[1])
            .map_or(0, |[y, _]| self.conv.flops_of(&inputs[0].shape, &inputs[1].shape, &y))
    }
}

impl OpRules for Conv2dMaxPoolGradInput {
    fn name(&self) -> &'static str {
        "conv2d_max_pool_grad_input"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_max_pool_grad_input", inputs, 3)?;
        singles("conv2d_max_pool_grad_input", inputs, [0, 2])?;
        positions("conv2d_max_pool_grad_input", inputs, 1, 0)?;
        let [n, ..] = images("conv2d_max_pool_grad_input", inputs, 0)?;
        let [_, _, _, i] = images("conv2d_max_pool_grad_input", inputs, 2)?;
        Ok(vec![(DType::F32, Shape::from([n, self.input[0], self.input[1], i * self.conv.groups]))])
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        Conv2dMaxPool::shapes(&self.conv, outputs[0], inputs[2])
            .map_or(0, |[y, _]| self.conv.flops_of(&outputs[0].shape, &inputs[2].shape, &y))
    }
}

impl OpRules for Conv2dMaxPoolGradWeight {
    fn name(&self) -> &'static str {
        "conv2d_max_pool_grad_weight"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_max_pool_grad_weight", inputs, 3)?;
        singles("conv2d_max_pool_grad_weight", inputs, [0, 1])?;
        positions("conv2d_max_pool_grad_weight", inputs, 2, 1)?;
        let [_, _, _, c] = images("conv2d_max_pool_grad_weight", inputs, 0)?;
        let [_, _, _, o] = images("conv2d_max_pool_grad_weight", inputs, 1)?;
        let dw = Shape::from([o, self.kernel[0], self.kernel[1], c / self.conv.groups]);
        let mut out = vec![(DType::F32, dw)];
        if self.bias {
            out.push((DType::F32, Shape::from([o])));
        }
        Ok(out)
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        Conv2dMaxPool::shapes(&self.conv, inputs[0], outputs[0])
            .map_or(0, |[y, _]| self.conv.flops_of(&inputs[0].shape, &outputs[0].shape, &y))
    }
}
