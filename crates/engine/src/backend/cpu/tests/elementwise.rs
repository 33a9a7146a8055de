use super::harness::{Tensor, assert_close, outputs};
use crate::graph::Shape;
use crate::graph::op::{
    Activation, ActivationGrad, ActivationOp, Binary, BinaryKind, Dropout, Fused, Normalize, SumTo,
};
use crate::random::{dropout_draws, dropout_keeps};

const ALL: [Activation; 27] = [
    Activation::Relu,
    Activation::Relu6,
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: 0.0 },
    Activation::LeakyRelu { slope: -0.3 },
    Activation::Elu { alpha: 1.0 },
    Activation::Elu { alpha: -0.7 },
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Sin,
    Activation::Cos,
    Activation::Hardsigmoid,
    Activation::Hardswish,
    Activation::Mish,
    Activation::Softplus { beta: 1.0, threshold: 20.0 },
    Activation::Softplus { beta: 1.7, threshold: 2.0 },
    Activation::Selu,
    Activation::Celu { alpha: 0.6 },
    Activation::Softsign,
    Activation::LogSigmoid,
    Activation::Tanhshrink,
    Activation::Hardtanh { low: -1.3, high: 0.8 },
    Activation::Hardshrink { lambda: 0.6 },
    Activation::Softshrink { lambda: 0.4 },
];

/// The error function: its Taylor series near 0, the continued fraction of its complement further out.
fn erf(x: f64) -> f64 {
    if x.abs() < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let a = x.abs();
    let mut f = 0.0;
    for k in (1..200).rev() {
        f = k as f64 / 2.0 / (a + f);
    }
    let complement = (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + f);
    (1.0 - complement).copysign(x)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

pub fn value(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Relu => x.max(0.0),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                slope as f64 * x
            }
        }
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha as f64 * x.exp_m1()
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
        Activation::Sin => x.sin(),
        Activation::Cos => x.cos(),
        Activation::Hardsigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Mish => x * x.exp().ln_1p().tanh(),
        Activation::Softplus { beta, threshold } => {
            let t = f64::from(beta) * x;
            if t > f64::from(threshold) { x } else { t.exp().ln_1p() / f64::from(beta) }
        }
        // The constants with PyTorch's digits.
        Activation::Selu => 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() },
        Activation::Celu { alpha } => x.max(0.0) + (f64::from(alpha) * (x / f64::from(alpha)).exp_m1()).min(0.0),
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::LogSigmoid => -(-x).exp().ln_1p(),
        // As a continued fraction, which takes no difference: tanh(x) = x / (1 + x² / (3 + x² / (5 + …))).
        Activation::Tanhshrink => {
            let tail = (1..40).rev().fold(0.0, |tail, k| x * x / (f64::from(2 * k + 1) + tail));
            x * tail / (1.0 + tail)
        }
        Activation::Hardtanh { low, high } => x.clamp(f64::from(low), f64::from(high)),
        Activation::Hardshrink { lambda } => {
            if x.abs() > f64::from(lambda) {
                x
            } else {
                0.0
            }
        }
        Activation::Softshrink { lambda } => x.signum() * (x.abs() - f64::from(lambda)).max(0.0),
    }
}

/// By central differences, away from kinks; at a kink, what PyTorch says.
fn slope(act: Activation, x: f64) -> f64 {
    let at = |k: f64| x == k;
    match act {
        Activation::Relu if at(0.0) => 0.0,
        Activation::Relu6 if at(0.0) || at(6.0) => 0.0,
        Activation::LeakyRelu { slope } if at(0.0) => slope as f64,
        Activation::Elu { alpha } if at(0.0) => alpha as f64,
        Activation::Hardsigmoid if at(-3.0) || at(3.0) => 0.0,
        Activation::Hardswish if at(-3.0) => 0.0,
        Activation::Hardswish if at(3.0) => 1.0,
        Activation::Selu if at(0.0) => 1.0507009873554805 * 1.6732632423543772,
        // Its second derivative jumps at 0.
        Activation::Softsign if at(0.0) => 1.0,
        // Differences of this one are too small at 0.
        Activation::Tanhshrink => x.tanh().powi(2),
        _ => {
            let h = if x == 0.0 { 1e-5 } else { (x.abs() / 10.0).min(1e-5) };
            (value(act, x + h) - value(act, x - h)) / (2.0 * h)
        }
    }
}

