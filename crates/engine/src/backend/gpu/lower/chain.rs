//! Launches of fused chains of element-wise operations.

use super::Context;
use super::elementwise::relu_grad_of_sum;
use super::layout::{Axis, dense_strides, pack};
use crate::backend::gpu::formulas;
use crate::backend::gpu::launch::{Arg, BLOCK, Cell, Kernel, Lowered, Memory, Module, suffix};
use crate::graph::op::{Activation, BinaryKind, ElementWise, Fused, Source, Step, StepOutput};
use crate::graph::{DType, Shape};
use crate::random::dropout_threshold;

/// Operands that the kernel reads before the first link.
const AHEAD: usize = 4;

/// Bytes of shared memory that a launch has in any case.
const SHARED_BYTES: usize = 48 << 10;

/// Kinds of the kernel's links that are no operation's own: the value as it is, and an operand that is read late.
const PASS: i64 = 0;
const READ: i64 = 5;

/// Where a link finds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// The link of this number.
    Link(usize),
    /// The operand of this number among those that are read ahead.
    Ahead(usize),
    /// Not a value: the operand of this number, as it lies in memory.
    Address(usize),
    Nothing,
}

/// A link of the kernel.
struct Link {
    kind: i64,
    from: [From; 2],
    /// The activation's number, and its constants.
    act: (i64, [f64; 2]),
    /// Stream, threshold and scale of a dropout.
    dropout: (u32, u32, f32),
    /// The step that it is; what only reads an operand is none.
    step: Option<usize>,
}

impl Link {
    fn new(kind: i64, from: [From; 2], step: Option<usize>) -> Link {
        Link { kind, from, act: (0, [0.0; 2]), dropout: (0, 0, 0.0), step }
    }

    /// `step`, of number `at`, on `from`.
    fn of(step: &Step, at: usize, from: [From; 2]) -> Link {
        let link = Link::new(PASS, from, Some(at));
        // A cast passes on what it is given: values are not rounded between links.
        let Some(op) = step.op.element_wise() else { return link };
        let act = |act: Activation| {
            let (number, constants) = formulas::activation(act);
            (i64::from(number), constants.map(f64::from))
        };
        match op {
            ElementWise::Activation(a) => Link { act: act(a), ..link },
            ElementWise::ActivationGrad(a) => Link { kind: 1, act: act(a), ..link },
            ElementWise::Binary(BinaryKind::Add) => Link { kind: 2, ..link },
            ElementWise::Binary(BinaryKind::Mul) => Link { kind: 3, ..link },
            ElementWise::Dropout(op) => {
                Link { kind: 4, dropout: (op.stream, dropout_threshold(op.p), 1.0 / (1.0 - op.p)), ..link }
            }
        }
    }
}

/// The links of a group, and its operands in the order in which the kernel has them.
struct Links {
    list: Vec<Link>,
    operands: Vec<usize>,
    /// How many of these are read ahead.
    ahead: usize,
}

impl Links {
    fn new(op: &Fused, operands: usize) -> Links {
        // Keys are no values. Those after the first few are read by links of their own.
        let (keys, values): (Vec<usize>, Vec<usize>) = (0..operands).partition(|i| op.is_key(*i));
        let ahead = values.len().min(AHEAD);
        let order = [values, keys].concat();
        let place = |i: usize| order.iter().position(|o| *o == i).expect("all operands are in the list");
        let mut list: Vec<Link> = Vec::new();
        let mut made: Vec<usize> = Vec::new();
        for (at, step) in op.steps.iter().enumerate() {
            let mut from = [From::Nothing; 2];
            for (to, source) in from.iter_mut().zip(&step.from) {
                *to = match source {
                    Source::Step(of) => From::Link(made[*of]),
                    Source::Operand(i) if op.is_key(*i) => From::Address(place(*i)),
                    Source::Operand(i) if place(*i) < ahead => From::Ahead(place(*i)),
                    Source::Operand(i) => {
                        list.push(Link::new(READ, [From::Nothing, From::Address(place(*i))], None));
                        From::Link(list.len() - 1)
                    }
                };
            }
            list.push(Link::of(step, at, from));
            made.push(list.len() - 1);
        }
        Links { list, operands: order, ahead }
    }

