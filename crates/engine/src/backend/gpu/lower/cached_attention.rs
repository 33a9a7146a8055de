//! Launches of attention to kept positions, and of rotary positions.

use super::Context;
use super::attention::{power, window};
use super::layout::{common_suffix, over_rows, rows_arg};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module};
use crate::graph::op::{CachedAttention, Rotary, attention_scale};

/// Threads of a block, and its columns: `SIDE` in `kernels/cuda/cached_attention.cu`.
const SIDE: usize = 128;

/// Samples, rows of each, and columns.
fn sizes(cx: &Context, i: usize) -> [usize; 3] {
    cx.x(i).dims().try_into().expect("the shape rule asks for three dimensions")
}

/// New keys and values go to their places; then each head of each new position is a block.
pub fn cached(cx: &Context, op: &CachedAttention) -> Lowered {
    let ([samples, new, packed], [_, kept, row]) = (sizes(cx, 0), sizes(cx, 1));
    let width = packed / (op.heads + 2 * op.kv_heads);
    let [qkv, keys, values, position] = [0, 1, 2, 3].map(Memory::Input);
    let rows = samples * new;
    let kernel = |name: &str| Kernel::new(Module::CachedAttention, name);
    let keep = over_rows(kernel("cached_attention_keep_f32"), rows, row).arg(qkv).arg(keys).arg(values).arg(position);
    let keep = keep.arg(rows_arg(rows)).int(new).int(kept).int(op.heads * width).int(row);
    let attend = kernel("cached_attention_f32").grid(rows * op.heads, width.div_ceil(SIDE), 1).block(SIDE as u32, 1);
    let attend = attend.arg(qkv).arg(keys).arg(values).arg(position).arg(Memory::Output(0)).int(new).int(kept);
    let attend = attend.int(op.heads).int(op.kv_heads).int(width).int(window(op.window)).int(power(op.alibi, op.heads));
    let attend = attend.float(attention_scale(width) as f32);
    Lowered { steps: vec![keep.into(), attend.into()], scratch_bytes: 0 }
}

/// Lowers the operation.
pub fn rotary(cx: &Context, op: &Rotary) -> Lowered {
    let ([samples, length, packed], heads) = (sizes(cx, 0), op.heads + 2 * op.kv_heads);
    let rows = samples * length;
    let kernel = Kernel::new(Module::Rotary, format!("rotary_{}", common_suffix(cx, &[0])));
    let kernel = over_rows(kernel, rows, packed / 2).arg(Memory::Input(0)).arg(Memory::Input(1));
    let first = if op.position { Memory::Input(2).into() } else { Arg::Null };
    let kernel = kernel.arg(first).arg(Memory::Output(0)).arg(rows_arg(rows)).int(length).int(cx.x(1).rows());
    let kernel = kernel.int(heads).int(op.heads + op.kv_heads).int(packed / heads);
    Lowered::one(kernel.float(if op.back { -1.0 } else { 1.0 }))
}
