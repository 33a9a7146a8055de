//! Launches of losses.

use super::Context;
use super::rows::{Rows, element_sum_blocks};
use crate::backend::cuda::launch::{Arg, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::op::{CrossEntropy, CrossEntropyGrad};

const MODULE: Module = Module::Loss;

/// `sums`, of which each block leaves its sum in scratch memory, and if there are several a second launch that divides
/// all by `count`. One block writes the loss by itself.
fn mean(sums: Kernel, count: usize) -> Lowered {
    let blocks = sums.grid[0] as usize;
    let mut steps = vec![Step::Kernel(sums)];
    if blocks > 1 {
        let mean = Kernel::new(MODULE, "loss_mean")
            .arg(Memory::Scratch(0))
            .int(blocks)
            .arg(Arg::F64(count as f64))
            .arg(Memory::Output(0));
        steps.push(mean.into());
    }
    Lowered { steps, scratch_bytes: blocks * size_of::<f64>() }
}

/// Log-sum-exp and loss.
pub fn cross_entropy(cx: &Context, op: &CrossEntropy) -> Lowered {
    let (n, classes) = (cx.x(0).rows(), cx.x(0).last());
    let rows = Rows::summed(n, classes, 1);
    let sums = rows
        .launch_summed(MODULE, "cross_entropy", cx.x_type(0))
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(Memory::Output(1))
        .arg(Memory::Scratch(0))
        .arg(Memory::Output(0))
        .long(n)
        .int(classes)
        .float(op.label_smoothing)
        .int(rows.kept());
    mean(sums, n)
}

/// One launch; the saved log-sum-exp is not needed.
pub fn cross_entropy_grad(cx: &Context, op: &CrossEntropyGrad) -> Lowered {
    let (n, classes) = (cx.x(0).rows(), cx.x(0).last());
    let rows = Rows::new(n, classes, 1);
    let kernel = rows
        .launch(MODULE, "cross_entropy_grad", cx.x_type(0))
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(Memory::Input(3))
        .arg(Memory::Output(0))
        .long(n)
        .int(classes)
        .float(op.label_smoothing)
        .int(rows.kept());
    Lowered::one(kernel)
}

/// The mean of the squared differences.
pub fn mse(cx: &Context) -> Lowered {
    let n = cx.x(0).len();
    let sums = Kernel::new(MODULE, format!("mse_{}", suffix(cx.x_type(0))))
        .grid(element_sum_blocks(n), 1, 1)
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(Memory::Scratch(0))
        .arg(Memory::Output(0))
        .long(n);
    mean(sums, n)
}

/// One launch.
pub fn mse_grad(cx: &Context) -> Lowered {
    let n = cx.x(0).len();
    let kernel = Kernel::new(MODULE, format!("mse_grad_{}", suffix(cx.x_type(0))))
        .over(n)
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(Memory::Input(2))
        .arg(Memory::Output(0))
        .long(n);
    Lowered::one(kernel)
}
