//! Convolutions of few channels, as convolutions of many.
//!
//! Tensor cores and 16-byte loads want channels in multiples of 16 bytes; an image has three. So an image of fewer is unfolded into
//! blocks of pixels, whose elements become the channels of one pixel, with zeros up to a multiple of 16 bytes. There are two
//! kinds of blocks, along both axes:
//! * those that a position of the kernel meets. The convolution is a matrix product then, of a matrix that has every element
//!   as often as a position meets it (im2col). Taken where positions do not overlap (the patches of vision transformers), and
//!   for kernels whose elements are not more than the result's channels;
//! * squares of `stride` pixels, beginning where the first position does (space-to-depth). A kernel of `k` meets
//!   ⌈k / stride⌉ of them, one at a time: 7 × 7 with stride 2 on 3 channels is 4 × 4 with stride 1 on 16. The unfolded image
//!   has hardly more elements than the image.
//!
//! Padding is written into the blocks. The weight is unfolded in the same way, and its gradient folded back.

use super::super::layout::{over_rows, rows_arg};
use super::super::linear::library::tf32;
use super::super::linear::operand_type;
use super::super::linear::sums::{Finish, aligned};
use super::Sizes;
use crate::backend::gpu::launch::{Kernel, Lowered, Memory, Module};
use crate::backend::gpu::lower::Context;
use crate::graph::DType;
use crate::graph::op::Conv2d;

/// Fewest multiply-adds that are worth the launches.
const SMALLEST: usize = 1 << 22;

/// Rows of blocks are a multiple of this many bytes.
const ROW_BYTES: usize = 16;

/// Most elements of an unfolded image, for each of image and result.
const MOST_TIMES: usize = 4;

/// How a convolution's images are unfolded. Pairs are of rows and of columns, in pixels.
#[derive(Debug, Clone, PartialEq)]
struct Unfolded {
    /// The size of a block.
    block: [usize; 2],
    /// Blocks of an image.
    grid: [usize; 2],
    /// Blocks that a position of the kernel meets.
    kernel: [usize; 2],
    /// Elements of a block, with the zeros after them.
    channels: usize,
    /// The convolution of blocks.
    conv: Conv2d,
    /// A block's elements are those of a kernel, in its order and without zeros after them.
    exact: bool,
}

impl Unfolded {
    /// For operands of so many bytes an element; `None` if they need not or cannot be unfolded.
    fn new(s: &Sizes, bytes: usize) -> Option<Unfolded> {
        let Conv2d { stride, dilation, groups, .. } = *s.conv;
        if groups != 1 || dilation != [1, 1] || s.is_pointwise() || s.inputs * bytes >= ROW_BYTES {
            return None;
        }
        let padded = |block: [usize; 2]| (block[0] * block[1] * s.inputs).next_multiple_of(ROW_BYTES / bytes);
        let whole = is_patches(s) || padded(s.kernel) <= s.outputs;
        let block = if whole { s.kernel } else { stride };
        let kernel = if whole { [1, 1] } else { [0, 1].map(|i| s.kernel[i].div_ceil(stride[i])) };
        let grid = [0, 1].map(|i| s.output[i] - 1 + kernel[i]);
        let channels = padded(block);
        let elements = (s.images * grid[0] * grid[1]).checked_mul(channels)?;
        let tensors = s.images * s.input[0] * s.input[1] * s.inputs + s.pixels() * s.outputs;
        // Memory: not more than some times what the tensors have.
        if i32::try_from(elements).is_err() || elements > MOST_TIMES * tensors {
            return None;
        }
        let conv = Conv2d { stride: [1, 1], padding: [0; 4], ..s.conv.clone() };
        let exact = whole && channels == s.taps() * s.inputs;
        Some(Unfolded { block, grid, kernel, channels, conv, exact })
    }

    /// For the node, if it is worth it.
    fn of(cx: &Context, s: &Sizes) -> Option<Unfolded> {
        let dtype = operand_type(cx);
        let tensor_cores = dtype == DType::F16 || cx.target.capability >= 80 && (dtype == DType::BF16 || tf32(cx));
        // Without tensor cores, sums of zeros cost more than narrow loads do.
        let worthwhile = s.work() >= SMALLEST && (tensor_cores || is_patches(s));
        if cx.target.libraries.everywhere() || worthwhile { Unfolded::new(s, dtype.bytes()) } else { None }
    }

