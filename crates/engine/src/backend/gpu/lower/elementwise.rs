//! Launches of element-wise operations.

use super::Context;
use super::layout::{Axis, common_suffix, copy, dense_strides, over_rows, pack, rows_arg};
use crate::backend::gpu::launch::{BLOCK, Kernel, Lowered, Memory, Module, Step, suffix};
use crate::graph::op::{
    Activation, ActivationGrad, ActivationOp, Binary, BinaryKind, Fused, NewFull, Source, StepOutput,
};
use crate::graph::{DType, Op, Shape};

/// A launch over `n` elements that are loaded in vectors of `width`.
fn over_packs(name: String, n: usize, width: usize) -> Kernel {
    Kernel::new(Module::Elementwise, name).over(n.div_ceil(width))
}

/// Lowers the operation.
pub fn activation(cx: &Context, op: &ActivationOp) -> Lowered {
    let n = cx.y(0).len();
    let name = format!("activation_{}", common_suffix(cx, &[0]));
    let kernel = over_packs(name, n, pack(cx.y_type(0)));
    Lowered::one(kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).long(n).activation(Some(op.act)))
}

/// Lowers the operation: zeros that are kept within bounds which both are the number.
pub fn new_full(cx: &Context, op: &NewFull) -> Lowered {
    let mut lowered = Lowered::one(Step::Zero { to: Memory::Output(0), bytes: cx.output(0).bytes() });
    if op.value != 0.0 {
        let n = cx.y(0).len();
        let name = format!("activation_{}", common_suffix(cx, &[]));
        let kernel = over_packs(name, n, pack(cx.y_type(0))).arg(Memory::Output(0)).arg(Memory::Output(0)).long(n);
        let number = Activation::Hardtanh { low: op.value, high: op.value };
        lowered.steps.push(kernel.activation(Some(number)).into());
    }
    lowered
}

/// Lowers the operation.
pub fn activation_grad(cx: &Context, op: &ActivationGrad) -> Lowered {
    let n = cx.y(0).len();
    let name = format!("activation_grad_{}", common_suffix(cx, &[0, 1]));
    let kernel = over_packs(name, n, pack(cx.y_type(0))).arg(Memory::Input(0)).arg(Memory::Input(1));
    Lowered::one(kernel.arg(Memory::Output(0)).long(n).activation(Some(op.act)))
}

/// Lowers a sum and the gradient of ReLU after it, all of one shape and type: what the end of a residual block has. Its kernel has
/// more loads on their way than that of chains, and no links to look up.
pub fn relu_grad_of_sum(cx: &Context, op: &Fused) -> Option<Lowered> {
    let [sum, grad] = &op.steps[..] else { return None };
    let (Op::Binary(Binary { kind: BinaryKind::Add }), Op::ActivationGrad(ActivationGrad { act: Activation::Relu })) =
        (&sum.op, &grad.op)
    else {
        return None;
    };
    let ([Source::Operand(a), Source::Operand(b)], [Source::Operand(saved), Source::Step(0)]) =
        (&sum.from[..], &grad.from[..])
    else {
        return None;
    };
    let operands = [*saved, *a, *b];
    let alike = operands.iter().all(|i| cx.x(*i) == cx.y(0) && cx.x_type(*i) == cx.y_type(0));
    if !alike || op.results[..] != [StepOutput { step: 1, output: 0 }] {
        return None;
    }
    let n = cx.y(0).len();
    let kernel = over_packs(format!("relu_grad_of_sum_{}", suffix(cx.y_type(0))), n, 2 * pack(cx.y_type(0)));
    let kernel = operands.into_iter().map(Memory::Input).fold(kernel, Kernel::arg).arg(Memory::Output(0));
    Some(Lowered::one(kernel.long(n)))
}

/// The axes of a result whose operands have the shapes `a` and `b`, innermost first.
fn stretched_axes(a: &Shape, b: &Shape) -> Vec<Axis<2>> {
    let strides = |shape: &Shape| {
        let list = dense_strides(shape.dims());
        list.into_iter().zip(shape.dims()).map(|(stride, size)| if *size == 1 { 0 } else { stride }).collect::<Vec<_>>()
    };
    let sizes = a.dims().iter().zip(b.dims()).map(|(a, b)| *a.max(b));
    let axes = sizes.zip(strides(a)).zip(strides(b)).map(|((size, a), b)| Axis { size, strides: [a, b] });
    Axis::join(axes.rev())
}

fn kind_code(kind: BinaryKind) -> usize {
    match kind {
        BinaryKind::Add => 0,
        BinaryKind::Mul => 1,
    }
}

