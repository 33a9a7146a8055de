//! Pooling over windows of images, as in `torch.nn`, channels last. Images keep their float type, forward and backward.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, images};
use crate::graph::{DType, Shape};

/// Maximum over windows. Operand: `x [N, H, W, C]`. Outputs: `y [N, OH, OW, C]` and, for the gradient, the index of the
/// maximum within its window (`row · KW + column`; the first of equals, as in PyTorch): `U8`, or `I32` for windows of
/// more than 256 pixels. NaN counts as the maximum.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxPool2d {
    /// Rows, columns.
    pub kernel: [usize; 2],
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Rows, columns; on both sides, at most half the kernel. Padding is never the maximum.
    pub padding: [usize; 2],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Keep a last window that is not full.
    pub ceil_mode: bool,
}

/// Operands: `dy`, the indices. Output: `[N, H, W, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxPool2dGrad {
    /// The pooling.
    pub pool: MaxPool2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Mean over windows. Operand: `x [N, H, W, C]`. Output: `[N, OH, OW, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AvgPool2d {
    /// Rows, columns.
    pub kernel: [usize; 2],
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Rows, columns; on both sides, at most half the kernel.
    pub padding: [usize; 2],
    /// Keep a last window that is not full.
    pub ceil_mode: bool,
    /// Padding counts in the divisor.
    pub count_include_pad: bool,
}

/// Operand: `dy`. Output: `[N, H, W, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AvgPool2dGrad {
    /// The pooling.
    pub pool: AvgPool2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Mean over `OH × OW` windows; window `i` of `O` over a side of `S` reaches from `⌊i·S/O⌋` to `⌈(i+1)·S/O⌉`.
/// Operand: `x [N, H, W, C]`. Output: `[N, OH, OW, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub output: [usize; 2],
}

/// Operand: `dy`. Output: `[N, H, W, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveAvgPool2dGrad {
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Maximum over the windows of [`AdaptiveAvgPool2d`]. Operand: `x [N, H, W, C]`. Outputs: `y [N, OH, OW, C]` and, for the
/// gradient, the index of the maximum within its window (`row · width of the window + column`; the first of equals, as in
/// PyTorch): `I32`. NaN counts as the maximum.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveMaxPool2d {
    /// Height and width of the output.
    pub output: [usize; 2],
}

/// Operands: `dy`, the indices. Output: `[N, H, W, C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveMaxPool2dGrad {
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Length of one side after pooling; `None` if the window does not fit. With `ceil` the last window must start inside
/// the input or its left padding, and the only one may be larger than the input by less than a stride (PyTorch's rule).
pub fn pool_out(
    side: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
) -> Option<usize> {
    let (room, reach) = (side + 2 * padding, dilation * (kernel - 1) + 1);
    let Some(span) = room.checked_sub(reach) else { return (ceil && room + stride > reach).then_some(1) };
    let mut out = if ceil { span.div_ceil(stride) } else { span / stride } + 1;
    if ceil && (out - 1) * stride >= side + padding {
        out -= 1;
    }
    Some(out)
}

/// A window as messages show it: `the kernel (3×3, 5×5 with its dilation)`.
pub(super) fn window(what: &str, size: [usize; 2], dilation: [usize; 2]) -> String {
    let [h, w] = size;
    if dilation == [1, 1] {
        return format!("the {what} ({h}×{w})");
    }
    let reach = |i: usize| dilation[i] * (size[i] - 1) + 1;
    format!("the {what} ({h}×{w}, {}×{} with its dilation)", reach(0), reach(1))
}

struct Window<'a> {
    name: &'a str,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
}

impl Window<'_> {
    fn out(&self, inputs: &[&Value]) -> Result<Output, ShapeError> {
        arity(self.name, inputs, 1)?;
        let dtype = float(self.name, inputs, 0)?;
        let [n, h, w, c] = images(self.name, inputs, 0)?;
        for i in 0..2 {
            if self.padding[i] > self.kernel[i] / 2 {
                return Err(ShapeError::new(format!(
                    "`{}` may pad by at most half its kernel ({}), not by {}",
                    self.name, self.kernel[i], self.padding[i]
                )));
            }
        }
        let side = |i: usize, s: usize| {
            pool_out(s, self.kernel[i], self.stride[i], self.padding[i], self.dilation[i], self.ceil).ok_or_else(|| {
                ShapeError::of(
                    0,
                    format!(
                        "{} is larger than the image ({}×{}, padding included)",
                        window("window", self.kernel, self.dilation),
                        h + 2 * self.padding[0],
                        w + 2 * self.padding[1]
                    ),
                )
            })
        };
        Ok((dtype, Shape::from([n, side(0, h)?, side(1, w)?, c])))
    }
}

