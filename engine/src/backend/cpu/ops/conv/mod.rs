//! Two-dimensional convolution, channels last: `x [N, H, W, I]`, `w [O, KH, KW, I / groups]`, `y [N, OH, OW, O]`.
//!
//! Paths, chosen by shape alone: 1 × 1 without stride or padding is a matrix product; as many groups as channels is
//! `depthwise`; a batch of images of few pixels is `few_pixels`; 3 × 3 of stride 1 with enough channels is `winograd`;
//! channels that fill vectors badly are `planar`, whose vectors run over pixels; everything else is `dense`, which goes
//! through the groups one by one. The gradient by the weight likewise, with `few_pixels` for larger images as well and
//! `grad_weight` for everything else. `pooled` has the convolutions that take the max-pooling behind them along, on two of
//! these paths.

mod dense;
mod depthwise;
mod few_pixels;
mod grad_weight;
mod patches;
mod planar;
pub mod pooled;
#[cfg(test)]
mod tests;
mod winograd;

use super::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use crate::backend::cpu::gemm::tile::PerColumn;
use crate::backend::cpu::run::threads::Pool;
use crate::backend::cpu::simd::SimdLevel;
use crate::graph::op::{self, Activation, Conv2d};
use dense::Dense;
use depthwise::{Depthwise, DepthwiseGradWeight};
use few_pixels::{FEW_PIXELS, FewPixels, FewPixelsGradWeight, SOME_PIXELS};
use grad_weight::DenseGradWeight;
use planar::{Planar, PlanarGradWeight};
use pooled::{Dest, Source};
use winograd::{Winograd, WinogradGradWeight};

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

    fn x_len(&self) -> usize {
        self.images * self.input[0] * self.input[1] * self.channels
    }

    fn y_len(&self, op: &Conv2d) -> usize {
        let [h, w] = self.output(op);
        self.images * h * w * self.outputs
    }

    fn w_len(&self, op: &Conv2d) -> usize {
        self.outputs * self.kernel[0] * self.kernel[1] * (self.channels / op.groups)
    }

    /// The matrix product that a 1 × 1 convolution is.
    fn linear(&self, op: &Conv2d) -> Option<LinearShape> {
        let plain = self.kernel == [1, 1] && op.stride == [1, 1] && op.padding == [0; 4] && op.groups == 1;
        let rows = self.images * self.input[0] * self.input[1];
        plain.then_some(LinearShape { rows, inputs: self.channels, outputs: self.outputs })
    }

    fn is_depthwise(&self, op: &Conv2d) -> bool {
        op.groups > 1 && op.groups == self.channels && op.groups == self.outputs
    }

    /// The channels fill no more than half a vector.
    fn is_narrow(&self, level: SimdLevel) -> bool {
        2 * self.channels <= level.lanes()
    }
}

/// Which operation of the two that write pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// The convolution.
    Forward,
    /// Its gradient by the input.
    Backward,
}

/// The ways to write pixels; `L` is the matrix product for 1 × 1 kernels.
enum PixelPath<L> {
    Linear(L),
    Depthwise(Depthwise),
    FewPixels(FewPixels),
    Planar(Box<Planar>),
    Winograd(Winograd),
    Dense(Dense),
}

impl<L> PixelPath<L> {
    fn new(
        op: &Conv2d,
        shape: &ConvShape,
        direction: Direction,
        act: Option<Activation>,
        level: SimdLevel,
        threads: usize,
        linear: impl FnOnce(LinearShape) -> L,
    ) -> Self {
        if let Some(shape) = shape.linear(op) {
            PixelPath::Linear(linear(shape))
        } else if shape.is_depthwise(op) {
            match shape.is_narrow(level).then(|| Planar::new(op, shape, direction, act, level, threads)).flatten() {
                Some(planar) => PixelPath::Planar(Box::new(planar)),
                None => PixelPath::Depthwise(Depthwise::new(op, shape, direction, act, level, threads)),
            }
        } else if let Some(few_pixels) = FewPixels::new(op, shape, direction, act, level) {
            PixelPath::FewPixels(few_pixels)
        } else if let Some(winograd) = Winograd::new(op, shape, direction, act, level, threads) {
            PixelPath::Winograd(winograd)
        } else if let Some(planar) = Planar::new(op, shape, direction, act, level, threads) {
            PixelPath::Planar(Box::new(planar))
        } else {
            PixelPath::Dense(Dense::new(op, shape, direction, act, level, threads))
        }
    }
}

