//! Launches of matrix products.

pub mod library;
pub mod sums;
pub mod tiling;

use self::sums::{ColumnSums, Finish, of_slices, type_code};
use self::tiling::{Product, Tile, Tiling, wide};
use super::Context;
use crate::backend::gpu::launch::{Arg, Lowered, Memory, Module};
use crate::graph::DType;
use crate::graph::op::{Linear, LinearGradInput, LinearGradWeight};

/// The type that a product's two operands share.
///
/// # Panics
/// They differ, or are not floats that kernels multiply: a mistake of the pass that chose the types.
pub fn operand_type(cx: &Context) -> DType {
    let (a, b) = (cx.x_type(0), cx.x_type(1));
    let name = cx.node.op.rules().name();
    assert!(a == b, "`{name}` multiplies {a} by {b}: a pass must convert its operands to one type");
    assert!(matches!(a, DType::F32 | DType::BF16 | DType::F16), "`{name}` multiplies floats of 16 or 32 bits, not {a}");
    a
}

/// `D = A · Bᵀ` on matrices in memory.
#[derive(Debug, Clone, Copy)]
pub struct MatrixProduct {
    /// Which kernels.
    pub name: &'static str,
    /// Sizes.
    pub product: Product,
    /// Element type of the operands.
    pub dtype: DType,
    /// Operand A, and the length of its rows in memory.
    pub a: (Memory, usize),
    /// Operand B, and the length of its rows in memory.
    pub b: (Memory, usize),
    /// The epilogue.
    pub finish: Finish,
}

impl MatrixProduct {
    /// The launches; their workspace starts at byte 0.
    pub fn lower(&self, cx: &Context) -> Lowered {
        let Product { m, n, k, .. } = self.product;
        let tiling = Tiling::choose(cx.target, self.dtype, self.product);
        let sliced = tiling.slices > 1;
        let kernel = tiling
            .kernel(Module::Matmul, self.name)
            .arg(self.a.0)
            .arg(self.b.0)
            .arg(self.finish.bias_arg())
            .arg(self.finish.y)
            .arg(if sliced { Arg::Pointer(Memory::Scratch(0)) } else { Arg::Null })
            .int(m)
            .int(n)
            .int(k)
            .int(tiling.slice)
            .int(self.a.1)
            .int(self.b.1)
            .int(wide(self.dtype, &[self.a.1], &[self.b.1], &[n]))
            .int(type_code(self.finish.y_type))
            .activation(self.finish.act);
        let mut lowered = Lowered { steps: vec![kernel.into()], scratch_bytes: tiling.partial_bytes(m * n) };
        if sliced {
            lowered.steps.push(of_slices(Memory::Scratch(0), tiling.slices, m * n, n, &self.finish));
        }
        lowered
    }
}

/// The sizes of a layer: x is `[rows, inputs]`, w `[outputs, inputs]`, y `[rows, outputs]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Of x and y.
    pub rows: usize,
    /// Columns of x.
    pub inputs: usize,
    /// Columns of y.
    pub outputs: usize,
}

/// Lowers `y = act(x · wᵀ + b)` of operands 0, 1 and 2. A 1 × 1 convolution is one too.
pub fn forward(cx: &Context, sizes: Extents, finish: Finish) -> Lowered {
    if let Some(lowered) = library::forward(cx, sizes, &finish) {
        return lowered;
    }
    let Extents { rows, inputs, outputs } = sizes;
    MatrixProduct {
        name: "linear_forward",
        product: Product { m: rows, n: outputs, k: inputs, copies: 1, thin: Tile::COLUMN },
        dtype: operand_type(cx),
        a: (Memory::Input(0), inputs),
        b: (Memory::Input(1), inputs),
        finish,
    }
    .lower(cx)
}

/// Lowers `y = act(x · wᵀ + b)`.
pub fn linear(cx: &Context, op: &Linear) -> Lowered {
    let bias = op.bias.then_some(Memory::Input(2));
    let sizes = Extents { rows: cx.x(0).rows(), inputs: cx.x(1).last(), outputs: cx.x(1).dims()[0] };
    forward(cx, sizes, Finish { y: Memory::Output(0), y_type: cx.y_type(0), bias, act: cx.act })
}

/// Lowers `dx = dy · w`.
pub fn grad_input(cx: &Context, _: &LinearGradInput) -> Lowered {
    backward_input(cx, cx.x(0).rows())
}

/// Lowers `dw = dyᵀ · x`, and `db = Σ dy` if `bias`.
pub fn grad_weight(cx: &Context, op: &LinearGradWeight) -> Lowered {
    let sizes = Extents { rows: cx.x(0).rows(), inputs: cx.x(0).last(), outputs: cx.x(1).last() };
    backward_weight(cx, sizes, op.bias)
}

/// Lowers `dx = dy · w` for `rows` rows, whatever the operation's other axes are.
pub fn backward_input(cx: &Context, rows: usize) -> Lowered {
    if let Some(lowered) = library::backward_input(cx, rows) {
        return lowered;
    }
    let (outputs, inputs) = (cx.x(1).dims()[0], cx.x(1).last());
    MatrixProduct {
        name: "linear_grad_input",
        product: Product { m: rows, n: inputs, k: outputs, copies: 1, thin: Tile::COLUMN },
        dtype: operand_type(cx),
        a: (Memory::Input(0), outputs),
        b: (Memory::Input(1), inputs),
        finish: Finish { y_type: cx.y_type(0), ..Finish::plain(Memory::Output(0)) },
    }
    .lower(cx)
}

/// Lowers `dw = dyᵀ · x` of operands 1 and 0, and `db = Σ dy` if `bias`, whatever the operation's other axes are.
pub fn backward_weight(cx: &Context, sizes: Extents, bias: bool) -> Lowered {
    if let Some(lowered) = library::backward_weight(cx, sizes, bias) {
        return lowered;
    }
    let Extents { rows, inputs, outputs } = sizes;
    let weight = MatrixProduct {
        name: "linear_grad_weight",
        product: Product { m: outputs, n: inputs, k: rows, copies: 1, thin: Tile::SMALL },
        dtype: operand_type(cx),
        a: (Memory::Input(1), outputs),
        b: (Memory::Input(0), inputs),
        finish: Finish::plain(Memory::Output(0)),
    }
    .lower(cx);
    if bias { with_bias_gradient(cx, weight) } else { weight }
}

/// Adds the launches of the bias gradient: operand 1 is `dy`, result 1 its sum over everything but channels.
pub fn with_bias_gradient(cx: &Context, mut lowered: Lowered) -> Lowered {
    let sums = ColumnSums::new(cx.x(1).rows(), cx.x(1).last());
    let scratch = lowered.scratch_bytes;
    lowered.steps.extend(sums.steps(Memory::Input(1), cx.x_type(1), Memory::Output(1), scratch));
    lowered.scratch_bytes += sums.scratch_bytes();
    lowered
}
