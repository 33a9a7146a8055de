use crate::case::{Case, Draw, Operand};
use runner::graph::op::{
    AccumulateGrad, Algorithm, GradNorm, KeepState, Moments, OptimizerStep, Part, RestoreState, ScheduleFree,
    TensorOptions, UpdateScale, ZeroGrad,
};
use runner::graph::{DType, Input};

fn algorithms() -> Vec<Algorithm> {
    let sgd = |momentum, dampening, nesterov| Algorithm::Sgd { momentum, dampening, nesterov };
    let mut list = vec![sgd(0.0, 0.0, false), sgd(0.9, 0.0, false), sgd(0.8, 0.3, false), sgd(0.9, 0.0, true)];
    for decoupled in [false, true] {
        for amsgrad in [false, true] {
            list.push(Algorithm::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled, amsgrad });
        }
    }
    for momentum in [0.0, 0.7] {
        for centered in [false, true] {
            list.push(Algorithm::RmsProp { alpha: 0.99, eps: 1e-8, momentum, centered });
        }
    }
    let (beta1, beta2) = (0.9, 0.999);
    for decoupled in [false, true] {
        list.push(Algorithm::Nadam { beta1, beta2, eps: 1e-8, momentum_decay: 4e-3, decoupled });
        list.push(Algorithm::Radam { beta1, beta2, eps: 1e-8, decoupled });
    }
    list.extend([
        Algorithm::Adagrad { lr_decay: 0.5, eps: 1e-10, initial_accumulator_value: 0.0 },
        Algorithm::Adadelta { rho: 0.9, eps: 1e-6 },
        Algorithm::Adamax { beta1, beta2, eps: 0.02 },
        Algorithm::Lion { beta1, beta2: 0.99 },
    ]);
    for moments in [Moments::Elements, Moments::Points] {
        list.push(Algorithm::Adafactor { beta2_decay: -0.8, eps: [1e-7, 1e-3], d: 1.0, moments });
        list.push(Algorithm::Adafactor { beta2_decay: -0.5, eps: [0.2, 3.0], d: 1.5, moments });
    }
    for (warmup_steps, r, lr_power) in [(0, 0.0, 2.0), (20, 0.5, 1.5), (3, 2.0, 2.0)] {
        let steps = ScheduleFree { warmup_steps, r, lr_power };
        list.push(Algorithm::ScheduleFreeAdamW { beta1, beta2, eps: 1e-8, steps });
    }
    for always_adapt in [false, true] {
        list.push(Algorithm::Lamb { beta1, beta2, eps: 1e-6, always_adapt });
        list.push(Algorithm::Lars { momentum: 0.9, trust_coefficient: 0.02, eps: 1e-3, always_adapt });
    }
    list
}

/// Learning rate, gradient scale, loss scale, floor of the learning rate: large steps, so that an error in a step shows in the parameter.
pub fn schedule() -> Operand {
    Operand::new(DType::F32, [4], vec![0.25, 0.5, 4.0, 0.125]).input(Input::Schedule)
}

/// A state tensor as it may be after some steps.
fn state(d: &mut Draw, slot: &str, shape: &[usize]) -> Operand {
    match slot {
        "variance" | "exp_avg_sq" | "square_avg" | "acc_delta" | "sum" | "exp_inf" => {
            d.positive(shape).map(|x| 0.02 * x)
        }
        "max_exp_avg_sq" => d.positive(shape).map(|x| 0.025 * x),
        // Small, so that a mean square is more than the square of the mean.
        "grad_avg" => d.normal(shape).map(|x| 0.01 * x),
        _ => d.normal(shape).map(|x| 0.1 * x),
    }
}

/// What a case of the update is about besides its rule.
#[derive(Clone, Copy)]
struct Setting {
    clip_norm: Option<f32>,
    clip_value: Option<f32>,
    /// The operand, of a scaled loss.
    scale: Option<f64>,
    steps: f64,
    loss: f64,
    /// It is the first operation of its update.
    counts: bool,
    /// The norm, where it is not drawn.
    norm: Option<f64>,
}

