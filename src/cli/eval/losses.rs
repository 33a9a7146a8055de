//! The loss of one sample, from what the model says of it: for rows of predictions, and for models that answer together.

use crate::graph::op::{CrossEntropy, ElementwiseLoss, LEAST_MEAN, RowLoss, WeightedBinary};

/// The loss of a class whose probability has this logarithm. That of one which is certain is 0, without a sign.
pub fn of_likelihood(log: f64) -> f64 {
    0.0 - log
}

/// The loss of a sample's numbers.
pub fn mean_loss(loss: ElementwiseLoss, x: &[f32], t: &[f32]) -> f64 {
    let of = |x: f64, t: f64| {
        let distance = (x - t).abs();
        match loss {
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
    sum / x.len() as f64
}

/// The loss of a sample's labels.
pub fn mean_of_labels(loss: &WeightedBinary, x: &[f32], t: &[f32]) -> f64 {
    let [gamma, alpha] = loss.gamma_and_alpha().map(f64::from);
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let of = |(i, (x, t)): (usize, (&f32, &f32))| {
        let (x, t) = (f64::from(*x), f64::from(*t));
        let weight = match loss.pos_weight.len() {
            0 => 1.0,
            labels => f64::from(loss.pos_weight[i % labels]),
        };
        let share = if alpha < 0.0 { 1.0 } else { alpha * t + (1.0 - alpha) * (1.0 - t) };
        let off = t / (1.0 + x.exp()) + (1.0 - t) / (1.0 + (-x).exp());
        share * off.powf(gamma) * (weight * t * softplus(-x) + (1.0 - t) * softplus(x))
    };
    x.iter().zip(t).enumerate().map(of).sum::<f64>() / x.len() as f64
}

/// The loss of a row of classes, times what the row weighs in the mean over rows, and that weight. A class that does not count weighs nothing.
pub fn of_class(loss: &CrossEntropy, row: &[f32], class: i32) -> [f64; 2] {
    let known = usize::try_from(class).ok().filter(|known| class != loss.ignore_index && *known < row.len());
    let Some(class) = known else { return [0.0; 2] };
    let weight = |class: usize| loss.weight.get(class).map_or(1.0, |weight| f64::from(*weight));
    let logs = match loss.form {
        RowLoss::Nll => row.iter().map(|x| f64::from(*x)).collect(),
        RowLoss::CrossEntropy | RowLoss::Focal { .. } => log_softmax(row),
    };
    let focus = match loss.form {
        RowLoss::Focal { gamma } if gamma > 0.0 => (-logs[class].exp_m1()).powf(f64::from(gamma)),
        RowLoss::Focal { .. } | RowLoss::CrossEntropy | RowLoss::Nll => 1.0,
    };
    let smoothing = f64::from(loss.label_smoothing);
    let others = match smoothing {
        // A class of no probability has no logarithm, which only smoothing asks for.
        0.0 => 0.0,
        _ => smoothing / row.len() as f64 * logs.iter().enumerate().map(|(c, log)| -weight(c) * log).sum::<f64>(),
    };
    [(1.0 - smoothing) * weight(class) * focus * -logs[class] + others, weight(class)]
}

/// The logarithms of the softmax of a row.
pub fn log_softmax(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()).sum();
    row.iter().map(|x| f64::from(*x) - f64::from(most) - sum.ln()).collect()
}

/// The mean loss of a sample's quantiles, those of each target side by side.
pub fn mean_pinball(quantiles: &[f64], x: &[f32], t: &[f32]) -> f64 {
    let of_target = |(x, t): (&[f32], &f32)| -> f64 {
        let distance = x.iter().map(|x| f64::from(*t) - f64::from(*x));
        distance.zip(quantiles).map(|(d, q)| if d > 0.0 { q * d } else { (q - 1.0) * d }).sum()
    };
    x.chunks_exact(quantiles.len()).zip(t).map(of_target).sum::<f64>() / x.len() as f64
}

#[cfg(test)]
mod tests {
    use super::of_likelihood;

    #[test]
    fn what_is_certain_has_no_loss() {
        assert!(of_likelihood(0.0).is_sign_positive());
        assert_eq!([of_likelihood(-0.5), of_likelihood(f64::NEG_INFINITY)], [0.5, f64::INFINITY]);
    }
}
