use crate::case::{Case, Draw, Operand};
use runner::graph::op::{
    AccumulateLoss, ClassCounts, Counted, CrossEntropy, ERROR_SUMS, ElementwiseLoss, ErrorSums, LossOp, METRIC_SLOTS,
    MeanScale, Metrics, RowLoss, Task, WeightedBinary,
};
use runner::graph::{DType, Input};

/// The losses that are functions of one prediction and one target.
pub const ELEMENTWISE: [ElementwiseLoss; 10] = [
    ElementwiseLoss::Mse,
    ElementwiseLoss::L1,
    ElementwiseLoss::SmoothL1 { beta: 1.0 },
    ElementwiseLoss::SmoothL1 { beta: 0.25 },
    ElementwiseLoss::SmoothL1 { beta: 0.0 },
    ElementwiseLoss::Huber { delta: 1.0 },
    ElementwiseLoss::Huber { delta: 0.5 },
    ElementwiseLoss::BceWithLogits,
    ElementwiseLoss::Quantile { quantile: 0.5 },
    ElementwiseLoss::Quantile { quantile: 0.9 },
];

/// Those of the mean of a distribution, which is above 0.
pub const OF_MEANS: [ElementwiseLoss; 4] = [
    ElementwiseLoss::PoissonNll,
    ElementwiseLoss::GammaNll,
    ElementwiseLoss::Tweedie { power: 1.5 },
    ElementwiseLoss::Tweedie { power: 1.1 },
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
            let form = RowLoss::CrossEntropy;
            let loss = CrossEntropy { form, label_smoothing, ignore_index: 2, weight };
            let name = format!("cross entropy of {shape:?} in part, smoothed {label_smoothing}, weighted {weighted}");
            list.push(Case::new(name, LossOp::from(loss), |d| {
                let mut targets = d.below(DType::I32, &shape[..shape.len() - 1], classes as u32);
                (0..rows).step_by(3).for_each(|r| targets.data[r] = 2.0);
                vec![d.normal(&shape[..]).wrt(), targets.input(Input::Field(1))]
            }));
        }
    }
    let nothing = CrossEntropy { ignore_index: -7, ..CrossEntropy::smoothed(0.1) };
    list.push(Case::new("cross entropy where nothing counts", LossOp::from(nothing), |d| {
        vec![d.normal([4, 3]).wrt(), Operand::new(DType::I32, [4], vec![-7.0; 4]).input(Input::Field(1))]
    }));
    let nothing = CrossEntropy { weight: vec![0.0, 2.0], ..CrossEntropy::smoothed(0.0) };
    list.push(Case::new("cross entropy of a class without weight", LossOp::from(nothing), |d| {
        vec![d.normal([3, 2]).wrt(), Operand::new(DType::I32, [3], vec![0.0; 3]).input(Input::Field(1))]
    }));
    // Shares of classes: what a thread, a warp and a block reduce, and rows of sequences. Some shares do not sum to 1.
    for shape in [vec![7, 4], vec![70, 20], vec![5, 300], vec![3, 6, 5], vec![2, 1]] {
        let classes = shape[shape.len() - 1];
        for (label_smoothing, weighted) in [(0.0, false), (0.3, false), (0.3, true)] {
            let weight: Vec<f32> = (0..if weighted { classes } else { 0 }).map(|c| (c % 4) as f32 * 0.75).collect();
            let loss = CrossEntropy { ignore_index: 0, weight, ..CrossEntropy::smoothed(label_smoothing) };
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
    for loss in OF_MEANS {
        for (x, t) in [(vec![4, 1], vec![4]), (vec![5, 3], vec![5, 3]), (vec![700, 3], vec![700, 3])] {
            list.push(Case::new(format!("{loss:?} of {x:?} and {t:?}"), LossOp::from(loss), |d| {
                let targets = d.positive(t).map(|t| (4.0 * t).floor());
                vec![d.positive(x).map(|x| 0.0625 + 3.0 * x).wrt(), targets.input(Input::Field(1))]
            }));
        }
        list.push(Case::new(format!("{loss:?} of far numbers"), LossOp::from(loss), |_| {
            let x = Operand::new(DType::F32, [2, 3], vec![0.0078125, 1.0, 5000.0, 0.0078125, 1.0, 5000.0]);
            let t = Operand::new(DType::F32, [2, 3], vec![0.0, 0.0, 0.0, 2.0, 3000.0, 3.0]);
            vec![x.wrt(), t.input(Input::Field(1))]
        }));
        // Means that are 0, where what is added to them is all that there is.
        for target in [0.0, 2.0] {
            let case = Case::new(format!("{loss:?} of vanishing numbers for {target}"), LossOp::from(loss), |_| {
                let x = Operand::new(DType::F32, [4], vec![0.0, 1e-9, 1e-8, 1.0]);
                vec![x.map(|x| x).wrt(), Operand::new(DType::F32, [4], vec![target; 4]).input(Input::Field(1))]
            });
            list.push(case.kinked());
        }
    }
}

/// Other losses of classes, of rows that a thread, a warp and a block reduce, and of yes and no.
fn focal_and_weighted(list: &mut Vec<Case>) {
    for form in
        [RowLoss::Nll, RowLoss::Focal { gamma: 0.0 }, RowLoss::Focal { gamma: 0.5 }, RowLoss::Focal { gamma: 2.0 }]
    {
        for (shape, weighted) in
            [(vec![7, 4], false), (vec![2, 3, 4, 6], true), (vec![5, 40], true), (vec![5, 300], false)]
        {
            let classes = shape[shape.len() - 1];
            let weight: Vec<f32> = (0..if weighted { classes } else { 0 }).map(|c| (c % 4) as f32 * 0.75).collect();
            let loss = CrossEntropy { form, label_smoothing: 0.0, ignore_index: 2, weight };
            list.push(Case::new(
                format!("row loss {form:?} of {shape:?}, weighted {weighted}"),
                LossOp::from(loss),
                |d| {
                    let targets = d.below(DType::I32, &shape[..shape.len() - 1], classes as u32);
                    vec![d.normal(&shape[..]).wrt(), targets.input(Input::Field(1))]
                },
            ));
        }
        let sure = CrossEntropy { form, ..CrossEntropy::smoothed(0.0) };
        if form != RowLoss::Nll {
            // Of the second, nothing is left for the others: the probability is 1.
            for (what, x) in [("sure", [8.0, -8.0, 3.0, 20.0]), ("certain", [200.0, -200.0, -100.0, 100.0])] {
                let case =
                    Case::new(format!("row loss {form:?} of what is {what}"), LossOp::from(sure.clone()), |_| {
                        let targets = Operand::new(DType::I32, [2], vec![0.0, 1.0]);
                        vec![Operand::new(DType::F32, [2, 2], x.to_vec()).wrt(), targets.input(Input::Field(1))]
                    });
                list.push(if what == "sure" { case } else { case.kinked() });
            }
        }
    }
    let focal = |gamma, alpha| WeightedBinary { pos_weight: Vec::new(), focal: Some([gamma, alpha]) };
    let weighted = |pos_weight: &[f32]| WeightedBinary { pos_weight: pos_weight.to_vec(), focal: None };
    for loss in [focal(2.0, 0.25), focal(0.5, -1.0), focal(0.0, 0.75), weighted(&[3.0]), weighted(&[0.5, 2.0, 0.0])] {
        for shape in [vec![4, 3], vec![2, 3, 3, 3], vec![700, 3]] {
            list.push(Case::new(format!("{loss:?} of {shape:?}"), LossOp::from(loss.clone()), |d| {
                let targets = d.positive(&shape[..]).map(|t| if t > 1.0 { 1.0 } else { (t * 4.0).floor() / 4.0 });
                vec![d.normal(&shape[..]).wrt(), targets.input(Input::Field(1))]
            }));
        }
        list.push(Case::new(format!("{loss:?} of large numbers"), LossOp::from(loss), |_| {
            // What is as sure as the last two are has no share of the other.
            let x = vec![90.0, -90.0, 0.0, 90.0, -90.0, 0.0, 200.0, -200.0, 1.0];
            let t = vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0];
            let operand = |data| Operand::new(DType::F32, [3, 3], data);
            vec![operand(x).wrt(), operand(t).input(Input::Field(1))]
        }));
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
    // Of these a third is right: the first of equals counts.
    list.push(Case::new("metrics of logits that are all equal", classes(None), |d| {
        let targets = Operand::new(DType::I32, [12], (0..12).map(|i| f64::from(i % 3)).collect());
        let x = Operand::new(DType::F32, [12, 3], vec![0.5; 36]);
        vec![d.positive([1]), d.positive([1]), x, targets.input(Input::Field(1)), sums(d)]
    }));
    list.push(Case::new("metrics of logits of which some are NaN", classes(None), |d| {
        let mut x = d.normal([12, 3]);
        x.data.iter_mut().step_by(5).for_each(|x| *x = f64::NAN);
        let targets = Operand::new(DType::I32, [12], (0..12).map(|i| f64::from(i % 3)).collect());
        vec![d.positive([1]), d.positive([1]), x, targets.input(Input::Field(1)), sums(d)]
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

fn class_counts(list: &mut Vec<Case>) {
    let finite = |d: &mut Draw| d.positive([1]);
    let before = |d: &mut Draw, n| d.below(DType::F64, [n], 100);
    // What a thread, a warp and a block look at; ties; positions of sequences and images.
    for (shape, values) in [
        (vec![1, 1], 9),
        (vec![1100, 3], 9),
        (vec![70, 12], 4),
        (vec![5, 40], 3),
        (vec![3, 300], 50),
        (vec![2, 3, 4, 6], 5),
    ] {
        let classes = shape[shape.len() - 1];
        for (ignore_index, matrix) in [(None, true), (Some(1), true), (Some(-100), false)] {
            let op = ClassCounts { of: Counted::Classes { ignore_index, matrix } };
            let len = op.len(classes);
            let name = format!("class counts of {shape:?}, without {ignore_index:?}, matrix {matrix}");
            list.push(Case::new(name, op, |d| {
                let mut targets = d.below(DType::I32, &shape[..shape.len() - 1], classes as u32);
                if let Some(ignored) = ignore_index {
                    targets.data.iter_mut().step_by(3).for_each(|t| *t = f64::from(ignored));
                }
                let x = d.below(DType::F32, &shape[..], values);
                vec![finite(d), x, targets.input(Input::Field(1)), before(d, len)]
            }));
        }
    }
    for (shape, labels) in [(vec![11, 3], 3), (vec![9], 1), (vec![5000, 7], 7), (vec![2, 3, 4, 2], 2)] {
        let op = ClassCounts { of: Counted::Labels(labels) };
        let len = op.len(labels);
        list.push(Case::new(format!("class counts of {shape:?} with {labels} labels"), op, |d| {
            let targets = d.normal(&shape[..]).input(Input::Field(1));
            vec![finite(d), d.normal(&shape[..]), targets, before(d, len)]
        }));
    }
    let op = ClassCounts { of: Counted::Classes { ignore_index: None, matrix: true } };
    let len = op.len(3);
    list.push(Case::new("class counts of a loss that is NaN", op, |d| {
        let targets = d.below(DType::I32, [4], 3).input(Input::Field(1));
        vec![Operand::new(DType::F32, [1], vec![f64::NAN]), d.normal([4, 3]), targets, before(d, len)]
    }));
}

fn error_sums(list: &mut Vec<Case>) {
    // One output and several; more than a block has threads, than a task has elements, and than there are blocks.
    for (shape, outputs) in [
        (vec![1], 1),
        (vec![11, 3], 3),
        (vec![700, 1], 1),
        (vec![2, 3, 4, 2], 1),
        (vec![9000, 4], 4),
        (vec![40, 1100], 1100),
    ] {
        list.push(Case::new(format!("error sums of {shape:?}, {outputs} outputs"), ErrorSums { outputs }, |d| {
            let mut targets = d.positive(&shape[..]);
            targets.data.iter_mut().skip(1).step_by(3).for_each(|t| *t = -*t);
            let before = d.below(DType::F64, [outputs * ERROR_SUMS], 100);
            vec![d.positive([1]), d.normal(&shape[..]), targets.input(Input::Field(1)), before]
        }));
    }
    list.push(Case::new("error sums of targets that are 0", ErrorSums { outputs: 2 }, |d| {
        let targets = Operand::new(DType::F32, [3, 2], vec![0.0, 1.0, -0.0, 2.0, 0.0, 3.0]);
        let before = d.below(DType::F64, [2 * ERROR_SUMS], 100);
        vec![d.positive([1]), d.normal([3, 2]), targets.input(Input::Field(1)), before]
    }));
    list.push(Case::new("error sums of a loss that is infinite", ErrorSums { outputs: 1 }, |d| {
        let (x, targets) = (d.normal([4]), d.normal([4]).input(Input::Field(1)));
        vec![Operand::new(DType::F32, [1], vec![f64::INFINITY]), x, targets, d.below(DType::F64, [ERROR_SUMS], 100)]
    }));
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
    focal_and_weighted(&mut list);
    metrics(&mut list);
    class_counts(&mut list);
    error_sums(&mut list);
    means(&mut list);
    list
}
