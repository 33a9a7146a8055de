//! Launches of losses.

use super::Context;
use super::rows::{Rows, element_sum_blocks};
use crate::backend::gpu::formulas;
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::DType;
use crate::graph::op::{CrossEntropy, Loss, LossGrad, LossOp, WeightedBinary};

const MODULE: Module = Module::Loss;

/// What a mean is over: elements without weights, or, with `count` 0, the sum of the weights.
#[derive(Clone, Copy)]
struct Mean {
    /// Number of elements.
    count: usize,
    /// What the batch weighs; where there are weights, by which their sum is multiplied for that.
    items: f64,
}

impl Mean {
    /// Over weights that the kernels sum, for each row.
    const OF_ROWS: Mean = Mean { count: 0, items: 1.0 };

    /// Over so many elements of so many samples.
    fn of(elements: usize, samples: usize, weighted: bool) -> Mean {
        match weighted {
            true => Mean { count: 0, items: samples as f64 / elements.max(1) as f64 },
            false => Mean { count: elements, items: samples as f64 },
        }
    }

    fn arguments(self, kernel: Kernel) -> Kernel {
        kernel.arg(Arg::F64(self.count as f64)).arg(Arg::F64(self.items))
    }
}

/// The launch `sums`, each block of which writes its partial sums to the workspace. One block writes the loss itself; with
/// several, a second launch makes the mean.
fn mean(sums: Kernel, mean: Mean) -> Lowered {
    let blocks = sums.grid[0] as usize;
    let mut steps = vec![Step::Kernel(sums)];
    if blocks > 1 {
        let last = Kernel::new(MODULE, "loss_mean").arg(Memory::Scratch(0)).int(blocks);
        steps.push(mean.arguments(last).arg(Memory::Output(0)).arg(Memory::Output(1)).into());
    }
    Lowered { steps, scratch_bytes: 2 * blocks * size_of::<f64>() }
}

/// The operand with the rows' or numbers' own weights: null if there is none.
fn own(weighted: bool, i: usize) -> Arg {
    if weighted { Memory::Input(i).into() } else { Arg::Null }
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
    let (form, gamma) = formulas::row_loss(loss.form);
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
    let (x, weighted) = (cx.x(0), op.weighted);
    let operands = |kernel: Kernel| {
        kernel
            .arg(Memory::Input(0))
            .arg(Memory::Input(1))
            .arg(own(weighted, 2))
            .arg(Memory::Scratch(0))
            .arg(Memory::Output(0))
            .arg(Memory::Output(1))
    };
    let over = Mean::of(x.len(), op.loss.items(x), weighted);
    match &op.loss {
        Loss::CrossEntropy(l) if cx.x_type(1) == DType::F32 => {
            let rows = Rows::summed(x.rows(), x.last(), 1);
            let sums = operands(rows.launch_summed(MODULE, "soft_cross_entropy", cx.x_type(0)));
            let sums =
                sums.long(x.rows()).int(x.last()).float(l.label_smoothing).arg(weights(&l.weight)).int(rows.kept());
            mean(sums, Mean::of(x.rows(), x.rows(), weighted))
        }
        Loss::CrossEntropy(l) => {
            let rows = Rows::summed(x.rows(), x.last(), 1);
            let sums = operands(rows.launch_summed(MODULE, "cross_entropy", cx.x_type(0)));
            mean(rule(sums.long(x.rows()).int(x.last()), l).int(rows.kept()), Mean::OF_ROWS)
        }
        Loss::Elementwise(l) => {
            let ((kind, parameter), n) = (formulas::elementwise_loss(*l), x.len());
            let sums = Kernel::new(MODULE, format!("elementwise_loss_{}", suffix(cx.x_type(0))));
            let sums = operands(sums.grid(element_sum_blocks(n), 1, 1)).long(n);
            mean(over.arguments(sums).int(kind).float(parameter), over)
        }
        Loss::Binary(l) => {
            let n = x.len();
            let sums = Kernel::new(MODULE, format!("weighted_binary_{}", suffix(cx.x_type(0))));
            let sums = operands(sums.grid(element_sum_blocks(n), 1, 1)).long(n);
            mean(binary(over.arguments(sums), l), over)
        }
    }
}

/// One launch.
pub fn grad(cx: &Context, op: &LossGrad) -> Lowered {
    let x = cx.x(0);
    let operands = |kernel: Kernel| {
        let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(own(op.weighted, 4));
        kernel.arg(Memory::Input(2)).arg(Memory::Input(3)).arg(Memory::Output(0))
    };
    let items = Arg::F64(Mean::of(x.len(), op.loss.items(x), op.weighted).items);
    Lowered::one(match &op.loss {
        Loss::CrossEntropy(l) if cx.x_type(1) == DType::F32 => {
            let rows = Rows::new(x.rows(), x.last(), 1);
            let kernel = operands(rows.launch(MODULE, "soft_cross_entropy_grad", cx.x_type(0)));
            let kernel = kernel.long(x.rows()).int(x.last());
            kernel.float(l.label_smoothing).arg(weights(&l.weight)).int(rows.kept())
        }
        Loss::CrossEntropy(l) => {
            let rows = Rows::new(x.rows(), x.last(), 1);
            let kernel = operands(rows.launch(MODULE, "cross_entropy_grad", cx.x_type(0)));
            rule(kernel.long(x.rows()).int(x.last()), l).int(rows.kept())
        }
        Loss::Elementwise(l) => {
            let ((kind, parameter), n) = (formulas::elementwise_loss(*l), x.len());
            let kernel = Kernel::new(MODULE, format!("elementwise_loss_grad_{}", suffix(cx.x_type(0)))).over(n);
            operands(kernel).long(n).arg(items).int(kind).float(parameter)
        }
        Loss::Binary(l) => {
            let kernel = Kernel::new(MODULE, format!("weighted_binary_grad_{}", suffix(cx.x_type(0)))).over(x.len());
            binary(operands(kernel).long(x.len()).arg(items), l)
        }
    })
}
