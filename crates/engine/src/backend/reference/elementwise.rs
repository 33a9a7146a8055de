//! Element-wise operations and the sums that undo a broadcast.

use super::{Tensor, indices, offset};
use crate::graph::op::{Activation, ActivationGrad, ActivationOp, Binary, BinaryKind, SELU_ALPHA, SELU_SCALE};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_2_SQRT_PI, PI};

/// The error function, from the series `2/√π · e^(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1))`, whose terms are all of one sign.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        // The difference from ±1 is below the precision of a double.
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Distribution function of the standard normal.
fn normal_cdf(x: f64) -> f64 {
    0.5 * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// Density of the standard normal.
fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + eˣ)`; only numbers up to 1 go through the exponential.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// SELU's two constants.
fn selu() -> (f64, f64) {
    (f64::from(SELU_SCALE), f64::from(SELU_ALPHA))
}

fn hardsigmoid(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

/// `x − tanh(x)`: near 0, where the difference would leave few digits, by the series of tanh.
fn tanhshrink(x: f64) -> f64 {
    if x.abs() > 0.01 {
        return x - x.tanh();
    }
    let z = x * x;
    x * z * (1.0 / 3.0 - z * (2.0 / 15.0 - z * (17.0 / 315.0 - z * 62.0 / 2835.0)))
}

/// The argument of tanh in GELU's approximation, and its derivative.
fn gelu_inner(x: f64) -> (f64, f64) {
    let k = FRAC_2_PI.sqrt();
    (k * (x + 0.044715 * x.powi(3)), k * (1.0 + 3.0 * 0.044715 * x * x))
}

/// `act(x)`.
fn activate(act: Activation, x: f64) -> f64 {
    match act {
        // A NaN stays one.
        Activation::Relu if x <= 0.0 => 0.0,
        Activation::Relu => x,
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                f64::from(slope) * x
            }
        }
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).0.tanh()),
        Activation::Silu => x * sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
        Activation::Sin => x.sin(),
        Activation::Cos => x.cos(),
        Activation::Hardsigmoid => hardsigmoid(x),
        Activation::Hardswish => x * hardsigmoid(x),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Softplus { beta, threshold } => {
            let beta = f64::from(beta);
            if beta * x > f64::from(threshold) { x } else { softplus(beta * x) / beta }
        }
        Activation::Selu => {
            let (scale, alpha) = selu();
            scale * if x > 0.0 { x } else { alpha * x.exp_m1() }
        }
        Activation::Celu { alpha } => {
            let alpha = f64::from(alpha);
            if x > 0.0 { x } else { alpha * (x / alpha).exp_m1() }
        }
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::LogSigmoid => -softplus(-x),
        Activation::Tanhshrink => tanhshrink(x),
        Activation::Hardtanh { low, high } => x.clamp(f64::from(low), f64::from(high)),
        Activation::Hardshrink { lambda } => {
            if x.abs() <= f64::from(lambda) {
                0.0
            } else {
                x
            }
        }
        Activation::Softshrink { lambda } => x - x.clamp(-f64::from(lambda), f64::from(lambda)),
    }
}

/// `act'`, from the function's output or input as [`Activation::grad_from_output`] says.
fn derivative(act: Activation, saved: f64) -> f64 {
    let s = saved;
    let step = |inside: bool| f64::from(u8::from(inside));
    match act {
        Activation::Relu => step(s > 0.0),
        Activation::Relu6 => step(s > 0.0 && s < 6.0),
        // The sign is that of the input, whichever of the two is saved.
        Activation::LeakyRelu { .. } if s > 0.0 => 1.0,
        Activation::LeakyRelu { slope } => f64::from(slope),
        Activation::Elu { .. } if s > 0.0 => 1.0,
        Activation::Elu { alpha } if act.grad_from_output() => s + f64::from(alpha),
        Activation::Elu { alpha } => f64::from(alpha) * s.exp(),
        Activation::Gelu => normal_cdf(s) + s * normal_density(s),
        Activation::GeluTanh => {
            let (inner, d) = gelu_inner(s);
            0.5 * (1.0 + inner.tanh()) + 0.5 * s * (1.0 - inner.tanh().powi(2)) * d
        }
        Activation::Silu => sigmoid(s) * (1.0 + s * (1.0 - sigmoid(s))),
        Activation::Tanh => 1.0 - s * s,
        Activation::Sigmoid => s * (1.0 - s),
        Activation::Sin => s.cos(),
        Activation::Cos => -s.sin(),
        Activation::Hardsigmoid => step(s > 0.0 && s < 1.0) / 6.0,
        Activation::Hardswish if s <= -3.0 => 0.0,
        Activation::Hardswish if s >= 3.0 => 1.0,
        Activation::Hardswish => s / 3.0 + 0.5,
        Activation::Mish => {
            let gate = softplus(s).tanh();
            gate + s * (1.0 - gate * gate) * sigmoid(s)
        }
        Activation::Softplus { beta, threshold } if f64::from(beta) * s > f64::from(threshold) => 1.0,
        Activation::Softplus { beta, .. } => sigmoid(f64::from(beta) * s),
        Activation::Selu if s > 0.0 => selu().0,
        Activation::Selu => s + selu().0 * selu().1,
        Activation::Celu { .. } if s > 0.0 => 1.0,
        Activation::Celu { alpha } => s / f64::from(alpha) + 1.0,
        Activation::Softsign => 1.0 / (1.0 + s.abs()).powi(2),
        Activation::LogSigmoid => -s.exp_m1(),
        Activation::Tanhshrink => s.tanh().powi(2),
        Activation::Hardtanh { low, high } => step(s > f64::from(low) && s < f64::from(high)),
        Activation::Hardshrink { .. } | Activation::Softshrink { .. } => step(s != 0.0),
    }
}

