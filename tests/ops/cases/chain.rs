use super::ACTIVATIONS;
use crate::case::{Case, Draw, Operand};
use runner::graph::op::{Activation, BinaryKind, Chain, Dropout, Link, LinkOp, MAX_LINKS, Source};
use runner::graph::{DType, Input};

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
    let mut links: Vec<Link> = Vec::new();
    let mut key = None;
    for at in 0..count {
        let recent = |d: &mut Draw| match at {
            0 => Source::Operand(d.between(0, 1)),
            _ if d.between(0, 3) == 0 => Source::Operand(d.between(0, 1)),
            _ => Source::Link(at - 1 - d.between(0, (at - 1).min(2))),
        };
        let first = recent(d);
        let act = ACTIVATIONS[d.between(0, ACTIVATIONS.len() - 1)];
        let (op, from) = match d.between(0, 9) {
            0..=2 => (LinkOp::Activation(act), vec![first]),
            3 | 4 => (LinkOp::ActivationGrad(act), vec![Source::Operand(d.between(0, 1)), first]),
            5 => {
                let key = *key.get_or_insert_with(|| {
                    dims.push(None);
                    dims.len() - 1
                });
                (LinkOp::Dropout(Dropout { p: 0.3, stream: at as u32 }), vec![first, Source::Operand(key)])
            }
            draw => {
                let second = if draw < 8 {
                    recent(d)
                } else {
                    dims.push(Some(stretched(d, shape)));
                    Source::Operand(dims.len() - 1)
                };
                let kind = if d.coin() { BinaryKind::Add } else { BinaryKind::Mul };
                (LinkOp::Binary(kind), if d.coin() { vec![first, second] } else { vec![second, first] })
            }
        };
        links.push(Link { op, from });
    }
    let mut results: Vec<usize> = (0..count - 1).filter(|_| d.between(0, 4) == 0).collect();
    results.push(count - 1);
    let op = Chain { links, results, in_place: None };
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
        let count = 1 + number % MAX_LINKS;
        list.push(drawn(number, count, shapes[number % shapes.len()]));
    }
    // What residual networks do on the way back: the sum of two gradients, and the gradient of the ReLU before.
    let links = vec![
        Link { op: LinkOp::Binary(BinaryKind::Add), from: vec![Source::Operand(0), Source::Operand(1)] },
        Link { op: LinkOp::ActivationGrad(Activation::Relu), from: vec![Source::Operand(2), Source::Link(0)] },
    ];
    let op = Chain { links, results: vec![1], in_place: Some(0) };
    list.push(Case::new("sum of gradients, and the gradient of ReLU", op, |d| {
        vec![d.normal([2, 3, 5, 40]), d.normal([2, 3, 5, 40]), d.normal([2, 3, 5, 40])]
    }));
    // A stretched operand of both sides of links, and one that is read last.
    let links = vec![
        Link { op: LinkOp::Binary(BinaryKind::Mul), from: vec![Source::Operand(1), Source::Operand(0)] },
        Link { op: LinkOp::Activation(Activation::Silu), from: vec![Source::Link(0)] },
        Link { op: LinkOp::Binary(BinaryKind::Add), from: vec![Source::Link(1), Source::Operand(1)] },
        Link { op: LinkOp::Binary(BinaryKind::Mul), from: vec![Source::Link(2), Source::Link(2)] },
    ];
    let op = Chain { links, results: vec![0, 3], in_place: None };
    list.push(Case::new("a stretched operand twice", op, |d| vec![d.normal([2, 3, 5, 40]), d.normal([2, 1, 1, 40])]));
    list
}