    /// For each link the number under which its value is kept for those after the next one, and how many numbers there are.
    /// A number is free again when its value is read no more.
    fn kept(&self) -> (Vec<Option<usize>>, usize) {
        let last = |of: usize| self.list.iter().rposition(|link| link.from.contains(&From::Link(of)));
        let (mut kept, mut until): (Vec<Option<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
        for at in 0..self.list.len() {
            kept.push(last(at).filter(|last| *last > at + 1).map(|last| {
                let free = until.iter().position(|until| *until <= at);
                let number = free.unwrap_or_else(|| {
                    until.push(0);
                    until.len() - 1
                });
                until[number] = last;
                number
            }));
        }
        (kept, until.len())
    }
}

/// The axes along which `operand` is broadcast to `result`, innermost first; none if it has that shape.
fn stretched(operand: &Shape, result: &Shape) -> Vec<Axis<1>> {
    if operand == result {
        return Vec::new();
    }
    let strides = dense_strides(operand.dims());
    let one = |((stride, own), size): ((usize, &usize), &usize)| Axis {
        size: *size,
        strides: [if *own == 1 { 0 } else { stride }],
    };
    let axes: Vec<Axis<1>> = strides.into_iter().zip(operand.dims()).zip(result.dims()).map(one).collect();
    Axis::join(axes.into_iter().rev())
}

/// From one element of a pack of `width` to the next in an operand with these axes: 1 if they are a pack there, 0 if they are one
/// element, and −1 if packs of the result are neither.
fn pack_step(axes: &[Axis<1>], width: usize) -> i64 {
    let Some((inner, outer)) = axes.split_first() else { return 1 };
    let whole = inner.size.is_multiple_of(width);
    match inner.strides[0] {
        0 if whole => 0,
        1 if whole && outer.iter().all(|axis| axis.strides[0].is_multiple_of(width)) => 1,
        _ => -1,
    }
}

/// Lowers the operation.
pub fn chain(cx: &Context, op: &Fused) -> Lowered {
    if let Some(lowered) = relu_grad_of_sum(cx, op) {
        return lowered;
    }
    let n = cx.y(0).len();
    let links = Links::new(op, cx.node.inputs.len());
    let values = links.operands.iter().filter(|i| !op.is_key(**i)).map(|i| cx.x_type(*i));
    let types: Vec<DType> = values.chain((0..op.results.len()).map(|i| cx.y_type(i))).collect();
    // All values have one type, or some are 32-bit floats beside a 16-bit type.
    let half = types.iter().copied().find(|dtype| *dtype != DType::F32);
    let (kind, width) = match half {
        Some(half) if types.contains(&DType::F32) => (format!("mixed_{}", suffix(half)), pack(DType::F32)),
        half => (suffix(half.unwrap_or(DType::F32)).to_owned(), pack(half.unwrap_or(DType::F32))),
    };

    let (kept, slots) = links.kept();
    let code = |at: usize, from: From| match from {
        From::Link(of) if of + 1 == at => -1,
        From::Link(of) => kept[of].expect("what is read later is kept") as i64,
        From::Ahead(i) => -2 - i as i64,
        From::Address(i) => i as i64,
        From::Nothing => 0,
    };
    let mut table: Vec<Cell> = Vec::new();
    for (at, link) in links.list.iter().enumerate() {
        let (act, [slope, extra]) = link.act;
        let (stream, threshold, scale) = link.dropout;
        let result = link.step.and_then(|step| op.results.iter().position(|r| *r == StepOutput { step, output: 0 }));
        table.extend([
            Cell::I64(link.kind),
            Cell::I64(code(at, link.from[0])),
            Cell::I64(code(at, link.from[1])),
            Cell::I64(act),
            Cell::F64(slope),
            Cell::F64(extra),
            Cell::I64(i64::from(stream)),
            Cell::I64(i64::from(threshold)),
            Cell::F64(f64::from(scale)),
            result.map_or(Cell::Null, |i| Memory::Output(i).into()),
            Cell::I64(i64::from(result.is_some_and(|i| cx.y_type(i) == DType::F32))),
            Cell::I64(kept[at].map_or(-1, |number| number as i64)),
        ]);
    }

    let (mut operands, mut axes): (Vec<Cell>, Vec<Axis<1>>) = (Vec::new(), Vec::new());
    let (mut wide_ahead, mut stretches) = (0, false);
    for (place, &i) in links.operands.iter().enumerate() {
        let own = if op.is_key(i) { Vec::new() } else { stretched(cx.x(i), cx.y(0)) };
        let wide = cx.x_type(i) == DType::F32;
        if place < links.ahead {
            wide_ahead |= u32::from(wide) << place;
            stretches |= !own.is_empty();
        }
        operands.push(Memory::Input(i).into());
        let numbers = [own.len() as i64, axes.len() as i64, pack_step(&own, width), i64::from(wide)];
        operands.extend(numbers.map(Cell::I64));
        axes.extend(own);
    }

    // As many threads as have room for what they keep.
    let bytes = |threads: u32| slots * width * size_of::<f32>() * threads as usize;
    let threads = [BLOCK, BLOCK / 2].into_iter().find(|n| bytes(*n) <= SHARED_BYTES).unwrap_or(BLOCK / 4);
    let kernel = Kernel::new(Module::Chain, format!("chain_{kind}")).block(threads, 1).over(n.div_ceil(width));
    let axes = if axes.is_empty() { Arg::Null } else { Axis::table(&axes) };
    let kernel = kernel
        .shared(bytes(threads))
        .arg(Arg::Table(table))
        .int(links.list.len())
        .arg(Arg::Table(operands))
        .int(links.ahead)
        .arg(Arg::U32(wide_ahead))
        .int(usize::from(stretches))
        .arg(axes)
        .long(n);
    Lowered::one(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{ActivationGrad, ActivationOp, Binary, Cast};

    /// Kinds and operands of the links; for each the place that keeps its result, if one does; how many places there are.
    type Laid = (Vec<(i64, [From; 2])>, Vec<Option<usize>>, usize);

    fn links(op: &Fused, operands: usize) -> Laid {
        let links = Links::new(op, operands);
        let (kept, slots) = links.kept();
        (links.list.iter().map(|link| (link.kind, link.from)).collect(), kept, slots)
    }

    #[test]
    fn what_the_next_link_alone_reads_is_not_kept() {
        let add = || Binary { kind: BinaryKind::Add };
        let relu = ActivationGrad { act: Activation::Relu };
        let op = Fused::of(add().into(), 2).then(relu, vec![Source::Operand(2), Source::Step(0)]);
        let (list, kept, slots) = links(&op, 3);
        assert_eq!(list[0], (2, [From::Ahead(0), From::Ahead(1)]));
        assert_eq!(list[1], (1, [From::Ahead(2), From::Link(0)]));
        assert_eq!((kept, slots), (vec![None, None], 0));

        // The first is read again by the last one; its number is free then.
        let op = Fused::of(add().into(), 2)
            .then(ActivationOp { act: Activation::Relu }, vec![Source::Step(0)])
            .then(Cast { to: DType::BF16 }, vec![Source::Step(1)])
            .then(add(), vec![Source::Step(0), Source::Step(2)])
            .then(ActivationOp { act: Activation::Relu }, vec![Source::Step(3)])
            .then(add(), vec![Source::Step(3), Source::Step(4)]);
        let (_, kept, slots) = links(&op, 2);
        assert_eq!((kept, slots), (vec![Some(0), None, None, Some(0), None, None], 1));
    }

    #[test]
    fn operands_behind_the_first_four_are_read_by_links() {
        let add = || Binary { kind: BinaryKind::Add };
        let mut op = Fused::of(add().into(), 2);
        for i in 2..6 {
            op = op.then(add(), vec![Source::Step(i - 2), Source::Operand(i)]);
        }
        let (list, kept, slots) = links(&op, 6);
        assert_eq!(list.len(), 7);
        assert_eq!(list[3], (READ, [From::Nothing, From::Address(4)]));
        assert_eq!(list[4], (2, [From::Link(2), From::Link(3)]));
        assert_eq!((kept[2], slots), (Some(0), 1));
    }

    #[test]
    fn stretched_packs_are_packs_or_one_element() {
        let of = |operand: &[usize], result: &[usize]| pack_step(&stretched(&operand.into(), &result.into()), 8);
        assert_eq!(of(&[2, 3, 8], &[2, 3, 8]), 1);
        assert_eq!(of(&[2, 1, 8], &[2, 3, 8]), 1);
        assert_eq!(of(&[2, 3, 1], &[2, 3, 16]), 0);
        assert_eq!(of(&[2, 3, 1], &[2, 3, 12]), -1);
        assert_eq!(of(&[2, 1, 12], &[2, 3, 12]), -1);
    }
}
