//! Two-dimensional convolution, as in `torch.nn.Conv2d`, channels last.

use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, floats, images, singles};
use crate::graph::{DType, Shape};

/// Cross-correlation. Operands: `x [N, H, W, I]`, `w [O, KH, KW, I / groups]`, and `b [O]` if `bias`. Output:
/// `[N, OH, OW, O]`. `x`, `w` and the output are floats of one type, `b` is always `F32`.
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
}

/// Gradient by the input, which is a transposed convolution of `dy`. Operands: `dy [N, OH, OW, O]`, `w`. Output: `[N, H, W, I]`. All
/// are floats of one type; `conv.bias` is ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradInput {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of the input.
    pub input: [usize; 2],
}

/// Gradient by the weight, and by the bias if `bias`. Operands: `x [N, H, W, I]`, `dy [N, OH, OW, O]`.
/// Outputs: `[O, KH, KW, I / groups]`, `[O]`. `x` and `dy` are floats of one type, the outputs always `F32`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradWeight {
    /// The convolution; its `bias` is ignored.
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

impl Conv2d {
    /// Floating-point operations of the convolution, or of one of its gradients. Products with padding are not counted: for
    /// small images they are a large part.
    pub(super) fn flops_of(&self, x: &Shape, w: &Shape, y: &Shape) -> u64 {
        let (Some([n, h, width, _]), Some([o, kh, kw, i]), Some([_, oh, ow, _])) = (x.nhwc(), w.nhwc(), y.nhwc())
        else {
            return 0;
        };
        let rows = self.meetings(0, h, kh, oh);
        let columns = self.meetings(1, width, kw, ow);
        [n as u64, rows, columns, o as u64, i as u64].into_iter().fold(2, u64::saturating_mul)
    }

    /// How many pairs of an output and an element of the kernel, along one axis, meet an element of the image.
    fn meetings(&self, axis: usize, image: usize, kernel: usize, out: usize) -> u64 {
        let (stride, padding) = (self.stride[axis], self.padding[2 * axis]);
        let one = |k: usize| {
            let ahead = k * self.dilation[axis];
            let first = padding.saturating_sub(ahead).div_ceil(stride);
            let end = (image + padding).saturating_sub(ahead).div_ceil(stride).min(out);
            end.saturating_sub(first) as u64
        };
        (0..kernel).map(one).sum()
    }
}

