//! Activations far from 0, very near to it, and at their kinks, held to PyTorch's figures: digit by digit, where the cases of
//! `cases/elementwise.rs` measure errors by the largest element.

use crate::case::{Case, Operand};
use crate::cases::ACTIVATIONS;
use crate::emulator;
use crate::parity::run;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Wanted;
use runner::backend::reference::elements::decode;
use runner::graph::DType;
use runner::graph::op::{Activation, ActivationOp, LogSoftmax};

/// Activations with x, value and derivative at many points; `scripts/golden/extremes.py` makes it.
const EXTREMES: &str = include_str!("../../golden/activations/extremes.txt");

/// Error allowed, relative to the figure: some units in the last place.
const TOLERANCE: f64 = 2e-6;

fn figures() -> Vec<(Activation, Vec<[f64; 3]>)> {
    let mut list: Vec<(Activation, Vec<[f64; 3]>)> = Vec::new();
    for line in EXTREMES.lines() {
        match (line.strip_prefix("  "), list.last_mut()) {
            (Some(line), Some((_, points))) => {
                let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
                points.push(numbers.try_into().unwrap());
            }
            _ => {
                let known = ACTIVATIONS.into_iter().find(|act| format!("{act:?}") == line);
                list.push((known.unwrap_or_else(|| panic!("no case of {line}")), Vec::new()));
            }
        }
    }
    assert!(list.len() == 13 && list.iter().all(|(_, points)| points.len() == 48));
    list
}

fn check(backend: &dyn Backend) {
    let mut wrong = Vec::new();
    for (act, points) in figures() {
        let x = points.iter().map(|[x, ..]| *x).collect();
        let case = Case::new(format!("{act:?} at extremes"), ActivationOp { act }, |_| {
            vec![Operand::new(DType::F32, [points.len()], x).wrt()]
        });
        let built = case.build();
        let (found, (y, dy)) = (run(backend, &built), built.seed.expect("a gradient is wanted"));
        let [values, gradients] = [y, built.grads[0].1].map(|id| decode(DType::F32, &found[&id]));
        for (i, [x, value, slope]) in points.into_iter().enumerate() {
            let dy = built.values[&dy][i];
            // An exponential that is subnormal is off by half its unit, which x multiplies; a subnormal derivative may be 0. PyTorch
            // itself takes the difference of x and tanh(x), in double precision.
            let double = if act == Activation::Tanhshrink { f64::powi(2.0, -53) } else { 0.0 };
            let least = [
                f64::powi(2.0, -147) * x.abs().max(1.0) + double * x.abs(),
                f64::from(f32::MIN_POSITIVE) + double * dy.abs(),
            ];
            // Where the derivative comes from a value near its limit, it is as exact as that.
            let scale = if matches!(act, Activation::Selu | Activation::Celu { .. }) { 1.0 } else { slope.abs() };
            let both = [
                ("value", values[i], value, TOLERANCE * value.abs() + least[0]),
                ("gradient", gradients[i], dy * slope, TOLERANCE * dy.abs() * scale + least[1]),
            ];
            for (what, found, want, allowed) in both {
                if (found - want).abs() > allowed || !found.is_finite() {
                    wrong.push(format!("{act:?}: {what} at {x:e} is {found:e}, not {want:e}"));
                }
            }
        }
    }
    wrong.extend(of_what_is_sure(backend));
    assert!(wrong.is_empty(), "{} on {}:\n{}", wrong.len(), backend.describe(), wrong.join("\n"));
}

/// Logarithms of probabilities near 1, which are as small as what is left for the others.
fn of_what_is_sure(backend: &dyn Backend) -> Vec<String> {
    let mut wrong = Vec::new();
    // Rows of a thread, of a warp, and of a block.
    for length in [3, 40, 2000] {
        let tops = [12.0, 20.0, 60.0];
        let x = tops.iter().flat_map(|top| (0..length).map(move |i| if i == 1 { *top } else { -(i as f64 / 512.0) }));
        let x: Vec<f64> = x.collect();
        let case = Case::new(format!("rows of {length} that are sure"), LogSoftmax {}, |_| {
            vec![Operand::new(DType::F32, [tops.len(), length], x.clone())]
        });
        let built = case.build();
        let found = run(backend, &built);
        let found = decode(DType::F32, &found[&built.graph.nodes[0].outputs[0]]);
        for (row, found) in x.chunks(length).zip(found.chunks(length)) {
            let rest: f64 = row.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, v)| (v - row[1]).exp()).sum();
            let (found, want) = (found[1], -rest.ln_1p());
            if (found - want).abs() > TOLERANCE * want.abs() {
                wrong.push(format!("LogSoftmax: of {} in a row of {length} is {found:e}, not {want:e}", row[1]));
            }
        }
    }
    wrong
}

#[test]
fn the_cpu_is_exact_at_extremes() {
    SimdLevel::supported().for_each(|level| check(&CpuBackend::with_level(Some(1), level)));
}

#[test]
fn cuda_is_exact_at_extremes() {
    if emulator::ready() {
        check(&CudaBackend::new(0).unwrap().with_libraries(&Wanted::default()));
    }
}