    /// The sizes of the convolution of blocks.
    fn sizes(&self, s: &Sizes) -> Sizes<'_> {
        Sizes { conv: &self.conv, input: self.grid, kernel: self.kernel, inputs: self.channels, ..*s }
    }

    /// Elements of the unfolded image and weight.
    fn elements(&self, s: &Sizes) -> [usize; 2] {
        let per = |[y, x]: [usize; 2]| y * x * self.channels;
        [s.images * per(self.grid), if self.exact { 0 } else { s.outputs * per(self.kernel) }]
    }

    /// The arguments `BLOCK_ARGS` of `kernels/cuda/shape.cu`. Along a row they count elements.
    fn args(&self, s: &Sizes, kernel: Kernel, image: [usize; 2], grid: [usize; 2], moves: Moves) -> Kernel {
        let [_, column] = moves.step;
        let kernel = kernel.int(image[0]).int(image[1] * s.inputs).int(grid[0]).int(grid[1]).int(moves.step[0]);
        let kernel = kernel.int(column * s.inputs).int(moves.before[0]).int(moves.before[1] * s.inputs);
        kernel.int(self.block[0]).int(self.block[1] * s.inputs)
    }

    /// The launch that unfolds the image, operand 0.
    fn image(&self, s: &Sizes, dtype: DType, to: Memory) -> Kernel {
        let Conv2d { stride, padding: [top, _, left, _], .. } = *s.conv;
        let moves = Moves { step: stride, before: [top, left] };
        self.launch(s, dtype, [Memory::Input(0), to], (s.images, s.input, self.grid), moves)
    }

    /// The launch that unfolds the weight, operand 1.
    fn weight(&self, s: &Sizes, dtype: DType, to: Memory) -> Kernel {
        self.launch(s, dtype, [Memory::Input(1), to], (s.outputs, s.kernel, self.kernel), self.side_by_side())
    }

    fn side_by_side(&self) -> Moves {
        Moves { step: self.block, before: [0; 2] }
    }

    fn launch(
        &self,
        s: &Sizes,
        dtype: DType,
        [from, to]: [Memory; 2],
        (count, image, grid): (usize, [usize; 2], [usize; 2]),
        moves: Moves,
    ) -> Kernel {
        let (rows, packs) = (count * grid[0] * grid[1], self.channels * dtype.bytes() / ROW_BYTES);
        let kernel = Kernel::new(Module::Shape, format!("unfold_b{}", 8 * dtype.bytes()));
        let kernel = over_rows(kernel, rows, packs).arg(from).arg(to).arg(rows_arg(rows)).int(packs);
        self.args(s, kernel, image, grid, moves)
    }

    /// The launch that folds a gradient of the unfolded weight.
    fn fold(&self, s: &Sizes, from: Memory) -> Kernel {
        let (rows, columns) = (s.outputs * s.kernel[0], s.kernel[1] * s.inputs);
        let kernel = over_rows(Kernel::new(Module::Shape, "fold_b32"), rows, columns);
        let kernel = kernel.arg(from).arg(Memory::Output(0)).arg(rows_arg(rows)).int(self.channels);
        self.args(s, kernel, s.kernel, self.kernel, self.side_by_side())
    }
}

/// Where blocks lie.
#[derive(Clone, Copy)]
struct Moves {
    /// From one to the next.
    step: [usize; 2],
    /// Padding before the first pixel.
    before: [usize; 2],
}

/// Positions of the kernel do not overlap.
fn is_patches(s: &Sizes) -> bool {
    s.kernel.iter().zip(s.conv.stride).all(|(kernel, stride)| *kernel <= stride)
}

/// `y = act(x ∗ w + b)` on the unfolded image; `None` if it is not worth it.
pub fn forward(cx: &Context, s: &Sizes, finish: &Finish) -> Option<Lowered> {
    let (u, dtype) = (Unfolded::of(cx, s)?, operand_type(cx));
    let [image, weight] = u.elements(s).map(|n| aligned(n * dtype.bytes()));
    let (x, w, behind) = (Memory::Scratch(0), Memory::Scratch(image), image + weight);
    let inner = super::forward(cx, &u.sizes(s), finish).on(|memory| match memory {
        Memory::Input(0) => x,
        Memory::Input(1) if !u.exact => w,
        Memory::Scratch(at) => Memory::Scratch(behind + at),
        other => other,
    });
    let mut lowered = Lowered::one(u.image(s, dtype, x));
    if !u.exact {
        lowered.steps.push(u.weight(s, dtype, w).into());
    }
    lowered.steps.extend(inner.steps);
    Some(Lowered { scratch_bytes: behind + inner.scratch_bytes, ..lowered })
}

