//! Launches of convolutions: implicit matrix products of patches (im2col that is never stored), plain matrix products for
//! 1 × 1 kernels, direct kernels for depthwise convolutions and small groups, and any of these on unfolded images of few channels.

mod depthwise;
mod grouped;
mod library;
mod unfold;

use super::Context;
use super::linear::sums::{Finish, of_slices, type_code};
use super::linear::tiling::{Product, Tile, Tiling, wide};
use super::linear::{self, Extents, operand_type, with_bias_gradient};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module};
use crate::backend::gpu::target::Target;
use crate::graph::op::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
use crate::graph::{DType, Shape};

/// Groups of at most this many channels, in and out, take the direct kernels.
const SMALL_GROUP: usize = 8;

/// Most groups, times phases of a strided gradient, that a grid can have beside the slices of split-K.
const MOST_COPIES: usize = 4096;

/// All sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct Sizes<'a> {
    conv: &'a Conv2d,
    images: usize,
    input: [usize; 2],
    output: [usize; 2],
    kernel: [usize; 2],
    /// Channels of a group.
    inputs: usize,
    outputs: usize,
}

impl<'a> Sizes<'a> {
    /// From the shapes of input and output.
    fn new(conv: &'a Conv2d, x: &Shape, y: &Shape, kernel: [usize; 2]) -> Sizes<'a> {
        let [images, h, w, inputs] = x.nhwc().expect("checked by the shape rule");
        let [_, oh, ow, outputs] = y.nhwc().expect("checked by the shape rule");
        let [inputs, outputs] = [inputs, outputs].map(|n| n / conv.groups);
        Sizes { conv, images, input: [h, w], output: [oh, ow], kernel, inputs, outputs }
    }

    /// It is pointwise: each output pixel depends on the input pixel at its place alone.
    fn is_pointwise(&self) -> bool {
        let Conv2d { stride, padding, groups, .. } = self.conv;
        self.kernel == [1, 1] && *stride == [1, 1] && *padding == [0; 4] && *groups == 1
    }

    fn is_small(&self) -> bool {
        let Conv2d { stride, groups, .. } = self.conv;
        let small = self.inputs.max(self.outputs) <= SMALL_GROUP || self.inputs == 1;
        *groups > 1 && small || groups.saturating_mul(stride[0]).saturating_mul(stride[1]) > MOST_COPIES
    }

    fn pixels(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// As those of a layer, if it is pointwise.
    fn extents(&self) -> Extents {
        Extents { rows: self.pixels(), inputs: self.inputs, outputs: self.outputs }
    }

    /// Multiply-adds.
    fn work(&self) -> usize {
        self.pixels().saturating_mul(self.outputs * self.conv.groups).saturating_mul(self.taps() * self.inputs)
    }
}

/// The three arguments of a `Divider` in `kernels/cuda/gemm_patch.cuh`: `n / divisor = n · magic >> shift` for `n` below 2³¹.
/// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.)
fn divider(divisor: usize) -> (usize, u32, usize) {
    let log = divisor.next_power_of_two().trailing_zeros() as usize;
    let shift = 31 + log;
    let magic = (1u64 << shift).div_ceil(divisor as u64);
    (divisor, u32::try_from(magic).expect("2^shift / divisor is at most 2^31"), shift)
}

/// `IMAGE_ARGS` of `kernels/cuda/conv.cu`.
fn image_args(kernel: Kernel, [height, width]: [usize; 2], channels: usize, group_channels: usize) -> Kernel {
    let (divisor, magic, shift) = divider(group_channels);
    // Offsets within an image are counted in 32 bits.
    i32::try_from(height * width * channels).expect("an image has fewer than 2^31 elements");
    kernel.int(height).int(width).int(channels).int(divisor).arg(Arg::U32(magic)).int(shift)
}

/// `GRID_ARGS` of `kernels/cuda/conv.cu` for patches of the input.
fn grid_args(kernel: Kernel, s: &Sizes) -> Kernel {
    let Conv2d { stride, padding, dilation, .. } = s.conv;
    let [top, left] = [padding[0], padding[2]].map(|p| -i32::try_from(p).expect("padding fits 31 bits"));
    kernel
        .int(s.output[0])
        .int(s.output[1])
        .int(stride[0])
        .int(stride[1])
        .arg(Arg::I32(top))
        .arg(Arg::I32(left))
        .int(dilation[0])
        .int(dilation[1])
        .int(s.kernel[1])
}

/// The workspace for the partial sums of split-K, if there is more than one slice.
fn partials(tiling: &Tiling) -> Arg {
    if tiling.slices > 1 { Arg::Pointer(Memory::Scratch(0)) } else { Arg::Null }
}

/// A product's launch, and with split-K the one that adds its slices.
fn sliced(kernel: Kernel, tiling: &Tiling, elements: usize, columns: usize, finish: &Finish) -> Lowered {
    let mut lowered = Lowered { steps: vec![kernel.into()], scratch_bytes: tiling.partial_bytes(elements) };
    if tiling.slices > 1 {
        lowered.steps.push(of_slices(Memory::Scratch(0), tiling.slices, elements, columns, finish));
    }
    lowered
}

/// Lowers the convolution.
pub fn conv2d(cx: &Context, op: &Conv2d) -> Lowered {
    let [_, kh, kw, _] = cx.x(1).nhwc().expect("checked by the shape rule");
    let s = &Sizes::new(op, cx.x(0), cx.y(0), [kh, kw]);
    let bias = op.bias.then_some(Memory::Input(2));
    let finish = Finish { y: Memory::Output(0), y_type: cx.y_type(0), bias, act: cx.act };
    unfold::forward(cx, s, &finish).unwrap_or_else(|| forward(cx, s, &finish))
}

/// The convolution of operands 0, 1 and 2, whatever their shapes in the graph are.
fn forward(cx: &Context, s: &Sizes, finish: &Finish) -> Lowered {
    if s.is_pointwise() {
        return linear::forward(cx, s.extents(), *finish);
    }
    let dtype = operand_type(cx);
    library::forward(cx, s, dtype, finish).unwrap_or_else(|| own_forward(cx.target, s, dtype, finish))
}

/// The convolution by our own kernels.
fn own_forward(target: &Target, s: &Sizes, dtype: DType, finish: &Finish) -> Lowered {
    if let Some(lowered) = depthwise::forward(s, dtype, finish) {
        return lowered;
    }
    if s.is_small() {
        return grouped::forward(s, dtype, finish);
    }
    let groups = s.conv.groups;
    let (m, n, k) = (s.pixels(), s.outputs, s.taps() * s.inputs);
    let tiling = Tiling::choose(target, dtype, Product { m, n, k, copies: groups, thin: Tile::COLUMN });
    let kernel = tiling
        .kernel(Module::Conv, "conv_forward")
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(finish.bias_arg())
        .arg(finish.y)
        .arg(partials(&tiling))
        .int(m)
        .int(n)
        .int(k)
        .int(tiling.slice)
        .int(groups);
    let kernel = grid_args(image_args(kernel, s.input, s.inputs * groups, s.inputs), s)
        .int(wide(dtype, &[s.inputs], &[k], &[n]))
        .int(type_code(finish.y_type))
        .activation(finish.act);
    sliced(kernel, &tiling, m * n * groups, n * groups, finish)
}

/// Lowers the gradient by the input.
pub fn grad_input(cx: &Context, op: &Conv2dGradInput) -> Lowered {
    let conv = &op.conv;
    let [_, kh, kw, _] = cx.x(1).nhwc().expect("checked by the shape rule");
    let s = &Sizes::new(conv, cx.y(0), cx.x(0), [kh, kw]);
    let dtype = operand_type(cx);
    let finish = Finish { y_type: cx.y_type(0), ..Finish::plain(Memory::Output(0)) };
    if s.is_pointwise() {
        return linear::backward_input(cx, s.pixels());
    }
    library::grad_input(cx, s, dtype, &finish).unwrap_or_else(|| own_grad_input(cx.target, s, dtype, &finish))
}

/// The gradient by the input by our own kernels.
fn own_grad_input(target: &Target, s: &Sizes, dtype: DType, finish: &Finish) -> Lowered {
    if let Some(lowered) = depthwise::grad_input(s, dtype, finish) {
        return lowered;
    }
    if s.is_small() {
        return grouped::grad_input(s, dtype, finish);
    }
    let conv = s.conv;
    // The sizes of the largest phase: rows and columns of the input that are `stride` apart, and the taps they meet.
    let common = [0, 1].map(|i| greatest_common_divisor(conv.stride[i], conv.dilation[i]));
    let rows = [0, 1].map(|i| s.input[i].div_ceil(conv.stride[i]));
    let taps = [0, 1].map(|i| s.kernel[i].div_ceil(conv.stride[i] / common[i]));
    let (m, n, k) = (s.images * rows[0] * rows[1], s.inputs, taps[0] * taps[1] * s.outputs);
    let copies = conv.groups * conv.stride[0] * conv.stride[1];
    let tiling = Tiling::choose(target, dtype, Product { m, n, k, copies, thin: Tile::COLUMN });
    let kernel = tiling
        .kernel(Module::Conv, "conv_grad_input")
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(finish.y)
        .arg(partials(&tiling))
        .int(s.images)
        .int(n)
        .int(tiling.slice)
        .int(conv.groups);
    let kernel = image_args(kernel, s.output, s.outputs * conv.groups, s.outputs);
    let pairs = [s.input, s.kernel, conv.stride, [conv.padding[0], conv.padding[2]], conv.dilation, common];
    let kernel = pairs.into_iter().fold(kernel, |kernel, [y, x]| kernel.int(y).int(x));
    let kernel = kernel.int(wide(dtype, &[s.outputs], &[n], &[n])).int(type_code(finish.y_type));
    let elements = s.images * s.input[0] * s.input[1] * n * conv.groups;
    sliced(kernel, &tiling, elements, n, finish)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Lowers the gradient by the weight, and by the bias if it is wanted.
pub fn grad_weight(cx: &Context, op: &Conv2dGradWeight) -> Lowered {
    let conv = &op.conv;
    let s = &Sizes::new(conv, cx.x(0), cx.x(1), op.kernel);
    unfold::backward_weight(cx, s, op.bias).unwrap_or_else(|| backward_weight(cx, s, op.bias))
}

/// The gradient by the weight of operands 0 and 1, whatever their shapes in the graph are, and that by the bias.
fn backward_weight(cx: &Context, s: &Sizes, bias: bool) -> Lowered {
    if s.is_pointwise() {
        return linear::backward_weight(cx, s.extents(), bias);
    }
    let dtype = operand_type(cx);
    let weight = library::grad_weight(cx, s, dtype).unwrap_or_else(|| own_grad_weight(cx.target, s, dtype));
    if bias { with_bias_gradient(cx, weight) } else { weight }
}

/// The gradient by the weight by our own kernels.
fn own_grad_weight(target: &Target, s: &Sizes, dtype: DType) -> Lowered {
    if let Some(lowered) = depthwise::grad_weight(s, dtype) {
        return lowered;
    }
    if s.is_small() {
        return grouped::grad_weight(s, dtype);
    }
    let groups = s.conv.groups;
    let (m, n, k) = (s.outputs, s.taps() * s.inputs, s.pixels());
    let tiling = Tiling::choose(target, dtype, Product { m, n, k, copies: groups, thin: Tile::SMALL });
    let finish = Finish::plain(Memory::Output(0));
    let kernel = tiling
        .kernel(Module::Conv, "conv_grad_weight")
        .arg(Memory::Input(1))
        .arg(Memory::Input(0))
        .arg(finish.y)
        .arg(partials(&tiling))
        .int(m)
        .int(n)
        .int(k)
        .int(tiling.slice)
        .int(groups);
    let kernel = grid_args(image_args(kernel, s.input, s.inputs * groups, s.inputs), s);
    let kernel = s.output.into_iter().fold(kernel, |kernel, side| {
        let (_, magic, shift) = divider(side);
        kernel.arg(Arg::U32(magic)).int(shift)
    });
    let kernel = kernel.int(wide(dtype, &[m], &[s.inputs], &[n]));
    sliced(kernel, &tiling, m * n * groups, n, &finish)
}

#[cfg(test)]
mod tests {
    use super::divider;

    #[test]
    fn dividers_divide() {
        for divisor in (1..300).chain([1000, 65_535, 65_536, 65_537, (1 << 30) - 1, 1 << 30, (1 << 31) - 1]) {
            let (_, magic, shift) = divider(divisor);
            let d = divisor as u64;
            for n in [0, 1, d - 1, d, d + 1, 7 * d - 1, 7 * d, 1_000_003 * d - 1, 1_000_003 * d, (1 << 31) - 1] {
                if n < 1 << 31 {
                    assert_eq!((n * u64::from(magic)) >> shift, n / d, "{n} / {divisor}");
                }
            }
        }
    }
}
