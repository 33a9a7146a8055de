//! What is done to a result before it is written: every case of the operations that can, with a summand, and gradients by
//! the input with a summand and with the gradient of a ReLU after them.

use crate::case::{Case, Draw};
use runner::graph::op::{
    Activation, ActivationGrad, Binary, BinaryKind, Conv2d, Conv2dGradInput, Fused, LayerNorm, LayerNormGrad,
    LinearGradInput, Source, Step,
};
use runner::graph::{DType, Op, Shape};

const ADD: Binary = Binary { kind: BinaryKind::Add };

/// The operation, of that many operands and outputs, with a summand after it, and its activation after that.
fn with_summand(op: &Op, operands: usize, outputs: usize) -> Option<Op> {
    let mut group = match op {
        Op::Fused(group) => group.clone(),
        op => (1..outputs).fold(Fused::of(op.clone(), operands), |group, output| group.with_result(0, output)),
    };
    let product = matches!(group.steps[0].op, Op::Conv2d(_) | Op::Linear(_) | Op::BatchNorm(_) | Op::BatchNormInfer(_));
    if !product || group.steps.iter().any(|step| matches!(step.op, Op::MaxPool2d(_))) {
        return None;
    }
    let others = group.results.split_off(1);
    let act = group.steps.pop_if(|step| matches!(step.op, Op::Activation(_)));
    let last = Source::Step(group.steps.len() - 1);
    // On either side.
    let from =
        if operands.is_multiple_of(2) { [last, Source::Operand(operands)] } else { [Source::Operand(operands), last] };
    let mut group = group.then(ADD, from.to_vec());
    if let Some(Step { op, .. }) = act {
        let last = Source::Step(group.steps.len() - 1);
        group = group.then(op, vec![last]);
    }
    group.results.extend(others);
    Some(group.into())
}

/// The gradient by the input of a case's convolution or linear layer, with a summand, the gradient of a ReLU, or both.
fn gradient(case: &Case, summand: bool, relu: bool) -> Option<Case> {
    let op: Op = match &case.op {
        Op::Conv2d(op) => {
            let [_, h, w, _] = case.operands[0].shape.nhwc().unwrap();
            Conv2dGradInput { conv: Conv2d { bias: false, ..op.clone() }, input: [h, w] }.into()
        }
        Op::Linear(_) => LinearGradInput {}.into(),
        _ => return None,
    };
    let mut group = Fused::of(op, 2);
    if summand {
        group = group.then(ADD, vec![Source::Step(0), Source::Operand(2)]);
    }
    if relu {
        let saved = Source::Operand(2 + usize::from(summand));
        let last = Source::Step(group.steps.len() - 1);
        group = group.then(ActivationGrad { act: Activation::Relu }, vec![saved, last]);
    }
    let name = format!("gradient by the input, summand {summand}, relu {relu}: {}", case.name);
    let (y, x, w) = (result(case), &case.operands[0].shape, case.operands[1].clone());
    let mut d = Draw::new(&name);
    let mut operands = vec![d.normal(y), w];
    operands.extend((0..usize::from(summand) + usize::from(relu)).map(|_| d.normal(x.clone())));
    operands.iter_mut().for_each(|o| o.wrt = false);
    Some(Case { name, op: group.into(), operands, smooth: case.smooth })
}

/// The gradient by the input of a case's layer normalisation, with a summand.
fn norm_gradient(case: &Case) -> Option<Case> {
    let Op::LayerNorm(LayerNorm { dims, weight, bias, centered, .. }) = case.op else { return None };
    let operands = 4 + usize::from(weight);
    let outputs = 1 + usize::from(weight) + usize::from(bias);
    let group = Fused::of(LayerNormGrad { dims, weight, bias, centered }.into(), operands)
        .then(ADD, vec![Source::Step(0), Source::Operand(operands)]);
    let op = (1..outputs).fold(group, |group, output| group.with_result(0, output));
    let name = format!("gradient by the input, with a summand: {}", case.name);
    let (x, mut d) = (&case.operands[0], Draw::new(&name));
    let rows = case.outputs()[1].1.clone();
    let mut list = vec![x.clone(), d.normal(x.shape.clone()), d.normal(rows.clone()), d.positive(rows)];
    list.extend(weight.then(|| case.operands[1].clone()));
    list.push(d.normal(x.shape.clone()));
    list.iter_mut().for_each(|o| o.wrt = false);
    Some(Case { name, op: op.into(), operands: list, smooth: case.smooth })
}

/// Shape of a case's first result.
fn result(case: &Case) -> Shape {
    let (dtype, shape) = case.outputs().remove(0);
    assert_eq!(dtype, DType::F32);
    shape
}

pub fn cases(of: &[Case]) -> Vec<Case> {
    let one = |case: &Case| {
        let op = with_summand(&case.op, case.operands.len(), case.outputs().len())?;
        let name = format!("{}, with a summand", case.name);
        let summand = Draw::new(&name).normal(result(case));
        let mut operands = case.operands.clone();
        operands.push(summand);
        // Groups have no gradient rule.
        operands.iter_mut().for_each(|o| o.wrt = false);
        Some(Case { name, op, operands, smooth: case.smooth })
    };
    let behind = [(true, false), (false, true), (true, true)];
    // One after the other, each on a third of the cases.
    let gradients = of.iter().enumerate().filter_map(|(i, case)| gradient(case, behind[i % 3].0, behind[i % 3].1));
    of.iter().filter_map(one).chain(gradients).chain(of.iter().filter_map(norm_gradient)).collect()
}
