//! Pooling over windows of images.

use super::{Tensor, indices, offset};
use crate::graph::op::{AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad};
use std::ops::Range;

/// Position in the input of element `k` of window `o`, if it lies inside.
fn in_window(pool: &MaxPool2d, axis: usize, side: usize, o: usize, k: usize) -> Option<usize> {
    (o * pool.stride[axis] + k * pool.dilation[axis]).checked_sub(pool.padding[axis]).filter(|i| *i < side)
}

pub(super) fn max(op: &MaxPool2d, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let [_, h, w, _] = x[0].dims4();
    let (mut maxima, mut places) = (Vec::new(), Vec::new());
    for at in indices(y[0]) {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        // A dilated window can miss the image altogether.
        let (mut best, mut place, mut found) = (f64::NEG_INFINITY, 0, false);
        for ky in 0..op.kernel[0] {
            for kx in 0..op.kernel[1] {
                let (Some(iy), Some(ix)) = (in_window(op, 0, h, oy, ky), in_window(op, 1, w, ox, kx)) else { continue };
                let v = x[0].at([n, iy, ix, c]);
                if !found || v > best || v.is_nan() {
                    (best, place, found) = (v, ky * op.kernel[1] + kx, true);
                }
            }
        }
        maxima.push(best);
        places.push(place as f64);
    }
    vec![maxima, places]
}

pub(super) fn max_grad(op: &MaxPool2dGrad, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let (dy, places, [h, w]) = (x[0], x[1], op.input);
    let mut dx = vec![0.0; y[0].iter().product()];
    for (i, at) in indices(dy.dims).enumerate() {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        let place = places.data[i] as usize;
        let (ky, kx) = (place / op.pool.kernel[1], place % op.pool.kernel[1]);
        if let (Some(iy), Some(ix)) = (in_window(&op.pool, 0, h, oy, ky), in_window(&op.pool, 1, w, ox, kx)) {
            dx[offset(y[0], &[n, iy, ix, c])] += dy.data[i];
        }
    }
    vec![dx]
}

/// The part of window `o` that lies in the image, and the window's length: what reaches beyond the padding is cut off.
fn avg_window(pool: &AvgPool2d, axis: usize, side: usize, o: usize) -> (Range<usize>, usize) {
    let padding = pool.padding[axis];
    let start = o * pool.stride[axis];
    let end = (start + pool.kernel[axis]).min(side + 2 * padding);
    (start.saturating_sub(padding)..end.saturating_sub(padding).min(side), end - start)
}

/// Rows and columns of the window of output pixel `[oy, ox]`, and what its sum is divided by.
fn avg_pixels(pool: &AvgPool2d, [h, w]: [usize; 2], oy: usize, ox: usize) -> (Range<usize>, Range<usize>, f64) {
    let (rows, height) = avg_window(pool, 0, h, oy);
    let (columns, width) = avg_window(pool, 1, w, ox);
    let divisor = if pool.count_include_pad { height * width } else { rows.len() * columns.len() };
    (rows, columns, divisor as f64)
}

/// Mean over the pixels that `window(oy, ox)` names, with its divisor.
fn mean(x: &Tensor, y: &[usize], window: impl Fn(usize, usize) -> (Range<usize>, Range<usize>, f64)) -> Vec<f64> {
    let one = |at: Vec<usize>| {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        let (rows, columns, divisor) = window(oy, ox);
        let pixels = rows.flat_map(|iy| columns.clone().map(move |ix| (iy, ix)));
        pixels.map(|(iy, ix)| x.at([n, iy, ix, c])).sum::<f64>() / divisor
    };
    indices(y).map(one).collect()
}

/// The gradient of [`mean`].
fn mean_grad(
    dy: &Tensor,
    dx: &[usize],
    window: impl Fn(usize, usize) -> (Range<usize>, Range<usize>, f64),
) -> Vec<f64> {
    let mut result = vec![0.0; dx.iter().product()];
    for (at, d) in indices(dy.dims).zip(dy.data) {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        let (rows, columns, divisor) = window(oy, ox);
        for iy in rows {
            for ix in columns.clone() {
                result[offset(dx, &[n, iy, ix, c])] += d / divisor;
            }
        }
    }
    result
}

pub(super) fn avg(op: &AvgPool2d, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let [_, h, w, _] = x[0].dims4();
    vec![mean(&x[0], y[0], |oy, ox| avg_pixels(op, [h, w], oy, ox))]
}

pub(super) fn avg_grad(op: &AvgPool2dGrad, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    vec![mean_grad(&x[0], y[0], |oy, ox| avg_pixels(&op.pool, op.input, oy, ox))]
}

/// Window `o` of `outputs` over a side.
fn adaptive_window(side: usize, outputs: usize, o: usize) -> Range<usize> {
    o * side / outputs..((o + 1) * side).div_ceil(outputs)
}

/// The windows of an adaptive pooling from `x` to `y`.
fn adaptive_pixels(x: &[usize], y: &[usize], oy: usize, ox: usize) -> (Range<usize>, Range<usize>, f64) {
    let (rows, columns) = (adaptive_window(x[1], y[1], oy), adaptive_window(x[2], y[2], ox));
    let divisor = (rows.len() * columns.len()) as f64;
    (rows, columns, divisor)
}

pub(super) fn adaptive_avg(x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    vec![mean(&x[0], y[0], |oy, ox| adaptive_pixels(x[0].dims, y[0], oy, ox))]
}

pub(super) fn adaptive_avg_grad(x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    vec![mean_grad(&x[0], y[0], |oy, ox| adaptive_pixels(y[0], x[0].dims, oy, ox))]
}

pub(super) fn adaptive_max(x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let (mut maxima, mut places) = (Vec::new(), Vec::new());
    for at in indices(y[0]) {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        let (rows, columns, _) = adaptive_pixels(x[0].dims, y[0], oy, ox);
        let (mut best, mut place) = (f64::NEG_INFINITY, 0);
        let pixels = rows.flat_map(|iy| columns.clone().map(move |ix| (iy, ix)));
        for (at, (iy, ix)) in pixels.enumerate() {
            let v = x[0].at([n, iy, ix, c]);
            if at == 0 || v > best || v.is_nan() {
                (best, place) = (v, at);
            }
        }
        maxima.push(best);
        places.push(place as f64);
    }
    vec![maxima, places]
}

pub(super) fn adaptive_max_grad(x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let (dy, places) = (x[0], x[1]);
    let mut dx = vec![0.0; y[0].iter().product()];
    for (i, at) in indices(dy.dims).enumerate() {
        let [n, oy, ox, c] = at[..] else { unreachable!("images have four axes") };
        let (rows, columns, _) = adaptive_pixels(y[0], dy.dims, oy, ox);
        let place = places.data[i] as usize;
        let (iy, ix) = (rows.start + place / columns.len(), columns.start + place % columns.len());
        dx[offset(y[0], &[n, iy, ix, c])] += dy.data[i];
    }
    vec![dx]
}
