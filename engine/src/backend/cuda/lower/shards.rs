//! Launches of sums over the shards of a step.

use super::Context;
use super::optim::{Cut, norm, span};
use crate::backend::cuda::launch::{Arg, Cell, Kernel, Lowered, Memory, Module};
use crate::graph::DType;
use crate::graph::op::{GradSquares, ShardSum};

const MODULE: Module = Module::Shards;

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

/// One launch for the sum of squares of each chunk, and one for those of each gradient.
pub fn grad_squares(cx: &Context, op: &GradSquares) -> Lowered {
    let grads = 1..cx.node.inputs.len();
    let cut = Cut::new(grads.clone().map(|i| cx.x(i).len()));
    if op.at.is_empty() {
        return Lowered { steps: Vec::new(), scratch_bytes: 0 };
    }
    let partials = Memory::Scratch(0);
    let squares = cut.launch("grad_squares_f32", Vec::new(), grads.flat_map(|i| span(cx, i)).collect());
    let sums = |(tensor, at): (usize, &usize)| {
        let [first, count] = cut.chunks_of(tensor);
        [first, count, *at].map(|n| Cell::I64(n as i64))
    };
    let cells = op.at.iter().enumerate().flat_map(sums).collect();
    let sum = Kernel::new(MODULE, "sums_of_squares").grid(op.at.len(), 1, 1);
    let sum = sum.arg(partials).arg(Arg::Table(cells)).arg(Memory::Input(0));
    Lowered { steps: vec![squares.arg(partials).into(), sum.into()], scratch_bytes: cut.size()[1] * size_of::<f64>() }
}

/// One launch.
pub fn norm_of_squares(cx: &Context) -> Lowered {
    Lowered::one(norm(Memory::Input(1), cx.x(1).len()))
}
