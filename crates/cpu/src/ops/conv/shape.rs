//! What a convolution kernel is made for: the sizes of the operands, the direction, the instructions and the threads.

use crate::gemm::numbers::Rounded;
use crate::graph::op::Conv2d;
use crate::simd::SimdLevel;
use crate::simd::bf16::{Bf16Unit, Instructions};

/// Sizes of a convolution's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvShape {
    /// Images in the batch.
    pub images: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels of the input.
    pub channels: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Channels of the output.
    pub outputs: usize,
}

impl ConvShape {
    /// Height and width of the output.
    ///
    /// # Panics
    /// The kernel does not fit, which the operation's shape rule has ruled out.
    pub fn output(&self, op: &Conv2d) -> [usize; 2] {
        op.out(self.input, self.kernel).expect("the shape rule has checked that the kernel fits")
    }

    /// Elements of the input.
    pub fn x_len(&self) -> usize {
        self.images * self.input[0] * self.input[1] * self.channels
    }

    /// Elements of the output.
    pub fn y_len(&self, op: &Conv2d) -> usize {
        let [h, w] = self.output(op);
        self.images * h * w * self.outputs
    }

    /// Elements of the output after max-pooling over 2 × 2 pixels, `[N, OH / 2, OW / 2, O]`.
    pub fn pooled_len(&self, op: &Conv2d) -> usize {
        let [h, w] = self.output(op);
        self.images * (h / 2) * (w / 2) * self.outputs
    }

    /// Elements of the weight.
    pub fn w_len(&self, op: &Conv2d) -> usize {
        self.outputs * self.kernel[0] * self.kernel[1] * (self.channels / op.groups)
    }
}

/// Which of the two operations that write pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The convolution.
    Forward,
    /// Its gradient by the input.
    Backward,
}

/// A convolution for which a kernel is chosen and laid out.
#[derive(Clone, Copy)]
pub struct ConvProblem<'a> {
    /// Stride, padding, dilation and groups.
    pub op: &'a Conv2d,
    /// Sizes of the convolution's operands, also for its gradients.
    pub shape: ConvShape,
    /// Instructions.
    pub level: SimdLevel,
    /// Products are made in bf16, by this unit.
    pub bf16: Option<Bf16Unit>,
    /// Most threads of a pool that runs the kernel, at least 1.
    pub threads: usize,
    /// The program makes gradients.
    pub trains: bool,
    /// Which operands are rounded in memory.
    pub rounded: Rounded,
}

impl<'a> ConvProblem<'a> {
    /// The problem, for at most `threads` threads.
    pub fn new(op: &'a Conv2d, shape: ConvShape, how: impl Into<Instructions>, threads: usize) -> Self {
        let Instructions { level, bf16 } = how.into();
        ConvProblem { op, shape, level, bf16, threads: threads.max(1), trains: false, rounded: Rounded::default() }
    }

    /// The same in a program that makes gradients, or not.
    pub fn in_training(self, trains: bool) -> Self {
        ConvProblem { trains, ..self }
    }

    /// Results decide which gradients activations and pooling let pass.
    pub fn decides(&self, direction: Direction) -> bool {
        self.trains && direction == Direction::Forward
    }

    /// The instructions, as kernels of matrix products take them.
    pub fn how(&self) -> Instructions {
        Instructions { level: self.level, bf16: self.bf16 }
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        self.shape.output(self.op)
    }

    /// Positions of the kernel.
    pub fn taps(&self) -> usize {
        self.shape.kernel[0] * self.shape.kernel[1]
    }

    /// Every channel is a group of its own, with one output.
    pub fn is_depthwise(&self) -> bool {
        let ConvShape { channels, outputs, .. } = self.shape;
        self.op.groups > 1 && self.op.groups == channels && self.op.groups == outputs
    }

    /// The channels fill no more than half a vector.
    pub fn is_narrow(&self) -> bool {
        2 * self.shape.channels <= self.level.lanes()
    }
}
