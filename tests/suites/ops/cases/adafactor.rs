//! Adafactor with rows and columns, and the clipping of gradients by the norms of units; a part of the family of optimizers.

use super::optim::schedule;
use crate::case::{Case, Draw, Operand};
use runner::graph::DType;
use runner::graph::op::{AdaptiveClip, Algorithm, Matrices, Moments, OptimizerStep, TensorOptions};

fn single(x: f64) -> Operand {
    Operand::new(DType::F32, [1], vec![x])
}

/// Sizes `[outer, first, second, inner]` of tensors that are updated together: small ones, many and long lines, many matrices, and some
/// whose lines are several tasks' work.
fn tensors() -> Vec<Vec<[usize; 4]>> {
    vec![
        vec![[1, 5, 7, 1], [2, 3, 3, 5], [3, 1, 4, 9]],
        vec![[1, 40, 130, 1], [40, 3, 2, 33], [2, 70, 3, 1]],
        vec![[1, 300, 70, 1], [3, 20, 9, 100]],
    ]
}

/// How a case differs from the others.
#[derive(Debug, Clone, Copy)]
struct Setting {
    by_rows: bool,
    clip_norm: Option<f32>,
    clip_value: Option<f32>,
    scaled: bool,
    steps: f64,
    loss: f64,
    eps: [f32; 2],
    d: f32,
    /// Factor of the gradients.
    size: f64,
}

fn factored(sizes: &[[usize; 4]], setting: Setting) -> Case {
    let Setting { by_rows, clip_norm, clip_value, scaled, steps, loss, eps, d, size } = setting;
    let algorithm = Algorithm::Adafactor { beta2_decay: -0.8, eps, d, moments: Moments::Factored };
    let options = |i: usize| TensorOptions { lr_scale: [1.0, 0.5, 2.0][i], weight_decay: [0.0, 0.1, 0.3][i] };
    let tensors = (0..sizes.len()).map(options).collect();
    let op = OptimizerStep { algorithm, clip_norm, clip_value, scaled, counts: true, tensors, parts: Vec::new() };
    let name = format!("adafactor of {sizes:?}, {setting:?}");
    let has_norm = op.has_norm();
    Case::new(name, op, |d| {
        let mut operands = vec![schedule(), single(loss)];
        operands.extend(has_norm.then(|| d.positive([1])));
        operands.extend(scaled.then(|| single(8.0)));
        operands.push(Operand::new(DType::I64, [1], vec![steps]));
        for [outer, first, second, inner] in sizes.iter().copied() {
            let shape = [outer, first, second, inner];
            operands.extend([d.normal(shape), d.normal(shape).map(|x| size * x)]);
            for state in (Matrices { outer, first, second, inner, by_rows }).shapes() {
                let state = d.positive(state.dims()).map(|x| 0.02 * x);
                operands.push(if steps == 0.0 { state.map(|_| 0.0) } else { state });
            }
        }
        operands
    })
}

/// `scaled` and the operands of a case of clipping.
fn clip(units: [usize; 3], scaled: bool, [gradient, parameter]: [f64; 2]) -> Case {
    let op = AdaptiveClip { factor: 0.05, eps: 1e-3, scaled, units };
    let name = format!("{op:?}, gradients times {gradient}, weights times {parameter}");
    Case::new(name, op, |d: &mut Draw| {
        let mut operands = vec![schedule()];
        operands.extend(scaled.then(|| single(8.0)));
        // Units of different sizes: some are clipped.
        let [_, count, after] = units;
        let drawn = d.normal(units);
        let of_unit = |at: usize| 0.2 * ((at / after % count) % 5) as f64;
        let data = drawn.data.iter().enumerate().map(|(at, x)| gradient * of_unit(at) * x).collect();
        operands.push(Operand::new(DType::F32, units, data).map(|x| x));
        operands.push(d.normal(units).map(|x| parameter * x));
        operands
    })
}

pub fn cases() -> Vec<Case> {
    let plain = Setting {
        by_rows: true,
        clip_norm: None,
        clip_value: None,
        scaled: false,
        steps: 6.0,
        loss: 0.5,
        eps: [1e-7, 1e-3],
        d: 1.0,
        size: 1.0,
    };
    let mut list = Vec::new();
    for sizes in tensors() {
        for by_rows in [true, false] {
            let plain = Setting { by_rows, ..plain };
            for setting in [
                plain,
                Setting { steps: 0.0, ..plain },
                Setting { clip_norm: Some(0.3), scaled: true, ..plain },
                Setting { clip_value: Some(0.05), d: 3.0, ..plain },
                // Both least values are reached.
                Setting { eps: [0.2, 3.0], ..plain },
                Setting { size: 1e-5, steps: 0.0, eps: [1e-4, 1e-3], ..plain },
                Setting { loss: f64::NAN, ..plain },
            ] {
                list.push(factored(&sizes, setting));
            }
        }
    }
    for units in [[1, 1, 7], [1, 5, 3], [1, 8, 36], [1, 3, 5000], [15, 2, 1], [4, 9, 6], [1, 300, 130]] {
        for scaled in [false, true] {
            list.push(clip(units, scaled, [1.0, 1.0]));
        }
        list.push(clip(units, false, [0.0, 1.0]));
        list.push(clip(units, false, [1.0, 0.0]));
        list.push(clip(units, false, [f64::NAN, 1.0]));
    }
    list
}
