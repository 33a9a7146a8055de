//! Launches of batch normalisation.

use super::Context;
use super::columns::{Columns, aligned};
use super::operand;
use crate::backend::gpu::fusions::NormSum;
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, Step};
use crate::graph::op::{
    Activation, BatchNorm, BatchNormApply, BatchNormApplyOperands, BatchNormGrad, BatchNormGradOperands,
    BatchNormInfer, BatchNormInferOperands, BatchNormOperands, BatchNormStatistics, BatchNormStatisticsOperands,
};

pub(super) const MODULE: Module = Module::BatchNorm;

/// The operand as a matrix: all positions of all samples × channels.
pub(super) fn matrix(cx: &Context) -> (usize, Columns) {
    let (rows, channels) = (cx.x(0).rows(), cx.x(0).last());
    (rows, Columns::new(1, rows, channels, cx.x_type(0)))
}

/// The elements `y` normalised by `mean` and `invstd`, with `gamma` and `beta`, or none; adds one to `counter`. Arguments that
/// are not there are null.
fn apply(cx: &Context, y: Option<Memory>, statistics: [Memory; 2], parameters: [Arg; 2], counter: Arg) -> Kernel {
    let start = |kernel: Kernel| kernel.arg(Memory::Input(0));
    apply_as("batch_norm_apply", start, cx, cx.act, y, statistics, parameters, counter)
}

/// The same by the kernel of that name, which `start` gives the operands that are as large as the result, and with that activation.
#[allow(clippy::too_many_arguments)]
fn apply_as(
    name: &str,
    start: impl FnOnce(Kernel) -> Kernel,
    cx: &Context,
    act: Option<Activation>,
    y: Option<Memory>,
    statistics: [Memory; 2],
    parameters: [Arg; 2],
    counter: Arg,
) -> Kernel {
    let (rows, columns) = matrix(cx);
    let rows = if y.is_some() { rows } else { 0 };
    let map = columns.map();
    let [gamma, beta] = parameters;
    start(columns.launch(MODULE, name, cx.x_type(0), map.splits))
        .arg(y.map_or(Arg::Null, Arg::from))
        .arg(statistics[0])
        .arg(statistics[1])
        .arg(gamma)
        .arg(beta)
        .arg(counter)
        .activation(act)
        .long(rows)
        .long(map.stretch)
        .int(cx.x(0).last())
}

/// The normalised elements, from the statistics that the batch had.
pub fn again(cx: &Context, op: &BatchNormApply) -> Lowered {
    let BatchNormApplyOperands { mean, invstd, gamma, beta, .. } = op.places();
    let statistics = [mean, invstd].map(Memory::Input);
    Lowered::one(apply(cx, Some(Memory::Output(0)), statistics, [gamma, beta].map(operand), Arg::Null))
}

/// Sums by block, in the scratch memory.
pub(super) fn moments(cx: &Context) -> Kernel {
    let (rows, columns) = matrix(cx);
    columns
        .launch(MODULE, "batch_norm_moments", cx.x_type(0), columns.sums())
        .arg(Memory::Input(0))
        .arg(Memory::Scratch(0))
        .long(rows)
        .int(cx.x(0).last())
}

/// Statistics by block, and statistics of the batch; `tracked` are the operands with the running ones: mean, variance, number of batches.
fn of_batch(
    cx: &Context,
    op: &BatchNormStatistics,
    tracked: [Option<usize>; 3],
    [mean, invstd]: [Memory; 2],
) -> [Kernel; 2] {
    let [running_mean, running_var, batches] = tracked.map(operand);
    let (rows, columns) = matrix(cx);
    let (channels, partials) = (cx.x(0).last(), Memory::Scratch(0));
    let statistics = columns
        .totals(MODULE, "batch_norm_statistics")
        .arg(partials)
        .long(columns.partials())
        .long(rows)
        .int(channels)
        .arg(Arg::F64(f64::from(op.eps)))
        .arg(Arg::F64(op.momentum.map_or(-1.0, f64::from)))
        .arg(mean)
        .arg(invstd)
        .arg(running_mean)
        .arg(running_var)
        .arg(batches);
    [moments(cx), statistics]
}

/// The statistics, and the normalised elements.
pub fn batch_norm(cx: &Context, op: &BatchNorm) -> Lowered {
    let BatchNormOperands { gamma, beta, running_mean, running_var, num_batches_tracked: batches, .. } = op.places();
    let made = [1, 2].map(Memory::Output);
    let [moments, statistics] = of_batch(cx, &op.statistics(), [running_mean, running_var, batches], made);
    let apply = apply(cx, Some(Memory::Output(0)), made, [gamma, beta].map(operand), operand(batches));
    let steps = [moments, statistics, apply].map(Step::Kernel).into();
    Lowered { steps, scratch_bytes: matrix(cx).1.partial_bytes() }
}