/// The gradient by the weight of the unfolded image, and that by the bias if `bias`; `None` if it is not worth it.
pub fn backward_weight(cx: &Context, s: &Sizes, bias: bool) -> Option<Lowered> {
    let (u, dtype) = (Unfolded::of(cx, s)?, operand_type(cx));
    let [image, weight] = u.elements(s);
    let (image, weight) = (aligned(image * dtype.bytes()), aligned(weight * DType::F32.bytes()));
    let (x, dw, behind) = (Memory::Scratch(0), Memory::Scratch(image), image + weight);
    let inner = super::backward_weight(cx, &u.sizes(s), bias).on(|memory| match memory {
        Memory::Input(0) => x,
        Memory::Output(0) if !u.exact => dw,
        Memory::Scratch(at) => Memory::Scratch(behind + at),
        other => other,
    });
    let mut lowered = Lowered::one(u.image(s, dtype, x));
    lowered.steps.extend(inner.steps);
    if !u.exact {
        lowered.steps.push(u.fold(s, dw).into());
    }
    Some(Lowered { scratch_bytes: behind + inner.scratch_bytes, ..lowered })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfolded(conv: &Conv2d, x: [usize; 4], [outputs, kh, kw]: [usize; 3]) -> Option<Unfolded> {
        let [images, h, w, inputs] = x;
        let output = conv.out([h, w], [kh, kw]).unwrap();
        Unfolded::new(&Sizes { conv, images, input: [h, w], output, kernel: [kh, kw], inputs, outputs }, 2)
    }

    #[test]
    fn images_are_unfolded_by_what_of_them_positions_share() {
        let plain = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: false };
        let strided =
            |stride: usize, padding: usize| Conv2d { stride: [stride; 2], padding: [padding; 4], ..plain.clone() };
        // The stem of a ResNet: squares of two by two, of which a position meets four by four.
        let stem = unfolded(&strided(2, 3), [64, 224, 224, 3], [64, 7, 7]).unwrap();
        assert_eq!((stem.block, stem.kernel, stem.grid, stem.channels), ([2, 2], [4, 4], [115, 115], 16));
        assert!(!stem.exact && stem.conv.stride == [1, 1] && stem.conv.padding == [0; 4]);
        // Patches: a product, whose other matrix is the weight as it is.
        let patches = unfolded(&strided(16, 0), [64, 224, 224, 3], [768, 16, 16]).unwrap();
        assert_eq!((patches.kernel, patches.grid, patches.channels, patches.exact), ([1, 1], [14, 14], 768, true));
        // Few elements of a kernel: a product with some zeros.
        let small = unfolded(&strided(1, 1), [128, 32, 32, 3], [64, 3, 3]).unwrap();
        assert_eq!((small.kernel, small.grid, small.channels, small.exact), ([1, 1], [32, 32], 32, false));
        // Many: the channels alone are padded.
        let many = unfolded(&strided(1, 2), [8, 32, 32, 3], [16, 5, 5]).unwrap();
        assert_eq!((many.block, many.kernel, many.grid, many.channels), ([1, 1], [5, 5], [36, 36], 8));
        // What needs it not, and what cannot be.
        assert_eq!(unfolded(&strided(2, 3), [64, 224, 224, 8], [64, 7, 7]), None);
        assert_eq!(unfolded(&strided(1, 1), [64, 32, 32, 12], [64, 3, 3]), None);
        assert_eq!(unfolded(&plain, [64, 32, 32, 3], [64, 1, 1]), None);
        assert_eq!(unfolded(&Conv2d { groups: 3, ..plain.clone() }, [2, 32, 32, 3], [6, 3, 3]), None);
        assert_eq!(unfolded(&Conv2d { dilation: [1, 2], ..plain.clone() }, [2, 32, 32, 3], [6, 3, 3]), None);
        // A result of few pixels: many elements for nothing.
        assert_eq!(unfolded(&plain, [1, 40, 40, 1], [1, 40, 40]), None);
    }
}
