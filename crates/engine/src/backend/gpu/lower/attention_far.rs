//! Launches of attention between two sequences, within windows and with slopes: `kernels/cuda/attention_far.cu`.

use super::Context;
use super::attention::{ROWS, SIDE, delta, of_dropout, power, tensor_cores, window};
use super::operand;
use crate::backend::gpu::launch::{Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::DType;
use crate::graph::op::{Attention, AttentionGrad, AttentionGradOperands, AttentionOperands, attention_scale};

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
    /// Numbers of the operands: queries, keys and values; the lengths and the random key.
    sources: [usize; 2],
    others: [Option<usize>; 2],
}

impl<'a> Far<'a> {
    fn new(cx: &Context, op: &'a Attention, sources: [usize; 2], others: [Option<usize>; 2]) -> Self {
        let [q, kv] = sources.map(|i| cx.x(i).dims());
        let parts = if op.between { 1 } else { 3 };
        Far { op, samples: q[0], rooms: [q[1], kv[1]], width: q[2] / parts / op.heads, sources, others }
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

    /// The last arguments of a kernel.
    fn args(&self, kernel: Kernel) -> Kernel {
        let (op, [lengths, key]) = (self.op, self.others);
        let kernel = kernel.arg(operand(lengths)).int(self.rooms[0]).int(self.rooms[1]).int(op.heads).int(self.width);
        let kernel = kernel.int(op.between.into()).int(op.causal.into()).int(window(op.window));
        let kernel = kernel.int(power(op.alibi, op.heads)).float(attention_scale(self.width) as f32);
        of_dropout(kernel, op.dropout, key)
    }
}

/// One launch.
pub fn attention(cx: &Context, op: &Attention) -> Lowered {
    let AttentionOperands { q, kv, lengths, key, .. } = op.places();
    let far = Far::new(cx, op, [q, kv.unwrap_or(q)], [lengths, key]);
    let [q, kv] = far.sources.map(Memory::Input);
    let kernel = far.kernel(cx, "", (false, true), cx.x_type(0)).arg(q).arg(kv);
    Lowered::one(far.args(kernel.arg(Memory::Output(0)).arg(Memory::Output(1))))
}

/// Three launches, as of the other attention.
pub fn grad(cx: &Context, op: &AttentionGrad) -> Lowered {
    let AttentionGradOperands { dy, q, kv, y, lse, lengths, key, .. } = op.places();
    let op = &op.attention;
    let far = Far::new(cx, op, [q, kv.unwrap_or(q)], [lengths, key]);
    let (dtype, scores) = (cx.x_type(dy), cx.x(lse).len());
    let [q, kv] = far.sources.map(Memory::Input);
    let [dy, y, lse] = [dy, y, lse].map(Memory::Input);
    let [dq, dkv] = [0, op.sources() - 1].map(Memory::Output);
    let sums = Memory::Scratch(0);
    let products = delta(dtype, [dy, y, sums], [far.samples, far.rooms[0], op.heads, far.width]);
    let grads = [("_grad_keys", true), ("_grad_queries", false)].map(|(name, keys)| {
        let kernel = far.kernel(cx, name, (keys, false), dtype).arg(dy).arg(q).arg(kv).arg(lse).arg(sums);
        far.args(kernel.arg(dq).arg(dkv))
    });
    let steps = [products].into_iter().chain(grads).map(Step::Kernel).collect();
    Lowered { steps, scratch_bytes: (scores * size_of::<f32>()).next_multiple_of(64) }
}
