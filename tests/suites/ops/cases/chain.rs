//! Chains of element-wise operations.

use super::ACTIVATIONS;
use crate::case::{Case, Draw, Operand};
use runner::backend::cpu::fusions::MAX_STEPS;
use runner::graph::op::{
    Activation, ActivationGrad, ActivationOp, Binary, BinaryKind, Cast, Dropout, Fused, Source, Step, StepOutput,
};
use runner::graph::{DType, Input, Op};

/// What can be stretched to `shape`: as it is, or with ones in the place of some dimensions.
fn stretched(d: &mut Draw, shape: &[usize]) -> Vec<usize> {
    assert!(shape.iter().any(|n| *n > 1), "nothing to stretch to");
    loop {
        let dims: Vec<usize> = shape.iter().map(|n| if d.coin() { 1 } else { *n }).collect();
        if dims != shape {
            return dims;
        }
    }
}

/// A chain of `count` links drawn by `number`, some of whose results are wanted. Later links like later results.
fn drawn(number: usize, count: usize, shape: &[usize]) -> Case {
    let d = &mut Draw::new(&format!("chain {number}"));
    let mut dims: Vec<Option<Vec<usize>>> = vec![Some(shape.to_vec()), Some(shape.to_vec())];
    let mut steps: Vec<Step> = Vec::new();
    let mut key = None;
    for at in 0..count {
        let recent = |d: &mut Draw| match at {
            0 => Source::Operand(d.between(0, 1)),
            _ if d.between(0, 3) == 0 => Source::Operand(d.between(0, 1)),
            _ => Source::Step(at - 1 - d.between(0, (at - 1).min(2))),
        };
        let first = recent(d);
        let act = ACTIVATIONS[d.between(0, ACTIVATIONS.len() - 1)];
        let (op, from) = match d.between(0, 9) {
            0..=2 => (Op::from(ActivationOp { act }), vec![first]),
            3 | 4 => (ActivationGrad { act }.into(), vec![Source::Operand(d.between(0, 1)), first]),
            5 => {
                let key = *key.get_or_insert_with(|| {
                    dims.push(None);
                    dims.len() - 1
                });
                (Dropout { p: 0.3, stream: at as u32 }.into(), vec![first, Source::Operand(key)])
            }
            draw => {
                let second = if draw < 8 {
                    recent(d)
                } else {
                    dims.push(Some(stretched(d, shape)));
                    Source::Operand(dims.len() - 1)
                };
                let kind = if d.coin() { BinaryKind::Add } else { BinaryKind::Mul };
                (Binary { kind }.into(), if d.coin() { vec![first, second] } else { vec![second, first] })
            }
        };
        steps.push(Step { op, from });
    }
    let others = (0..count - 1).filter(|_| d.between(0, 4) == 0);
    let results = std::iter::once(count - 1).chain(others).map(|step| StepOutput { step, output: 0 }).collect();
    // What is not read is no operand.
    let read = |i: usize| steps.iter().any(|step| step.from.contains(&Source::Operand(i)));
    let read: Vec<bool> = (0..dims.len()).map(read).collect();
    let renumbered = |i: usize| read[..i].iter().filter(|read| **read).count();
    for from in steps.iter_mut().flat_map(|step| &mut step.from) {
        if let Source::Operand(i) = from {
            *i = renumbered(*i);
        }
    }
    let mut kept = read.iter();
    dims.retain(|_| kept.next() == Some(&true));
    let op = Fused { steps, results, in_place: None };
    Case::new(format!("drawn chain {number} over {shape:?}: {op:?}"), op, |d| {
        let operand = |dims: &Option<Vec<usize>>| match dims {
            Some(dims) => d.normal(dims.clone()).map(|x| 0.7 * x),
            None => Operand::new(DType::U32, [4], vec![17.0, 4_000_000_000.0, 3.0, 0.0]).input(Input::Random),
        };
        dims.iter().map(operand).collect()
    })
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    let shapes: [&[usize]; 9] =
        [&[2, 1], &[3, 7], &[2, 3, 5, 4], &[1027], &[2, 1, 3, 8], &[5, 409], &[3, 4, 33], &[17_000], &[2, 7, 6, 206]];
    for number in 0..36 {
        let count = 1 + number % MAX_STEPS;
        list.push(drawn(number, count, shapes[number % shapes.len()]));
    }
    // What residual networks do on the way back: the sum of two gradients, and the gradient of the ReLU before.
    let add = || Op::from(Binary { kind: BinaryKind::Add });
    let multiply = || Op::from(Binary { kind: BinaryKind::Mul });
    let op =
        Fused::of(add(), 2).then(ActivationGrad { act: Activation::Relu }, vec![Source::Operand(2), Source::Step(0)]);
    let op = Fused { in_place: Some(0), ..op };
    list.push(Case::new("sum of gradients, and the gradient of ReLU", op, |d| {
        vec![d.normal([2, 3, 5, 40]), d.normal([2, 3, 5, 40]), d.normal([2, 3, 5, 40])]
    }));
    // The same over sizes that no pack divides, and with the gradient of GELU.
    let sizes = [
        (1, Activation::Relu),
        (7, Activation::Gelu),
        (8, Activation::Relu),
        (2049, Activation::Gelu),
        (17_003, Activation::Relu),
    ];
    for (n, act) in sizes {
        let op = Fused::of(add(), 2).then(ActivationGrad { act }, vec![Source::Operand(2), Source::Step(0)]);
        list.push(Case::new(format!("sum of {n} gradients, and the gradient of {act:?}"), op, |d| {
            vec![d.normal([n]), d.normal([n]), d.normal([n])]
        }));
    }
    // A stretched operand of both sides of steps, and one that is read last.
    let op = Fused::of(multiply(), 2)
        .then(ActivationOp { act: Activation::Silu }, vec![Source::Step(0)])
        .then(add(), vec![Source::Step(1), Source::Operand(1)])
        .then(multiply(), vec![Source::Step(2), Source::Step(2)])
        .with_result(0, 0);
    list.push(Case::new("a stretched operand twice", op, |d| vec![d.normal([2, 3, 5, 40]), d.normal([2, 1, 1, 40])]));
    list
}

