//! Launches of what Muon does between products of matrices.

use super::Context;
use super::columns::aligned;
use super::optim::{Cut, NORMS, NOW_BYTES, begin};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory};
use crate::graph::op::{MuonPolynomial, MuonStart, MuonStep};

/// A launch of one thread, one that takes the gradient into the momentum and sums squares, and one that divides by the norm.
pub fn start(cx: &Context, op: &MuonStart) -> Lowered {
    let gradient = op.clipping.operands();
    let length = cx.x(gradient).len();
    let [chunk, blocks] = Cut::new([length].into_iter()).size();
    let begin = begin(&op.clipping, None, Arg::Null);
    if blocks == 0 {
        return Lowered { steps: vec![begin.into()], scratch_bytes: aligned(NOW_BYTES) };
    }
    let partials = Memory::Scratch(aligned(NOW_BYTES));
    let squares = Kernel::new(NORMS, "muon_squares_f32").grid(blocks, 1, 1).arg(Memory::Scratch(0));
    let squares = squares.arg(Memory::Input(gradient)).arg(Memory::Input(gradient + 1)).arg(Memory::Output(0));
    let squares = squares.long(length).int(chunk).float((1.0 - op.momentum) as f32).float(op.momentum as f32);
    let squares = squares.int(usize::from(op.nesterov)).arg(partials);
    let scale = Kernel::new(NORMS, "muon_scale_f32").grid(blocks, 1, 1).arg(Memory::Output(0)).long(length).int(chunk);
    let scale = scale.arg(partials).long(blocks).float(op.eps);
    Lowered {
        steps: vec![begin.into(), squares.into(), scale.into()],
        scratch_bytes: aligned(NOW_BYTES) + aligned(blocks * size_of::<f64>()),
    }
}

/// One launch.
pub fn polynomial(cx: &Context, op: &MuonPolynomial) -> Lowered {
    let length = cx.x(0).len();
    let [chunk, blocks] = Cut::new([length].into_iter()).size();
    let kernel = Kernel::new(NORMS, "muon_polynomial_f32").grid(blocks.max(1), 1, 1);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0));
    let kernel = kernel.long(cx.x(0).last()).int(chunk);
    Lowered::one(op.coefficients.iter().fold(kernel, |kernel, c| kernel.float(*c)))
}

/// A launch of one thread, and one that changes the parameter.
pub fn step(cx: &Context, op: &MuonStep) -> Lowered {
    let direction = op.clipping.operands();
    let length = cx.x(direction).len();
    let [chunk, blocks] = Cut::new([length].into_iter()).size();
    let kernel = Kernel::new(NORMS, "muon_f32").grid(blocks.max(1), 1, 1).arg(Memory::Scratch(0));
    let kernel = kernel.arg(Memory::Input(direction + 1)).arg(Memory::Input(direction)).long(length).int(chunk);
    let options = op.options;
    let kernel = kernel.arg(Arg::F64(f64::from(options.lr_scale))).arg(Arg::F64(f64::from(options.weight_decay)));
    let begin = begin(&op.clipping, None, Arg::Null);
    Lowered { steps: vec![begin.into(), kernel.float(op.length).into()], scratch_bytes: aligned(NOW_BYTES) }
}