/// Lowers the operation.
pub fn binary(cx: &Context, op: &Binary) -> Lowered {
    let (kind, width, name) = (kind_code(op.kind), pack(cx.y_type(0)), common_suffix(cx, &[0, 1]));
    let operands = |k: Kernel| k.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0));
    if cx.x(0) == cx.x(1) {
        let n = cx.y(0).len();
        let kernel = operands(over_packs(format!("binary_{name}"), n, width)).long(n);
        return Lowered::one(kernel.int(kind).activation(cx.act));
    }
    let memory = [Memory::Input(0), Memory::Input(1), Memory::Output(0)];
    Lowered::one(broadcast(memory, [cx.x(0), cx.x(1)], cx.y_type(0), op.kind, cx.act))
}

/// The launch for two operands that are broadcast to one shape, with memory `[a, b, result]`; the result may be `a`.
pub fn broadcast(
    memory: [Memory; 3],
    [a, b]: [&Shape; 2],
    dtype: DType,
    kind: BinaryKind,
    act: Option<Activation>,
) -> Kernel {
    let (width, name) = (pack(dtype), suffix(dtype));
    let axes = stretched_axes(a, b);
    let (inner, outer) = axes.split_first().expect("there is an axis");
    let packs = inner.size.is_multiple_of(width)
        && outer.iter().all(|axis| axis.strides.iter().all(|stride| stride.is_multiple_of(width)));
    let (name, width) = if packs { (format!("stretch_packs_{name}"), width) } else { (format!("stretch_{name}"), 1) };
    let rows = outer.iter().map(|axis| axis.size).product();
    let kernel = over_rows(Kernel::new(Module::Elementwise, name), rows, inner.size / width);
    let kernel = memory
        .into_iter()
        .fold(kernel, Kernel::arg)
        .arg(rows_arg(rows))
        .long(inner.size)
        .int(inner.strides[0])
        .int(inner.strides[1]);
    kernel.arg(Axis::table(outer)).int(outer.len()).int(kind_code(kind)).activation(act)
}

/// How a block of `sum_*` divides its threads: along columns, over rows, and the rest along the outer axis. All are powers
/// of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SumBlock {
    lanes: usize,
    lines: usize,
}

impl SumBlock {
    fn new(rows: usize, width: usize) -> SumBlock {
        let block = BLOCK as usize;
        let lines = rows.next_power_of_two().min(block);
        // A warp along the columns if there are that many; more if there are too few rows for the rest of the block.
        let lanes = width.next_power_of_two().min((block / lines).max(32));
        SumBlock { lanes, lines: lines.min(block / lanes) }
    }

    fn groups(self) -> usize {
        BLOCK as usize / (self.lanes * self.lines)
    }
}

/// Blocks that fill any GPU: with fewer, the rows of a sum are divided among blocks.
const ENOUGH_BLOCKS: usize = 1024;

/// Rows that a thread sums at least, where rows are divided.
const ROWS_PER_THREAD: usize = 8;

/// A sequence of sums, with intermediate results in the workspace. Accumulators are `F32` whatever the operands are.
struct Sums {
    lowered: Lowered,
    from: Memory,
    dtype: DType,
}

impl Sums {
    /// `x [outer, rows, width]` summed over its rows, to `to` or else to the workspace.
    fn add(&mut self, [outer, rows, width]: [usize; 3], to: Option<Memory>) {
        let block = SumBlock::new(rows, width);
        let (column_blocks, outer_blocks) = (width.div_ceil(block.lanes), outer.div_ceil(block.groups()));
        let most = rows.div_ceil(block.lines * ROWS_PER_THREAD);
        let wanted = (ENOUGH_BLOCKS / (column_blocks * outer_blocks)).clamp(1, most);
        let piece = rows.div_ceil(wanted);
        let pieces = rows.div_ceil(piece);
        let target = match to {
            Some(to) if pieces == 1 => to,
            _ => self.scratch(outer * pieces * width),
        };
        let name = format!("sum_{}", suffix(self.dtype));
        let kernel = Kernel::new(Module::Elementwise, name).grid(column_blocks * outer_blocks * pieces, 1, 1);
        let kernel = kernel.arg(self.from).arg(target).long(outer).long(rows).long(width).int(pieces).long(piece);
        self.lowered.steps.push(kernel.int(column_blocks).int(block.lanes).int(block.lines).into());
        (self.from, self.dtype) = (target, DType::F32);
        if pieces > 1 {
            self.add([outer, pieces, width], to);
        }
    }

    /// Workspace for `n` floats.
    fn scratch(&mut self, n: usize) -> Memory {
        let at = self.lowered.scratch_bytes;
        self.lowered.scratch_bytes += (n * DType::F32.bytes()).next_multiple_of(64);
        Memory::Scratch(at)
    }
}