fn step(algorithm: Algorithm, setting: Setting) -> Case {
    let Setting { clip_norm, clip_value, scale, steps, loss, counts, norm } = setting;
    let tensors = vec![
        TensorOptions { lr_scale: 1.0, weight_decay: 0.0 },
        TensorOptions { lr_scale: 0.5, weight_decay: 0.1 },
        TensorOptions { lr_scale: 2.0, weight_decay: 0.01 },
    ];
    let op =
        OptimizerStep { algorithm, clip_norm, clip_value, scaled: scale.is_some(), counts, tensors, parts: Vec::new() };
    let mut name = format!("{algorithm:?}, clipped to {clip_norm:?}, after {steps} steps, loss {loss}");
    if !counts {
        name += ", a later part";
    }
    if let Some(limit) = clip_value {
        name += &format!(", elements within {limit}");
    }
    if let Some(scale) = scale {
        name += &format!(", scale {scale}, norm {norm:?}");
    }
    Case::new(name, op, |d| {
        let mut operands = vec![schedule(), Operand::new(DType::F32, [1], vec![loss])];
        if clip_norm.is_some() || scale.is_some() {
            let drawn = d.positive([1]);
            operands.push(drawn.map(|x| norm.unwrap_or(x)));
        }
        operands.extend(scale.map(|scale| Operand::new(DType::F32, [1], vec![scale])));
        operands.push(Operand::new(DType::I64, [1], vec![steps]));
        for shape in [&[1][..], &[3, 5, 1, 7], &[130]] {
            operands.extend([d.normal(shape), d.normal(shape)]);
            for slot in algorithm.slots() {
                let state = state(d, slot, shape);
                operands.push(if steps == 0.0 { state.map(|_| 0.0) } else { state });
            }
        }
        operands
    })
}

/// An update of parts of tensors, which begin where a rank's do.
fn of_parts(algorithm: Algorithm) -> Case {
    let parts = [(2500, 1024, 1476), (5, 0, 5), (3072, 1024, 1024)];
    let op = OptimizerStep {
        algorithm,
        clip_norm: None,
        clip_value: None,
        scaled: false,
        counts: true,
        tensors: vec![TensorOptions { lr_scale: 0.5, weight_decay: 0.1 }; parts.len()],
        parts: parts.map(|(_, start, len)| Part { start, len }).into(),
    };
    Case::new(format!("{algorithm:?}, parts of tensors"), op, |d| {
        let single = |x: f64| Operand::new(DType::F32, [1], vec![x]);
        let mut operands = vec![schedule(), single(0.5), Operand::new(DType::I64, [1], vec![6.0])];
        for (length, _, len) in parts {
            operands.extend([d.normal([length]), d.normal([length])]);
            operands.extend(algorithm.slots().map(|slot| state(d, slot, &[len])));
        }
        operands
    })
}

/// The first update of a tensor whose operand number `zero` (the parameter, or the gradient) is all zeros.
fn without_norm(algorithm: Algorithm, zero: usize) -> Case {
    let tensors = vec![TensorOptions { lr_scale: 1.0, weight_decay: 0.1 }];
    let op = OptimizerStep {
        algorithm,
        clip_norm: None,
        clip_value: None,
        scaled: false,
        counts: true,
        tensors,
        parts: Vec::new(),
    };
    Case::new(format!("{algorithm:?}, operand {zero} without a norm"), op, |d| {
        let single = |x: f64| Operand::new(DType::F32, [1], vec![x]);
        let counter = Operand::new(DType::I64, [1], vec![0.0]);
        let mut operands = vec![schedule(), single(0.5), counter];
        let tensors = [d.normal([37]), d.normal([37])];
        operands.extend(tensors.into_iter().enumerate().map(|(i, x)| if i == zero { x.map(|_| 0.0) } else { x }));
        operands.extend(algorithm.slots().map(|_| d.normal([37]).map(|_| 0.0)));
        operands
    })
}

