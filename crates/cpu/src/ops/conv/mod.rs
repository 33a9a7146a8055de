//! Two-dimensional convolution, channels last: `x [N, H, W, I]`, `w [O, KH, KW, I / groups]`, `y [N, OH, OW, O]`.
//!
//! The kernel is chosen by the problem alone: the first of `PIXEL_KERNELS` or `WEIGHT_KERNELS` that takes it.
//!
//! - `pointwise`: 1 × 1 without stride or padding, a matrix product;
//! - `bf16`: where products are made in bf16, everything without groups, unless the unit is slower than one of the next two;
//! - `few_pixels`: batches of images of few pixels; gradients by the weight also for larger images;
//! - `winograd`: 3 × 3 of stride 1 with enough channels;
//! - `strided`: 1 × 1 with a stride, a matrix product of some of the pixels;
//! - `planar`: channels that fill vectors badly, vectors run over pixels instead;
//! - `depthwise`: as many groups as channels;
//! - `dense` and `grad_weight`: everything else, one group after the other.
//!
//! `pooled` has the convolutions with the max-pooling behind them, by `winograd` or `dense`; `prepared` those of an input that
//! is normalised where it is read, by `pointwise` or `depthwise`.

mod bf16;
mod dense;
mod depthwise;
mod few_pixels;
mod grad_weight;
mod kernel;
mod operands;
mod patches;
mod planar;
mod pointwise;
pub mod pooled;
pub mod prepared;
mod shape;
mod strided;
mod winograd;

pub use shape::ConvShape;

use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Numbers, NumbersMut, Rounded};
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{self, Activation, Conv2d};
use crate::plan::Kept;
use crate::run::threads::Pool;
use crate::simd::SimdLevel;
use crate::simd::bf16::{Bf16Unit, Instructions};
use bf16::{Bf16GradWeight, Bf16Pixels};
use dense::Dense;
use depthwise::{Depthwise, DepthwiseGradWeight};
use few_pixels::{FewPixels, FewPixelsGradWeight, SOME_PIXELS};
use grad_weight::DenseGradWeight;
use kernel::{PixelKernel, WeightKernel};
use planar::{Planar, PlanarGradWeight};
use shape::{ConvProblem, Direction};
use strided::Strided;
use winograd::WinogradGradWeight;

/// Makes a kernel that writes pixels, or `None` if the kernel cannot do the problem or another one is faster.
type NewPixelKernel = fn(&ConvProblem, Direction, Option<Activation>) -> Option<Box<dyn PixelKernel>>;

/// In order of preference; [`Dense`] takes what is left.
const PIXEL_KERNELS: [NewPixelKernel; 7] = [
    pointwise::pixel_kernel,
    |problem, direction, act| match bf16::makes_pixels(problem, direction) {
        true => Some(Box::new(Bf16Pixels::new(problem, direction, act)?)),
        false => None,
    },
    |problem, direction, act| Some(Box::new(FewPixels::new(problem, direction, act)?)),
    |problem, direction, act| Some(winograd::pixel_kernel(problem, direction, act)?),
    |problem, direction, act| Some(Box::new(Strided::new(problem, direction, act)?)),
    |problem, direction, act| Some(Box::new(Planar::new(problem, direction, act)?)),
    |problem, direction, act| Some(Box::new(Depthwise::new(problem, direction, act)?)),
];

/// Those whose operands may be rounded in memory.
const ROUNDED_KERNELS: [NewPixelKernel; 3] = [
    pointwise::pixel_kernel,
    |problem, direction, act| Some(Box::new(Bf16Pixels::new(problem, direction, act)?)),
    |problem, direction, act| Some(Box::new(Depthwise::new(problem, direction, act)?)),
];

/// The same for the gradient by the weight. The flag says whether the gradient by the bias is wanted as well.
type NewWeightKernel = fn(&ConvProblem, bool) -> Option<Box<dyn WeightKernel>>;

/// In order of preference; [`DenseGradWeight`] takes what is left.
const WEIGHT_KERNELS: [NewWeightKernel; 7] = [
    pointwise::weight_kernel,
    |problem, _| match bf16::makes_weights(problem) {
        true => Some(Box::new(Bf16GradWeight::new(problem)?)),
        false => None,
    },
    |problem, _| Some(Box::new(FewPixelsGradWeight::beside_winograd(problem)?)),
    |problem, _| Some(Box::new(WinogradGradWeight::new(problem)?)),
    |problem, _| Some(Box::new(FewPixelsGradWeight::new(problem, SOME_PIXELS)?)),
    |problem, _| Some(Box::new(PlanarGradWeight::new(problem)?)),
    |problem, _| Some(Box::new(DepthwiseGradWeight::new(problem)?)),
];