impl OpRules for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d", inputs, 2 + self.bias as usize)?;
        let dtype = floats("conv2d", inputs, 0, 1)?;
        singles("conv2d", inputs, 2..inputs.len())?;
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
        Ok(vec![(dtype, Shape::from([n, oh, ow, o]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
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
        self.flops_of(&inputs[0].shape, &inputs[1].shape, &outputs[0].shape)
    }
}

impl OpRules for Conv2dGradInput {
    fn name(&self) -> &'static str {
        "conv2d_grad_input"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_grad_input", inputs, 2)?;
        let dtype = floats("conv2d_grad_input", inputs, 0, 1)?;
        let [n, oh, ow, c] = images("conv2d_grad_input", inputs, 0)?;
        let [o, kh, kw, i] = images("conv2d_grad_input", inputs, 1)?;
        if c != o || self.conv.out(self.input, [kh, kw]) != Some([oh, ow]) {
            let [h, w] = self.input;
            let message = format!("`conv2d_grad_input` cannot make {h}×{w} pixels of {oh}×{ow} with {c} channels");
            return Err(ShapeError::of(0, message));
        }
        Ok(vec![(dtype, Shape::from([n, self.input[0], self.input[1], i * self.conv.groups]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        // With `w` given this is the transpose of the convolution, so its own gradients are those of a linear function.
        let d = cx.dy();
        let [_, kh, kw, _] = cx.graph.shape(cx.inputs[1]).nhwc().expect("checked by the shape rule");
        let conv = Conv2d { bias: false, ..self.conv.clone() };
        let mut out = vec![None, None];
        if cx.needs[1] {
            let op = Conv2dGradWeight { conv: conv.clone(), kernel: [kh, kw], bias: false };
            out[1] = Some(cx.add1(op, &[d, cx.inputs[0]])?);
        }
        if cx.needs[0] {
            out[0] = Some(cx.add1(conv, &[d, cx.inputs[1]])?);
        }
        Ok(out)
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        self.conv.flops_of(&outputs[0].shape, &inputs[1].shape, &inputs[0].shape)
    }
}

impl OpRules for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        "conv2d_grad_weight"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("conv2d_grad_weight", inputs, 2)?;
        floats("conv2d_grad_weight", inputs, 0, 1)?;
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
        self.conv.flops_of(&inputs[0].shape, &outputs[0].shape, &inputs[1].shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Input};

    /// Products of a convolution of one image with one channel, counted one by one.
    fn naive(conv: &Conv2d, [h, w]: [usize; 2], [kh, kw]: [usize; 2]) -> u64 {
        let [oh, ow] = conv.out([h, w], [kh, kw]).unwrap();
        let inside = |axis: usize, size: usize, o: usize, k: usize| {
            let at = (o * conv.stride[axis] + k * conv.dilation[axis]) as i64 - conv.padding[2 * axis] as i64;
            (0..size as i64).contains(&at)
        };
        let mut count = 0;
        for (y, x) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
            for (ky, kx) in (0..kh).flat_map(|y| (0..kw).map(move |x| (y, x))) {
                count += u64::from(inside(0, h, y, ky) && inside(1, w, x, kx));
            }
        }
        count
    }

    #[test]
    fn products_with_padding_do_not_count() {
        let mut seen = 0;
        for stride in [[1, 1], [2, 1], [3, 2]] {
            for padding in [[0; 4], [1; 4], [2, 0, 1, 3], [5, 4, 3, 6]] {
                for dilation in [[1, 1], [2, 3]] {
                    for (image, kernel) in [([1, 1], [3, 3]), ([4, 2], [3, 3]), ([7, 9], [1, 4]), ([2, 5], [5, 2])] {
                        let conv = Conv2d { stride, padding, dilation, groups: 2, bias: false };
                        let Some([oh, ow]) = conv.out(image, kernel) else { continue };
                        let (n, c, o) = (3, 4, 6);
                        let x = Shape::from([n, image[0], image[1], c]);
                        let w = Shape::from([o, kernel[0], kernel[1], c / 2]);
                        let flops = conv.flops_of(&x, &w, &Shape::from([n, oh, ow, o]));
                        assert_eq!(
                            flops,
                            2 * (n * o * c / 2) as u64 * naive(&conv, image, kernel),
                            "{conv:?} {image:?}"
                        );
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 50, "only {seen} convolutions");
    }

    #[test]
    fn gradients_take_as_many_operations_as_the_convolution() {
        let conv = Conv2d { stride: [2, 2], padding: [1; 4], dilation: [1, 1], groups: 1, bias: false };
        let mut graph = Graph::new();
        let mut input = |input, dims: [usize; 4]| graph.input(input, DType::F32, Shape::from(dims));
        let x = input(Input::Field(0), [2, 6, 6, 3]);
        let (w, dy) = (input(Input::Field(1), [4, 3, 3, 3]), input(Input::Schedule, [2, 3, 3, 4]));
        let backward = Conv2dGradWeight { conv: conv.clone(), kernel: [3, 3], bias: false };
        let to_input = Conv2dGradInput { conv: conv.clone(), input: [6, 6] };
        graph.add(conv, &[x, w]).unwrap();
        graph.add(backward, &[x, dy]).unwrap();
        graph.add(to_input, &[dy, w]).unwrap();
        let flops: Vec<u64> = graph
            .nodes
            .iter()
            .map(|node| {
                let values = |list: &[ValueId]| list.iter().map(|v| graph.value(*v)).collect::<Vec<_>>();
                node.op.rules().flops(&values(&node.inputs), &values(&node.outputs))
            })
            .collect();
        assert_eq!(flops, [2 * 2 * 8 * 8 * 3 * 4; 3], "along each axis 8 of 9 pairs lie in the image");
    }
}
