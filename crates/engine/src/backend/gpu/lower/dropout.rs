//! Launches of dropout.

use super::Context;
use super::layout::{common_suffix, pack};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module};
use crate::graph::op::Dropout;
use crate::random::dropout_threshold;

/// Lowers the operation.
pub fn dropout(cx: &Context, op: &Dropout) -> Lowered {
    let n = cx.y(0).len();
    let name = format!("dropout_{}", common_suffix(cx, &[0]));
    let kernel = Kernel::new(Module::Dropout, name).over(n.div_ceil(pack(cx.y_type(0))));
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0)).long(n);
    let kernel = kernel.arg(Arg::U32(op.stream)).arg(Arg::U32(dropout_threshold(op.p)));
    Lowered::one(kernel.float(1.0 / (1.0 - op.p)))
}
