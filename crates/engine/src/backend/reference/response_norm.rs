//! Normalisation over neighbouring channels.

use super::Tensor;
use crate::graph::op::{LocalResponseNorm, LocalResponseNormGrad};

pub(super) fn forward(op: &LocalResponseNorm, x: &[Tensor]) -> Vec<Vec<f64>> {
    let channels = x[0].last();
    let (mut y, mut sums) = (Vec::new(), Vec::new());
    for row in x[0].data.chunks(channels) {
        for c in 0..channels {
            let squares: f64 = row[op.neighbours(c, channels)].iter().map(|v| v * v).sum();
            let s = f64::from(op.k) + f64::from(op.alpha) / op.size as f64 * squares;
            y.push(row[c] / s.powf(f64::from(op.beta)));
            sums.push(s);
        }
    }
    vec![y, sums]
}

pub(super) fn grad(op: &LocalResponseNormGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (norm, channels) = (&op.norm, x[0].last());
    let beta = f64::from(norm.beta);
    let mut dx = Vec::new();
    for ((x, s), dy) in x[0].data.chunks(channels).zip(x[1].data.chunks(channels)).zip(x[2].data.chunks(channels)) {
        for c in 0..channels {
            let shares = norm.readers(c, channels).map(|i| dy[i] * x[i] / s[i].powf(beta + 1.0)).sum::<f64>();
            let factor = 2.0 * f64::from(norm.alpha) * beta / norm.size as f64;
            dx.push(dy[c] / s[c].powf(beta) - factor * x[c] * shares);
        }
    }
    vec![dx]
}
