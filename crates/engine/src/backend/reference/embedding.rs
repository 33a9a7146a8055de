//! Rows of a table.

use super::Tensor;
use crate::graph::op::EmbeddingGrad;

/// The row of a table of `rows` that an id stands for, if there is one.
fn row(id: f64, rows: usize) -> Option<usize> {
    (id >= 0.0 && id < rows as f64).then_some(id as usize)
}

pub(super) fn forward(x: &[Tensor]) -> Vec<Vec<f64>> {
    let (table, ids) = (x[0], x[1]);
    let (rows, width) = (table.rows(), table.last());
    let one = |id: &f64| match row(*id, rows) {
        Some(row) => table.data[row * width..(row + 1) * width].to_vec(),
        None => vec![f64::NAN; width],
    };
    vec![ids.data.iter().flat_map(one).collect()]
}

pub(super) fn grad(op: &EmbeddingGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (dy, ids) = (x[0], x[1]);
    let width = dy.last();
    let mut sum = vec![0.0; op.rows * width];
    for (at, id) in ids.data.iter().enumerate() {
        let Some(row) = row(*id, op.rows).filter(|row| op.padding.is_none_or(|padding| *row != padding as usize))
        else {
            continue;
        };
        for i in 0..width {
            sum[row * width + i] += dy.data[at * width + i];
        }
    }
    vec![sum]
}