/// Chains of 32-bit floats and those of type `half`, with casts between them.
pub fn mixed(half: DType) -> Vec<Case> {
    let add = || Op::from(Binary { kind: BinaryKind::Add });
    let to = |to| Op::from(Cast { to });
    let mut list = Vec::new();
    let shapes: [&[usize]; 5] = [&[3, 1], &[2, 3, 5, 4], &[1027], &[5, 409], &[2, 3, 8]];
    for shape in shapes {
        // What a transformer does at the end of a block: the result of a product is added to what goes by it, and the sum goes on
        // in both types.
        let op = Fused::of(to(DType::F32), 1)
            .then(add(), vec![Source::Step(0), Source::Operand(1)])
            .then(to(half), vec![Source::Step(1)])
            .with_result(1, 0);
        list.push(Case::new(format!("cast, sum and cast of {shape:?} in {half}"), op, |d| {
            vec![d.normal(shape).cast(half), d.normal(shape)]
        }));
        // The way back, with an activation before the sum.
        let op = Fused::of(ActivationGrad { act: Activation::Gelu }.into(), 2)
            .then(to(DType::F32), vec![Source::Step(0)])
            .then(add(), vec![Source::Operand(2), Source::Step(1)]);
        let op = Fused { in_place: Some(2), ..op };
        list.push(Case::new(format!("gradient of GELU, cast and sum of {shape:?} in {half}"), op, |d| {
            vec![d.normal(shape).cast(half), d.normal(shape).cast(half), d.normal(shape)]
        }));
        // A dropout on 16-bit floats, then more operands than are read at the beginning, one of them stretched.
        let mut op = Fused::of(Dropout { p: 0.3, stream: 2 }.into(), 2)
            .then(to(DType::F32), vec![Source::Step(0)])
            .then(add(), vec![Source::Step(1), Source::Operand(2)]);
        for i in 3..7 {
            op = op.then(Binary { kind: BinaryKind::Add }, vec![Source::Operand(i), Source::Step(i - 1)]);
        }
        let op = op
            .then(to(half), vec![Source::Step(1)])
            .then(ActivationOp { act: Activation::Silu }, vec![Source::Step(7)]);
        let op = op.with_result(6, 0);
        list.push(Case::new(format!("many operands over {shape:?} in {half}"), op, |d| {
            let key = Operand::new(DType::U32, [4], vec![17.0, 4_000_000_000.0, 3.0, 0.0]).input(Input::Random);
            let first = d.normal(shape).cast(half);
            let narrow = stretched(d, shape);
            let rest: Vec<Operand> =
                (2..7).map(|i| if i == 4 { d.normal(narrow.clone()) } else { d.normal(shape) }).collect();
            [vec![first, key], rest].concat()
        }));
    }
    list
}
