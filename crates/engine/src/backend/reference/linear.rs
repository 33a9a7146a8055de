//! Matrix products with a weight.

use super::Tensor;
use crate::graph::op::{Linear, LinearGradWeight};

pub(super) fn forward(op: &Linear, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (x, w, b) = (x[0], x[1], x.get(2));
    let (inputs, outputs) = (w.dims[1], w.dims[0]);
    let mut y = Vec::with_capacity(x.rows() * outputs);
    for x_row in x.data.chunks(inputs) {
        for (o, w_row) in w.data.chunks(inputs).enumerate() {
            let bias = if op.bias { b.expect("checked by the shape rule").data[o] } else { 0.0 };
            y.push(dot(x_row, w_row) + bias);
        }
    }
    vec![y]
}

pub(super) fn grad_input(x: &[Tensor]) -> Vec<Vec<f64>> {
    let (dy, w) = (x[0], x[1]);
    let (inputs, outputs) = (w.dims[1], w.dims[0]);
    let columns = transposed(w.data, inputs);
    let mut dx = Vec::with_capacity(dy.rows() * inputs);
    for dy_row in dy.data.chunks(outputs) {
        dx.extend(columns.chunks(outputs).map(|column| dot(dy_row, column)));
    }
    vec![dx]
}

pub(super) fn grad_weight(op: &LinearGradWeight, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (x, dy) = (x[0], x[1]);
    let (rows, inputs, outputs) = (x.rows(), x.last(), dy.last());
    let (x_columns, dy_columns) = (transposed(x.data, inputs), transposed(dy.data, outputs));
    let mut dw = Vec::with_capacity(outputs * inputs);
    for dy_column in dy_columns.chunks(rows) {
        dw.extend(x_columns.chunks(rows).map(|x_column| dot(dy_column, x_column)));
    }
    let mut results = vec![dw];
    if op.bias {
        results.push(dy_columns.chunks(rows).map(|column| column.iter().sum()).collect());
    }
    results
}

/// `Σ a · b`, from the first product to the last.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The columns of a matrix with rows of `width`, one after the other.
fn transposed(data: &[f64], width: usize) -> Vec<f64> {
    (0..width).flat_map(|column| data.iter().skip(column).step_by(width).copied()).collect()
}
