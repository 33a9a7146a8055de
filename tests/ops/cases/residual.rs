//! Operations that do something to their result before it is written: every case of those that can, with a summand, and
//! gradients by the input with what may become of them.

use crate::case::{Case, Draw, Operand};
use runner::graph::op::{
    BatchNorm, BatchNormInfer, Conv2d, Conv2dGradInput, Conv2dNorm, GradAfter, Linear, LinearGradInput,
};
use runner::graph::{DType, Op, Role, Shape, Value};

/// The operation with a summand.
fn with_summand(op: &Op) -> Option<Op> {
    Some(match op.clone() {
        Op::Conv2d(op) => Conv2d { residual: true, ..op }.into(),
        Op::Conv2dNorm(op) => Conv2dNorm { residual: true, ..op }.into(),
        Op::Linear(op) => Linear { residual: true, ..op }.into(),
        Op::BatchNorm(op) => BatchNorm { residual: true, ..op }.into(),
        Op::BatchNormInfer(op) => BatchNormInfer { residual: true, ..op }.into(),
        _ => return None,
    })
}

/// The gradient by the input of a case's convolution or linear layer, with `after`.
fn gradient(case: &Case, after: GradAfter) -> Option<Case> {
    let op: Op = match &case.op {
        Op::Conv2d(op) if op.act.is_none() => {
            let [_, h, w, _] = case.operands[0].shape.nhwc().unwrap();
            Conv2dGradInput { conv: Conv2d { bias: false, ..op.clone() }, input: [h, w], after }.into()
        }
        Op::Linear(op) if op.act.is_none() => LinearGradInput { after }.into(),
        _ => return None,
    };
    let name = format!("gradient by the input, {after:?}: {}", case.name);
    let (y, x, w) = (result(case), &case.operands[0].shape, case.operands[1].clone());
    let mut d = Draw::new(&name);
    let mut operands = vec![d.normal(y), w];
    operands.extend((0..after.operands()).map(|_| d.normal(x.clone())));
    operands.iter_mut().for_each(|o| o.wrt = false);
    Some(Case { name, op, operands, smooth: case.smooth })
}

/// Shape of a case's first result.
fn result(case: &Case) -> Shape {
    let value = |o: &Operand| Value { dtype: o.dtype, shape: o.shape.clone(), role: Role::Temporary };
    let values: Vec<Value> = case.operands.iter().map(value).collect();
    let (dtype, shape) = case.op.rules().infer(&values.iter().collect::<Vec<_>>()).unwrap().remove(0);
    assert_eq!(dtype, DType::F32);
    shape
}

pub fn cases(of: &[Case]) -> Vec<Case> {
    let one = |case: &Case| {
        let op = with_summand(&case.op)?;
        let name = format!("{}, with a summand", case.name);
        let summand = Draw::new(&name).normal(result(case));
        let mut operands = case.operands.clone();
        operands.push(summand);
        // The pass that makes them comes after the gradients.
        operands.iter_mut().for_each(|o| o.wrt = false);
        Some(Case { name, op, operands, smooth: case.smooth })
    };
    let afters = [(true, false), (false, true), (true, true)].map(|(residual, relu)| GradAfter { residual, relu });
    // One after the other, each on a third of the cases.
    let gradients = of.iter().enumerate().filter_map(|(i, case)| gradient(case, afters[i % 3]));
    of.iter().filter_map(one).chain(gradients).collect()
}
