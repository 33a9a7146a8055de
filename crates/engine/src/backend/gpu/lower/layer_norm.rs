//! Launches of layer normalisation.

use super::Context;
use super::columns::{Columns, column_totals};
use super::operand;
use super::rows::Rows;
use crate::backend::gpu::fusions::fits_warps;
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::op::{LayerNorm, LayerNormGrad, LayerNormGradOperands, LayerNormOperands};
use crate::graph::{DType, Shape};

const MODULE: Module = Module::LayerNorm;

/// Warps of a block that has a warp a row, and rows that one of them takes for the gradient: as in the kernels.
const WARPS: usize = 4;
const ROWS_OF_WARP: usize = 8;

/// Number of rows and the length of a row, where the last `dims` axes of the operand are normalised together.
fn matrix(x: &Shape, dims: usize) -> (usize, usize) {
    let length = x.dims()[x.rank() - dims..].iter().product();
    (x.len() / length, length)
}

/// A launch with a warp for so many rows, which are read as the first type and written as the second: a cast may be part of the
/// operation.
fn by_warps(name: &str, types: [DType; 2], n: usize, rows_of_warp: usize) -> Kernel {
    let [from, to] = types.map(suffix);
    let name = if from == to { format!("{name}_packs_{from}") } else { format!("{name}_packs_{from}_{to}") };
    Kernel::new(MODULE, name).grid(n.div_ceil(WARPS * rows_of_warp), 1, 1).block(32 * WARPS as u32, 1)
}

/// One launch.
pub fn layer_norm(cx: &Context, op: &LayerNorm) -> Lowered {
    let (n, length) = matrix(cx.x(0), op.dims);
    let warps = fits_warps(cx.x(0), op.dims);
    let rows = Rows::new(n, length, 1);
    let LayerNormOperands { x, gamma, beta } = op.places();
    let kernel = if warps {
        by_warps("layer_norm", [cx.x_type(0), cx.y_type(0)], n, 1)
    } else {
        rows.launch(MODULE, "layer_norm", cx.x_type(0))
    };
    let kernel = kernel
        .arg(Memory::Input(x))
        .arg(operand(gamma))
        .arg(operand(beta))
        .arg(Memory::Output(0))
        .arg(Memory::Output(1))
        .arg(Memory::Output(2))
        .long(n)
        .int(length)
        .float(op.eps);
    let kernel = if warps { kernel } else { kernel.int(rows.kept()) };
    Lowered::one(kernel.int(usize::from(op.centered)))
}

/// The gradient of the input. With parameters, also partial sums by block of their gradients, and a launch that adds these.
pub fn grad(cx: &Context, op: &LayerNormGrad) -> Lowered {
    if fits_warps(cx.x(0), op.dims) { grad_by_warps(cx, op, op.places()) } else { grad_by_rows(cx, op) }
}

/// The same of a gradient that is cast first, which is the first operand.
pub fn grad_of_cast(cx: &Context, op: &LayerNormGrad) -> Lowered {
    grad_by_warps(cx, op, LayerNormGradOperands { x: 1, dy: 0, ..op.places() })
}

/// The launch that adds partial sums of the parameters' gradients, `[partials, 2, length]`.
fn totals(op: &LayerNormGrad, partials: usize, length: usize) -> Kernel {
    column_totals(MODULE, "layer_norm_parameter_totals", length)
        .arg(Memory::Scratch(0))
        .long(partials)
        .int(length)
        .arg(Memory::Output(1))
        .arg(if op.bias { Memory::Output(2).into() } else { Arg::Null })
}

/// One trip through memory, for rows that warps keep.
fn grad_by_warps(cx: &Context, op: &LayerNormGrad, operands: LayerNormGradOperands<usize>) -> Lowered {
    let LayerNormGradOperands { x, dy, mean, rstd, gamma } = operands;
    let (n, length) = matrix(cx.x(x), op.dims);
    let kernel = by_warps("layer_norm_grad", [cx.x_type(dy), cx.x_type(x)], n, ROWS_OF_WARP);
    let blocks = kernel.grid[0] as usize;
    let kernel = kernel
        .arg(Memory::Input(x))
        .arg(Memory::Input(dy))
        .arg(Memory::Input(mean))
        .arg(Memory::Input(rstd))
        .arg(operand(gamma))
        .arg(Memory::Output(0))
        .arg(if op.weight { Memory::Scratch(0).into() } else { Arg::Null })
        .long(n)
        .int(length)
        .int(usize::from(op.centered));
    if !op.weight {
        return Lowered::one(kernel);
    }
    let scratch_bytes = blocks * 2 * length * size_of::<f64>();
    Lowered { steps: [kernel, totals(op, blocks, length)].map(Step::Kernel).into(), scratch_bytes }
}

/// Rows first, then columns: their operands are read twice.
fn grad_by_rows(cx: &Context, op: &LayerNormGrad) -> Lowered {
    let (n, length) = matrix(cx.x(0), op.dims);
    let dtype = cx.x_type(0);
    let LayerNormGradOperands { x, dy, mean, rstd, gamma } = op.places();
    let [x, dy, mean, rstd] = [x, dy, mean, rstd].map(Memory::Input);

    let rows = Rows::new(n, length, 2);
    let input = rows
        .launch(MODULE, "layer_norm_grad", dtype)
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(rstd)
        .arg(operand(gamma))
        .arg(Memory::Output(0))
        .long(n)
        .int(length)
        .int(rows.kept())
        .int(usize::from(op.centered));
    if !op.weight {
        return Lowered::one(input);
    }

    let columns = Columns::new(1, n, length, dtype);
    let parameter_sums = columns
        .launch(MODULE, "layer_norm_parameter_sums", dtype, columns.sums())
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(rstd)
        .arg(Memory::Scratch(0))
        .long(n)
        .int(length);
    let totals = totals(op, columns.partials(), length);
    Lowered { steps: [input, parameter_sums, totals].map(Step::Kernel).into(), scratch_bytes: columns.partial_bytes() }
}
