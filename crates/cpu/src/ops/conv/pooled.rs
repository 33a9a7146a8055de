//! Convolutions with max-pooling over 2 × 2 pixels after them, and their gradients. The pixels before pooling are never
//! stored in full: `winograd` pools in registers, where a tile is whole windows, and `dense` in a buffer that stays in the cache.

pub use super::operands::PooledGrad;

use super::ConvShape;
use super::dense::Dense;
use super::grad_weight::DenseGradWeight;
use super::kernel::{PooledPixelKernel, PooledWeightKernel};
use super::operands::{PixelDest, PixelSource};
use super::shape::{ConvProblem, Direction};
use super::winograd::{self, WinogradGradWeight};
use crate::gemm::memory::Memory;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{self, Activation, Conv2d};
use crate::plan::Kept;
use crate::run::threads::Pool;
use crate::simd::SimdLevel;

/// `y = act(max_pool((x ⋆ w) · scale + b))`.
pub struct Conv2dMaxPoolKernel {
    kernel: Box<dyn PooledPixelKernel>,
    lens: [usize; 3],
}

impl Conv2dMaxPoolKernel {
    /// Prepares the operation for at most `threads` threads, for a program that makes gradients or not.
    pub fn new(
        conv: &Conv2d,
        act: Option<Activation>,
        shape: ConvShape,
        level: SimdLevel,
        threads: usize,
        trains: bool,
    ) -> Self {
        let problem = ConvProblem::new(conv, shape, level, threads).in_training(trains);
        let kernel = winograd::pixel_kernel(&problem, Direction::Forward, act);
        let kernel = kernel.unwrap_or_else(|| Box::new(Dense::pooled(&problem, act)));
        Conv2dMaxPoolKernel { kernel, lens: [shape.x_len(), shape.w_len(conv), shape.pooled_len(conv)] }
    }

    /// Workspace that [`Conv2dMaxPoolKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Packed weights that it can keep from run to run.
    pub fn kept(&self) -> Option<Kept> {
        self.kernel.kept()
    }

    /// Computes `y [N, OH / 2, OW / 2, O]` and the positions.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        x: &[f32],
        w: &[f32],
        (scale, bias): (Option<&[f32]>, Option<&[f32]>),
        (y, index): (&mut [f32], &mut [u8]),
        memory: impl Into<Memory<'a>>,
    ) {
        assert_eq!([x.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        assert_eq!(y.len(), index.len(), "a position for each maximum");
        let operands = EpilogueOperands { scale, bias, ..EpilogueOperands::default() };
        let (source, dest) = (PixelSource::Plain(x.into()), PixelDest::Pooled(y, index));
        self.kernel.run_pooled(pool, source, w, operands, dest, memory.into());
    }
}

/// `dx`.
pub struct Conv2dMaxPoolGradInputKernel {
    kernel: Box<dyn PooledPixelKernel>,
    lens: [usize; 3],
}

impl Conv2dMaxPoolGradInputKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradInput, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        let problem = ConvProblem::new(conv, shape, level, threads);
        // The transform reads whole windows, so what a tile reads must begin one pixel before a window.
        let aligned = [conv.padding[0], conv.padding[2]] == [1, 1];
        let kernel = winograd::pixel_kernel(&problem, Direction::Backward, None).filter(|_| aligned);
        let kernel = kernel.unwrap_or_else(|| Box::new(Dense::new(&problem, Direction::Backward, None)));
        Conv2dMaxPoolGradInputKernel { kernel, lens: [shape.pooled_len(conv), shape.w_len(conv), shape.x_len()] }
    }

    /// Workspace that [`Conv2dMaxPoolGradInputKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `dx [N, H, W, I]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run(&self, pool: &Pool, grad: PooledGrad, w: &[f32], dx: &mut [f32], workspace: &mut [u8]) {
        assert_eq!([grad.dy.len(), w.len(), dx.len()], self.lens, "lengths of dy, w and dx");
        assert_eq!(grad.dy.len(), grad.index.len(), "a position for each maximum");
        let (source, dest) = (PixelSource::Pooled(grad), PixelDest::Plain(dx));
        self.kernel.run_pooled(pool, source, w, EpilogueOperands::default(), dest, workspace.into());
    }
}

/// `dw` and `db`.
pub struct Conv2dMaxPoolGradWeightKernel {
    kernel: Box<dyn PooledWeightKernel>,
    lens: [usize; 3],
}

impl Conv2dMaxPoolGradWeightKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradWeight, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        let problem = ConvProblem::new(conv, shape, level, threads);
        let kernel: Box<dyn PooledWeightKernel> = match WinogradGradWeight::new(&problem) {
            Some(winograd) => Box::new(winograd),
            None => Box::new(DenseGradWeight::pooled(&problem)),
        };
        Conv2dMaxPoolGradWeightKernel { kernel, lens: [shape.x_len(), shape.pooled_len(conv), shape.w_len(conv)] }
    }

    /// Workspace that [`Conv2dMaxPoolGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `dw [O, KH, KW, I / groups]` and, if it is wanted, `db [O]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        grad: PooledGrad,
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert_eq!([x.len(), grad.dy.len(), dw.len()], self.lens, "lengths of x, dy and dw");
        assert_eq!(grad.dy.len(), grad.index.len(), "a position for each maximum");
        self.kernel.run_pooled(pool, x, PixelSource::Pooled(grad), dw, db, workspace);
    }
}
