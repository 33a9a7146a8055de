//! Launches of fused chains of element-wise operations.

use super::Context;
use super::layout::{Axis, dense_strides, pack};
use crate::backend::cuda::launch::{Arg, Cell, Kernel, Lowered, Memory, Module, suffix};
use crate::graph::Shape;
use crate::graph::op::{BinaryKind, ElementWise, Fused, Source, Step, StepOutput};
use crate::random::dropout_threshold;

/// The kernel's `Link`.
fn link(step: &Step, result: Option<usize>) -> [Cell; 10] {
    let (mut kind, mut act) = (0, None);
    let (mut stream, mut threshold, mut scale) = (0, 0, 0.0);
    match step.op.element_wise().expect("its pattern takes nothing else") {
        ElementWise::Activation(a) => act = Some(a.facts()),
        ElementWise::ActivationGrad(a) => (kind, act) = (1, Some(a.facts())),
        ElementWise::Binary(BinaryKind::Add) => kind = 2,
        ElementWise::Binary(BinaryKind::Mul) => kind = 3,
        ElementWise::Dropout(op) => {
            (kind, stream, threshold, scale) = (4, op.stream, dropout_threshold(op.p), 1.0 / (1.0 - op.p));
        }
    }
    let (code, [slope, extra]) = act.map_or((0, [0.0; 2]), |facts| (i64::from(facts.code), facts.constants));
    let from = |i: usize| match step.from.get(i) {
        Some(Source::Step(at)) => *at as i64,
        Some(Source::Operand(at)) => -1 - *at as i64,
        None => 0,
    };
    [
        Cell::I64(kind),
        Cell::I64(from(0)),
        Cell::I64(from(1)),
        Cell::I64(code),
        Cell::F64(f64::from(slope)),
        Cell::F64(f64::from(extra)),
        Cell::I64(i64::from(stream)),
        Cell::I64(i64::from(threshold)),
        Cell::F64(f64::from(scale)),
        result.map_or(Cell::Null, |i| Memory::Output(i).into()),
    ]
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

/// Lowers the operation.
pub fn chain(cx: &Context, op: &Fused) -> Lowered {
    let (n, dtype) = (cx.y(0).len(), cx.y_type(0));
    let result = |step: usize| op.results.iter().position(|r| *r == StepOutput { step, output: 0 });
    let of_link = |(at, step): (usize, &Step)| link(step, result(at));
    let links = op.steps.iter().enumerate().flat_map(of_link).collect();
    let (mut operands, mut axes) = (Vec::new(), Vec::new());
    for i in 0..cx.node.inputs.len() {
        let own = if op.is_key(i) { Vec::new() } else { stretched(cx.x(i), cx.y(0)) };
        operands.extend([Memory::Input(i).into(), Cell::I64(own.len() as i64), Cell::I64(axes.len() as i64 / 2)]);
        axes.extend(own.iter().flat_map(|axis| [axis.size, axis.strides[0]]).map(|x| Cell::I64(x as i64)));
    }
    let kernel = Kernel::new(Module::Chain, format!("chain_{}", suffix(dtype))).over(n.div_ceil(pack(dtype)));
    let axes = if axes.is_empty() { Arg::Null } else { Arg::Table(axes) };
    let kernel = kernel.arg(Arg::Table(links)).int(op.steps.len()).arg(Arg::Table(operands)).arg(axes).long(n);
    Lowered::one(kernel)
}