fn points(n: usize) -> Vec<f32> {
    let mut x: Vec<f32> = (0..n).map(|i| -9.0 + 18.0 * i as f32 / n as f32).collect();
    for (i, v) in [0.0, 3.0, -3.0, 6.0, 1e-4, -1e-4, 1e-7, -1e-7, 0.62, 0.63, -0.34, -0.36].into_iter().enumerate() {
        if i < n {
            x[i] = v;
        }
    }
    x
}

#[test]
fn activations() {
    for act in ALL {
        for n in [1, 3, 37, 1000, 40_000] {
            let x = points(n);
            for got in outputs(ActivationOp { act }, &[Tensor::from_f32([n], &x)]) {
                let want: Vec<f64> = x.iter().map(|x| value(act, *x as f64)).collect();
                // What is left of `1 + erf` far on the negative side has few digits in single precision.
                let scale = if matches!(act, Activation::Gelu | Activation::GeluTanh) { 1.0 } else { 1e-30 };
                // The first coefficient of tanh's polynomial, all that is left of it near 0, is off by 1.6e-6.
                let tolerance = if act == Activation::Tanhshrink { 2e-6 } else { 1e-6 };
                assert_close(act.name(), &got[0], &want, tolerance, scale);
            }
        }
        let special = Tensor::from_f32([3], &[f32::NAN, 40.0, 200.0]);
        for got in outputs(ActivationOp { act }, &[special]) {
            let y = got[0].f32s();
            assert!(y[0].is_nan() && y[1].is_finite() && y[2].is_finite(), "{}: {y:?}", act.name());
        }
    }
}

#[test]
fn activation_gradients() {
    for act in ALL {
        for n in [1, 37, 20_000] {
            let x = points(n);
            let dy = Tensor::normal([n], 1);
            let input = Tensor::from_f32([n], &x);
            let saved = if act.grad_from_output() {
                let y: Vec<f32> = x.iter().map(|x| value(act, *x as f64) as f32).collect();
                Tensor::from_f32([n], &y)
            } else {
                input
            };
            for got in outputs(ActivationGrad { act }, &[saved, dy.clone()]) {
                let want: Vec<f64> = x.iter().zip(dy.doubles()).map(|(x, d)| d * slope(act, *x as f64)).collect();
                assert_close(act.name(), &got[0], &want, 2e-6, 1.0);
            }
        }
    }
}

/// Place of element `index` of `shape` in a value of shape `of` that is stretched to it.
fn stretched(index: usize, shape: &[usize], of: &[usize]) -> usize {
    let (mut rest, mut at, mut stride) = (index, 0, 1);
    for (n, m) in shape.iter().zip(of).rev() {
        at += if *m == 1 { 0 } else { rest % n * stride };
        stride *= m;
        rest /= n;
    }
    at
}

#[test]
fn sums_and_products_with_broadcast() {
    let pairs: [(&[usize], &[usize]); 9] = [
        (&[3, 5], &[3, 5]),
        (&[100, 401], &[100, 401]),
        (&[2, 1, 1, 19], &[2, 7, 5, 19]),
        (&[2, 7, 5, 19], &[2, 1, 1, 19]),
        (&[4, 1], &[1, 9]),
        (&[3, 6, 1], &[1, 1, 1]),
        (&[2, 3, 4, 1], &[2, 3, 4, 33]),
        (&[1, 20_000], &[3, 1]),
        (&[1, 1], &[1, 1]),
    ];
    for (a, b) in pairs {
        for kind in [BinaryKind::Add, BinaryKind::Mul] {
            for act in [None, Some(Activation::Relu), Some(Activation::Silu)] {
                let (x, y) = (Tensor::normal(a, 1), Tensor::normal(b, 2));
                for got in outputs(Fused::activated(Binary { kind }, 2, act), &[x.clone(), y.clone()]) {
                    let shape = got[0].shape.dims();
                    let (x, y) = (x.doubles(), y.doubles());
                    let want: Vec<f64> = (0..got[0].shape.len())
                        .map(|i| {
                            let (x, y) = (x[stretched(i, shape, a)], y[stretched(i, shape, b)]);
                            let z = if kind == BinaryKind::Add { x + y } else { x * y };
                            act.map_or(z, |f| value(f, z))
                        })
                        .collect();
                    assert_close("binary", &got[0], &want, 5e-7, 1.0);
                }
            }
        }
    }
}

