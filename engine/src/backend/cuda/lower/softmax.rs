//! Launches of softmax.

use super::Context;
use super::rows::Rows;
use crate::backend::cuda::launch::{Lowered, Memory, Module};

/// One launch.
pub fn softmax(cx: &Context) -> Lowered {
    let (n, length) = (cx.x(0).rows(), cx.x(0).last());
    let rows = Rows::new(n, length, 1);
    let kernel = rows
        .launch(Module::Softmax, "softmax", cx.x_type(0))
        .arg(Memory::Input(0))
        .arg(Memory::Output(0))
        .long(n)
        .int(length)
        .int(rows.kept());
    Lowered::one(kernel)
}

/// One launch.
pub fn grad(cx: &Context) -> Lowered {
    let (n, length) = (cx.x(0).rows(), cx.x(0).last());
    let rows = Rows::new(n, length, 2);
    let kernel = rows
        .launch(Module::Softmax, "softmax_grad", cx.x_type(0))
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(Memory::Output(0))
        .long(n)
        .int(length)
        .int(rows.kept());
    Lowered::one(kernel)
}