impl OpRules for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let (dtype, y) = Window {
            name: "max_pool2d",
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            ceil: self.ceil_mode,
        }
        .out(inputs)?;
        let index = if self.kernel[0] * self.kernel[1] <= 256 { DType::U8 } else { DType::I32 };
        Ok(vec![(dtype, y.clone()), (index, y)])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(MaxPool2dGrad { pool: self.clone(), input: [h, w] }, &[dy, cx.outputs[1]])?)])
    }
}

impl OpRules for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("max_pool2d_grad", inputs, 2)?;
        let dtype = float("max_pool2d_grad", inputs, 0)?;
        let [n, _, _, c] = images("max_pool2d_grad", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], c]))])
    }
}

impl OpRules for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let y = Window {
            name: "avg_pool2d",
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: [1, 1],
            ceil: self.ceil_mode,
        }
        .out(inputs)?;
        Ok(vec![y])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(AvgPool2dGrad { pool: self.clone(), input: [h, w] }, &[dy])?)])
    }
}

impl OpRules for AvgPool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("avg_pool2d_grad", inputs, 1)?;
        let dtype = float("avg_pool2d_grad", inputs, 0)?;
        let [n, _, _, c] = images("avg_pool2d_grad", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], c]))])
    }
}

impl OpRules for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("adaptive_avg_pool2d", inputs, 1)?;
        let dtype = float("adaptive_avg_pool2d", inputs, 0)?;
        let [n, _, _, c] = images("adaptive_avg_pool2d", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.output[0], self.output[1], c]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(AdaptiveAvgPool2dGrad { input: [h, w] }, &[dy])?)])
    }
}

impl OpRules for AdaptiveAvgPool2dGrad {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("adaptive_avg_pool2d_grad", inputs, 1)?;
        let dtype = float("adaptive_avg_pool2d_grad", inputs, 0)?;
        let [n, _, _, c] = images("adaptive_avg_pool2d_grad", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], c]))])
    }
}

impl OpRules for AdaptiveMaxPool2d {
    fn name(&self) -> &'static str {
        "adaptive_max_pool2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("adaptive_max_pool2d", inputs, 1)?;
        let dtype = float("adaptive_max_pool2d", inputs, 0)?;
        let [n, _, _, c] = images("adaptive_max_pool2d", inputs, 0)?;
        let y = Shape::from([n, self.output[0], self.output[1], c]);
        Ok(vec![(dtype, y.clone()), (DType::I32, y)])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let [_, h, w, _] = cx.graph.shape(cx.inputs[0]).nhwc().expect("checked by the shape rule");
        let dy = cx.dy();
        Ok(vec![Some(cx.add1(AdaptiveMaxPool2dGrad { input: [h, w] }, &[dy, cx.outputs[1]])?)])
    }
}

impl OpRules for AdaptiveMaxPool2dGrad {
    fn name(&self) -> &'static str {
        "adaptive_max_pool2d_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("adaptive_max_pool2d_grad", inputs, 2)?;
        let dtype = float("adaptive_max_pool2d_grad", inputs, 0)?;
        let [n, _, _, c] = images("adaptive_max_pool2d_grad", inputs, 0)?;
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], c]))])
    }
}

#[cfg(test)]
mod tests {
    use super::pool_out;

    #[test]
    fn sides_follow_pytorch() {
        // torch.nn.MaxPool2d on these sides: (side, kernel, stride, padding, dilation, ceil) -> out
        assert_eq!(pool_out(28, 2, 2, 0, 1, false), Some(14));
        assert_eq!(pool_out(7, 2, 2, 0, 1, true), Some(4));
        assert_eq!(pool_out(112, 3, 2, 1, 1, false), Some(56));
        // A window that would start in the right padding is dropped.
        assert_eq!(pool_out(4, 2, 3, 1, 1, true), Some(2));
        assert_eq!(pool_out(2, 3, 1, 0, 1, false), None);
        // A window that is larger than the image.
        assert_eq!(pool_out(2, 3, 1, 0, 1, true), None);
        assert_eq!(pool_out(2, 3, 2, 0, 1, true), Some(1));
        assert_eq!(pool_out(2, 5, 3, 1, 1, true), Some(1));
        assert_eq!(pool_out(3, 6, 3, 0, 1, true), None);
        assert_eq!(pool_out(2, 2, 3, 0, 3, true), Some(1));
    }
}
