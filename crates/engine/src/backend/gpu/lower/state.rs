//! Launches that save and restore state, so that a step whose loss is not finite changes nothing.

use super::Context;
use super::optim::{Cut, MODULE};
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory};
use crate::graph::op::KeepState;

/// The condition on which the kernel copies.
const ALWAYS: usize = 0;
const IF_ZERO: usize = 1;
const UNLESS_FINITE: usize = 2;

/// One launch that copies the first operand of each pair to the second.
fn copy(cx: &Context, flag: Arg, when: usize, pairs: &[(usize, usize)]) -> Kernel {
    let words = |i: usize| cx.x(i).len() * cx.x_type(i).bytes() / 4;
    let cut = Cut::new(pairs.iter().map(|(from, _)| words(*from)));
    let pair = |&(from, to): &(usize, usize)| -> [Cell; 3] {
        [Memory::Input(from).into(), Memory::Input(to).into(), Cell::I64(words(from) as i64)]
    };
    cut.launch("copy_state", vec![flag], pairs.iter().flat_map(pair).collect()).int(when)
}

/// One launch, or with a mark another that sets it.
pub fn keep(cx: &Context, op: &KeepState) -> Lowered {
    let pairs: Vec<(usize, usize)> =
        (usize::from(op.once)..cx.node.inputs.len()).step_by(2).map(|i| (i, i + 1)).collect();
    let mut steps = Vec::new();
    if op.once {
        let mark = Memory::Input(0);
        steps.push(copy(cx, mark.into(), IF_ZERO, &pairs).into());
        steps.push(Kernel::new(MODULE, "set_mark").block(32, 1).arg(mark).into());
    } else {
        steps.push(copy(cx, Arg::Null, ALWAYS, &pairs).into());
    }
    Lowered { steps, scratch_bytes: 0 }
}

/// One launch.
pub fn restore(cx: &Context) -> Lowered {
    let pairs: Vec<(usize, usize)> = (1..cx.node.inputs.len()).step_by(2).map(|i| (i + 1, i)).collect();
    Lowered::one(copy(cx, Memory::Input(0).into(), UNLESS_FINITE, &pairs))
}
