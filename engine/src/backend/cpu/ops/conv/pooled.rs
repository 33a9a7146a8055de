//! Convolutions with max-pooling over 2 × 2 pixels behind them, and their gradients. The image between is made piece by
//! piece: in registers where tiles are windows (`winograd`), else in a buffer that stays in the cache (`dense`).

use super::dense::Dense;
use super::grad_weight::DenseGradWeight;
use super::winograd::{Winograd, WinogradGradWeight};
use super::{ConvShape, Direction};
use crate::backend::cpu::gemm::tile::{Epilogue, PerColumn};
use crate::backend::cpu::run::threads::{Parts, Pool};
use crate::backend::cpu::simd::SimdLevel;
use crate::graph::op::{self, Activation, Conv2d};

/// The gradient of a pooled image, and where its maxima lay.
#[derive(Clone, Copy)]
pub struct PooledGrad<'a> {
    /// `[N, OH / 2, OW / 2, O]`
    pub dy: &'a [f32],
    /// Positions within windows: `row · 2 + column`.
    pub index: &'a [u8],
}

/// What is read: pixels, or the gradient of pooled ones.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// As they are.
    Plain(&'a [f32]),
    /// Each window's at the place of its maximum, all others 0.
    Pooled(PooledGrad<'a>),
}

/// What is written: pixels, or the maxima of windows and where they lie.
pub enum Dest<'a> {
    /// As they are.
    Plain(&'a mut [f32]),
    /// Maxima, positions.
    Pooled(&'a mut [f32], &'a mut [u8]),
}

/// [`Dest`], shared out.
#[derive(Clone, Copy)]
pub enum DestParts<'a> {
    /// As they are.
    Plain(Parts<'a, f32>),
    /// Maxima, positions.
    Pooled(Parts<'a, f32>, Parts<'a, u8>),
}

impl<'a> Dest<'a> {
    /// Shares it out.
    pub fn parts(self) -> DestParts<'a> {
        match self {
            Dest::Plain(pixels) => DestParts::Plain(Parts::new(pixels)),
            Dest::Pooled(y, index) => DestParts::Pooled(Parts::new(y), Parts::new(index)),
        }
    }
}

/// What an activation behind the pooling keeps the maxima within.
pub fn bounds(act: Option<Activation>) -> Option<[f32; 2]> {
    act.map(|act| {
        let Epilogue { low, high, .. } = Epilogue::of(Some(act));
        [low, high]
    })
}

/// Elements after pooling, `[N, OH / 2, OW / 2, O]`.
fn pooled_len(shape: &ConvShape, op: &Conv2d) -> usize {
    let [h, w] = shape.output(op);
    shape.images * (h / 2) * (w / 2) * shape.outputs
}

enum PixelPath {
    Winograd(Winograd),
    Dense(Dense),
}

enum WeightPath {
    Winograd(Box<WinogradGradWeight>),
    Dense(Box<DenseGradWeight>),
}

/// `y = act(max_pool(x ⋆ w + b))`.
pub struct Conv2dMaxPoolKernel {
    path: PixelPath,
    lens: [usize; 3],
}

impl Conv2dMaxPoolKernel {
    /// Prepares the operation for at most `threads` threads.
    pub fn new(conv: &Conv2d, act: Option<Activation>, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let path = match Winograd::new(conv, &shape, Direction::Forward, act, level, threads) {
            Some(winograd) => PixelPath::Winograd(winograd),
            None => PixelPath::Dense(Dense::pooled(conv, act, &shape, level, threads)),
        };
        Conv2dMaxPoolKernel { path, lens: [shape.x_len(), shape.w_len(conv), pooled_len(&shape, conv)] }
    }