pub(super) fn activation(op: &ActivationOp, x: &[Tensor]) -> Vec<Vec<f64>> {
    vec![x[0].data.iter().map(|x| activate(op.act, *x)).collect()]
}

pub(super) fn activation_grad(op: &ActivationGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    vec![x[0].data.iter().zip(x[1].data).map(|(saved, dy)| dy * derivative(op.act, *saved)).collect()]
}

/// The element of `x` that meets the element at `index` of a result to which `x` is stretched.
fn stretched(x: &Tensor, index: &[usize]) -> f64 {
    let own: Vec<usize> = x.dims.iter().zip(index).map(|(d, i)| if *d == 1 { 0 } else { *i }).collect();
    x.data[offset(x.dims, &own)]
}

pub(super) fn binary(op: &Binary, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let one = |index: Vec<usize>| {
        let (a, b) = (stretched(&x[0], &index), stretched(&x[1], &index));
        match op.kind {
            BinaryKind::Add => a + b,
            BinaryKind::Mul => a * b,
        }
    };
    vec![indices(y[0]).map(one).collect()]
}

pub(super) fn sum_to(x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut sums = vec![0.0; y[0].iter().product()];
    for (index, v) in indices(x[0].dims).zip(x[0].data) {
        // A result of fewer axes keeps the last ones.
        let kept = &index[index.len() - y[0].len()..];
        let at: Vec<usize> = y[0].iter().zip(kept).map(|(d, i)| if *d == 1 { 0 } else { *i }).collect();
        sums[offset(y[0], &at)] += v;
    }
    vec![sums]
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn error_function_matches_its_table() {
        // Abramowitz & Stegun, table 7.1.
        for (x, y) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((erf(x) - y).abs() < 1e-10 && (erf(-x) + y).abs() < 1e-10, "{x}");
        }
        assert!((erf(5.999) - 1.0).abs() < 1e-15 && erf(7.0) == 1.0);
    }
}
