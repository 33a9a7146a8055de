//! Dropout.

use super::Tensor;
use crate::graph::op::Dropout;
use crate::random::{dropout_draws, dropout_keeps};

pub(super) fn dropout(op: &Dropout, x: &[Tensor]) -> Vec<Vec<f64>> {
    let key: Vec<u32> = x[1].data.iter().map(|k| *k as u32).collect();
    let key = [key[0], key[1], key[2], key[3]];
    let one = |(i, v): (usize, &f64)| {
        let draw = dropout_draws(key, op.stream, i as u64 / 4)[i % 4];
        if dropout_keeps(draw, op.p) { v / (1.0 - f64::from(op.p)) } else { 0.0 }
    };
    vec![x[0].data.iter().enumerate().map(one).collect()]
}