/// The ways to the gradient by the weight.
enum WeightPath {
    Linear(LinearGradWeightKernel),
    Depthwise(DepthwiseGradWeight),
    FewPixels(FewPixelsGradWeight),
    Planar(Box<PlanarGradWeight>),
    Winograd(WinogradGradWeight),
    Dense(DenseGradWeight),
}

/// `y = act(x ⋆ w + b)`.
pub struct Conv2dKernel {
    path: PixelPath<LinearKernel>,
    lens: [usize; 3],
    act: Option<Activation>,
}

impl Conv2dKernel {
    /// Prepares the convolution for at most `threads` threads.
    pub fn new(op: &Conv2d, act: Option<Activation>, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let path = PixelPath::new(op, &shape, Direction::Forward, act, level, threads, |shape| {
            LinearKernel::new(act, shape, level, threads)
        });
        let act = match &path {
            PixelPath::Linear(kernel) => kernel.remaining_act(),
            PixelPath::Depthwise(kernel) => kernel.remaining_act(),
            PixelPath::FewPixels(kernel) => kernel.remaining_act(),
            PixelPath::Planar(kernel) => kernel.remaining_act(),
            PixelPath::Winograd(kernel) => kernel.remaining_act(),
            PixelPath::Dense(kernel) => kernel.remaining_act(),
        };
        Conv2dKernel { path, lens: [shape.x_len(), shape.w_len(op), shape.y_len(op)], act }
    }

    /// The activation that the kernel leaves to the caller, who applies it to `y` in place.
    pub fn remaining_act(&self) -> Option<Activation> {
        self.act
    }

    /// Workspace that [`Conv2dKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            PixelPath::Linear(kernel) => kernel.workspace_bytes(),
            PixelPath::Depthwise(kernel) => kernel.workspace_bytes(),
            PixelPath::FewPixels(kernel) => kernel.workspace_bytes(),
            PixelPath::Planar(kernel) => kernel.workspace_bytes(),
            PixelPath::Winograd(kernel) => kernel.workspace_bytes(),
            PixelPath::Dense(kernel) => kernel.workspace_bytes(),
        }
    }

    /// Computes `y [N, OH, OW, O]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        x: &[f32],
        w: &[f32],
        columns: impl Into<PerColumn<'a>>,
        y: &mut [f32],
        workspace: &mut [u8],
    ) {
        let columns = columns.into();
        assert_eq!([x.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        assert!(columns.has(0, y.len()), "length of what is beside");
        match &self.path {
            PixelPath::Linear(kernel) => kernel.run(pool, x, w, columns, y, workspace),
            PixelPath::Depthwise(kernel) => kernel.run(pool, x, w, columns, y, workspace),
            PixelPath::FewPixels(kernel) => kernel.run(pool, x, w, columns, y, workspace),
            PixelPath::Planar(kernel) => kernel.run(pool, x, w, columns, y, workspace),
            PixelPath::Winograd(kernel) => kernel.run(pool, Source::Plain(x), w, columns, Dest::Plain(y), workspace),
            PixelPath::Dense(kernel) => kernel.run(pool, Source::Plain(x), w, columns, Dest::Plain(y), workspace),
        }
    }
}

/// `dx`: each `dy` back through the weights it came from.
pub struct Conv2dGradInputKernel {
    path: PixelPath<LinearGradInputKernel>,
    lens: [usize; 3],
}

impl Conv2dGradInputKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradInput, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        let path = PixelPath::new(conv, &shape, Direction::Backward, None, level, threads, |shape| {
            LinearGradInputKernel::new(shape, level, threads)
        });
        Conv2dGradInputKernel { path, lens: [shape.y_len(conv), shape.w_len(conv), shape.x_len()] }
    }

    /// Workspace that [`Conv2dGradInputKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            PixelPath::Linear(kernel) => kernel.workspace_bytes(),
            PixelPath::Depthwise(kernel) => kernel.workspace_bytes(),
            PixelPath::FewPixels(kernel) => kernel.workspace_bytes(),
            PixelPath::Planar(kernel) => kernel.workspace_bytes(),
            PixelPath::Winograd(kernel) => kernel.workspace_bytes(),
            PixelPath::Dense(kernel) => kernel.workspace_bytes(),
        }
    }

    /// Computes `dx [N, H, W, I]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        dy: &[f32],
        w: &[f32],
        columns: impl Into<PerColumn<'a>>,
        dx: &mut [f32],
        workspace: &mut [u8],
    ) {
        let columns = columns.into();
        assert_eq!([dy.len(), w.len(), dx.len()], self.lens, "lengths of dy, w and dx");
        assert!(columns.has(0, dx.len()), "length of what is beside");
        match &self.path {
            PixelPath::Linear(kernel) => kernel.run(pool, dy, w, columns, dx, workspace),
            PixelPath::Depthwise(kernel) => kernel.run(pool, dy, w, columns, dx, workspace),
            PixelPath::FewPixels(kernel) => kernel.run(pool, dy, w, columns, dx, workspace),
            PixelPath::Planar(kernel) => kernel.run(pool, dy, w, columns, dx, workspace),
            PixelPath::Winograd(kernel) => kernel.run(pool, Source::Plain(dy), w, columns, Dest::Plain(dx), workspace),
            PixelPath::Dense(kernel) => kernel.run(pool, Source::Plain(dy), w, columns, Dest::Plain(dx), workspace),
        }
    }
}

