//! Which convolutions cuDNN does, and what is left for our own kernels around them.
//!
//! It stays with our own kernels where
//! * there is no cuDNN, or it has no algorithm for the convolution that gives the same bits every time;
//! * there are groups, for which it has nothing better on tensors whose channels come last;
//! * opposite sides are padded differently, which it does not know;
//! * 16-bit operands give a gradient of the weight, which is of 32 bits here and of 16 bits there;
//! * a pixel's channels are not a whole number of 16 bytes, as an image's own channels are not: it would copy the tensor
//!   to one with more channels;
//! * the work is small: then the time of a launch is all that counts, and our kernels add bias and activation on the way.
//!
//! Single pixels are matrix products, and do not come here.

use super::super::elementwise::broadcast;
use super::super::linear::library::{activation, tf32};
use super::super::linear::sums::{Finish, aligned};
use super::Sizes;
use crate::backend::cuda::launch::{ConvolutionStep, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::backend::cuda::lower::Context;
use crate::backend::cuda::nvidia::convolution::{Convolution, Direction, WORKSPACE_ALIGNMENT};
use crate::graph::op::BinaryKind;
use crate::graph::{DType, Shape};

/// Fewest multiplications that are worth a library's call.
const SMALLEST: usize = 1 << 22;

/// A pixel's channels are a whole number of so many bytes.
const PIXEL_BYTES: usize = 16;

/// The convolution, if the library may be asked by the rule above.
fn convolution(cx: &Context, s: &Sizes, direction: Direction, dtype: DType) -> Option<Convolution> {
    let [top, bottom, left, right] = s.conv.padding;
    let narrow = direction == Direction::Weight && dtype != DType::F32;
    let tensors = [s.images * s.input[0] * s.input[1] * s.inputs, s.pixels() * s.outputs];
    let fits = tensors.iter().all(|n| i32::try_from(*n).is_ok());
    if s.conv.groups > 1 || top != bottom || left != right || narrow || !fits {
        return None;
    }
    let aligned = [s.inputs, s.outputs].iter().all(|c| (c * dtype.bytes()).is_multiple_of(PIXEL_BYTES));
    let work = s.pixels().saturating_mul(s.outputs).saturating_mul(s.taps() * s.inputs);
    if !(cx.target.libraries.everywhere() || aligned && work >= SMALLEST) {
        return None;
    }
    Some(Convolution {
        direction,
        images: s.images,
        input: s.input,
        inputs: s.inputs,
        output: s.output,
        outputs: s.outputs,
        kernel: s.kernel,
        stride: s.conv.stride,
        padding: [top, left],
        dilation: s.conv.dilation,
        dtype,
        tf32: tf32(cx),
    })
}

/// The convolution as a step on `[x, w, y]`, with its workspace from byte `scratch` on; `None` if our own kernels do it.
fn step(
    cx: &Context,
    s: &Sizes,
    direction: Direction,
    dtype: DType,
    [x, w, y]: [Memory; 3],
    scratch: usize,
) -> Option<Lowered> {
    let convolution = convolution(cx, s, direction, dtype)?;
    let dnn = cx.target.libraries.dnn()?;
    let bytes = dnn.workspace(&convolution)?;
    // Scratch is aligned less than the library wants: room to move the start.
    let scratch_bytes = if bytes > 0 { scratch + aligned(bytes) + WORKSPACE_ALIGNMENT } else { scratch };
    let workspace = Memory::Scratch(if bytes > 0 { scratch } else { 0 });
    let step = ConvolutionStep { convolution, x, w, y, workspace };
    Some(Lowered { steps: vec![Step::Convolution(step)], scratch_bytes })
}

/// `y = act(x ∗ w + b)`; bias and activation follow in place.
pub fn forward(cx: &Context, s: &Sizes, dtype: DType, finish: &Finish) -> Option<Lowered> {
    let converted = finish.bias.filter(|_| dtype != DType::F32);
    let scratch = if converted.is_some() { aligned(s.outputs * dtype.bytes()) } else { 0 };
    let operands = [Memory::Input(0), Memory::Input(1), finish.y];
    let mut lowered = step(cx, s, Direction::Forward, dtype, operands, scratch)?;
    if let Some(bias) = converted {
        let kernel = Kernel::new(Module::Elementwise, format!("cast_f32_{}", suffix(dtype))).over(s.outputs);
        let kernel = kernel.arg(bias).arg(Memory::Scratch(0)).long(s.outputs);
        lowered.steps.push(kernel.into());
    }
    if let Some(bias) = finish.bias {
        let bias = if converted.is_some() { Memory::Scratch(0) } else { bias };
        let shapes = [&Shape::from([s.pixels(), s.outputs]), &Shape::from([1, s.outputs])];
        let sum = broadcast([finish.y, bias, finish.y], shapes, dtype, BinaryKind::Add, finish.act);
        lowered.steps.push(sum.into());
    } else if let Some(act) = finish.act {
        lowered.steps.push(activation(finish, act, s.pixels() * s.outputs));
    }
    Some(lowered)
}

/// The gradient by the input.
pub fn grad_input(cx: &Context, s: &Sizes, dtype: DType) -> Option<Lowered> {
    let operands = [Memory::Output(0), Memory::Input(1), Memory::Input(0)];
    step(cx, s, Direction::Input, dtype, operands, 0)
}

/// The gradient by the weight, without that by the bias.
pub fn grad_weight(cx: &Context, s: &Sizes, dtype: DType) -> Option<Lowered> {
    let operands = [Memory::Input(0), Memory::Output(0), Memory::Input(1)];
    step(cx, s, Direction::Weight, dtype, operands, 0)
}
