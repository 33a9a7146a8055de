//! 1 × 1 convolutions with a stride, without padding or groups: matrix products whose rows are the pixels that the stride meets. These
//! are copied side by side first.

use super::kernel::PixelKernel;
use super::shape::{ConvProblem, Direction};
use crate::gemm::memory::{MOST_ROWS, Memory};
use crate::gemm::tile::EpilogueOperands;
use crate::gemm::{round_up, workspace_floats};
use crate::graph::op::Activation;
use crate::ops::linear::{LinearKernel, LinearShape};
use crate::plan::Kept;
use crate::run::threads::{Chunks, Parts, Pool, chunks};
use std::ops::Range;

/// Floats of pixels that are copied at a time: 2 MiB, which the product finds in a cache.
const COPIED: usize = 512 << 10;

/// Least channels of the input: with fewer, a row of the product is too short.
const LEAST_CHANNELS: usize = 16;

/// Least pixels that are copied at a time, if there are more: with fewer, each weight that is read is used too few times.
const LEAST_PIXELS: usize = 98;

/// The convolution.
pub struct Strided {
    input: [usize; 2],
    output: [usize; 2],
    stride: [usize; 2],
    channels: usize,
    outputs: usize,
    /// The images that are copied together: as many each time.
    images: Chunks,
    /// The product of that many images.
    product: LinearKernel,
}

impl Strided {
    /// Lays out the work, if the convolution is of this kind.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Strided> {
        let (op, shape, output) = (problem.op, &problem.shape, problem.output());
        let is_its = shape.kernel == [1, 1] && op.padding == [0; 4] && op.groups == 1 && op.stride != [1, 1];
        if direction == Direction::Backward || !is_its || shape.channels < LEAST_CHANNELS {
            return None;
        }
        let (pixels, all) = (output[0] * output[1], shape.images.max(1));
        // Few rows are one product, which keeps its packed weights.
        let rounds = if all * pixels <= MOST_ROWS { 1 } else { (all * pixels * shape.channels).div_ceil(COPIED) };
        let together = (1..=all / rounds.min(all)).rev().find(|&images| all.is_multiple_of(images))?;
        if together < all && together * pixels < LEAST_PIXELS {
            return None;
        }
        let linear = LinearShape { rows: together * pixels, inputs: shape.channels, outputs: shape.outputs };
        Some(Strided {
            input: shape.input,
            output,
            stride: op.stride,
            channels: shape.channels,
            outputs: shape.outputs,
            images: chunks(shape.images, together),
            product: LinearKernel::new(act, linear, problem.level, problem.threads, problem.trains),
        })
    }

    /// Pixels of an image of the output.
    fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Floats of the copied pixels.
    fn copied_floats(&self) -> usize {
        round_up(self.images.range(0).len() * self.pixels() * self.channels)
    }

    /// Copies the pixels of some images that the stride meets.
    fn copy(&self, pool: &Pool, images: Range<usize>, source: &[f32], copied: &mut [f32]) {
        let [height, width] = self.output;
        let line = width * self.channels;
        let copied = Parts::new(copied);
        pool.run(images.len() * height, |row, _| {
            let (image, y) = (images.start + row / height, row % height * self.stride[0]);
            // SAFETY: a row belongs to one task.
            let to = unsafe { copied.part(row * line..(row + 1) * line) };
            let from = &source[(image * self.input[0] + y) * self.input[1] * self.channels..];
            let step = self.stride[1] * self.channels;
            for (to, from) in to.chunks_exact_mut(self.channels).zip(from.chunks(step)) {
                to.copy_from_slice(&from[..self.channels]);
            }
        });
    }
}

impl PixelKernel for Strided {
    fn workspace_bytes(&self) -> usize {
        self.copied_floats() * 4 + self.product.workspace_bytes()
    }

    fn act(&self) -> Option<Activation> {
        self.product.act()
    }

    fn remaining_act(&self) -> Option<Activation> {
        self.product.remaining_act()
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        let kept = self.product.kept().filter(|_| self.images.count() == 1)?;
        Some(Kept { workspace: kept.workspace + self.copied_floats() * 4, ..kept })
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        let Memory { workspace, mut kept } = memory;
        let (copied, workspace) = workspace.split_at_mut(self.copied_floats() * 4);
        let copied = workspace_floats(copied, self.copied_floats());
        let of_image = self.pixels() * self.outputs;
        for images in (0..self.images.count()).map(|round| self.images.range(round)) {
            let written = images.start * of_image..images.end * of_image;
            self.copy(pool, images, source, copied);
            let operands = EpilogueOperands {
                residual: operands.residual.map(|all| &all[written.clone()]),
                relu_mask: operands.relu_mask.map(|all| &all[written.clone()]),
                ..operands
            };
            let memory = Memory { workspace: &mut *workspace, kept: kept.take() };
            self.product.run(pool, (&*copied).into(), w, operands, &mut dest[written], memory);
        }
    }
}
