//! Images of another size.

use super::{Tensor, indices, offset};
use crate::graph::op::{Resize2d, Resize2dGrad, Taps};

/// The positions that a pixel is made of, with their weights.
fn pixels(rows: &Taps, columns: &Taps) -> Vec<([usize; 2], f64)> {
    let mut list = Vec::new();
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        if rows.weight[i] != 0.0 && columns.weight[j] != 0.0 {
            list.push(([rows.at[i], columns.at[j]], f64::from(rows.weight[i]) * f64::from(columns.weight[j])));
        }
    }
    list
}

pub(super) fn resize(op: &Resize2d, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let [_, h, w, _] = x[0].dims4();
    let (rows, columns) = (op.taps(0, h), op.taps(1, w));
    let one = |at: Vec<usize>| {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        pixels(&rows[oy], &columns[ox]).iter().map(|([iy, ix], weight)| weight * x[0].at([n, *iy, *ix, c])).sum()
    };
    vec![indices(y[0]).map(one).collect()]
}

pub(super) fn grad(op: &Resize2dGrad, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let (rows, columns) = (op.resize.taps(0, op.input[0]), op.resize.taps(1, op.input[1]));
    let mut dx = vec![0.0; y[0].iter().product()];
    for (at, d) in indices(x[0].dims).zip(x[0].data) {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        for ([iy, ix], weight) in pixels(&rows[oy], &columns[ox]) {
            dx[offset(y[0], &[n, iy, ix, c])] += weight * d;
        }
    }
    vec![dx]
}
