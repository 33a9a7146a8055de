//! Convolution. All three products go over the same terms: every pair of an input element and a weight that meet in an
//! output element.

use super::{Tensor, dims4, offset};
use crate::graph::op::{Conv2d, Conv2dGradInput, Conv2dGradWeight};

/// Calls `f(x, w, y)` with the places of input element, weight and output element, for every product in the
/// convolution. Products with padding are left out.
fn for_each_product(
    conv: &Conv2d,
    x: [usize; 4],
    w: [usize; 4],
    y: [usize; 4],
    mut f: impl FnMut(usize, usize, usize),
) {
    let [out_channels, kh, kw, channels] = w;
    // Position in the input that kernel position `k` meets for output position `o`, if it is not padding.
    let meets = |axis: usize, o: usize, k: usize| {
        let padded = o * conv.stride[axis] + k * conv.dilation[axis];
        padded.checked_sub(conv.padding[2 * axis]).filter(|i| *i < x[1 + axis])
    };
    for n in 0..y[0] {
        for oy in 0..y[1] {
            for ox in 0..y[2] {
                for o in 0..out_channels {
                    let group = o / (out_channels / conv.groups);
                    for ky in 0..kh {
                        for kx in 0..kw {
                            let (Some(iy), Some(ix)) = (meets(0, oy, ky), meets(1, ox, kx)) else { continue };
                            // Channels are next to each other.
                            let at_x = offset(&x, &[n, iy, ix, group * channels]);
                            let at_w = offset(&w, &[o, ky, kx, 0]);
                            let at_y = offset(&y, &[n, oy, ox, o]);
                            for i in 0..channels {
                                f(at_x + i, at_w + i, at_y);
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn forward(op: &Conv2d, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let dims = dims4(outputs[0]);
    let mut y = vec![0.0; dims.iter().product()];
    for_each_product(op, x[0].dims4(), x[1].dims4(), dims, |ix, iw, iy| y[iy] += x[0].data[ix] * x[1].data[iw]);
    for (i, v) in y.iter_mut().enumerate() {
        let bias = if op.bias { x[2].data[i % dims[3]] } else { 0.0 };
        *v += bias;
    }
    vec![y]
}

pub(super) fn grad_input(op: &Conv2dGradInput, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let (dy, w, dims) = (x[0], x[1], dims4(outputs[0]));
    let mut dx = vec![0.0; dims.iter().product()];
    for_each_product(&op.conv, dims, w.dims4(), dy.dims4(), |ix, iw, iy| dx[ix] += dy.data[iy] * w.data[iw]);
    vec![dx]
}

pub(super) fn grad_weight(op: &Conv2dGradWeight, x: &[Tensor], outputs: &[&[usize]]) -> Vec<Vec<f64>> {
    let (x, dy, dims) = (x[0], x[1], dims4(outputs[0]));
    let mut dw = vec![0.0; dims.iter().product()];
    for_each_product(&op.conv, x.dims4(), dims, dy.dims4(), |ix, iw, iy| dw[iw] += dy.data[iy] * x.data[ix]);
    let mut results = vec![dw];
    if op.bias {
        let mut db = vec![0.0; dims[0]];
        for (i, d) in dy.data.iter().enumerate() {
            db[i % dims[0]] += d;
        }
        results.push(db);
    }
    results
}
