//! Launches of the running metrics.

use super::Context;
use super::rows::{Rows, element_sum_blocks};
use crate::backend::cuda::launch::{Arg, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::op::{Metrics, Task};

const MODULE: Module = Module::Metrics;

/// Sums of the batch by block, and if there are several blocks a second launch that adds them to the running sums.
pub fn metrics(cx: &Context, op: &Metrics) -> Lowered {
    let (x, dtype) = (cx.x(1), cx.x_type(1));
    let [loss, prediction, target, totals] = [0, 1, 2, 3].map(Memory::Input);
    let partials = Memory::Scratch(0);
    let operands = |kernel: Kernel| kernel.arg(prediction).arg(target).arg(loss).arg(partials).arg(totals);
    let (sums, rows, elements) = match op.task {
        Task::Classification => {
            let (n, classes) = (x.rows(), x.last());
            let teams = Rows::summed(n, classes, 0);
            let kernel = teams.launch_summed(MODULE, "accuracy", dtype);
            (operands(kernel).long(n).int(classes), n, 0)
        }
        Task::Regression => {
            let (n, elements) = (x.dims().first().copied().unwrap_or(1), x.len());
            let kernel = Kernel::new(MODULE, format!("errors_{}", suffix(dtype)));
            (operands(kernel.grid(element_sum_blocks(elements), 1, 1)).long(n).long(elements), n, elements)
        }
    };
    let blocks = sums.grid[0] as usize;
    let mut steps = vec![Step::Kernel(sums)];
    if blocks > 1 {
        let add = Kernel::new(MODULE, "metrics_totals")
            .arg(partials)
            .int(blocks)
            .arg(loss)
            .arg(Arg::F64(rows as f64))
            .arg(Arg::F64(elements as f64))
            .arg(totals);
        steps.push(add.into());
    }
    Lowered { steps, scratch_bytes: 2 * blocks * size_of::<f64>() }
}