/// `dw`, and `db = Σ dy`.
pub struct Conv2dGradWeightKernel {
    path: WeightPath,
    lens: [usize; 3],
    bias: bool,
}

impl Conv2dGradWeightKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradWeight, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        let path = if let Some(linear) = shape.linear(conv) {
            let op = op::LinearGradWeight { bias: op.bias };
            WeightPath::Linear(LinearGradWeightKernel::new(&op, linear, level, threads))
        } else if shape.is_depthwise(conv) {
            match shape.is_narrow(level).then(|| PlanarGradWeight::new(conv, &shape, level, threads)).flatten() {
                Some(planar) => WeightPath::Planar(Box::new(planar)),
                None => WeightPath::Depthwise(DepthwiseGradWeight::new(conv, &shape, level, threads)),
            }
        } else if let Some(kernel) = FewPixelsGradWeight::new(conv, &shape, level, FEW_PIXELS) {
            WeightPath::FewPixels(kernel)
        } else if let Some(kernel) = WinogradGradWeight::new(conv, &shape, level, threads) {
            WeightPath::Winograd(kernel)
        } else if let Some(kernel) = FewPixelsGradWeight::new(conv, &shape, level, SOME_PIXELS) {
            WeightPath::FewPixels(kernel)
        } else if let Some(kernel) = PlanarGradWeight::new(conv, &shape, level, threads) {
            WeightPath::Planar(Box::new(kernel))
        } else {
            WeightPath::Dense(DenseGradWeight::new(conv, &shape, level, threads))
        };
        let lens = [shape.x_len(), shape.y_len(conv), shape.w_len(conv)];
        Conv2dGradWeightKernel { path, lens, bias: op.bias }
    }

    /// Workspace that [`Conv2dGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            WeightPath::Linear(kernel) => kernel.workspace_bytes(),
            WeightPath::Depthwise(kernel) => kernel.workspace_bytes(),
            WeightPath::FewPixels(kernel) => kernel.workspace_bytes(),
            WeightPath::Planar(kernel) => kernel.workspace_bytes(),
            WeightPath::Winograd(kernel) => kernel.workspace_bytes(),
            WeightPath::Dense(kernel) => kernel.workspace_bytes(),
        }
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
        let db = db.filter(|_| self.bias);
        match &self.path {
            WeightPath::Linear(kernel) => kernel.run(pool, x, dy, dw, db, workspace),
            WeightPath::Depthwise(kernel) => kernel.run(pool, x, dy, dw, db, workspace),
            WeightPath::FewPixels(kernel) => kernel.run(pool, x, dy, dw, db, workspace),
            WeightPath::Planar(kernel) => kernel.run(pool, x, dy, dw, db, workspace),
            WeightPath::Winograd(kernel) => kernel.run(pool, x, Source::Plain(dy), dw, db, workspace),
            WeightPath::Dense(kernel) => kernel.run(pool, x, Source::Plain(dy), dw, db, workspace),
        }
    }
}
