//! Launches of normalisation over neighbouring channels.

use super::Context;
use crate::backend::gpu::launch::{Kernel, Lowered, Memory, Module};
use crate::graph::op::{LocalResponseNorm, LocalResponseNormGrad};

/// Lowers the operation.
pub fn forward(cx: &Context, op: &LocalResponseNorm) -> Lowered {
    let n = cx.x(0).len();
    let kernel = Kernel::new(Module::GroupNorm, "local_response_norm").over(n);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(Memory::Output(1)).long(n);
    let kernel = kernel.int(cx.x(0).last()).int(op.size / 2).int((op.size - 1) / 2);
    Lowered::one(kernel.float(op.alpha / op.size as f32).float(op.k).float(-op.beta))
}

/// Lowers the operation.
pub fn grad(cx: &Context, op: &LocalResponseNormGrad) -> Lowered {
    let (op, n) = (&op.norm, cx.x(0).len());
    let kernel = Kernel::new(Module::GroupNorm, "local_response_norm_grad").over(n);
    let kernel = (0..3).fold(kernel, |kernel, i| kernel.arg(Memory::Input(i))).arg(Memory::Output(0)).long(n);
    let kernel = kernel.int(cx.x(0).last()).int((op.size - 1) / 2).int(op.size / 2);
    Lowered::one(kernel.float(2.0 * op.alpha * op.beta / op.size as f32).float(-op.beta))
}
