//! Weights of rows and numbers in losses, and the means that they make.

use crate::run::frame::Frame;
use std::ops::Range;

/// The rows' or numbers' own weights: the last operand of a loss or of its gradient that is weighted, else nothing.
pub fn own_weights<'a>(frame: &Frame<'a>, weighted: bool, backward: bool) -> &'a [f32] {
    match (weighted, backward) {
        (false, _) => &[],
        (true, false) => frame.input::<f32>(2),
        (true, true) => frame.input::<f32>(4),
    }
}

/// Some of them.
pub fn own_of(own: &[f32], range: Range<usize>) -> &[f32] {
    if own.is_empty() { own } else { &own[range] }
}

/// By which slopes are multiplied where so many numbers, in a batch of so many samples, have weights; `weight` is what the batch weighs.
pub fn weighted_factor(frame: &Frame, len: usize, items: usize) -> f64 {
    let (weight, dloss) = (frame.input::<f32>(2)[0] as f64, frame.input::<f32>(3)[0] as f64);
    if weight > 0.0 { dloss / (weight * len as f64 / items as f64) } else { 0.0 }
}

/// Writes a mean over numbers, and what the batch weighs, from pairs of sums: of losses and of weights.
pub fn store_mean(frame: &Frame, partial: &[f64], [len, items]: [usize; 2], weighted: bool) {
    let total: f64 = partial.iter().step_by(2).sum();
    if !weighted {
        frame.output::<f32>(0)[0] = (total / len as f64) as f32;
        frame.output::<f32>(1)[0] = items as f32;
        return;
    }
    let weights: f64 = partial.iter().skip(1).step_by(2).sum();
    frame.output::<f32>(0)[0] = if weights > 0.0 { (total / weights) as f32 } else { 0.0 };
    frame.output::<f32>(1)[0] = (weights * items as f64 / len as f64) as f32;
}
