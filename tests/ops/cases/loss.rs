use crate::case::{Case, Draw, Operand};
use runner::graph::op::{
    AccumulateLoss, CrossEntropy, ElementwiseLoss, LossOp, METRIC_SLOTS, MeanScale, Metrics, Task,
};
use runner::graph::{DType, Input};

/// The losses that are functions of one prediction and one target.
const ELEMENTWISE: [ElementwiseLoss; 8] = [
    ElementwiseLoss::Mse,
    ElementwiseLoss::L1,
    ElementwiseLoss::SmoothL1 { beta: 1.0 },
    ElementwiseLoss::SmoothL1 { beta: 0.25 },
    ElementwiseLoss::SmoothL1 { beta: 0.0 },
    ElementwiseLoss::Huber { delta: 1.0 },
    ElementwiseLoss::Huber { delta: 0.5 },
    ElementwiseLoss::BceWithLogits,
];

fn losses(list: &mut Vec<Case>) {
    for (shape, classes) in [(vec![1], 2), (vec![5], 10), (vec![33], 3), (vec![2, 3], 7), (vec![4], 1), (vec![3], 100)]
    {
        for label_smoothing in [0.0, 0.1, 1.0] {
            let logits = [shape.clone(), vec![classes]].concat();
            let name = format!("cross entropy of {logits:?}, smoothed {label_smoothing}");
            list.push(Case::new(name, LossOp::from(CrossEntropy::smoothed(label_smoothing)), |d| {
                let targets = d.below(DType::I32, shape.clone(), classes as u32).input(Input::Field(1));
                vec![d.normal(logits).wrt(), targets]
            }));
        }
    }
    list.push(Case::new("cross entropy of large numbers", LossOp::from(CrossEntropy::smoothed(0.2)), |d| {
        vec![d.normal([6, 5]).map(|x| 200.0 + 3.0 * x).wrt(), d.below(DType::I32, [6], 5).input(Input::Field(1))]
    }));
    // What a thread, a warp and a block reduce; positions of sequences and images. Every third target does not count.
    for shape in [vec![7, 4], vec![70, 20], vec![5, 300], vec![3, 6, 5], vec![2, 3, 4, 6]] {
        let (rows, classes) = (shape.iter().rev().skip(1).product::<usize>(), shape[shape.len() - 1]);
        for (label_smoothing, weighted) in [(0.0, false), (0.0, true), (0.3, false), (0.3, true)] {
            let weight: Vec<f32> = (0..if weighted { classes } else { 0 }).map(|c| (c % 4) as f32 * 0.75).collect();
            let loss = CrossEntropy { label_smoothing, ignore_index: 2, weight };
            let name = format!("cross entropy of {shape:?} in part, smoothed {label_smoothing}, weighted {weighted}");
            list.push(Case::new(name, LossOp::from(loss), |d| {
                let mut targets = d.below(DType::I32, &shape[..shape.len() - 1], classes as u32);
                (0..rows).step_by(3).for_each(|r| targets.data[r] = 2.0);
                vec![d.normal(&shape[..]).wrt(), targets.input(Input::Field(1))]
            }));
        }
    }
    let nothing = CrossEntropy { label_smoothing: 0.1, ignore_index: -7, weight: Vec::new() };
    list.push(Case::new("cross entropy where nothing counts", LossOp::from(nothing), |d| {
        vec![d.normal([4, 3]).wrt(), Operand::new(DType::I32, [4], vec![-7.0; 4]).input(Input::Field(1))]
    }));
    let nothing = CrossEntropy { label_smoothing: 0.0, ignore_index: -100, weight: vec![0.0, 2.0] };
    list.push(Case::new("cross entropy of a class without weight", LossOp::from(nothing), |d| {
        vec![d.normal([3, 2]).wrt(), Operand::new(DType::I32, [3], vec![0.0; 3]).input(Input::Field(1))]
    }));
    // Shares of classes: what a thread, a warp and a block reduce, and rows of sequences. Some shares do not sum to 1.
    for shape in [vec![7, 4], vec![70, 20], vec![5, 300], vec![3, 6, 5], vec![2, 1]] {
        let classes = shape[shape.len() - 1];
        for (label_smoothing, weighted) in [(0.0, false), (0.3, false), (0.3, true)] {
            let weight: Vec<f32> = (0..if weighted { classes } else { 0 }).map(|c| (c % 4) as f32 * 0.75).collect();
            let loss = CrossEntropy { label_smoothing, ignore_index: 0, weight };
            let name =
                format!("cross entropy of {shape:?} with shares, smoothed {label_smoothing}, weighted {weighted}");
            list.push(Case::new(name, LossOp::from(loss), |d| {
                let shares = d.positive(&shape[..]).map(|v| v / classes as f64).input(Input::Shares);
                vec![d.normal(&shape[..]).map(|x| 30.0 + 2.0 * x).wrt(), shares]
            }));
        }
    }
    for loss in ELEMENTWISE {
        for (x, t) in [(vec![4, 1], vec![4]), (vec![5, 3], vec![5, 3]), (vec![2, 3, 3, 2], vec![2, 3, 3, 2])] {
            list.push(Case::new(format!("{loss:?} of {x:?} and {t:?}"), LossOp::from(loss), |d| {
                // Apart from the kinks, which lie at 0, 0.25, 0.5 and 1.
                let (x, mut t) = (d.distinct(x).map(|v| 3.0 * v + 0.0625), d.distinct(t));
                for (x, t) in x.data.iter().zip(&mut t.data) {
                    let kink = [0.0, 0.25, 0.5, 1.0].iter().any(|at: &f64| ((x - *t).abs() - at).abs() < 0.02);
                    *t += if kink { 0.125 } else { 0.0 };
                }
                vec![x.wrt(), t.input(Input::Field(1))]
            }));
        }
        let at_kinks = Case::new(format!("{loss:?} at its kinks"), LossOp::from(loss), |_| {
            let x = vec![0.0, 0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 60.0, -60.0];
            vec![
                Operand::new(DType::F32, [9], x).wrt(),
                Operand::new(DType::F32, [9], vec![0.0; 9]).input(Input::Field(1)),
            ]
        });
        list.push(at_kinks.kinked());
    }
}

