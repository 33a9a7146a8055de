//! Launches of sums over the shards of a step.

use super::Context;
use super::optim::Cut;
use crate::backend::cuda::launch::{Arg, Cell, Kernel, Lowered, Memory, Module};
use crate::graph::DType;
use crate::graph::op::ShardSum;

pub(super) const MODULE: Module = Module::Shards;

/// The types that there are kernels for, and what the kernels' names end with.
const TYPES: [(DType, &str); 3] = [(DType::F32, "f32"), (DType::F64, "f64"), (DType::I64, "i64")];

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
