use crate::case::{Case, Operand};
use runner::graph::op::{CrossEntropy, METRIC_SLOTS, Metrics, Mse, Task};
use runner::graph::{DType, Input};

fn losses(list: &mut Vec<Case>) {
    for (shape, classes) in [(vec![1], 2), (vec![5], 10), (vec![33], 3), (vec![2, 3], 7), (vec![4], 1), (vec![3], 100)]
    {
        for label_smoothing in [0.0, 0.1, 1.0] {
            let logits = [shape.clone(), vec![classes]].concat();
            let name = format!("cross entropy of {logits:?}, smoothed {label_smoothing}");
            list.push(Case::new(name, CrossEntropy { label_smoothing }, |d| {
                let targets = d.below(DType::I32, shape.clone(), classes as u32).input(Input::Field(1));
                vec![d.normal(logits).wrt(), targets]
            }));
        }
    }
    list.push(Case::new("cross entropy of large numbers", CrossEntropy { label_smoothing: 0.2 }, |d| {
        vec![d.normal([6, 5]).map(|x| 200.0 + 3.0 * x).wrt(), d.below(DType::I32, [6], 5).input(Input::Field(1))]
    }));
    for (x, t) in [(vec![4, 1], vec![4]), (vec![5, 3], vec![5, 3]), (vec![2, 3, 3, 2], vec![2, 3, 3, 2])] {
        list.push(Case::new(format!("mean squared error of {x:?} and {t:?}"), Mse {}, |d| {
            vec![d.normal(x).wrt(), d.normal(t).input(Input::Field(1))]
        }));
    }
}

fn metrics(list: &mut Vec<Case>) {
    let sums = |d: &mut crate::case::Draw| {
        let mut sums = d.below(DType::F64, [METRIC_SLOTS], 100);
        sums.data[0] = 12.75;
        sums
    };
    for (rows, classes) in [(1, 2), (7, 10), (65, 3)] {
        let name = format!("metrics of {rows} rows, {classes} classes");
        list.push(Case::new(name, Metrics { task: Task::Classification }, |d| {
            let targets = d.below(DType::I32, [rows], classes as u32).input(Input::Field(1));
            vec![d.positive([1]), d.normal([rows, classes]), targets, sums(d)]
        }));
    }
    list.push(Case::new("metrics of equal logits", Metrics { task: Task::Classification }, |d| {
        let targets = d.below(DType::I32, [9], 3).input(Input::Field(1));
        vec![d.positive([1]), d.below(DType::F32, [9, 3], 2), targets, sums(d)]
    }));
    list.push(Case::new("metrics of a regression", Metrics { task: Task::Regression }, |d| {
        vec![d.positive([1]), d.normal([11, 3]), d.normal([11, 3]).input(Input::Field(1)), sums(d)]
    }));
    for (what, loss) in [("NaN", f64::NAN), ("infinite", f64::INFINITY)] {
        list.push(Case::new(
            format!("metrics of a loss that is {what}"),
            Metrics { task: Task::Classification },
            |d| {
                let targets = d.below(DType::I32, [4], 3).input(Input::Field(1));
                vec![Operand::new(DType::F32, [1], vec![loss]), d.normal([4, 3]), targets, sums(d)]
            },
        ));
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    losses(&mut list);
    metrics(&mut list);
    list
}