fn scales(list: &mut Vec<Case>) {
    let op = UpdateScale { growth: 2.0, backoff: 0.5, interval: 3 };
    let largest = f64::from(f32::MAX);
    for (norm, scale, tracker, loss) in [
        (0.7, 65536.0, 0.0, 0.5),
        (0.7, 65536.0, 2.0, 0.5),
        (0.0, 3.0, 5.0, 0.0),
        (0.7, largest, 2.0, 0.5),
        (f64::INFINITY, 65536.0, 2.0, 0.5),
        (f64::NAN, 1.0, 1.0, 0.5),
        (f64::NAN, 1024.0, 1.0, f64::NAN),
        (0.7, 1024.0, 2.0, f64::INFINITY),
    ] {
        let name = format!("scale {scale}, norm {norm}, {tracker} updates before, loss {loss}");
        list.push(Case::new(name, op, |_| {
            let single = |x| Operand::new(DType::F32, [1], vec![x]);
            vec![single(norm), single(scale), Operand::new(DType::I64, [1], vec![tracker]), single(loss)]
        }));
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    let plain =
        Setting { clip_norm: None, clip_value: None, scale: None, steps: 3.0, loss: 0.5, counts: true, norm: None };
    for algorithm in algorithms() {
        // The norm drawn is between a half and two: one limit always bites, the other never does.
        for clip_norm in [None, Some(0.3), Some(5.0)] {
            for steps in [0.0, 6.0] {
                list.push(step(algorithm, Setting { clip_norm, steps, ..plain }));
                // Clipped or not as before: the norm is that of the scaled gradients.
                let clip_norm = clip_norm.map(|limit| limit / 8.0);
                list.push(step(algorithm, Setting { clip_norm, steps, scale: Some(8.0), ..plain }));
            }
        }
        // Some elements of a gradient are beyond it, of either sign.
        list.push(step(algorithm, Setting { clip_value: Some(0.05), ..plain }));
        // The second step, which is no first one; enough steps for RAdam's variance, and many, for what is computed of their number.
        for steps in [1.0, 40.0, 1e4] {
            list.push(step(algorithm, Setting { steps, ..plain }));
        }
        if algorithm.is_elementwise() {
            list.push(of_parts(algorithm));
        }
        list.push(step(algorithm, Setting { counts: false, ..plain }));
        list.push(step(algorithm, Setting { loss: f64::NAN, ..plain }));
        list.push(step(algorithm, Setting { counts: false, loss: f64::NAN, ..plain }));
        list.push(step(algorithm, Setting { loss: f64::INFINITY, clip_norm: Some(0.3), ..plain }));
        for (clip_norm, norm) in [(None, f64::INFINITY), (Some(0.3), f64::NAN)] {
            list.push(step(algorithm, Setting { clip_norm, norm: Some(norm), scale: Some(1024.0), ..plain }));
        }
    }
    // A parameter, or a gradient, that has no norm.
    for always_adapt in [false, true] {
        let lamb = Algorithm::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-6, always_adapt };
        let lars = Algorithm::Lars { momentum: 0.9, trust_coefficient: 0.02, eps: 0.0, always_adapt };
        for algorithm in [lamb, lars] {
            for zero in [0, 1] {
                list.push(without_norm(algorithm, zero));
            }
        }
    }
    // Nothing is added to a divisor: what fills up the last four elements of a tensor has no direction.
    let lamb = Algorithm::Lamb { beta1: 0.9, beta2: 0.999, eps: 0.0, always_adapt: true };
    list.push(step(lamb, Setting { steps: 6.0, ..plain }));
    // Of a few steps RAdam does not yet know the variance, and the fifth is the last of them.
    let radam = Algorithm::Radam { beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: false };
    list.push(step(radam, Setting { steps: 4.0, ..plain }));
    // The last step of a warm-up.
    let steps = ScheduleFree { warmup_steps: 3, r: 2.0, lr_power: 2.0 };
    let schedule_free = Algorithm::ScheduleFreeAdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, steps };
    list.push(step(schedule_free, Setting { steps: 2.0, ..plain }));
    list.extend(super::muon::cases());
    list.extend(super::adafactor::cases());
    scales(&mut list);
    for shapes in [vec![1], vec![7, 130], vec![33, 1, 64]] {
        list.push(Case::new(format!("gradient norm of {shapes:?}"), GradNorm {}, |d| {
            let mut operands = vec![schedule()];
            operands.extend(shapes.iter().map(|n| d.normal([*n])));
            operands
        }));
    }
    for shape in [vec![1], vec![3, 45], vec![2, 3, 3, 5]] {
        list.push(Case::new(format!("gradient sum of {shape:?}"), AccumulateGrad {}, |d| {
            vec![d.normal(shape.clone()), d.normal(shape)]
        }));
    }
    let pairs = |d: &mut Draw| {
        let counter = |n: f64| Operand::new(DType::I64, [1], vec![n]);
        let doubles = |d: &mut Draw| Operand { dtype: DType::F64, ..d.normal([8]) };
        let small = [d.normal([7]), d.normal([7]), counter(5.0), counter(4.0), doubles(d), doubles(d)];
        small.into_iter().chain([d.normal([3, 1500]), d.normal([3, 1500])]).collect::<Vec<_>>()
    };
    let single = |x: f64| Operand::new(DType::F32, [1], vec![x]);
    list.push(Case::new("state kept", KeepState { once: false }, pairs));
    for mark in [0.0, 1.0] {
        list.push(Case::new(format!("state kept once, marked {mark}"), KeepState { once: true }, |d| {
            std::iter::once(single(mark)).chain(pairs(d)).collect()
        }));
    }
    for loss in [0.5, f64::NAN, f64::INFINITY] {
        list.push(Case::new(format!("state put back for a loss of {loss}"), RestoreState {}, |d| {
            std::iter::once(single(loss)).chain(pairs(d)).collect()
        }));
    }
    list.push(Case::new("gradient sums cleared", ZeroGrad {}, |d| {
        vec![d.normal([1]), d.normal([7, 13]), d.normal([33])]
    }));
    list
}
