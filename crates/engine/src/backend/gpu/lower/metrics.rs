//! Launches of the running metrics, of the counts of classes, and of the sums for each output of a regression.

use super::Context;
use super::rows::{Rows, element_sum_blocks};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::op::{ClassCounts, Counted, ErrorSums, Metrics, Task};

const MODULE: Module = Module::Metrics;

/// Most blocks that sum errors; each then has several outputs.
const MOST_OUTPUTS: usize = 1024;

/// Partial sums of the batch by block; with several blocks, a second launch adds them to the running sums.
pub fn metrics(cx: &Context, op: &Metrics) -> Lowered {
    let (x, dtype) = (cx.x(2), cx.x_type(2));
    let [loss, weight, prediction, target, totals] = [0, 1, 2, 3, 4].map(Memory::Input);
    let partials = Memory::Scratch(0);
    let operands = |kernel: Kernel| kernel.arg(prediction).arg(target).arg(loss).arg(weight).arg(partials).arg(totals);
    let over_elements = |name: &str| {
        let kernel = Kernel::new(MODULE, format!("{name}_{}", suffix(dtype)));
        operands(kernel.grid(element_sum_blocks(x.len()), 1, 1)).long(x.len())
    };
    let (sums, elements) = match op.task {
        Task::Classification => {
            let (n, classes) = (x.rows(), x.last());
            let teams = Rows::summed(n, classes, 0);
            let kernel = operands(teams.launch_summed(MODULE, "accuracy", dtype)).long(n).int(classes);
            let heed = usize::from(op.ignore_index.is_some());
            (kernel.arg(Arg::I32(op.ignore_index.unwrap_or_default())).int(heed), 0)
        }
        Task::BinaryClassification => (over_elements("binary_accuracy"), 0),
        Task::Regression => (over_elements("errors"), x.len()),
    };
    let blocks = sums.grid[0] as usize;
    let mut steps = vec![Step::Kernel(sums)];
    if blocks > 1 {
        let add = Kernel::new(MODULE, "metrics_totals")
            .arg(partials)
            .int(blocks)
            .arg(loss)
            .arg(weight)
            .arg(Arg::F64(elements as f64))
            .arg(totals);
        steps.push(add.into());
    }
    Lowered { steps, scratch_bytes: 2 * blocks * size_of::<f64>() }
}

/// The counts of the batch, as whole numbers in the workspace; then they are added to the running ones. Whole numbers may be
/// added in any order.
pub fn class_counts(cx: &Context, op: &ClassCounts) -> Lowered {
    let (x, dtype) = (cx.x(1), cx.x_type(1));
    let [loss, prediction, target, totals] = [0, 1, 2, 3].map(Memory::Input);
    let (batch, classes, len) = (Memory::Scratch(0), op.classes(x.last()), op.len(x.last()));
    let count = match op.of {
        Counted::Classes { ignore_index, matrix } => {
            let teams = Rows::summed(x.rows(), classes, 0);
            let kernel = teams.launch_summed(MODULE, "class_counts", dtype).arg(prediction).arg(target).arg(batch);
            let kernel = kernel.long(x.rows()).int(classes).arg(Arg::I32(ignore_index.unwrap_or_default()));
            kernel.int(usize::from(ignore_index.is_some())).int(usize::from(matrix))
        }
        Counted::Labels(labels) => {
            let kernel = Kernel::new(MODULE, format!("label_counts_{}", suffix(dtype)));
            let kernel = kernel.grid(element_sum_blocks(x.len()), 1, 1).arg(prediction).arg(target).arg(batch);
            kernel.long(x.len()).int(labels)
        }
    };
    let bytes = len * size_of::<u32>();
    let add = Kernel::new(MODULE, "add_counts").over(len).arg(batch).arg(loss).arg(totals).long(len);
    Lowered { steps: vec![Step::Zero { to: batch, bytes }, count.into(), add.into()], scratch_bytes: bytes }
}

/// A block for each output, up to a number of them, which adds its sums to the running ones itself.
pub fn error_sums(cx: &Context, op: &ErrorSums) -> Lowered {
    let [loss, prediction, target, totals] = [0, 1, 2, 3].map(Memory::Input);
    let kernel = Kernel::new(MODULE, format!("error_sums_{}", suffix(cx.x_type(1))));
    let kernel = kernel.grid(op.outputs.min(MOST_OUTPUTS), 1, 1).arg(prediction).arg(target).arg(loss).arg(totals);
    Lowered { steps: vec![kernel.long(cx.x(1).len()).int(op.outputs).into()], scratch_bytes: 0 }
}
