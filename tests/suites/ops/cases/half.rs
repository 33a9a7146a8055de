//! Cases on 16-bit floats: those of all operations that take them, with the operands cast.

use crate::case::{Case, Operand};
use runner::graph::op::{Cast, Step};
use runner::graph::{DType, Op};

/// The operands that may be 16-bit floats, if the first one is.
fn operands(op: &Op, count: usize) -> std::ops::Range<usize> {
    match op {
        Op::Fused(op) if op.steps.iter().all(|step| step.op.element_wise().is_some()) => 0..count,
        Op::Fused(op) => match &op.steps[..] {
            [head, Step { op: Op::Activation(_), .. }] => operands(&head.op, head.from.len()),
            // No device that computes on 16-bit floats joins anything else.
            _ => 0..0,
        },
        Op::Linear(_) | Op::LinearGradInput(_) | Op::LinearGradWeight(_) => 0..2,
        Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_) | Op::Binary(_) => 0..2,
        Op::Concat(_) => 0..count,
        Op::Cast(_) | Op::Activation(_) | Op::SumTo(_) | Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) => 0..1,
        Op::Pad(_) | Op::NewFull(_) => 0..1,
        Op::MaxPool2d(_) | Op::AvgPool2d(_) | Op::AdaptiveAvgPool2d(_) | Op::AdaptiveMaxPool2d(_) => 0..1,
        Op::Resize2d(_) => 0..1,
        Op::BatchNorm(_) | Op::BatchNormInfer(_) | Op::Dropout(_) | Op::Rotary(_) => 0..1,
        Op::Attention(op) => 0..op.sources(),
        _ => 0..0,
    }
}

/// `case` with 16-bit floats; `None` if its operation takes and makes none.
fn cast(case: &Case, half: DType) -> Option<Case> {
    let of = operands(&case.op, case.operands.len());
    if of.is_empty() && !matches!(case.op, Op::Normalize(_)) {
        return None;
    }
    let mut case = case.clone();
    if let Op::Normalize(op) = &mut case.op {
        op.to = half;
    }
    for operand in &mut case.operands[of] {
        if operand.dtype == DType::F32 {
            *operand = operand.cast(half);
        }
    }
    case.name = format!("{} in {half}", case.name);
    Some(case)
}

/// The cases on floats of type `half` that are made of `singles`.
pub fn cases(singles: &[Case], half: DType) -> Vec<Case> {
    singles.iter().filter_map(|case| cast(case, half)).collect()
}

/// Conversions to floats of type `half`.
pub fn casts(half: DType) -> Vec<Case> {
    let mut list = Vec::new();
    for n in [1, 30, 131] {
        list.push(Case::new(format!("cast of {n} to {half}"), Cast { to: half }, |d| vec![d.normal([n]).wrt()]));
    }
    list.push(Case::new(format!("cast of large and small numbers to {half}"), Cast { to: half }, |d| {
        let powers = d.distinct([257]).map(|x| if x < 0.0 { -1.0 } else { 1.0 } * 1.37 * (4.0 * x).exp2());
        vec![powers]
    }));
    // What is no number has all bits, some, or one; rounding must not carry them into a number. A number that is too large is infinite.
    let mut ends = [0x7fff_ffff, 0xffff_ffff, 0x7fc0_0000].map(|bits| f64::from(f32::from_bits(bits))).to_vec();
    ends.extend([f64::INFINITY, f64::NEG_INFINITY, f64::from(f32::MAX), f64::from(f32::MIN), 0.0, -0.0, 1e-45]);
    list.push(Case::new(format!("cast of what is no number to {half}"), Cast { to: half }, |_| {
        vec![Operand::new(DType::F32, [ends.len()], ends)]
    }));
    list
}
