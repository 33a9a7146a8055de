//! Launches of sums over the shards of a step.

use super::Context;
use super::optim::{Cut, norm};
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory, Module};
use crate::graph::DType;
use crate::graph::op::{GradBlocks, GradSquares, Part, ShardSum};
use crate::shards::BLOCK;

pub(super) const MODULE: Module = Module::Shards;

/// The types that there are kernels for, and what the kernels' names end with.
pub(super) const TYPES: [(DType, &str); 3] = [(DType::F32, "f32"), (DType::F64, "f64"), (DType::I64, "i64")];

/// One launch for all tensors of a type.
pub fn sum(cx: &Context, op: &ShardSum) -> Lowered {
    let firsts = || (1..cx.node.inputs.len()).step_by(op.stride());
    let of_type = |(dtype, suffix): (DType, &str)| {
        let tensors: Vec<usize> = firsts().filter(|first| cx.x_type(*first) == dtype).collect();
        let cut = Cut::new(tensors.iter().map(|first| cx.x(*first).len()));
        let cells = |first: &usize| -> Vec<Cell> {
            let length = Cell::I64(cx.x(*first).len() as i64);
            let memory = (*first..first + op.stride()).map(|i| Memory::Input(i).into());
            std::iter::once(length).chain(memory).collect()
        };
        let cells = tensors.iter().flat_map(cells).collect();
        let launch = || cut.launch_of(MODULE, &format!("shard_sum_{suffix}"), vec![Memory::Input(0).into()], cells);
        (!tensors.is_empty()).then(|| launch().int(op.slots).into())
    };
    Lowered { steps: TYPES.into_iter().filter_map(of_type).collect(), scratch_bytes: 0 }
}

/// One launch for all variables of a type.
pub fn mean(cx: &Context) -> Lowered {
    let of_type = |(dtype, suffix): (DType, &str)| {
        let variables: Vec<usize> = (2..cx.node.inputs.len()).step_by(2).filter(|i| cx.x_type(*i) == dtype).collect();
        let cut = Cut::new(variables.iter().map(|i| cx.x(*i).len()));
        let cells = |i: &usize| -> [Cell; 3] {
            [Memory::Input(*i).into(), Memory::Input(i + 1).into(), Cell::I64(cx.x(*i).len() as i64)]
        };
        let cells = variables.iter().flat_map(cells).collect();
        let args: Vec<Arg> = [0, 1].map(|i| Memory::Input(i).into()).into();
        (!variables.is_empty()).then(|| cut.launch_of(MODULE, &format!("shard_mean_{suffix}"), args, cells).into())
    };
    Lowered { steps: TYPES.into_iter().filter_map(of_type).collect(), scratch_bytes: 0 }
}

/// One launch of one thread.
pub fn mean_loss() -> Lowered {
    let kernel = Kernel::new(MODULE, "mean_loss").block(32, 1);
    Lowered::one(kernel.arg(Memory::Input(0)).arg(Memory::Output(0)))
}

/// One launch for all gradients whose sums lie one after the other.
pub fn grad_squares(op: &GradSquares) -> Lowered {
    let operands: Vec<(usize, &GradBlocks)> =
        op.gradients.iter().enumerate().filter(|(_, of)| of.part.len > 0).collect();
    let follows =
        |(_, a): &(usize, &GradBlocks), (_, b): &(usize, &GradBlocks)| a.first + a.part.len.div_ceil(BLOCK) == b.first;
    let squares = |run: &[(usize, &GradBlocks)]| {
        let cell = |(i, GradBlocks { part: Part { start, len }, .. }): &(usize, &GradBlocks)| -> [Cell; 2] {
            [Memory::InputFrom(1 + i, start * size_of::<f32>()).into(), Cell::I64(*len as i64)]
        };
        let cut = Cut::by(BLOCK, run.iter().map(|(_, of)| of.part.len));
        let kernel = cut.launch("grad_squares_f32", Vec::new(), run.iter().flat_map(cell).collect());
        kernel.arg(Memory::InputFrom(0, run[0].1.first * size_of::<f64>())).into()
    };
    Lowered { steps: operands.chunk_by(follows).map(squares).collect(), scratch_bytes: 0 }
}

/// One launch.
pub fn norm_of_squares(cx: &Context) -> Lowered {
    Lowered::one(norm(Memory::Input(1), cx.x(1).len()))
}
