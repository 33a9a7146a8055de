//! What Muon does between products of matrices; a part of the family of optimizers.

use super::optim::schedule;
use crate::case::{Case, Draw, Operand};
use runner::graph::DType;
use runner::graph::op::{Clipping, MuonPolynomial, MuonStart, MuonStep, TensorOptions};

fn single(x: f64) -> Operand {
    Operand::new(DType::F32, [1], vec![x])
}

/// What a case has before its tensors: the norm, where it is one, is the drawn one times `norm`.
fn head(d: &mut Draw, clipping: Clipping, [loss, norm]: [f64; 2]) -> Vec<Operand> {
    let mut operands = vec![schedule(), single(loss)];
    if clipping.has_norm() {
        operands.push(d.positive([1]).map(|x| x * norm));
    }
    operands.extend(clipping.scaled.then(|| single(8.0)));
    operands
}

/// Every way of clipping, with losses and factors of norms: some of them let nothing be updated.
fn settings() -> Vec<(Clipping, [f64; 2])> {
    let mut list = Vec::new();
    for clip_norm in [None, Some(0.02), Some(5.0)] {
        for scaled in [false, true] {
            list.push((Clipping { clip_norm, clip_value: None, scaled }, [0.5, 1.0]));
        }
    }
    let clip_value = Some(0.05);
    list.push((Clipping { clip_value, ..Clipping::default() }, [0.5, 1.0]));
    list.push((Clipping::default(), [f64::NAN, 1.0]));
    list.push((Clipping { scaled: true, ..Clipping::default() }, [0.5, f64::INFINITY]));
    list
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    let shapes = [&[2, 3][..], &[7, 5, 1, 9], &[65, 130]];
    for (clipping, values) in settings() {
        for nesterov in [false, true] {
            for shape in shapes {
                let op = MuonStart { clipping, momentum: 0.9, nesterov, eps: 1e-7 };
                let name = format!("{op:?}, loss and norm {values:?}, {shape:?}");
                list.push(Case::new(name, op, |d| {
                    let mut operands = head(d, clipping, values);
                    operands.extend([d.normal(shape), d.normal(shape).map(|x| 0.1 * x)]);
                    operands
                }));
            }
        }
        for shape in shapes {
            let options = TensorOptions { lr_scale: 0.5, weight_decay: 0.3 };
            let op = MuonStep { clipping, length: 1.5, options };
            list.push(Case::new(format!("{op:?}, loss and norm {values:?}, {shape:?}"), op, |d| {
                let mut operands = head(d, clipping, values);
                let matrix = [shape[0], shape[1..].iter().product()];
                operands.extend([d.normal(matrix), d.normal(shape)]);
                operands
            }));
        }
    }
    // A norm below `eps`, and one of zero.
    for factor in [1.0, 0.0] {
        let op = MuonStart { clipping: Clipping::default(), momentum: 0.9, nesterov: true, eps: 100.0 };
        list.push(Case::new(format!("a norm below `eps`, of {factor}"), op, |d| {
            let mut operands = head(d, op.clipping, [0.5, 1.0]);
            operands.extend([d.normal([5, 7]), d.normal([5, 7])].map(|x| x.map(|x| factor * x)));
            operands
        }));
    }
    for side in [1, 4, 33, 130] {
        let op = MuonPolynomial { coefficients: [3.4445, -4.775, 2.0315] };
        list.push(Case::new(format!("polynomial of a matrix of {side} rows"), op, |d| {
            vec![d.normal([side, side]), d.normal([side, side])]
        }));
    }
    list
}
