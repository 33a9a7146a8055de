//! Convolutions of an input that goes through a [`Prologue`](crate::gemm::prologue::Prologue) on the way to where
//! it is read, and their gradients by the weight: matrix products and depthwise convolutions.

use super::ConvShape;
use super::depthwise::{Depthwise, DepthwiseGradWeight};
use super::kernel::{PreparedPixelKernel, PreparedWeightKernel};
use super::pointwise::{prepared_pixel_kernel, prepared_weight_kernel};
use super::shape::{ConvProblem, Direction};
use crate::gemm::prologue::Source;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{Conv2d, Conv2dGradWeight};
use crate::run::threads::Pool;
use crate::simd::bf16::Instructions;

/// `y = f(x) ⋆ w + b`.
pub struct PreparedConv2dKernel {
    kernel: Box<dyn PreparedPixelKernel>,
    lens: [usize; 3],
}

impl PreparedConv2dKernel {
    /// Prepares the convolution for at most `threads` threads, if there is a kernel.
    pub fn new(op: &Conv2d, shape: ConvShape, how: impl Into<Instructions>, threads: usize) -> Option<Self> {
        let problem = ConvProblem::new(op, shape, how, threads);
        let depthwise = || Some(Box::new(Depthwise::new(&problem, Direction::Forward, None)?) as _);
        let kernel = prepared_pixel_kernel(&problem).or_else(depthwise)?;
        Some(PreparedConv2dKernel { kernel, lens: [shape.x_len(), shape.w_len(op), shape.y_len(op)] })
    }

    /// Workspace that [`PreparedConv2dKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `y [N, OH, OW, O]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says, or `x` no prologue.
    pub fn run(
        &self,
        pool: &Pool,
        x: Source,
        w: &[f32],
        operands: EpilogueOperands,
        y: &mut [f32],
        workspace: &mut [u8],
    ) {
        assert_eq!([x.values.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        self.kernel.run_prepared(pool, x, w, operands, y, workspace.into());
    }
}

/// `dw`, and `db = Σ dy`.
pub struct PreparedConv2dGradWeightKernel {
    kernel: Box<dyn PreparedWeightKernel>,
    lens: [usize; 3],
    bias: bool,
}

impl PreparedConv2dGradWeightKernel {
    /// Prepares the gradient for at most `threads` threads, if there is a kernel. `shape` is the convolution's.
    pub fn new(op: &Conv2dGradWeight, shape: ConvShape, how: impl Into<Instructions>, threads: usize) -> Option<Self> {
        let problem = ConvProblem::new(&op.conv, shape, how, threads);
        let depthwise = || Some(Box::new(DepthwiseGradWeight::new(&problem)?) as _);
        let kernel = prepared_weight_kernel(&problem, op.bias).or_else(depthwise)?;
        let lens = [shape.x_len(), shape.y_len(&op.conv), shape.w_len(&op.conv)];
        Some(PreparedConv2dGradWeightKernel { kernel, lens, bias: op.bias })
    }

    /// Workspace that [`PreparedConv2dGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `dw [O, KH, KW, I / groups]`, and `db [O]` if the kernel was made with a bias. `workspace` starts at a
    /// multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says, or `x` no prologue.
    pub fn run(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert_eq!([x.values.len(), dy.len(), dw.len()], self.lens, "lengths of x, dy and dw");
        self.kernel.run_prepared(pool, x, dy, dw, db.filter(|_| self.bias), workspace);
    }
}
