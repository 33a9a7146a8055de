//! Launches of attention between two sequences, within windows and with slopes: `kernels/cuda/attention_far.cu`.

use super::Context;
use super::attention::{ROWS, SIDE, delta, of_dropout, power, tensor_cores, window};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::DType;
use crate::graph::op::{Attention, AttentionGrad, attention_scale};

/// Whether the other kernels do not know it.
pub fn is_far(op: &Attention) -> bool {
    op.between || op.window.is_some() || op.alibi
}

/// Sizes of an attention, and which operands it has.
struct Far<'a> {
    op: &'a Attention,
    samples: usize,
    /// Queries and keys that there is room for.
    rooms: [usize; 2],
    width: usize,
    /// Number of the first operand with queries, and of that behind queries, keys, values and what else comes before the lengths.
    first: usize,
    others: usize,
}

impl<'a> Far<'a> {
    fn new(cx: &Context, op: &'a Attention, first: usize, others: usize) -> Self {
        let (q, kv) = (cx.x(first).dims(), cx.x(first + op.sources() - 1).dims());
        let parts = if op.between { 1 } else { 3 };
        Far { op, samples: q[0], rooms: [q[1], kv[1]], width: q[2] / parts / op.heads, first, others }
    }

    /// A kernel with a block for some queries, or for some keys, of each head.
    fn kernel(&self, cx: &Context, name: &str, (keys, forward): (bool, bool), dtype: DType) -> Kernel {
        let (heads, room) = (self.samples * self.op.heads, self.rooms[usize::from(keys)]);
        match tensor_cores(self.width, cx.target, dtype) {
            Some(of) => {
                let rows = if forward { of.tiles.queries } else { ROWS };
                of.kernel(Module::AttentionFar, &format!("attention_far_mma{name}"), room.div_ceil(rows) * heads)
            }
            None => Kernel::new(Module::AttentionFar, format!("attention_far{name}_{}", suffix(dtype))).grid(
                room.div_ceil(SIDE) * heads,
                self.width.div_ceil(SIDE),
                1,
            ),
        }
    }

    /// Queries, and keys and values.
    fn sources(&self) -> [Memory; 2] {
        [self.first, self.first + self.op.sources() - 1].map(Memory::Input)
    }

    /// The last arguments of a kernel.
    fn args(&self, kernel: Kernel) -> Kernel {
        let op = self.op;
        let lengths = if op.lengths { Memory::Input(self.others).into() } else { Arg::Null };
        let kernel = kernel.arg(lengths).int(self.rooms[0]).int(self.rooms[1]).int(op.heads).int(self.width);
        let kernel = kernel.int(op.between.into()).int(op.causal.into()).int(window(op.window));
        let kernel = kernel.int(power(op.alibi, op.heads)).float(attention_scale(self.width) as f32);
        of_dropout(kernel, op.dropout, self.others + usize::from(op.lengths))
    }
}

/// One launch.
pub fn attention(cx: &Context, op: &Attention) -> Lowered {
    let far = Far::new(cx, op, 0, op.sources());
    let [q, kv] = far.sources();
    let kernel = far.kernel(cx, "", (false, true), cx.x_type(0)).arg(q).arg(kv);
    Lowered::one(far.args(kernel.arg(Memory::Output(0)).arg(Memory::Output(1))))
}

/// Three launches, as of the other attention.
pub fn grad(cx: &Context, op: &AttentionGrad) -> Lowered {
    let (op, behind) = (&op.attention, 1 + op.attention.sources());
    let (far, dtype) = (Far::new(cx, op, 1, behind + 2), cx.x_type(0));
    let [q, kv] = far.sources();
    let [dy, y, lse] = [0, behind, behind + 1].map(Memory::Input);
    let [dq, dkv] = [0, op.sources() - 1].map(Memory::Output);
    let sums = Memory::Scratch(0);
    let products = delta(dtype, [dy, y, sums], [far.samples, far.rooms[0], op.heads, far.width]);
    let grads = [("_grad_keys", true), ("_grad_queries", false)].map(|(name, keys)| {
        let kernel = far.kernel(cx, name, (keys, false), dtype).arg(dy).arg(q).arg(kv).arg(lse).arg(sums);
        far.args(kernel.arg(dq).arg(dkv))
    });
    let steps = [products].into_iter().chain(grads).map(Step::Kernel).collect();
    Lowered { steps, scratch_bytes: (cx.x(behind + 1).len() * size_of::<f32>()).next_multiple_of(64) }
}
