//! Launches of softmax and of its logarithm.

use super::Context;
use super::rows::Rows;
use crate::backend::gpu::launch::{Lowered, Memory, Module};

/// One launch of a kernel that keeps `kept` rows at once.
fn rows(cx: &Context, name: &str, kept: usize) -> Lowered {
    let (n, length) = (cx.x(0).rows(), cx.x(0).last());
    let rows = Rows::new(n, length, kept);
    let kernel = rows.launch(Module::Softmax, name, cx.x_type(0));
    let kernel = (0..cx.node.inputs.len()).fold(kernel, |kernel, i| kernel.arg(Memory::Input(i)));
    Lowered::one(kernel.arg(Memory::Output(0)).long(n).int(length).int(rows.kept()))
}

/// Lowers the operation.
pub fn softmax(cx: &Context) -> Lowered {
    rows(cx, "softmax", 1)
}

/// Lowers the operation.
pub fn grad(cx: &Context) -> Lowered {
    rows(cx, "softmax_grad", 2)
}

/// Lowers the operation.
pub fn log_softmax(cx: &Context) -> Lowered {
    rows(cx, "log_softmax", 1)
}

/// Lowers the operation.
pub fn log_grad(cx: &Context) -> Lowered {
    rows(cx, "log_softmax_grad", 1)
}
