//! Launches of recurrent layers: one for each position.

use super::{Context, operand};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module};
use crate::graph::Shape;
use crate::graph::op::{Cell, Recurrent, RecurrentGrad, RecurrentGradOperands, RecurrentOperands};

/// Side of a block's tile of samples and units: `SIDE` in `kernels/cuda/recurrent.cu`.
const SIDE: usize = 16;

fn name(cell: Cell) -> &'static str {
    match cell {
        Cell::Lstm => "lstm",
        Cell::Gru => "gru",
        Cell::Tanh => "rnn_tanh",
        Cell::Relu => "rnn_relu",
    }
}

/// Samples, positions and units of the states.
struct Sizes([usize; 3]);

impl Sizes {
    fn of(states: &Shape) -> Sizes {
        Sizes(states.dims().try_into().expect("the shape rule asks for three dimensions"))
    }

    /// A kernel of one position.
    fn kernel(&self, name: String) -> Kernel {
        let Sizes([samples, _, hidden]) = *self;
        let blocks = samples.div_ceil(SIDE) * hidden.div_ceil(SIDE);
        Kernel::new(Module::Recurrent, name).grid(blocks, 1, 1)
    }

    /// Its last arguments.
    fn args(&self, kernel: Kernel, positions: &[Option<usize>]) -> Kernel {
        let kernel = self.0.iter().fold(kernel, |kernel, size| kernel.int(*size));
        // Below 0 there is none. More positions than an `int` counts have no memory.
        positions.iter().fold(kernel, |kernel, t| kernel.arg(Arg::I32(t.map_or(-1, |t| t as i32))))
    }

    /// Bytes of a number for each unit of each sample.
    fn bytes(&self) -> usize {
        self.0[0] * self.0[2] * size_of::<f32>()
    }
}

/// Every position with the one before it and the one after it, in the order of a layer.
fn positions(op: &Recurrent, length: usize) -> Vec<(usize, Option<usize>, Option<usize>)> {
    let (before, behind) = (|t: usize| t.checked_sub(1), |t: usize| Some(t + 1).filter(|t| *t < length));
    match op.reverse {
        false => (0..length).map(|t| (t, before(t), behind(t))).collect(),
        true => (0..length).rev().map(|t| (t, behind(t), before(t))).collect(),
    }
}

/// Lowers the operation.
pub fn recurrent(cx: &Context, op: &Recurrent) -> Lowered {
    let sizes = Sizes::of(cx.y(0));
    let RecurrentOperands { x, w, b, lengths, carried } = op.places();
    let saves = op.saves && op.cell.saved() > 0;
    let cells = op.cell == Cell::Lstm && !saves;
    let step = |(t, before, _)| {
        let kernel = sizes.kernel(format!("{}_f32", name(op.cell))).arg(Memory::Input(x)).arg(Memory::Input(w));
        let kernel = kernel.arg(operand(b)).arg(operand(lengths)).arg(operand(carried));
        let kernel = kernel.arg(Memory::Output(0)).arg(if saves { Memory::Output(1).into() } else { Arg::Null });
        let kernel = kernel.arg(if cells { Memory::Scratch(0).into() } else { Arg::Null });
        sizes.args(kernel, &[Some(t), before]).into()
    };
    let steps = positions(op, sizes.0[1]).into_iter().map(step).collect();
    Lowered { steps, scratch_bytes: if cells { sizes.bytes() } else { 0 } }
}

/// Lowers the gradient.
pub fn grad(cx: &Context, op: &RecurrentGrad) -> Lowered {
    let RecurrentGradOperands { dh, h, saved, w, lengths, carried } = op.places();
    let (sizes, op) = (Sizes::of(cx.y(1)), &op.of);
    let between = matches!(op.cell, Cell::Lstm | Cell::Gru);
    let step = |(t, before, behind)| {
        let kernel = sizes.kernel(format!("{}_grad_f32", name(op.cell))).arg(Memory::Input(dh)).arg(Memory::Input(h));
        let kernel = kernel.arg(operand(saved)).arg(Memory::Input(w)).arg(operand(lengths)).arg(operand(carried));
        let product = Memory::Output(if op.cell == Cell::Gru { 2 } else { 0 });
        let kernel = kernel.arg(Memory::Output(0)).arg(Memory::Output(1)).arg(product);
        let kernel = kernel.arg(if between { Memory::Scratch(0).into() } else { Arg::Null });
        sizes.args(kernel, &[Some(t), behind, before]).into()
    };
    let steps = positions(op, sizes.0[1]).into_iter().rev().map(step).collect();
    Lowered { steps, scratch_bytes: if between { sizes.bytes() } else { 0 } }
}
