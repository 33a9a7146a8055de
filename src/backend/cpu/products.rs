//! Linear layers and convolutions as steps: their kernels with the operands of a [`Frame`].

use super::conv::pooled::{
    Conv2dMaxPoolGradInputKernel, Conv2dMaxPoolGradWeightKernel, Conv2dMaxPoolKernel, PooledGrad,
};
use super::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel};
use super::elementwise::activate;
use super::frame::{Frame, NodeKernel};
use super::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel};
use super::simd::SimdLevel;

/// A forward product: operands `x`, `w`, and the bias if there is one.
pub struct Forward<K> {
    /// The product.
    pub kernel: K,
    /// Operand 2 is a bias.
    pub bias: bool,
    /// Instructions.
    pub level: SimdLevel,
}

/// A gradient by weight and bias: operands `x`, `dy`.
pub struct GradWeight<K> {
    /// The product.
    pub kernel: K,
    /// Output 1 is the bias's gradient.
    pub bias: bool,
}

/// The kernels of linear layers and of convolutions are called alike.
macro_rules! steps {
    ($forward:ident, $grad_input:ident, $grad_weight:ident) => {
        impl NodeKernel for Forward<$forward> {
            fn scratch_bytes(&self) -> usize {
                self.kernel.workspace_bytes()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (x, w, y) = (frame.input(0), frame.input(1), frame.output::<f32>(0));
                let bias = self.bias.then(|| frame.input(2));
                self.kernel.run(frame.pool(), x, w, bias, y, frame.scratch().bytes());
                activate(frame.pool(), self.level, self.kernel.remaining_act(), y);
            }
        }

        impl NodeKernel for $grad_input {
            fn scratch_bytes(&self) -> usize {
                self.workspace_bytes()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (dy, w, dx) = (frame.input(0), frame.input(1), frame.output(0));
                $grad_input::run(self, frame.pool(), dy, w, dx, frame.scratch().bytes());
            }
        }

        impl NodeKernel for GradWeight<$grad_weight> {
            fn scratch_bytes(&self) -> usize {
                self.kernel.workspace_bytes()
            }

            fn run(&self, frame: &Frame<'_>) {
                let (x, dy, dw) = (frame.input(0), frame.input(1), frame.output(0));
                let db = self.bias.then(|| frame.output(1));
                self.kernel.run(frame.pool(), x, dy, dw, db, frame.scratch().bytes());
            }
        }
    };
}

steps!(LinearKernel, LinearGradInputKernel, LinearGradWeightKernel);
steps!(Conv2dKernel, Conv2dGradInputKernel, Conv2dGradWeightKernel);

/// A convolution with max-pooling behind it: operands `x`, `w`, and the bias if there is one.
pub struct ConvMaxPool {
    /// The convolution.
    pub kernel: Conv2dMaxPoolKernel,
    /// Operand 2 is a bias.
    pub bias: bool,
}

impl NodeKernel for ConvMaxPool {
    fn scratch_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let bias = self.bias.then(|| frame.input(2));
        let results = (frame.output(0), frame.output(1));
        self.kernel.run(frame.pool(), frame.input(0), frame.input(1), bias, results, frame.scratch().bytes());
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
        let grad = PooledGrad { dy: frame.input(1), index: frame.input(2) };
        let (x, dw) = (frame.input(0), frame.output(0));
        let db = self.bias.then(|| frame.output(1));
        self.kernel.run(frame.pool(), x, grad, dw, db, frame.scratch().bytes());
    }
}
