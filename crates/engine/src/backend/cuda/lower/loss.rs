//! Launches of losses.

use super::Context;
use super::rows::{Rows, element_sum_blocks};
use crate::backend::cuda::launch::{Arg, Cell, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::DType;
use crate::graph::op::{CrossEntropy, Loss, LossGrad, LossOp, WeightedBinary};

const MODULE: Module = Module::Loss;

/// The launch `sums`, each block of which writes its partial sums to the workspace. One block writes the loss itself; with
/// several, a second launch makes the mean: over `count` elements of `items` samples or, if that is `None`, over the weight
/// that the sums contain.
fn mean(sums: Kernel, count: Option<(usize, usize)>) -> Lowered {
    let blocks = sums.grid[0] as usize;
    let mut steps = vec![Step::Kernel(sums)];
    if blocks > 1 {
        let (elements, items) = count.unwrap_or((0, 0));
        let mean = Kernel::new(MODULE, "loss_mean")
            .arg(Memory::Scratch(0))
            .int(blocks)
            .arg(Arg::F64(elements as f64))
            .float(items as f32)
            .arg(Memory::Output(0))
            .arg(Memory::Output(1));
        steps.push(mean.into());
    }
    Lowered { steps, scratch_bytes: 2 * blocks * size_of::<f64>() }
}

/// Weights as an argument: null if there is none.
fn weights(list: &[f32]) -> Arg {
    let pairs = list.chunks(2).map(|pair| {
        let [first, second] = [0, 1].map(|i| u64::from(pair.get(i).copied().unwrap_or(0.0).to_bits()));
        // The first of two floats is the lower half: GPUs are little-endian.
        Cell::I64((first | second << 32) as i64)
    });
    if list.is_empty() { Arg::Null } else { Arg::Table(pairs.collect()) }
}

/// The kernels' `Rule`.
fn rule(kernel: Kernel, loss: &CrossEntropy) -> Kernel {
    let all: f64 = loss.weight.iter().map(|w| f64::from(*w)).sum();
    let (form, gamma) = loss.form.code();
    let kernel = kernel.float(loss.label_smoothing).arg(Arg::I32(loss.ignore_index)).arg(weights(&loss.weight));
    kernel.float(all as f32).int(form).float(gamma)
}

/// The kernels' `Binary`.
fn binary(kernel: Kernel, loss: &WeightedBinary) -> Kernel {
    let [gamma, alpha] = loss.gamma_and_alpha();
    kernel.arg(weights(&loss.pos_weight)).int(loss.pos_weight.len()).float(alpha).float(gamma)
}

/// The loss, and the weight of the batch.
pub fn loss(cx: &Context, op: &LossOp) -> Lowered {
    let x = cx.x(0);
    let operands = |kernel: Kernel| {
        kernel
            .arg(Memory::Input(0))
            .arg(Memory::Input(1))
            .arg(Memory::Scratch(0))
            .arg(Memory::Output(0))
            .arg(Memory::Output(1))
    };
    match &op.loss {
        Loss::CrossEntropy(l) if cx.x_type(1) == DType::F32 => {
            let rows = Rows::summed(x.rows(), x.last(), 1);
            let sums = operands(rows.launch_summed(MODULE, "soft_cross_entropy", cx.x_type(0)));
            let sums =
                sums.long(x.rows()).int(x.last()).float(l.label_smoothing).arg(weights(&l.weight)).int(rows.kept());
            mean(sums, Some((x.rows(), x.rows())))
        }
        Loss::CrossEntropy(l) => {
            let rows = Rows::summed(x.rows(), x.last(), 1);
            let sums = operands(rows.launch_summed(MODULE, "cross_entropy", cx.x_type(0)));
            mean(rule(sums.long(x.rows()).int(x.last()), l).int(rows.kept()), None)
        }
        Loss::Elementwise(l) => {
            let ((kind, parameter), n, items) = (l.code(), x.len(), op.loss.items(x));
            let sums = Kernel::new(MODULE, format!("elementwise_loss_{}", suffix(cx.x_type(0))));
            let sums = operands(sums.grid(element_sum_blocks(n), 1, 1));
            mean(sums.long(n).float(items as f32).int(kind).float(parameter), Some((n, items)))
        }
        Loss::Binary(l) => {
            let (n, items) = (x.len(), op.loss.items(x));
            let sums = Kernel::new(MODULE, format!("weighted_binary_{}", suffix(cx.x_type(0))));
            let sums = operands(sums.grid(element_sum_blocks(n), 1, 1)).long(n).float(items as f32);
            mean(binary(sums, l), Some((n, items)))
        }
    }
}

/// One launch.
pub fn grad(cx: &Context, op: &LossGrad) -> Lowered {
    let x = cx.x(0);
    let [prediction, targets, weight, dloss] = [0, 1, 2, 3].map(Memory::Input);
    Lowered::one(match &op.loss {
        Loss::CrossEntropy(l) if cx.x_type(1) == DType::F32 => {
            let rows = Rows::new(x.rows(), x.last(), 1);
            let kernel = rows.launch(MODULE, "soft_cross_entropy_grad", cx.x_type(0)).arg(prediction).arg(targets);
            let kernel = kernel.arg(weight).arg(dloss).arg(Memory::Output(0)).long(x.rows()).int(x.last());
            kernel.float(l.label_smoothing).arg(weights(&l.weight)).int(rows.kept())
        }
        Loss::CrossEntropy(l) => {
            let rows = Rows::new(x.rows(), x.last(), 1);
            let kernel = rows.launch(MODULE, "cross_entropy_grad", cx.x_type(0)).arg(prediction).arg(targets);
            let kernel = kernel.arg(weight).arg(dloss).arg(Memory::Output(0)).long(x.rows()).int(x.last());
            rule(kernel, l).int(rows.kept())
        }
        Loss::Elementwise(l) => {
            let ((kind, parameter), n) = (l.code(), x.len());
            let kernel = Kernel::new(MODULE, format!("elementwise_loss_grad_{}", suffix(cx.x_type(0)))).over(n);
            let kernel = kernel.arg(prediction).arg(targets).arg(dloss).arg(Memory::Output(0));
            kernel.long(n).int(kind).float(parameter)
        }
        Loss::Binary(l) => {
            let kernel = Kernel::new(MODULE, format!("weighted_binary_grad_{}", suffix(cx.x_type(0)))).over(x.len());
            let kernel = kernel.arg(prediction).arg(targets).arg(dloss).arg(Memory::Output(0));
            binary(kernel.long(x.len()), l)
        }
    })
}
