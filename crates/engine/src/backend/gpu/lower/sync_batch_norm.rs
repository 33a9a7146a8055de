//! Launches of batch normalisation over all shards of a step.

use super::Context;
use super::batch_norm::{MODULE, dots, input_gradient, matrix, moments};
use super::operand;
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Step};
use crate::graph::op::{BatchNormFromSums, BatchNormGradFromSums, BatchNormGradSums};

/// Sums by block, and sums of the shard.
pub fn sums(cx: &Context) -> Lowered {
    let (rows, columns) = matrix(cx);
    let totals = columns
        .totals(MODULE, "batch_norm_sums")
        .arg(Memory::Scratch(0))
        .long(columns.partials())
        .long(rows)
        .int(cx.x(0).last())
        .arg(Memory::Output(0));
    Lowered { steps: [moments(cx), totals].map(Step::Kernel).into(), scratch_bytes: columns.partial_bytes() }
}

/// A launch of a thread for each of so many channels.
fn each(name: &str, channels: usize) -> Kernel {
    Kernel::new(MODULE, name).grid(channels.div_ceil(256), 1, 1).block(256, 1)
}

/// The statistics; the launch after them adds to the counter, which the first one reads.
pub fn from_sums(cx: &Context, op: &BatchNormFromSums) -> Lowered {
    let channels = (cx.x(0).len() - 1) / 2;
    let statistics = each("batch_norm_from_sums", channels)
        .arg(Memory::Input(0))
        .int(channels)
        .arg(Arg::F64(f64::from(op.eps)))
        .arg(Arg::F64(op.momentum.map_or(-1.0, f64::from)))
        .arg(Memory::Output(0))
        .arg(Memory::Output(1))
        .arg(operand(op.track.then_some(1)))
        .arg(operand(op.track.then_some(2)))
        .arg(operand(op.track.then_some(3)));
    let count = || Kernel::new(MODULE, "batch_norm_count").block(32, 1).arg(Memory::Input(3));
    let steps = std::iter::once(statistics).chain(op.track.then(count)).map(Step::Kernel).collect();
    Lowered { steps, scratch_bytes: 0 }
}

/// Sums by block, and sums of the shard.
pub fn grad_sums(cx: &Context, op: &BatchNormGradSums) -> Lowered {
    let (_, columns) = matrix(cx);
    let parameter = |i| if op.affine { Memory::Output(i).into() } else { Arg::Null };
    let totals = columns
        .totals(MODULE, "batch_norm_grad_sum")
        .arg(Memory::Scratch(0))
        .long(columns.partials())
        .int(cx.x(0).last())
        .arg(Memory::Input(3))
        .arg(Memory::Output(0))
        .arg(parameter(1))
        .arg(parameter(2));
    Lowered { steps: [dots(cx), totals].map(Step::Kernel).into(), scratch_bytes: columns.partial_bytes() }
}

/// Means of all rows, and the gradient of the input.
pub fn grad_from_sums(cx: &Context, op: &BatchNormGradFromSums) -> Lowered {
    let channels = cx.x(0).last();
    let means = each("batch_norm_grad_means", channels)
        .arg(Memory::Input(4))
        .arg(Memory::Input(5))
        .int(channels)
        .arg(Memory::Input(3))
        .arg(Memory::Scratch(0));
    let apply = input_gradient(cx, operand(op.affine.then_some(6)), 0);
    Lowered { steps: [means, apply].map(Step::Kernel).into(), scratch_bytes: 2 * channels * size_of::<f32>() }
}
