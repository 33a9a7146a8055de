//! What Muon does between products of matrices.

use super::Tensor;
use super::optim::{Seen, clipped, seen};
use crate::graph::op::{MuonPolynomial, MuonStart, MuonStep};

/// The direction over its norm, and the momentum buffer.
pub(super) fn start(op: &MuonStart, x: &[Tensor]) -> Vec<Vec<f64>> {
    let head = op.clipping.operands();
    let mut buffer = x[head + 1].data.to_vec();
    let Seen { updates, scale } = seen(&op.clipping, x);
    let mut direction = vec![0.0; buffer.len()];
    if updates {
        for ((d, m), g) in direction.iter_mut().zip(&mut buffer).zip(x[head].data) {
            let g = clipped(g * scale, op.clipping.clip_value);
            *m = op.momentum * *m + (1.0 - op.momentum) * g;
            *d = if op.nesterov { (1.0 - op.momentum) * g + op.momentum * *m } else { *m };
        }
        let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
        let divisor = if norm < f64::from(op.eps) { f64::from(op.eps) } else { norm };
        direction.iter_mut().for_each(|d| *d /= divisor);
    }
    vec![direction, buffer]
}

pub(super) fn polynomial(op: &MuonPolynomial, x: &[Tensor]) -> Vec<Vec<f64>> {
    let [a, b, c] = op.coefficients.map(f64::from);
    let side = x[0].dims[0];
    let element = |i: usize| {
        let identity = if i / side == i % side { a } else { 0.0 };
        identity + b * x[0].data[i] + c * x[1].data[i]
    };
    vec![(0..side * side).map(element).collect()]
}

/// The parameter.
pub(super) fn step(op: &MuonStep, x: &[Tensor]) -> Vec<Vec<f64>> {
    let head = op.clipping.operands();
    let (schedule, direction, parameter) = (x[0].data, x[head].data, x[head + 1].data);
    if !seen(&op.clipping, x).updates {
        return vec![parameter.to_vec()];
    }
    let lr = (schedule[0] - schedule[3]) * f64::from(op.options.lr_scale) + schedule[3];
    let keep = 1.0 - lr * f64::from(op.options.weight_decay);
    let rate = lr * f64::from(op.length);
    vec![parameter.iter().zip(direction).map(|(p, d)| p * keep - rate * d).collect()]
}
