//! Two-dimensional convolution, as in `torch.nn.Conv2d`, channels last.

use super::{Activation, GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, images};
use crate::graph::{DType, Shape};

/// Cross-correlation. Operands: `x [N, H, W, I]`, `w [O, KH, KW, I / groups]`, and `b [O]` if `bias`.
/// Output: `[N, OH, OW, O]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d {
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Zeros added at the top, bottom, left and right.
    pub padding: [usize; 4],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Input and output channels are split into this many groups.
    pub groups: usize,
    /// There is a bias.
    pub bias: bool,
    /// Applied to the sum; the fusion pass sets it.
    pub act: Option<Activation>,
}

/// Gradient by the input. Operands: `dy [N, OH, OW, O]`, `w`. Output: `[N, H, W, I]`. `bias` and `act` of `conv` are
/// not looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradInput {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Gradient by the weight, and by the bias if `bias`. Operands: `x [N, H, W, I]`, `dy [N, OH, OW, O]`.
/// Outputs: `[O, KH, KW, I / groups]`, `[O]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradWeight {
    /// The convolution; its `bias` and `act` are not looked at.
    pub conv: Conv2d,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// The bias gradient is wanted too.
    pub bias: bool,
}

impl Conv2d {
    /// Height and width of the output for an input and a kernel of the given sizes; `None` if the kernel does not fit.
    pub fn out(&self, input: [usize; 2], kernel: [usize; 2]) -> Option<[usize; 2]> {
        let one = |i: usize| {
            let padded = input[i] + self.padding[2 * i] + self.padding[2 * i + 1];
            let reach = self.dilation[i] * (kernel[i] - 1) + 1;
            (padded >= reach).then(|| (padded - reach) / self.stride[i] + 1)
        };
        Some([one(0)?, one(1)?])
    }
}

fn conv_flops(y: &Shape, w_len: usize) -> u64 {
    // Each output pixel of each image meets every weight once.
    2u64.saturating_mul(y.rows() as u64).saturating_mul(w_len as u64)
}

impl OpRules for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d", inputs, 2 + self.bias as usize)?;
        let [n, h, w, c] = images("conv2d", inputs, 0)?;
        let [o, kh, kw, i] = images("conv2d", inputs, 1)?;
        if c != i * self.groups || o % self.groups != 0 {
            return Err(ShapeError::of(
                0,
                format!(
                    "`conv2d` with {} groups cannot make {o} channels of {c} (the weight takes {i} a group)",
                    self.groups
                ),
            ));
        }
        let Some([oh, ow]) = self.out([h, w], [kh, kw]) else {
            return Err(ShapeError::of(
                0,
                format!(
                    "{} is larger than the image ({}×{}, padding included)",
                    super::pool::window("kernel", [kh, kw], self.dilation),
                    h + self.padding[0] + self.padding[1],
                    w + self.padding[2] + self.padding[3]
                ),
            ));
        };
        Ok(vec![(DType::F32, Shape::from([n, oh, ow, o]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        debug_assert!(self.act.is_none(), "fusion comes after the gradient pass");
        let dy = cx.dy();
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let [_, kh, kw, _] = cx.graph.shape(cx.inputs[1]).nhwc().expect("checked by the shape rule");
        let conv = Conv2d { bias: false, ..self.clone() };
        let mut out = vec![None, None];
        let bias = self.bias && cx.needs[2];
        if cx.needs[1] {
            let op = Conv2dGradWeight { conv: conv.clone(), kernel: [kh, kw], bias };
            let g = cx.graph.add(op, &[cx.inputs[0], dy])?;
            out[1] = Some(g[0]);
            if self.bias {
                out.push(g.get(1).copied());
            }
        } else if self.bias {
            out.push(if bias { Some(super::elementwise::sum_to_last(cx, dy)?) } else { None });
        }
        if cx.needs[0] {
            out[0] = Some(cx.add1(Conv2dGradInput { conv, input: [h, w] }, &[dy, cx.inputs[1]])?);
        }
        Ok(out)
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        conv_flops(&outputs[0].shape, inputs[1].shape.len())
    }
}

impl OpRules for Conv2dGradInput {
    fn name(&self) -> &'static str {
        "conv2d_grad_input"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_grad_input", inputs, 2)?;
        let [n, ..] = images("conv2d_grad_input", inputs, 0)?;
        let [_, _, _, i] = images("conv2d_grad_input", inputs, 1)?;
        Ok(vec![(DType::F32, Shape::from([n, self.input[0], self.input[1], i * self.conv.groups]))])
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        conv_flops(&inputs[0].shape, inputs[1].shape.len())
    }
}

impl OpRules for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        "conv2d_grad_weight"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_grad_weight", inputs, 2)?;
        let [_, _, _, c] = images("conv2d_grad_weight", inputs, 0)?;
        let [_, _, _, o] = images("conv2d_grad_weight", inputs, 1)?;
        let dw = Shape::from([o, self.kernel[0], self.kernel[1], c / self.conv.groups]);
        let mut out = vec![(DType::F32, dw)];
        if self.bias {
            out.push((DType::F32, Shape::from([o])));
        }
        Ok(out)
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        conv_flops(&inputs[1].shape, outputs[0].shape.len())
    }
}
