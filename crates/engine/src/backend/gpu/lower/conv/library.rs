//! Which convolutions cuDNN does, and what is left for our own kernels around them.
//!
//! It stays with our own kernels where
//! * there is no cuDNN, or it has no plan for the convolution that is right and gives the same bits every time;
//! * our own kernels are faster, where that is measured;
//! * it is not one that the library is asked for: [`Convolution::is_taken`];
//! * the work is small: then the latency of a launch dominates.
//!
//! 1 × 1 convolutions are matrix products, and do not come here.

use super::super::elementwise::broadcast;
use super::super::layout::PACK_BYTES;
use super::super::linear::library::{activation, tf32};
use super::super::linear::sums::{Finish, aligned};
use super::{Sizes, own_forward, own_grad_input, own_grad_weight};
use crate::backend::gpu::launch::{
    Convolution, ConvolutionStep, Direction, Kernel, Lowered, Memory, Module, Step, WORKSPACE_ALIGNMENT, suffix,
};
use crate::backend::gpu::lower::Context;
use crate::backend::gpu::target::{Form, Problem};
use crate::graph::op::BinaryKind;
use crate::graph::{DType, Shape};

/// Fewest multiply-adds that are worth a call of the library.
const SMALLEST: usize = 1 << 22;

/// The convolution, if the library may be asked by the rule above. Sizes of `s` are those of a group.
fn convolution(cx: &Context, s: &Sizes, direction: Direction, [dtype, result]: [DType; 2]) -> Option<Convolution> {
    if !(cx.target.libraries.everywhere() || s.work() >= SMALLEST) {
        return None;
    }
    let groups = s.conv.groups;
    let convolution = Convolution {
        direction,
        images: s.images,
        input: s.input,
        inputs: s.inputs * groups,
        output: s.output,
        outputs: s.outputs * groups,
        kernel: s.kernel,
        groups,
        stride: s.conv.stride,
        padding: s.conv.padding,
        dilation: s.conv.dilation,
        dtype,
        result,
        tf32: tf32(cx) && dtype == DType::F32,
        bias: false,
        act: None,
    };
    Some(convolution).filter(Convolution::is_taken)
}

/// The convolution as a step on `[x, w, y]` and the bias; `None` if our own kernels do it. If cuDNN does not fuse the
/// epilogue, `after` follows. The library's workspace lies behind that of `after`.
fn step(
    cx: &Context,
    convolution: Convolution,
    [x, w, y]: [Memory; 3],
    bias: Option<Memory>,
    own: &dyn Fn() -> Lowered,
    after: Lowered,
) -> Option<Lowered> {
    let libraries = &cx.target.libraries;
    let [dx, dw, dy] = convolution.elements();
    let (count, result) = match convolution.direction {
        Direction::Forward => (dy, y),
        Direction::Input => (dx, x),
        Direction::Weight => (dw, w),
    };
    let widen = widened(&convolution, count, result);
    let problem = Problem { convolution: &convolution, own, after, widen, always: libraries.everywhere() };
    let chosen = libraries.convolution(&problem)?;
    let after = match chosen.form {
        Form::Plain => problem.after,
        Form::Fused => Lowered::default(),
        Form::Narrow => problem.widen,
    };
    let narrow = |place, direction| {
        let is_result = chosen.form == Form::Narrow && convolution.direction == direction;
        if is_result { Memory::Scratch(0) } else { place }
    };
    let [x, w, y] = [(x, Direction::Input), (w, Direction::Weight), (y, Direction::Forward)]
        .map(|(place, direction)| narrow(place, direction));
    let (scratch, bytes) = (after.scratch_bytes, chosen.workspace);
    // Workspace is aligned less than the library wants: there is room to round its start up.
    let scratch_bytes = if bytes > 0 { scratch + aligned(bytes) + WORKSPACE_ALIGNMENT } else { scratch };
    let workspace = Memory::Scratch(if bytes > 0 { scratch } else { 0 });
    let step = Step::Convolution(ConvolutionStep { convolution, x, w, y, bias, workspace });
    Some(Lowered { steps: std::iter::once(step).chain(after.steps).collect(), scratch_bytes })
}

/// The conversion of a narrow result of `count` elements, which lies at the front of the workspace.
fn widened(c: &Convolution, count: usize, result: Memory) -> Lowered {
    if c.dtype == c.result {
        return Lowered::default();
    }
    let name = format!("cast_{}_{}", suffix(c.dtype), suffix(c.result));
    let kernel = Kernel::new(Module::Elementwise, name).over(count.div_ceil(PACK_BYTES / c.dtype.bytes()));
    let kernel = kernel.arg(Memory::Scratch(0)).arg(result).long(count);
    Lowered { steps: vec![kernel.into()], scratch_bytes: aligned(count * c.dtype.bytes()) }
}

/// The epilogue (bias and activation) in place, for a convolution that does not fuse it.
fn after(s: &Sizes, dtype: DType, finish: &Finish) -> Lowered {
    let (pixels, outputs) = (s.pixels(), s.outputs * s.conv.groups);
    let mut after = Lowered::default();
    let Some(bias) = finish.bias else {
        after.steps.extend(finish.act.map(|act| activation(finish, act, pixels * outputs)));
        return after;
    };
    // The addition takes operands of one type.
    let converted = dtype != DType::F32;
    if converted {
        after.scratch_bytes = aligned(outputs * dtype.bytes());
        let kernel = Kernel::new(Module::Elementwise, format!("cast_f32_{}", suffix(dtype))).over(outputs);
        after.steps.push(kernel.arg(bias).arg(Memory::Scratch(0)).long(outputs).into());
    }
    let bias = if converted { Memory::Scratch(0) } else { bias };
    let shapes = [&Shape::from([pixels, outputs]), &Shape::from([1, outputs])];
    after.steps.push(broadcast([finish.y, bias, finish.y], shapes, dtype, BinaryKind::Add, finish.act).into());
    after
}

/// `y = act(x ∗ w + b)`.
pub fn forward(cx: &Context, s: &Sizes, dtype: DType, finish: &Finish) -> Option<Lowered> {
    let convolution = convolution(cx, s, Direction::Forward, [dtype, finish.y_type])?;
    let convolution = Convolution { bias: finish.bias.is_some(), act: finish.act, ..convolution };
    let operands = [Memory::Input(0), Memory::Input(1), finish.y];
    let own = || own_forward(cx.target, s, dtype, finish);
    step(cx, convolution, operands, finish.bias, &own, after(s, finish.y_type, finish))
}

/// The gradient by the input.
pub fn grad_input(cx: &Context, s: &Sizes, dtype: DType, finish: &Finish) -> Option<Lowered> {
    let convolution = convolution(cx, s, Direction::Input, [dtype, finish.y_type])?;
    let operands = [finish.y, Memory::Input(1), Memory::Input(0)];
    let own = || own_grad_input(cx.target, s, dtype, finish);
    step(cx, convolution, operands, None, &own, Lowered::default())
}

/// The gradient by the weight, without that by the bias.
pub fn grad_weight(cx: &Context, s: &Sizes, dtype: DType) -> Option<Lowered> {
    let convolution = convolution(cx, s, Direction::Weight, [dtype, DType::F32])?;
    let operands = [Memory::Input(0), Memory::Output(0), Memory::Input(1)];
    let own = || own_grad_weight(cx.target, s, dtype);
    step(cx, convolution, operands, None, &own, Lowered::default())
}
