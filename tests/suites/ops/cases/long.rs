//! Reductions of so many numbers that a GPU divides them among several blocks or keeps them apart from short ones, and
//! sizes on both sides of such a division.

use crate::case::{Case, Operand};
use runner::graph::op::{
    AccumulateGrad, Algorithm, BatchNorm, CrossEntropy, ElementwiseLoss, GradNorm, GroupNorm, LayerNorm, LossOp,
    METRIC_SLOTS, Metrics, OptimizerStep, Softmax, Task, TensorOptions, ZeroGrad,
};
use runner::graph::{DType, Input};

/// Many short rows, many rows for a warp each, rows for a block each, and rows that fit no shared memory.
const ROWS: [[usize; 2]; 5] = [[1100, 10], [131, 33], [2, 1025], [5, 700], [2, 11_000]];

fn norms(list: &mut Vec<Case>) {
    for (shape, mean) in
        [(vec![9, 13, 11, 8], 0.7), (vec![9, 13, 11, 8], 300.0), (vec![900, 33], 0.7), (vec![5, 11, 7, 132], 0.7)]
    {
        let op = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
        list.push(Case::new(format!("long batch norm of {shape:?} about {mean}"), op, |d| {
            let c = shape[shape.len() - 1];
            let x = d.normal(shape).map(|x| x + mean);
            let counter = Operand::new(DType::I64, Vec::new(), vec![3.0]);
            vec![x.wrt(), d.normal([c]).wrt(), d.normal([c]).wrt(), d.normal([c]), d.positive([c]), counter]
        }));
    }
    // The last has so many samples that a block takes several batches of a sample's rows, the last of which is short.
    let several = vec![260, 10, 53, 3];
    for (shape, groups) in [(vec![2, 30, 30, 12], 3), (vec![40, 3, 3, 9], 3), (vec![300, 12], 4), (several, 3)] {
        let op = GroupNorm { groups, eps: 0.1, affine: true };
        list.push(Case::new(format!("long group norm of {shape:?}"), op, |d| {
            let c = shape[shape.len() - 1];
            vec![d.normal(shape).map(|x| x + 2.0).wrt(), d.normal([c]).wrt(), d.normal([c]).wrt()]
        }));
    }
    for shape in ROWS {
        // Parameters of the longest rows would only take time.
        let affine = shape[1] < 5000;
        let op = LayerNorm { dims: 1, eps: 0.1, weight: affine, bias: affine, centered: true };
        list.push(Case::new(format!("long layer norm of {shape:?}"), op, |d| {
            let x = d.normal(shape).map(|x| x + 20.0).wrt();
            let parameters = (0..if affine { 2 } else { 0 }).map(|_| d.normal([shape[1]]).wrt());
            std::iter::once(x).chain(parameters.collect::<Vec<_>>()).collect()
        }));
    }
}

fn losses(list: &mut Vec<Case>) {
    for [rows, length] in ROWS {
        let shape = [rows, length];
        list.push(Case::new(format!("long softmax of {shape:?}"), Softmax {}, |d| vec![d.normal(shape).wrt()]));
        for label_smoothing in [0.0, 0.1] {
            let name = format!("long cross entropy of {shape:?}, smoothed {label_smoothing}");
            list.push(Case::new(name, LossOp::from(CrossEntropy::smoothed(label_smoothing)), |d| {
                let targets = d.below(DType::I32, [rows], length as u32).input(Input::Field(1));
                vec![d.normal(shape).wrt(), targets]
            }));
        }
        list.push(Case::new(
            format!("long mean squared error of {shape:?}"),
            LossOp::from(ElementwiseLoss::Mse),
            |d| vec![d.normal(shape).wrt(), d.normal(shape).input(Input::Field(1))],
        ));
        let metrics = |task| Metrics { task, ignore_index: None };
        list.push(Case::new(format!("long metrics of {shape:?}"), metrics(Task::Classification), |d| {
            // A few values, so that there are several largest. Half of the targets are right.
            let x = d.below(DType::F32, shape, 4);
            let first = |row: &[f64]| (0..length).fold(0, |best, i| if row[i] > row[best] { i } else { best });
            let mut targets = d.below(DType::I32, [rows], length as u32);
            for (r, row) in x.data.chunks(length).enumerate().step_by(2) {
                targets.data[r] = first(row) as f64;
            }
            vec![
                d.positive([1]),
                d.positive([1]),
                x,
                targets.input(Input::Field(1)),
                d.below(DType::F64, [METRIC_SLOTS], 9),
            ]
        }));
        list.push(Case::new(format!("long regression metrics of {shape:?}"), metrics(Task::Regression), |d| {
            let targets = d.normal(shape).input(Input::Field(1));
            vec![d.positive([1]), d.positive([1]), d.normal(shape), targets, d.below(DType::F64, [METRIC_SLOTS], 9)]
        }));
    }
}

fn updates(list: &mut Vec<Case>) {
    let lengths = [3000, 5, 1024, 1025];
    let schedule = || Operand::new(DType::F32, [4], vec![0.25, 0.5, 4.0, 0.125]).input(Input::Schedule);
    list.push(Case::new("long gradient norm", GradNorm {}, |d| {
        std::iter::once(schedule()).chain(lengths.map(|n| d.normal([n]))).collect()
    }));
    list.push(Case::new("long gradient sum", AccumulateGrad {}, |d| vec![d.normal([5003]), d.normal([5003])]));
    list.push(Case::new("long gradient sums cleared", ZeroGrad {}, |d| lengths.map(|n| d.normal([n])).into()));
    let algorithms = [
        Algorithm::Sgd { momentum: 0.9, dampening: 0.0, nesterov: true },
        Algorithm::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: true, amsgrad: true },
        Algorithm::RmsProp { alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: true },
        Algorithm::Adamax { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
        Algorithm::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-6, always_adapt: false },
        Algorithm::Lars { momentum: 0.9, trust_coefficient: 0.02, eps: 1e-8, always_adapt: false },
    ];
    for algorithm in algorithms {
        // Rules that look at a whole tensor look at one of several tasks, too.
        let lengths = if algorithm.trust().is_some() { [3000, 5, 40_000, 1025] } else { lengths };
        let options = TensorOptions { lr_scale: 0.5, weight_decay: 0.01 };
        let op = OptimizerStep {
            algorithm,
            clip_norm: Some(0.3),
            clip_value: None,
            scaled: false,
            counts: true,
            tensors: vec![options; lengths.len()],
            parts: Vec::new(),
        };
        list.push(Case::new(format!("long update, {algorithm:?}"), op, |d| {
            let counter = Operand::new(DType::I64, [1], vec![7.0]);
            let mut operands = vec![schedule(), d.positive([1]), d.positive([1]), counter];
            for n in lengths {
                operands.extend([d.normal([n]), d.normal([n])]);
                for slot in algorithm.slots() {
                    // Small means, so that a mean square is more than the square of the mean.
                    let square = slot.contains("sq") || slot.contains("square") || slot == "exp_inf";
                    operands.push(if square {
                        d.positive([n]).map(|x| 0.02 * x)
                    } else {
                        d.normal([n]).map(|x| 0.01 * x)
                    });
                }
            }
            operands
        }));
    }
}

/// None is checked by differences, which short ones are enough for.
pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    norms(&mut list);
    losses(&mut list);
    updates(&mut list);
    list.into_iter().map(Case::kinked).collect()
}
