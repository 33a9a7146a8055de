//! The loss of one sample, from what the model says of it: for rows of predictions.

use crate::graph::op::{ElementwiseLoss, LEAST_MEAN, Loss};

/// The loss of a sample's numbers; `None` where they weigh differently.
pub fn mean_loss(loss: &Loss, x: &[f32], t: &[f32]) -> Option<f64> {
    let Loss::Elementwise(loss) = loss else { return None };
    let of = |x: f64, t: f64| {
        let distance = (x - t).abs();
        match *loss {
            ElementwiseLoss::Mse => distance * distance,
            ElementwiseLoss::L1 => distance,
            ElementwiseLoss::SmoothL1 { beta } if distance < f64::from(beta) => {
                distance * distance / (2.0 * f64::from(beta))
            }
            ElementwiseLoss::SmoothL1 { beta } => distance - f64::from(beta) / 2.0,
            ElementwiseLoss::Huber { delta } if distance <= f64::from(delta) => distance * distance / 2.0,
            ElementwiseLoss::Huber { delta } => f64::from(delta) * (distance - f64::from(delta) / 2.0),
            ElementwiseLoss::BceWithLogits => x.max(0.0) - x * t + (-x.abs()).exp().ln_1p(),
            ElementwiseLoss::Quantile { quantile } if x < t => f64::from(quantile) * distance,
            ElementwiseLoss::Quantile { quantile } => (1.0 - f64::from(quantile)) * distance,
            ElementwiseLoss::PoissonNll => x - t * (x + LEAST_MEAN).ln(),
            ElementwiseLoss::GammaNll => (x + LEAST_MEAN).ln() + t / (x + LEAST_MEAN),
            ElementwiseLoss::Tweedie { power } => {
                let (m, p) = (x + LEAST_MEAN, f64::from(power));
                m.powf(2.0 - p) / (2.0 - p) - t * m.powf(1.0 - p) / (1.0 - p)
            }
        }
    };
    let sum: f64 = x.iter().zip(t).map(|(x, t)| of(f64::from(*x), f64::from(*t))).sum();
    Some(sum / x.len() as f64)
}

/// The mean loss of a sample's quantiles, those of each target side by side.
pub fn mean_pinball(quantiles: &[f64], x: &[f32], t: &[f32]) -> f64 {
    let of_target = |(x, t): (&[f32], &f32)| -> f64 {
        let distance = x.iter().map(|x| f64::from(*t) - f64::from(*x));
        distance.zip(quantiles).map(|(d, q)| if d > 0.0 { q * d } else { (q - 1.0) * d }).sum()
    };
    x.chunks_exact(quantiles.len()).zip(t).map(of_target).sum::<f64>() / x.len() as f64
}