/// The statistics, and the sum of the normalised elements and another operand.
pub fn with_sum(cx: &Context, sum: &NormSum) -> Lowered {
    let op = sum.norm;
    let BatchNormOperands { gamma, beta, running_mean, running_var, num_batches_tracked: batches, .. } = op.places();
    let made = [1, 2].map(Memory::Output);
    let [moments, statistics] = of_batch(cx, &op.statistics(), [running_mean, running_var, batches], made);
    let parameters = [gamma, beta].map(operand);
    let start = |kernel: Kernel| kernel.arg(Memory::Input(0)).arg(Memory::Input(sum.summand));
    let (y, counter) = (Some(Memory::Output(0)), operand(batches));
    let apply = apply_as("batch_norm_apply_sum", start, cx, sum.act, y, made, parameters, counter);
    let steps = [moments, statistics, apply].map(Step::Kernel).into();
    Lowered { steps, scratch_bytes: matrix(cx).1.partial_bytes() }
}

/// The statistics alone. The launch after them adds to the counter, and normalises nothing.
pub fn statistics(cx: &Context, op: &BatchNormStatistics) -> Lowered {
    let BatchNormStatisticsOperands { running_mean, running_var, num_batches_tracked: batches, .. } = op.places();
    let made = [0, 1].map(Memory::Output);
    let mut kernels = Vec::from(of_batch(cx, op, [running_mean, running_var, batches], made));
    if batches.is_some() {
        kernels.push(apply(cx, None, made, [Arg::Null, Arg::Null], operand(batches)));
    }
    let steps = kernels.into_iter().map(Step::Kernel).collect();
    Lowered { steps, scratch_bytes: matrix(cx).1.partial_bytes() }
}

/// Sums by block of the gradient, in the scratch memory.
pub(super) fn dots(cx: &Context) -> Kernel {
    let (rows, columns) = matrix(cx);
    let [x, dy, mean] = [0, 1, 2].map(Memory::Input);
    columns
        .launch(MODULE, "batch_norm_grad_sums", cx.x_type(0), columns.sums())
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(Memory::Scratch(0))
        .long(rows)
        .int(cx.x(0).last())
}

/// The gradient of the input, from a table of means in the scratch memory.
pub(super) fn input_gradient(cx: &Context, gamma: Arg, table: usize) -> Kernel {
    let (rows, columns) = matrix(cx);
    let map = columns.map();
    let [x, dy, mean, invstd] = [0, 1, 2, 3].map(Memory::Input);
    columns
        .launch(MODULE, "batch_norm_grad_apply", cx.x_type(0), map.splits)
        .arg(x)
        .arg(dy)
        .arg(Memory::Output(0))
        .arg(mean)
        .arg(invstd)
        .arg(gamma)
        .arg(Memory::Scratch(table))
        .long(rows)
        .long(map.stretch)
        .int(cx.x(0).last())
}

/// Sums by block, sums of the batch, and the gradient of the input.
pub fn grad(cx: &Context, op: &BatchNormGrad) -> Lowered {
    let (rows, columns) = matrix(cx);
    let channels = cx.x(0).last();
    let (partials, table) = (Memory::Scratch(0), aligned(columns.partial_bytes()));
    let parameter = |i| if op.affine { Memory::Output(i).into() } else { Arg::Null };
    let BatchNormGradOperands { invstd, gamma, .. } = op.places();
    let totals = columns
        .totals(MODULE, "batch_norm_grad_totals")
        .arg(partials)
        .long(columns.partials())
        .long(rows)
        .int(channels)
        .arg(Memory::Input(invstd))
        .arg(Memory::Scratch(table))
        .arg(parameter(1))
        .arg(parameter(2));
    let apply = input_gradient(cx, operand(gamma), table);
    let scratch_bytes = table + 2 * channels * size_of::<f32>();
    Lowered { steps: [dots(cx), totals, apply].map(Step::Kernel).into(), scratch_bytes }
}

/// One launch, with the running statistics.
pub fn infer(cx: &Context, op: &BatchNormInfer) -> Lowered {
    let (rows, columns) = matrix(cx);
    let BatchNormInferOperands { x, gamma, beta, running_mean, running_var } = op.places();
    let map = columns.map();
    let kernel: Kernel = columns
        .launch(MODULE, "batch_norm_infer", cx.x_type(0), map.splits)
        .arg(Memory::Input(x))
        .arg(Memory::Output(0))
        .arg(Memory::Input(running_mean))
        .arg(Memory::Input(running_var))
        .arg(operand(gamma))
        .arg(operand(beta))
        .float(op.eps)
        .activation(cx.act)
        .long(rows)
        .long(map.stretch)
        .int(cx.x(0).last());
    Lowered::one(kernel)
}