fn pixel_kernel(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Box<dyn PixelKernel> {
    let chosen = PIXEL_KERNELS.iter().find_map(|new| new(problem, direction, act));
    chosen.unwrap_or_else(|| Box::new(Dense::new(problem, direction, act)))
}

fn weight_kernel(problem: &ConvProblem, bias: bool) -> Box<dyn WeightKernel> {
    let chosen = WEIGHT_KERNELS.iter().find_map(|new| new(problem, bias));
    chosen.unwrap_or_else(|| Box::new(DenseGradWeight::new(problem)))
}

/// `y = act(x ⋆ w + b)`.
pub struct Conv2dKernel {
    kernel: Box<dyn PixelKernel>,
    lens: [usize; 3],
}

impl Conv2dKernel {
    /// Prepares the convolution for at most `threads` threads, for a program that makes gradients or not.
    pub fn new(
        op: &Conv2d,
        act: Option<Activation>,
        shape: ConvShape,
        how: impl Into<Instructions>,
        threads: usize,
        trains: bool,
    ) -> Self {
        let problem = ConvProblem::new(op, shape, how, threads).in_training(trains);
        let kernel = pixel_kernel(&problem, Direction::Forward, act);
        Conv2dKernel { kernel, lens: [shape.x_len(), shape.w_len(op), shape.y_len(op)] }
    }

    /// The same in a program that makes none, for operands that may be rounded in memory.
    pub fn rounded(
        op: &Conv2d,
        act: Option<Activation>,
        shape: ConvShape,
        how: Instructions,
        threads: usize,
        rounded: Rounded,
    ) -> Self {
        let problem = ConvProblem { rounded, ..ConvProblem::new(op, shape, how, threads) };
        let kernel = ROUNDED_KERNELS.iter().find_map(|new| new(&problem, Direction::Forward, act));
        let kernel = kernel.expect("there is one for the convolutions that take rounded operands");
        Conv2dKernel { kernel, lens: [shape.x_len(), shape.w_len(op), shape.y_len(op)] }
    }

    /// Whether there is a kernel of `unit` whose operands may be rounded in memory; `summand`: with one that is added to the result.
    pub fn takes_rounded(op: &Conv2d, shape: ConvShape, unit: Bf16Unit, summand: bool) -> bool {
        let problem = ConvProblem::new(op, shape, Instructions { level: SimdLevel::detect(), bf16: Some(unit) }, 1);
        if op.groups > 1 {
            return !summand && Depthwise::takes_rounded(&problem);
        }
        pointwise::takes_rounded(&problem).unwrap_or_else(|| bf16::makes_pixels(&problem, Direction::Forward))
    }

    /// The activation that the kernel leaves to [`EpilogueOperands::finish`] or, if it does not [finish](Self::finishes), to
    /// the caller, who applies it to `y` in place.
    pub fn remaining_act(&self) -> Option<Activation> {
        self.kernel.remaining_act()
    }

    /// True if it gives its results to [`EpilogueOperands::finish`].
    pub fn finishes(&self) -> bool {
        self.kernel.finishes()
    }

    /// The type of the kernel that was chosen, with its module.
    pub fn name(&self) -> &'static str {
        self.kernel.name()
    }

    /// Workspace that [`Conv2dKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Packed weights that it can keep from run to run.
    pub fn kept(&self) -> Option<Kept> {
        self.kernel.kept()
    }

    /// Computes `y [N, OH, OW, O]`.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        x: &[f32],
        w: &[f32],
        operands: impl Into<EpilogueOperands<'a>>,
        y: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        let operands = operands.into();
        assert_eq!([x.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        assert!(operands.has(0, y.len()), "length of the residual or of the ReLU mask");
        self.kernel.run(pool, x, w, operands, y, memory.into());
    }

    /// The same of operands that may be rounded in memory, as the kernel was made for.
    ///
    /// # Panics
    /// As [`Conv2dKernel::run`].
    pub fn run_numbers(
        &self,
        pool: &Pool,
        x: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        y: NumbersMut,
        memory: Memory,
    ) {
        assert_eq!([x.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        assert!(operands.has(0, y.len()), "length of the residual or of the ReLU mask");
        self.kernel.run_numbers(pool, x, w, operands, y, memory);
    }
}

/// `dx`: each `dy` back through the weights it came from.
pub struct Conv2dGradInputKernel {
    kernel: Box<dyn PixelKernel>,
    lens: [usize; 3],
}

impl Conv2dGradInputKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradInput, shape: ConvShape, how: impl Into<Instructions>, threads: usize) -> Self {
        let conv = &op.conv;
        let kernel = pixel_kernel(&ConvProblem::new(conv, shape, how, threads), Direction::Backward, None);
        Conv2dGradInputKernel { kernel, lens: [shape.y_len(conv), shape.w_len(conv), shape.x_len()] }
    }

    /// The type of the kernel that was chosen, with its module.
    pub fn name(&self) -> &'static str {
        self.kernel.name()
    }

    /// Workspace that [`Conv2dGradInputKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `dx [N, H, W, I]`.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        dy: &[f32],
        w: &[f32],
        operands: impl Into<EpilogueOperands<'a>>,
        dx: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        let operands = operands.into();
        assert_eq!([dy.len(), w.len(), dx.len()], self.lens, "lengths of dy, w and dx");
        assert!(operands.has(0, dx.len()), "length of the residual or of the ReLU mask");
        self.kernel.run(pool, dy, w, operands, dx, memory.into());
    }
}

/// `dw`, and `db = Σ dy`.
pub struct Conv2dGradWeightKernel {
    kernel: Box<dyn WeightKernel>,
    lens: [usize; 3],
    bias: bool,
}

impl Conv2dGradWeightKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradWeight, shape: ConvShape, how: impl Into<Instructions>, threads: usize) -> Self {
        let conv = &op.conv;
        let kernel = weight_kernel(&ConvProblem::new(conv, shape, how, threads), op.bias);
        let lens = [shape.x_len(), shape.y_len(conv), shape.w_len(conv)];
        Conv2dGradWeightKernel { kernel, lens, bias: op.bias }
    }

    /// The type of the kernel that was chosen, with its module.
    pub fn name(&self) -> &'static str {
        self.kernel.name()
    }

    /// Workspace that [`Conv2dGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    /// Computes `dw [O, KH, KW, I / groups]`, and `db [O]` if the kernel was made with a bias. `workspace` starts at a
    /// multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert_eq!([x.len(), dy.len(), dw.len()], self.lens, "lengths of x, dy and dw");
        self.kernel.run(pool, x, dy, dw, db.filter(|_| self.bias), workspace);
    }
}
