//! Matrix products with a weight. All matrices by rows: `x [rows, in]`, `w [out, in]`, `y` and `dy [rows, out]`.

use crate::gemm::any_product::AnyProduct;
use crate::gemm::bf16::product::is_worthwhile;
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Numbers, NumbersMut, Rounded};
use crate::gemm::product::{Operand, ProductSpec};
use crate::gemm::prologue::Source;
use crate::gemm::sums::ColumnSums;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{self, Activation};
use crate::plan::Kept;
use crate::run::threads::Pool;
use crate::simd::bf16::{Bf16Unit, Instructions};

/// Sizes of a linear layer's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// Rows of the input: everything before the last axis.
    pub rows: usize,
    /// Features of the input.
    pub inputs: usize,
    /// Features of the output.
    pub outputs: usize,
}

/// `y = act(x · wᵀ + b)`.
pub struct LinearKernel {
    product: AnyProduct,
}

impl LinearKernel {
    /// Prepares the product for at most `threads` threads, for a program that makes gradients or not.
    pub fn new(
        act: Option<Activation>,
        shape: LinearShape,
        how: impl Into<Instructions>,
        threads: usize,
        trains: bool,
    ) -> Self {
        let LinearShape { rows: m, inputs: k, outputs: n } = shape;
        let spec = ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n, act };
        LinearKernel { product: AnyProduct::new(spec, how, threads, None, !trains) }
    }

    /// The same in a program that makes none, for operands that may be rounded in memory.
    pub fn rounded(
        act: Option<Activation>,
        shape: LinearShape,
        how: Instructions,
        threads: usize,
        rounded: Rounded,
    ) -> Self {
        let LinearShape { rows: m, inputs: k, outputs: n } = shape;
        let spec = ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n, act };
        LinearKernel { product: AnyProduct::rounded(spec, how, threads, true, rounded) }
    }

    /// Whether a product of this shape can have operands that are rounded in memory: it is one in bf16.
    pub fn takes_rounded(shape: LinearShape, unit: Bf16Unit) -> bool {
        let LinearShape { rows: m, inputs: k, outputs: n } = shape;
        is_worthwhile(&ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n, act: None }, unit, true)
    }

    /// The same for an `x` with a prologue, without an activation.
    pub fn prepared(shape: LinearShape, how: impl Into<Instructions>, threads: usize) -> Self {
        let LinearShape { rows: m, inputs: k, outputs: n } = shape;
        let spec = ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n, act: None };
        LinearKernel { product: AnyProduct::new(spec, how, threads, Some(Operand::A), false) }
    }

    /// The activation that the kernel was made for.
    pub fn act(&self) -> Option<Activation> {
        self.product.act()
    }

    /// The activation that the kernel leaves to [`EpilogueOperands::finish`].
    pub fn remaining_act(&self) -> Option<Activation> {
        self.product.remaining_act()
    }

    /// True: it gives its results to [`EpilogueOperands::finish`].
    pub fn finishes(&self) -> bool {
        true
    }

    /// Workspace that [`LinearKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.product.workspace_bytes()
    }

    /// Packed weights that it can keep from run to run.
    pub fn kept(&self) -> Option<Kept> {
        self.product.kept()
    }

    /// Computes `y [rows, out]`.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        x: Source,
        w: &[f32],
        operands: impl Into<EpilogueOperands<'a>>,
        y: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        self.product.run(pool, x, w.into(), operands, y, memory);
    }

    /// The same of operands that may be rounded in memory, as the kernel was made for.
    pub fn run_numbers(
        &self,
        pool: &Pool,
        x: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        y: NumbersMut,
        memory: Memory,
    ) {
        self.product.run_numbers(pool, x, w, operands, y, memory);
    }
}

/// `dx = dy · w`.
pub struct LinearGradInputKernel {
    product: AnyProduct,
}

impl LinearGradInputKernel {
    /// Prepares the product for at most `threads` threads.
    pub fn new(shape: LinearShape, how: impl Into<Instructions>, threads: usize) -> Self {
        let LinearShape { rows: m, inputs: n, outputs: k } = shape;
        let spec = ProductSpec { m, n, k, a: [k, 1], b: [n, 1], c: n, act: None };
        LinearGradInputKernel { product: AnyProduct::new(spec, how, threads, None, false) }
    }

    /// Workspace that [`LinearGradInputKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.product.workspace_bytes()
    }

    /// Computes `dx [rows, in]`.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        dy: &[f32],
        w: &[f32],
        operands: impl Into<EpilogueOperands<'a>>,
        dx: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        self.product.run(pool, dy.into(), w.into(), operands, dx, memory);
    }
}

/// `dw = dyᵀ · x`, `db = Σ dy`.
pub struct LinearGradWeightKernel {
    product: AnyProduct,
    bias: Option<ColumnSums>,
}

impl LinearGradWeightKernel {
    /// Prepares the product for at most `threads` threads.
    pub fn new(op: &op::LinearGradWeight, shape: LinearShape, how: impl Into<Instructions>, threads: usize) -> Self {
        LinearGradWeightKernel::of(op, shape, how.into(), threads, None)
    }

    /// The same for an `x` with a prologue.
    pub fn prepared(
        op: &op::LinearGradWeight,
        shape: LinearShape,
        how: impl Into<Instructions>,
        threads: usize,
    ) -> Self {
        LinearGradWeightKernel::of(op, shape, how.into(), threads, Some(Operand::B))
    }

    fn of(
        op: &op::LinearGradWeight,
        LinearShape { rows: k, inputs: n, outputs: m }: LinearShape,
        how: Instructions,
        threads: usize,
        prepared: Option<Operand>,
    ) -> Self {
        let spec = ProductSpec { m, n, k, a: [1, m], b: [n, 1], c: n, act: None };
        LinearGradWeightKernel {
            product: AnyProduct::new(spec, how, threads, prepared, false),
            bias: op.bias.then(|| ColumnSums::new(k, m, how.level)),
        }
    }

    /// Workspace that [`LinearGradWeightKernel::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.product.workspace_bytes().max(self.bias.as_ref().map_or(0, ColumnSums::workspace_bytes))
    }

    /// Computes `dw [out, in]`, and `db [out]` if the kernel was made with a bias. `workspace` starts at a multiple of 64
    /// bytes.
    pub fn run(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        if let (Some(sums), Some(db)) = (&self.bias, db) {
            sums.run(pool, dy, db, workspace);
        }
        self.product.run(pool, dy.into(), x, None, dw, workspace);
    }
}