fn metrics(list: &mut Vec<Case>) {
    let sums = |d: &mut Draw| {
        let mut sums = d.below(DType::F64, [METRIC_SLOTS], 100);
        sums.data[0] = 12.75;
        sums
    };
    let classes = |ignore_index| Metrics { task: Task::Classification, ignore_index };
    for (rows, length) in [(1, 2), (7, 10), (65, 3), (40, 300)] {
        for ignore_index in [None, Some(1)] {
            let name = format!("metrics of {rows} rows, {length} classes, without {ignore_index:?}");
            list.push(Case::new(name, classes(ignore_index), |d| {
                let targets = d.below(DType::I32, [rows], length as u32).input(Input::Field(1));
                vec![d.positive([1]), d.positive([1]), d.normal([rows, length]), targets, sums(d)]
            }));
        }
    }
    list.push(Case::new("metrics of equal logits", classes(None), |d| {
        let targets = d.below(DType::I32, [9], 3).input(Input::Field(1));
        vec![d.positive([1]), d.positive([1]), d.below(DType::F32, [9, 3], 2), targets, sums(d)]
    }));
    for (what, task) in [("a regression", Task::Regression), ("yes and no", Task::BinaryClassification)] {
        list.push(Case::new(format!("metrics of {what}"), Metrics { task, ignore_index: None }, |d| {
            let targets = d.normal([11, 3]).input(Input::Field(1));
            vec![d.positive([1]), d.positive([1]), d.normal([11, 3]), targets, sums(d)]
        }));
    }
    for (what, loss) in [("NaN", f64::NAN), ("infinite", f64::INFINITY)] {
        list.push(Case::new(format!("metrics of a loss that is {what}"), classes(None), |d| {
            let targets = d.below(DType::I32, [4], 3).input(Input::Field(1));
            let loss = Operand::new(DType::F32, [1], vec![loss]);
            vec![loss, d.positive([1]), d.normal([4, 3]), targets, sums(d)]
        }));
    }
}

fn means(list: &mut Vec<Case>) {
    for (name, weight) in [("a micro-batch", 3.0), ("a micro-batch where nothing counts", 0.0)] {
        for before in [0.0, 1.5] {
            let name = format!("the loss of {name}, {before} before");
            list.push(Case::new(name, AccumulateLoss { full: 4.0 }, |d| {
                let sums = Operand::new(DType::F64, [2], vec![2.0 * before, before]);
                vec![d.positive([1]), Operand::new(DType::F32, [1], vec![weight]), sums]
            }));
        }
    }
    for shares in [0.0, 2.75] {
        list.push(Case::new(format!("the gradient scale of {shares} micro-batches"), MeanScale {}, |d| {
            vec![d.positive([4]).input(Input::Schedule), Operand::new(DType::F64, [2], vec![1.0, shares])]
        }));
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    losses(&mut list);
    metrics(&mut list);
    means(&mut list);
    list
}