    /// Workspace that [`Conv2dMaxPoolKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            PixelPath::Winograd(kernel) => kernel.workspace_bytes(),
            PixelPath::Dense(kernel) => kernel.workspace_bytes(),
        }
    }

    /// Computes `y [N, OH / 2, OW / 2, O]` and the positions. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        w: &[f32],
        bias: Option<&[f32]>,
        (y, index): (&mut [f32], &mut [u8]),
        workspace: &mut [u8],
    ) {
        assert_eq!([x.len(), w.len(), y.len()], self.lens, "lengths of x, w and y");
        assert_eq!(y.len(), index.len(), "a position for each maximum");
        let (source, dest) = (Source::Plain(x), Dest::Pooled(y, index));
        match &self.path {
            PixelPath::Winograd(kernel) => kernel.run(pool, source, w, bias.into(), dest, workspace),
            PixelPath::Dense(kernel) => kernel.run(pool, source, w, bias.into(), dest, workspace),
        }
    }
}

/// `dx`.
pub struct Conv2dMaxPoolGradInputKernel {
    path: PixelPath,
    lens: [usize; 3],
}

impl Conv2dMaxPoolGradInputKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradInput, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        // The transform reads windows where each tile begins one pixel before one.
        let winograd = Winograd::new(conv, &shape, Direction::Backward, None, level, threads);
        let path = match winograd.filter(|_| [conv.padding[0], conv.padding[2]] == [1, 1]) {
            Some(winograd) => PixelPath::Winograd(winograd),
            None => PixelPath::Dense(Dense::new(conv, &shape, Direction::Backward, None, level, threads)),
        };
        Conv2dMaxPoolGradInputKernel { path, lens: [pooled_len(&shape, conv), shape.w_len(conv), shape.x_len()] }
    }

    /// Workspace that [`Conv2dMaxPoolGradInputKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            PixelPath::Winograd(kernel) => kernel.workspace_bytes(),
            PixelPath::Dense(kernel) => kernel.workspace_bytes(),
        }
    }

    /// Computes `dx [N, H, W, I]`. `workspace` starts at a multiple of 64 bytes.
    ///
    /// # Panics
    /// An operand does not have the length that the shape says.
    pub fn run(&self, pool: &Pool, grad: PooledGrad, w: &[f32], dx: &mut [f32], workspace: &mut [u8]) {
        assert_eq!([grad.dy.len(), w.len(), dx.len()], self.lens, "lengths of dy, w and dx");
        assert_eq!(grad.dy.len(), grad.index.len(), "a position for each maximum");
        let (source, dest) = (Source::Pooled(grad), Dest::Plain(dx));
        match &self.path {
            PixelPath::Winograd(kernel) => kernel.run(pool, source, w, PerColumn::default(), dest, workspace),
            PixelPath::Dense(kernel) => kernel.run(pool, source, w, PerColumn::default(), dest, workspace),
        }
    }
}

/// `dw` and `db`.
pub struct Conv2dMaxPoolGradWeightKernel {
    path: WeightPath,
    lens: [usize; 3],
}

impl Conv2dMaxPoolGradWeightKernel {
    /// Prepares the gradient for at most `threads` threads. `shape` is the convolution's.
    pub fn new(op: &op::Conv2dGradWeight, shape: ConvShape, level: SimdLevel, threads: usize) -> Self {
        let conv = &op.conv;
        let path = match WinogradGradWeight::new(conv, &shape, level, threads) {
            Some(kernel) => WeightPath::Winograd(Box::new(kernel)),
            None => WeightPath::Dense(Box::new(DenseGradWeight::pooled(conv, &shape, level, threads))),
        };
        Conv2dMaxPoolGradWeightKernel { path, lens: [shape.x_len(), pooled_len(&shape, conv), shape.w_len(conv)] }
    }

    /// Workspace that [`Conv2dMaxPoolGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.path {
            WeightPath::Winograd(kernel) => kernel.workspace_bytes(),
            WeightPath::Dense(kernel) => kernel.workspace_bytes(),
        }
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
        let grad = Source::Pooled(grad);
        match &self.path {
            WeightPath::Winograd(kernel) => kernel.run(pool, x, grad, dw, db, workspace),
            WeightPath::Dense(kernel) => kernel.run(pool, x, grad, dw, db, workspace),
        }
    }
}
