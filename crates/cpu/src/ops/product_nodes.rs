//! Linear layers and convolutions as steps: their kernels with the operands of a `Frame`.

use super::conv::pooled::{
    Conv2dMaxPoolGradInputKernel, Conv2dMaxPoolGradWeightKernel, Conv2dMaxPoolKernel, PooledGrad,
};
use super::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel};
use super::elementwise::{ActivationFinish, activate};
use super::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel};
use crate::fusions::{Behind, Norm};
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Numbers, NumbersMut};
use crate::gemm::tile::{EpilogueOperands, Finish};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::simd::SimdLevel;

/// A forward product: operands `x`, `w`, the bias if there is one, and those of what is behind.
pub struct Forward<K> {
    /// The product, and the activation after it.
    pub kernel: K,
    /// Operand 2 is a bias.
    pub bias: bool,
    /// What is done with its results.
    pub behind: Behind,
    /// Instructions.
    pub level: SimdLevel,
}

/// A gradient by the input: operands `dy`, `w`, and those of what is behind.
pub struct GradInput<K> {
    /// The product.
    pub kernel: K,
    /// What is done with its results.
    pub behind: Behind,
}

/// A gradient by weight and bias: operands `x`, `dy`.
pub struct GradWeight<K> {
    /// The product.
    pub kernel: K,
    /// Output 1 is the bias's gradient.
    pub bias: bool,
}

/// The activation that a kernel leaves: what it applies while its results are in the cache, and what is applied after it.
fn left(act: Option<Activation>, finishes: bool) -> (Option<Activation>, Option<Activation>) {
    if finishes { (act, None) } else { (None, act) }
}

/// The operand that is added, in either width.
fn residual<'a>(frame: &Frame<'a>, behind: Behind) -> EpilogueOperands<'a> {
    let none = EpilogueOperands::default();
    match behind.summand.map(|i| frame.numbers(i)) {
        Some(Numbers::Single(x)) => EpilogueOperands { residual: Some(x), ..none },
        Some(Numbers::Rounded(x)) => EpilogueOperands { rounded_residual: Some(x), ..none },
        None => none,
    }
}

/// The kernels of linear layers and of convolutions are called alike.
macro_rules! steps {
    ($forward:ident, $grad_input:ident, $grad_weight:ident) => {
        impl NodeKernel for Forward<$forward> {
            fn scratch_bytes(&self) -> usize {
                self.kernel.workspace_bytes()
            }

            fn kept(&self) -> Option<Kept> {
                self.kernel.kept()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (x, w, mut y) = (frame.numbers(0), frame.input(1), frame.numbers_out(0));
                let bias = self.bias.then(|| frame.input(2));
                let (now, later) = left(self.kernel.remaining_act(), self.kernel.finishes());
                let finish = now.map(|act| ActivationFinish { level: self.level, act });
                let finish = finish.as_ref().map(|f| f as &dyn Finish);
                let operands = EpilogueOperands { bias, finish, ..residual(frame, self.behind) };
                self.kernel.run_numbers(frame.pool(), x, w, operands, y.again(), frame.into());
                if let NumbersMut::Single(y) = y {
                    activate(frame.pool(), self.level, later, y);
                }
            }
        }

        impl NodeKernel for GradInput<$grad_input> {
            fn scratch_bytes(&self) -> usize {
                self.kernel.workspace_bytes()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (dy, w, dx) = (frame.input(0), frame.input(1), frame.output(0));
                let Behind { summand, mask, .. } = self.behind;
                let [residual, relu_mask] = [summand, mask].map(|operand| operand.map(|i| frame.input(i)));
                let operands = EpilogueOperands { residual, relu_mask, ..EpilogueOperands::default() };
                self.kernel.run(frame.pool(), dy, w, operands, dx, frame.scratch().bytes());
            }
        }

        impl NodeKernel for GradWeight<$grad_weight> {
            fn scratch_bytes(&self) -> usize {
                self.kernel.workspace_bytes()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (x, dy, dw) = (frame.input::<f32>(0), frame.input(1), frame.output(0));
                let db = self.bias.then(|| frame.output(1));
                self.kernel.run(frame.pool(), x.into(), dy, dw, db, frame.scratch().bytes());
            }
        }
    };
}

steps!(LinearKernel, LinearGradInputKernel, LinearGradWeightKernel);
steps!(Conv2dKernel, Conv2dGradInputKernel, Conv2dGradWeightKernel);

/// Batch normalisation after a convolution, as in evaluation: a factor and a summand for each channel.
pub struct Folded {
    /// The normalisation.
    pub norm: Norm,
    /// Operand 2 is the convolution's bias.
    pub bias: bool,
    /// Channels of the convolution's result.
    pub channels: usize,
}

impl Folded {
    fn scratch_bytes(&self) -> usize {
        2 * Scratch::size::<f32>(self.channels)
    }

