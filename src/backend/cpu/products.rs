//! Linear layers and convolutions as steps: their kernels with the operands of a [`Frame`].

use super::elementwise::activate;
use super::frame::{Frame, NodeKernel};
use super::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel};
use super::simd::SimdLevel;

/// A forward product: operands `x`, `w`, and the bias if there is one. Works for every kernel of that form.
pub struct Forward<K> {
    /// The product.
    pub kernel: K,
    /// Operand 2 is a bias.
    pub bias: bool,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for Forward<LinearKernel> {
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

impl NodeKernel for LinearGradInputKernel {
    fn scratch_bytes(&self) -> usize {
        self.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let (dy, w, dx) = (frame.input(0), frame.input(1), frame.output(0));
        LinearGradInputKernel::run(self, frame.pool(), dy, w, dx, frame.scratch().bytes());
    }
}

/// A gradient by weight and bias.
pub struct GradWeight<K> {
    /// The product.
    pub kernel: K,
    /// Output 1 is the bias's gradient.
    pub bias: bool,
}

impl NodeKernel for GradWeight<LinearGradWeightKernel> {
    fn scratch_bytes(&self) -> usize {
        self.kernel.workspace_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, dy, dw) = (frame.input(0), frame.input(1), frame.output(0));
        let db = self.bias.then(|| frame.output(1));
        self.kernel.run(frame.pool(), x, dy, dw, db, frame.scratch().bytes());
    }
}
