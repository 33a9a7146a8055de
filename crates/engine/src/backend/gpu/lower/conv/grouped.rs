//! Launches of convolutions with small groups, and of depthwise ones of shapes that have no kernels of their own.

use super::Sizes;
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, suffix};
use crate::backend::gpu::lower::linear::sums::{Finish, aligned, of_slices, type_code};
use crate::graph::DType;

/// Threads of a block, along channels and along pixels.
const CHANNELS: usize = 32;
const PIXELS: usize = 8;

/// Blocks that fill a large GPU, and the fewest pixels that are worth a block of partial sums.
const WANTED_BLOCKS: usize = 1056;
const FEWEST_PIXELS: usize = 128;

fn kernel(name: &str, dtype: DType) -> Kernel {
    let name = format!("grouped_{name}_{}", suffix(dtype));
    Kernel::new(Module::Conv, name).block(CHANNELS as u32, PIXELS as u32)
}

/// A launch with a thread for each channel of each pixel.
fn over(kernel: Kernel, pixels: usize, channels: usize) -> Kernel {
    kernel.grid(pixels.div_ceil(PIXELS) * channels.div_ceil(CHANNELS), 1, 1)
}

/// `GROUPED_ARGS` of `kernels/cuda/gemm_grouped.cuh`.
fn shape_args(kernel: Kernel, s: &Sizes) -> Kernel {
    // Offsets within an image, and numbers of pixels, are counted in 32 bits.
    for (side, channels) in [(s.input, s.inputs), (s.output, s.outputs)] {
        i32::try_from(side[0] * side[1] * channels * s.conv.groups).expect("an image has fewer than 2^31 elements");
        i32::try_from(side[0] * side[1] * s.images).expect("a batch has fewer than 2^31 pixels");
    }
    let kernel = kernel.int(s.images);
    let kernel = [s.input, s.output].into_iter().fold(kernel, |kernel, [y, x]| kernel.int(y).int(x));
    let kernel = kernel.int(s.conv.groups).int(s.inputs).int(s.outputs);
    let padding = [s.conv.padding[0], s.conv.padding[2]];
    let pairs = [s.kernel, s.conv.stride, padding, s.conv.dilation];
    pairs.into_iter().fold(kernel, |kernel, [y, x]| kernel.int(y).int(x))
}

/// Lowers the convolution.
pub fn forward(s: &Sizes, dtype: DType, finish: &Finish) -> Lowered {
    let kernel = over(kernel("forward", dtype), s.pixels(), s.outputs * s.conv.groups)
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(finish.bias_arg())
        .arg(finish.y);
    Lowered::one(shape_args(kernel, s).int(type_code(finish.y_type)).activation(finish.act))
}

/// Lowers the gradient by the input.
pub fn grad_input(s: &Sizes, dtype: DType, finish: &Finish) -> Lowered {
    let pixels = s.images * s.input[0] * s.input[1];
    let kernel = over(kernel("grad_input", dtype), pixels, s.inputs * s.conv.groups)
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(finish.y);
    Lowered::one(shape_args(kernel, s).int(type_code(finish.y_type)))
}

/// Lowers the gradient by the weight.
pub fn grad_weight(s: &Sizes, dtype: DType) -> Lowered {
    let outputs = s.outputs * s.conv.groups;
    let weights = s.taps() * s.inputs;
    let blocks = outputs.div_ceil(CHANNELS) * weights;
    let most = (WANTED_BLOCKS / blocks).min(s.pixels() / FEWEST_PIXELS).max(1);
    let chunk = s.pixels().div_ceil(most);
    let chunks = s.pixels().div_ceil(chunk);
    let finish = Finish::plain(Memory::Output(0));
    let partials = if chunks > 1 { Memory::Scratch(0) } else { finish.y };
    let kernel =
        kernel("grad_weight", dtype).grid(blocks, chunks, 1).arg(Memory::Input(0)).arg(Memory::Input(1)).arg(partials);
    let kernel = shape_args(kernel, s).int(chunk);
    let kernel = s.output.into_iter().fold(kernel, |kernel, side| {
        let (_, magic, shift) = super::divider(side);
        kernel.arg(Arg::U32(magic)).int(shift)
    });
    let mut lowered = Lowered::one(kernel);
    if chunks > 1 {
        lowered.scratch_bytes = aligned(chunks * outputs * weights * 4);
        lowered.steps.push(of_slices(partials, chunks, outputs * weights, weights, &finish));
    }
    lowered
}