    /// What `kernel` keeps, beside these tables.
    fn kept(&self, kernel: Option<Kept>) -> Option<Kept> {
        kernel.map(|kept| Kept { workspace: self.scratch_bytes() + kept.workspace, ..kept })
    }

    /// The factors and the summands.
    fn tables<'a>(&self, frame: &Frame<'a>, scratch: &mut Scratch<'a>) -> [&'a [f32]; 2] {
        let Norm { eps, affine, first } = self.norm;
        let statistic = first + 2 * usize::from(affine);
        let (mean, variance) = (frame.input::<f32>(statistic), frame.input::<f32>(statistic + 1));
        let [gamma, beta] = [first, first + 1].map(|i| affine.then(|| frame.input::<f32>(i)));
        let own = self.bias.then(|| frame.input::<f32>(2));
        let (scale, shift) = (scratch.take::<f32>(self.channels), scratch.take::<f32>(self.channels));
        for c in 0..self.channels {
            scale[c] = 1.0 / (variance[c] + eps).sqrt() * gamma.map_or(1.0, |gamma| gamma[c]);
            shift[c] = (own.map_or(0.0, |own| own[c]) - mean[c]) * scale[c] + beta.map_or(0.0, |beta| beta[c]);
        }
        [scale, shift]
    }
}

/// A convolution with batch normalisation after it.
pub struct ConvNorm {
    /// The convolution, with the normalisation among what is behind it.
    pub conv: Forward<Conv2dKernel>,
    /// The normalisation.
    pub norm: Folded,
}

impl NodeKernel for ConvNorm {
    fn scratch_bytes(&self) -> usize {
        self.norm.scratch_bytes() + self.conv.kernel.workspace_bytes()
    }

    fn kept(&self) -> Option<Kept> {
        self.norm.kept(self.conv.kernel.kept())
    }

    fn run(&self, frame: &Frame<'_>) {
        let Forward { kernel, behind, level, .. } = &self.conv;
        let mut scratch = frame.scratch();
        let [scale, shift] = self.norm.tables(frame, &mut scratch);
        let (x, w, mut y) = (frame.numbers(0), frame.input(1), frame.numbers_out(0));
        let (now, later) = left(kernel.remaining_act(), kernel.finishes());
        let finish = now.map(|act| ActivationFinish { level: *level, act });
        let finish = finish.as_ref().map(|f| f as &dyn Finish);
        let operands = EpilogueOperands { scale: Some(scale), bias: Some(shift), finish, ..residual(frame, *behind) };
        let memory = Memory { workspace: scratch.bytes(), kept: frame.kept() };
        kernel.run_numbers(frame.pool(), x, w, operands, y.again(), memory);
        if let NumbersMut::Single(y) = y {
            activate(frame.pool(), *level, later, y);
        }
    }
}

/// A convolution with max-pooling after it: operands `x`, `w`, and the bias if there is one.
pub struct ConvMaxPool {
    /// The convolution.
    pub kernel: Conv2dMaxPoolKernel,
    /// Operand 2 is a bias.
    pub bias: bool,
    /// The normalisation between the two.
    pub norm: Option<Folded>,
}

impl NodeKernel for ConvMaxPool {
    fn scratch_bytes(&self) -> usize {
        self.norm.as_ref().map_or(0, Folded::scratch_bytes) + self.kernel.workspace_bytes()
    }

    fn kept(&self) -> Option<Kept> {
        let kept = self.kernel.kept();
        self.norm.as_ref().map_or(kept, |norm| norm.kept(kept))
    }

    fn run(&self, frame: &Frame<'_>) {
        let mut scratch = frame.scratch();
        let factors = match &self.norm {
            Some(norm) => norm.tables(frame, &mut scratch).map(Some).into(),
            None => (None, self.bias.then(|| frame.input(2))),
        };
        let results = (frame.output(0), frame.output(1));
        let memory = Memory { workspace: scratch.bytes(), kept: frame.kept() };
        self.kernel.run(frame.pool(), frame.input(0), frame.input(1), factors, results, memory);
    }
}

impl NodeKernel for Conv2dMaxPoolGradInputKernel {
    fn scratch_bytes(&self) -> usize {
        self.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let grad = PooledGrad { dy: frame.input(0), index: frame.input(1) };
        let (w, dx) = (frame.input(2), frame.output(0));
        Conv2dMaxPoolGradInputKernel::run(self, frame.pool(), grad, w, dx, frame.scratch().bytes());
    }
}

impl NodeKernel for GradWeight<Conv2dMaxPoolGradWeightKernel> {
    fn scratch_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let grad = PooledGrad { dy: frame.input(0), index: frame.input(1) };
        let (x, dw) = (frame.input(2), frame.output(0));
        let db = self.bias.then(|| frame.output(1));
        self.kernel.run(frame.pool(), x, grad, dw, db, frame.scratch().bytes());
    }
}
