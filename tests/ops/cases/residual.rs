//! Operations that add something to their result: every case of those that can, with a summand.

use crate::case::{Case, Draw};
use runner::graph::op::{BatchNorm, BatchNormInfer, Conv2d, Conv2dNorm, Linear};
use runner::graph::{DType, Op, Role, Value};

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

pub fn cases(of: &[Case]) -> Vec<Case> {
    let one = |case: &Case| {
        let op = with_summand(&case.op)?;
        let values: Vec<Value> = case
            .operands
            .iter()
            .map(|o| Value { dtype: o.dtype, shape: o.shape.clone(), role: Role::Temporary })
            .collect();
        let (dtype, shape) = case.op.rules().infer(&values.iter().collect::<Vec<_>>()).unwrap().remove(0);
        assert_eq!(dtype, DType::F32);
        let name = format!("{}, with a summand", case.name);
        let summand = Draw::new(&name).normal(shape);
        let mut operands = case.operands.clone();
        operands.push(summand);
        // The pass that makes them comes after the gradients.
        operands.iter_mut().for_each(|o| o.wrt = false);
        Some(Case { name, op, operands, smooth: case.smooth })
    };
    of.iter().filter_map(one).collect()
}
