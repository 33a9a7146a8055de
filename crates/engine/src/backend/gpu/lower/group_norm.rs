//! Launches of group normalisation.

use super::Context;
use super::columns::{Columns, aligned};
use super::operand;
use crate::backend::gpu::launch::{Arg, BLOCK, Kernel, Lowered, Memory, Module, Step};
use crate::graph::op::{GroupNorm, GroupNormGrad, GroupNormGradOperands, GroupNormOperands};

const MODULE: Module = Module::GroupNorm;

/// The operand as a matrix with a segment of rows for every sample.
struct Samples {
    /// Positions of a sample.
    rows: usize,
    channels: usize,
    /// Samples × groups: each has statistics of its own.
    sets: usize,
    columns: Columns,
}

impl Samples {
    fn new(cx: &Context, groups: usize) -> Samples {
        let (samples, channels) = (cx.x(0).dims()[0], cx.x(0).last());
        let rows = cx.x(0).rows() / samples;
        Samples { rows, channels, sets: samples * groups, columns: Columns::new(samples, rows, channels, cx.x_type(0)) }
    }

    /// A launch of `name` with a warp for every set.
    fn over_sets(&self, name: &str) -> Kernel {
        Kernel::new(MODULE, name).grid(self.sets.div_ceil(BLOCK as usize / 32), 1, 1)
    }
}

/// Three launches: partial sums by block, statistics by group, and the normalised elements.
pub fn group_norm(cx: &Context, op: &GroupNorm) -> Lowered {
    let Samples { rows, channels, sets, columns } = Samples::new(cx, op.groups);
    let dtype = cx.x_type(0);
    let partials = Memory::Scratch(0);
    let GroupNormOperands { x, gamma, beta } = op.places();

    let sums = columns.sums();
    let moments = columns
        .launch(MODULE, "group_norm_moments", dtype, sums)
        .arg(Memory::Input(x))
        .arg(partials)
        .long(rows)
        .int(sums)
        .int(channels);
    let statistics = Samples { rows, channels, sets, columns }
        .over_sets("group_norm_statistics")
        .arg(partials)
        .long(sets)
        .int(op.groups)
        .long(rows)
        .int(sums)
        .int(channels)
        .arg(Arg::F64(f64::from(op.eps)))
        .arg(Memory::Output(1))
        .arg(Memory::Output(2));
    let map = columns.map();
    let apply = columns
        .launch(MODULE, "group_norm_apply", dtype, map.splits)
        .arg(Memory::Input(x))
        .arg(Memory::Output(0))
        .arg(Memory::Output(1))
        .arg(Memory::Output(2))
        .arg(operand(gamma))
        .arg(operand(beta))
        .int(op.groups)
        .long(rows)
        .long(map.stretch)
        .int(map.splits)
        .int(channels);
    Lowered { steps: [moments, statistics, apply].map(Step::Kernel).into(), scratch_bytes: columns.partial_bytes() }
}

/// Launches: partial sums by block, sums by group, sums by channel if there are parameters, and the gradient of the input.
pub fn grad(cx: &Context, op: &GroupNormGrad) -> Lowered {
    let samples = Samples::new(cx, op.groups);
    let Samples { rows, channels, sets, columns } = samples;
    let dtype = cx.x_type(0);
    let GroupNormGradOperands { x, dy, mean, rstd, gamma } = op.places();
    let [x, dy, mean, rstd] = [x, dy, mean, rstd].map(Memory::Input);
    let (partials, table) = (Memory::Scratch(0), aligned(columns.partial_bytes()));

    let sums = columns.sums();
    let grad_sums = columns
        .launch(MODULE, "group_norm_grad_sums", dtype, sums)
        .arg(x)
        .arg(dy)
        .arg(mean)
        .arg(partials)
        .int(op.groups)
        .long(rows)
        .int(sums)
        .int(channels);
    let totals = samples
        .over_sets("group_norm_grad_totals")
        .arg(partials)
        .long(sets)
        .int(op.groups)
        .long(rows)
        .int(sums)
        .int(channels)
        .arg(rstd)
        .arg(operand(gamma))
        .arg(Memory::Scratch(table));
    let mut kernels = vec![grad_sums, totals];
    if op.affine {
        let parameters = columns
            .totals(MODULE, "group_norm_grad_parameters")
            .arg(partials)
            .long(columns.partials())
            .int(op.groups)
            .int(sums)
            .int(channels)
            .arg(rstd)
            .arg(Memory::Output(1))
            .arg(Memory::Output(2));
        kernels.push(parameters);
    }
    let map = columns.map();
    let apply = columns
        .launch(MODULE, "group_norm_grad_apply", dtype, map.splits)
        .arg(x)
        .arg(dy)
        .arg(Memory::Output(0))
        .arg(mean)
        .arg(rstd)
        .arg(operand(gamma))
        .arg(Memory::Scratch(table))
        .long(sets)
        .int(op.groups)
        .long(rows)
        .long(map.stretch)
        .int(map.splits)
        .int(channels);
    kernels.push(apply);
    let scratch_bytes = table + 2 * sets * size_of::<f32>();
    Lowered { steps: kernels.into_iter().map(Step::Kernel).collect(), scratch_bytes }
}
