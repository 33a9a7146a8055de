//! Launches of layer normalisation.

use super::Context;
use super::columns::Columns;
use super::rows::Rows;
use crate::backend::cuda::launch::{Arg, Lowered, Memory, Module, Step};
use crate::graph::op::{LayerNorm, LayerNormGrad};

const MODULE: Module = Module::LayerNorm;

/// Number of rows and the length of a row, where the last `dims` axes of the operand are normalised together.
fn matrix(cx: &Context, dims: usize) -> (usize, usize) {
    let x = cx.x(0);
    let length = x.dims()[x.rank() - dims..].iter().product();
    (x.len() / length, length)
}

/// One launch.
pub fn layer_norm(cx: &Context, op: &LayerNorm) -> Lowered {
    let (n, length) = matrix(cx, op.dims);
    let rows = Rows::new(n, length, 1);
    let parameter = |i, there| if there { Memory::Input(i).into() } else { Arg::Null };
    let kernel = rows
        .launch(MODULE, "layer_norm", cx.x_type(0))
        .arg(Memory::Input(0))
        .arg(parameter(1, op.weight))
        .arg(parameter(2, op.bias))
        .arg(Memory::Output(0))
        .arg(Memory::Output(1))
        .arg(Memory::Output(2))
        .long(n)
        .int(length)
        .float(op.eps)
        .int(rows.kept())
        .int(usize::from(op.centered));
    Lowered::one(kernel)
}

/// The gradient of the input. With parameters, also partial sums by block of their gradients, and a launch that adds these.
pub fn grad(cx: &Context, op: &LayerNormGrad) -> Lowered {
    let (n, length) = matrix(cx, op.dims);
    let dtype = cx.x_type(0);
    let [x, dy, mean, rstd] = [0, 1, 2, 3].map(Memory::Input);

    let rows = Rows::new(n, length, 2);
    let input = rows
        .launch(MODULE, "layer_norm_grad", dtype)
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(rstd)
        .arg(if op.weight { Memory::Input(4).into() } else { Arg::Null })
        .arg(Memory::Output(0))
        .long(n)
        .int(length)
        .int(rows.kept())
        .int(usize::from(op.centered));
    if !op.weight {
        return Lowered::one(input);
    }

    let columns = Columns::new(1, n, length);
    let sums = columns.sums();
    let partials = Memory::Scratch(0);
    let parameter_sums = columns
        .launch(MODULE, "layer_norm_parameter_sums", dtype, sums)
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(rstd)
        .arg(partials)
        .long(n)
        .long(sums.stretch)
        .int(length);
    let totals = columns
        .totals(MODULE, "layer_norm_parameter_totals")
        .arg(partials)
        .long(columns.partials())
        .int(length)
        .arg(Memory::Output(1))
        .arg(if op.bias { Memory::Output(2).into() } else { Arg::Null });
    Lowered { steps: [input, parameter_sums, totals].map(Step::Kernel).into(), scratch_bytes: columns.partial_bytes() }
}
