//! Matrix products with a weight.

use super::Tensor;
use super::elementwise::maybe_activate;
use crate::graph::op::{Linear, LinearGradWeight};

pub(super) fn forward(op: &Linear, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (x, w, b) = (x[0], x[1], x.get(2));
    let (inputs, outputs) = (w.dims[1], w.dims[0]);
    let mut y = Vec::new();
    for r in 0..x.rows() {
        for o in 0..outputs {
            let sum: f64 = (0..inputs).map(|i| x.data[r * inputs + i] * w.at([o, i])).sum();
            let bias = if op.bias { b.expect("checked by the shape rule").data[o] } else { 0.0 };
            y.push(maybe_activate(op.act, sum + bias));
        }
    }
    vec![y]
}

pub(super) fn grad_input(x: &[Tensor]) -> Vec<Vec<f64>> {
    let (dy, w) = (x[0], x[1]);
    let (inputs, outputs) = (w.dims[1], w.dims[0]);
    let mut dx = Vec::new();
    for r in 0..dy.rows() {
        for i in 0..inputs {
            dx.push((0..outputs).map(|o| dy.data[r * outputs + o] * w.at([o, i])).sum());
        }
    }
    vec![dx]
}

pub(super) fn grad_weight(op: &LinearGradWeight, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (x, dy) = (x[0], x[1]);
    let (rows, inputs, outputs) = (x.rows(), x.last(), dy.last());
    let mut dw = Vec::new();
    for o in 0..outputs {
        for i in 0..inputs {
            dw.push((0..rows).map(|r| dy.data[r * outputs + o] * x.data[r * inputs + i]).sum());
        }
    }
    let mut results = vec![dw];
    if op.bias {
        results.push((0..outputs).map(|o| (0..rows).map(|r| dy.data[r * outputs + o]).sum()).collect());
    }
    results
}