/// The sums over one axis each, `[outer, rows, width]`, that lead from shape `x` to shape `y`; at least one.
fn sums(x: &Shape, y: &Shape) -> Vec<[usize; 3]> {
    // Adjacent axes that are both summed, or both kept, are merged: (size, is summed).
    let mut axes: Vec<(usize, bool)> = Vec::new();
    for (i, &size) in x.dims().iter().enumerate().filter(|(_, size)| **size != 1) {
        let summed = if y.rank() == x.rank() { y.dims()[i] != size } else { i + 1 < x.rank() };
        match axes.last_mut() {
            Some(last) if last.1 == summed => last.0 *= size,
            _ => axes.push((size, summed)),
        }
    }
    let size = |axes: &[(usize, bool)]| axes.iter().map(|a| a.0).product::<usize>();
    let mut list = Vec::new();
    while let Some(i) = axes.iter().position(|a| a.1) {
        list.push([size(&axes[..i]), axes[i].0, size(&axes[i + 1..])]);
        axes.remove(i);
    }
    if list.is_empty() { vec![[1, 1, size(&axes)]] } else { list }
}

/// Adds the launches that sum `from [outer, rows, width]`, of `F32`, over its rows.
pub fn sum_rows(lowered: &mut Lowered, from: Memory, shape: [usize; 3], to: Memory) {
    let mut sums = Sums { lowered: std::mem::take(lowered), from, dtype: DType::F32 };
    sums.add(shape, Some(to));
    *lowered = sums.lowered;
}

/// Lowers the operation.
pub fn sum_to(cx: &Context) -> Lowered {
    let list = sums(cx.x(0), cx.y(0));
    let mut sums = Sums { lowered: Lowered::default(), from: Memory::Input(0), dtype: cx.x_type(0) };
    for (i, shape) in list.iter().enumerate() {
        sums.add(*shape, (i + 1 == list.len()).then_some(Memory::Output(0)));
    }
    sums.lowered
}

/// Lowers the operation.
pub fn cast(cx: &Context) -> Lowered {
    let (from, to, n) = (cx.x_type(0), cx.y_type(0), cx.y(0).len());
    if from == to {
        return copy(cx);
    }
    let name = format!("cast_{}_{}", suffix(from), suffix(to));
    let kernel = over_packs(name, n, pack(from).max(pack(to)));
    Lowered::one(kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).long(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::launch::{Arg, Step};

    #[test]
    fn sums_go_axis_by_axis() {
        let of = |x: &[usize], y: &[usize]| sums(&Shape::from(x), &Shape::from(y));
        assert_eq!(of(&[6, 5], &[5]), [[1, 6, 5]]);
        assert_eq!(of(&[2, 3, 5, 4], &[2, 1, 1, 4]), [[2, 15, 4]]);
        assert_eq!(of(&[2, 3, 5, 4], &[2, 3, 5, 1]), [[30, 4, 1]]);
        assert_eq!(of(&[2, 3, 4], &[1, 3, 1]), [[1, 2, 12], [3, 4, 1]]);
        assert_eq!(of(&[9], &[9]), [[1, 1, 9]]);
    }

    #[test]
    fn threads_of_a_sum_lie_along_what_is_long() {
        let of = |rows, width| (SumBlock::new(rows, width).lanes, SumBlock::new(rows, width).lines);
        assert_eq!(of(1 << 20, 1), (1, 256));
        assert_eq!(of(1 << 20, 64), (32, 8));
        assert_eq!(of(100, 3), (4, 64));
        assert_eq!(of(2, 1000), (128, 2));
        assert_eq!(of(1, 9), (16, 1));
        assert_eq!(SumBlock::new(4, 1).groups(), 64);
    }

    #[test]
    fn long_sums_are_divided_and_end_in_the_result() {
        for shape in [[1, 1 << 20, 1], [1, 100_000, 64], [3, 17, 5], [256, 49, 512], [1, 4096, 1000]] {
            let mut sums = Sums { lowered: Lowered::default(), from: Memory::Input(0), dtype: DType::F32 };
            sums.add(shape, Some(Memory::Output(0)));
            assert_eq!(sums.from, Memory::Output(0), "{shape:?}");
            for step in &sums.lowered.steps {
                let Step::Kernel(k) = step else { panic!("only kernels") };
                let [Arg::I64(rows), _, Arg::I32(pieces), Arg::I64(piece)] = k.args[3..7] else { panic!("{k:?}") };
                let pieces = i64::from(pieces);
                assert!(pieces * piece >= rows && (pieces - 1) * piece < rows, "{shape:?}: {pieces} × {piece}");
            }
        }
    }
}