#[test]
fn an_operand_may_be_taken_twice() {
    let x = Tensor::normal([77], 3);
    for got in outputs(Binary { kind: BinaryKind::Mul }, &[x.clone(), x.clone()]) {
        assert_eq!(got[0].f32s(), x.f32s().iter().map(|v| v * v).collect::<Vec<_>>());
    }
}

#[test]
fn sums_that_undo_a_broadcast() {
    let cases: [(&[usize], &[usize]); 12] = [
        (&[5, 3], &[3]),
        (&[1000, 33], &[33]),
        (&[3, 7, 9, 300], &[300]),
        (&[2, 7, 5, 19], &[2, 1, 1, 19]),
        (&[2, 7, 5, 130], &[2, 1, 1, 130]),
        (&[3, 4, 5], &[3, 4, 1]),
        (&[30, 7, 4, 5], &[30, 1, 4, 1]),
        (&[6, 5, 4, 3], &[1, 5, 1, 3]),
        (&[4, 5], &[1, 1]),
        (&[70_000, 1], &[1, 1]),
        (&[4, 5], &[4, 5]),
        (&[1, 7], &[7]),
    ];
    for (from, to) in cases {
        let x = Tensor::normal(from, 5).map(|v| v + 3.0);
        for got in outputs(SumTo { shape: Shape::from(to) }, std::slice::from_ref(&x)) {
            let mut want = vec![0.0; to.iter().product()];
            // A shape of rank 1 stands for leading ones.
            let of: Vec<usize> = std::iter::repeat_n(1, from.len() - to.len()).chain(to.iter().copied()).collect();
            for (i, v) in x.doubles().into_iter().enumerate() {
                want[stretched(i, from, &of)] += v;
            }
            assert_close("sum_to", &got[0], &want, 5e-7, 1.0);
        }
    }
}

#[test]
fn dropout_draws_its_mask_from_the_generator() {
    for n in [1, 5, 64, 1001, 40_003] {
        for p in [0.0, 0.3, 0.9] {
            let (x, key) = (Tensor::normal([n], 1), [9, 8, 7, 0]);
            let op = Dropout { p, stream: 5 };
            for got in outputs(op, &[x.clone(), Tensor::from_u32([4], &key)]) {
                let want: Vec<f32> = x
                    .f32s()
                    .iter()
                    .enumerate()
                    .map(|(i, x)| {
                        let keep = dropout_keeps(dropout_draws(key, 5, i as u64 / 4)[i % 4], p);
                        if keep { x * (1.0 / (1.0 - p)) } else { x * 0.0 }
                    })
                    .collect();
                assert_eq!(got[0].f32s(), want);
            }
        }
    }
}

#[test]
fn bytes_and_floats_are_normalised() {
    for (shape, c) in [([3, 5, 7, 3], 3), ([64, 28, 28, 1], 1), ([2, 1, 1, 300], 300)] {
        let n: usize = shape.iter().product();
        let bytes: Vec<u8> = (0..n).map(|i| (i * 31 % 256) as u8).collect();
        let per = |k: f32| (0..c).map(|i| k + 0.1 * (i % 7) as f32).collect::<Vec<_>>();
        for (mean, std) in [(vec![0.5], vec![0.25]), (per(0.4), per(0.2))] {
            let op =
                Normalize { scale: 1.0 / 255.0, mean: mean.clone(), std: std.clone(), to: crate::graph::DType::F32 };
            let want: Vec<f64> = (0..n)
                .map(|i| {
                    let at = |list: &[f32]| list[i % c % list.len()] as f64;
                    (bytes[i] as f64 / 255.0 - at(&mean)) / at(&std)
                })
                .collect();
            for got in outputs(op.clone(), &[Tensor::from_u8(shape, &bytes)]) {
                assert_close("normalize", &got[0], &want, 3e-7, 1.0);
            }
            let floats: Vec<f32> = bytes.iter().map(|b| *b as f32).collect();
            for got in outputs(op, &[Tensor::from_f32(shape, &floats)]) {
                assert_close("normalize", &got[0], &want, 3e-7, 1.0);
            }
        }
    }
}
