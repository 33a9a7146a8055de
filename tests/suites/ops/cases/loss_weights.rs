//! Losses of rows and numbers that have weights of their own.

use super::loss::{ELEMENTWISE, OF_MEANS};
use crate::case::{Case, Draw, Operand};
use runner::graph::op::{CrossEntropy, Loss, LossOp, RowLoss, WeightedBinary};
use runner::graph::{DType, Input};

/// Weights of which every fourth is 0.
fn weights(d: &mut Draw, number: usize) -> Operand {
    let mut weights = d.positive([number]);
    weights.data.iter_mut().skip(1).step_by(4).for_each(|w| *w = 0.0);
    weights.input(Input::Field(2))
}

fn weighted(loss: impl Into<Loss>) -> LossOp {
    LossOp { loss: loss.into(), weighted: true }
}

/// What a thread, a warp and a block reduce; positions of sequences. Every third target does not count.
fn of_classes(list: &mut Vec<Case>) {
    for shape in [vec![7, 4], vec![700, 20], vec![5, 300], vec![3, 6, 5]] {
        let (rows, classes) = (shape.iter().rev().skip(1).product::<usize>(), shape[shape.len() - 1]);
        let some: Vec<f32> = (0..classes).map(|c| (c % 4) as f32 * 0.75).collect();
        let plain = |form, label_smoothing, weight| CrossEntropy { form, label_smoothing, ignore_index: 2, weight };
        for loss in [
            plain(RowLoss::CrossEntropy, 0.0, Vec::new()),
            plain(RowLoss::CrossEntropy, 0.3, some.clone()),
            plain(RowLoss::Nll, 0.0, some.clone()),
            plain(RowLoss::Focal { gamma: 2.0 }, 0.0, Vec::new()),
        ] {
            let name = format!(
                "{:?} of {shape:?} whose rows have weights, smoothed {}, {} weights of classes",
                loss.form,
                loss.label_smoothing,
                loss.weight.len()
            );
            list.push(Case::new(name, weighted(loss), |d| {
                let mut targets = d.below(DType::I32, &shape[..shape.len() - 1], classes as u32);
                (0..rows).step_by(3).for_each(|r| targets.data[r] = 2.0);
                vec![d.normal(&shape[..]).wrt(), targets.input(Input::Field(1)), weights(d, rows)]
            }));
        }
        for (label_smoothing, weight) in [(0.0, Vec::new()), (0.3, some)] {
            let loss = CrossEntropy { weight, ..CrossEntropy::smoothed(label_smoothing) };
            let name = format!("shares of {shape:?} whose rows have weights, smoothed {label_smoothing}");
            list.push(Case::new(name, weighted(loss), |d| {
                let shares = d.positive(&shape[..]).map(|v| v / classes as f64).input(Input::Shares);
                vec![d.normal(&shape[..]).wrt(), shares, weights(d, rows)]
            }));
        }
    }
}

fn of_numbers(list: &mut Vec<Case>) {
    let binary = |pos_weight: &[f32], focal| Loss::from(WeightedBinary { pos_weight: pos_weight.to_vec(), focal });
    let all = ELEMENTWISE.iter().chain(&OF_MEANS).map(|loss| Loss::from(*loss));
    let all = all.chain([binary(&[3.0], None), binary(&[], Some([2.0, 0.25]))]);
    for loss in all {
        for shape in [vec![5, 3], vec![3000, 3], vec![7]] {
            let number = shape.iter().product();
            let what = match &loss {
                Loss::Elementwise(loss) => format!("{loss:?}"),
                loss => format!("{loss:?}"),
            };
            let name = format!("{what} of {shape:?} that have weights");
            let case = Case::new(name, weighted(loss.clone()), |d| {
                // The share of a yes is at most 1.
                let most = if matches!(loss, Loss::Binary(_)) { 1.0 } else { 2.0 };
                let targets = d.positive(&shape[..]).map(|t| ((4.0 * t).floor() / 4.0).min(most));
                let targets = targets.input(Input::Field(1));
                // Apart from the kinks, which lie at multiples of a quarter.
                let x = d.positive(&shape[..]).map(|x| (8.0 * x).floor() / 4.0 + 0.0625);
                vec![x.wrt(), targets, weights(d, number)]
            });
            list.push(case);
        }
    }
}

fn where_all_are_zero(list: &mut Vec<Case>) {
    let nothing = |number| Operand::new(DType::F32, [number], vec![0.0; number]).input(Input::Field(2));
    list.push(Case::new("rows whose weights are 0", weighted(CrossEntropy::smoothed(0.1)), |d| {
        let targets = d.below(DType::I32, [4], 3).input(Input::Field(1));
        vec![d.normal([4, 3]).wrt(), targets, nothing(4)]
    }));
    list.push(Case::new("shares whose rows weigh 0", weighted(CrossEntropy::smoothed(0.1)), |d| {
        let shares = d.positive([4, 3]).input(Input::Shares);
        vec![d.normal([4, 3]).wrt(), shares, nothing(4)]
    }));
    for loss in [Loss::from(ELEMENTWISE[0]), WeightedBinary { pos_weight: vec![2.0], focal: None }.into()] {
        list.push(Case::new(format!("{} of numbers whose weights are 0", loss.name()), weighted(loss), |d| {
            vec![d.normal([4, 3]).wrt(), d.positive([4, 3]).input(Input::Field(1)), nothing(12)]
        }));
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    of_classes(&mut list);
    of_numbers(&mut list);
    where_all_are_zero(&mut list);
    list
}
