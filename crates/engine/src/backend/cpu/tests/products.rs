//! Linear layers and convolutions as nodes; the kernels' own tests try many more sizes.

use super::elementwise::value;
use super::harness::{Tensor, assert_close, outputs};
use crate::graph::op::{
    Activation, Conv2d, Conv2dGradInput, Conv2dGradWeight, Fused, Linear, LinearGradInput, LinearGradWeight,
};

const ACTS: [Option<Activation>; 3] = [None, Some(Activation::Relu), Some(Activation::Gelu)];

#[test]
fn linear_layers() {
    let (rows, inputs, units) = (70, 33, 10);
    let x = Tensor::normal([rows / 2, 2, inputs], 1);
    let [w, b, dy] = [vec![units, inputs], vec![units], vec![rows / 2, 2, units]].map(|s| Tensor::normal(s, 2));
    let (xs, ws, dys) = (x.doubles(), w.doubles(), dy.doubles());
    let sum = |n: usize, f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
    for act in ACTS {
        let want: Vec<f64> = (0..rows * units)
            .map(|i| {
                let (r, u) = (i / units, i % units);
                let z = sum(inputs, &|k| xs[r * inputs + k] * ws[u * inputs + k]) + b.doubles()[u];
                act.map_or(z, |a| value(a, z))
            })
            .collect();
        for got in outputs(Fused::activated(Linear { bias: true }, 3, act), &[x.clone(), w.clone(), b.clone()]) {
            assert_close("y", &got[0], &want, 1e-6, 5.0);
        }
    }
    for got in outputs(LinearGradInput {}, &[dy.clone(), w.clone()]) {
        let at = |i: usize| sum(units, &|u| dys[i / inputs * units + u] * ws[u * inputs + i % inputs]);
        assert_close("dx", &got[0], &(0..rows * inputs).map(at).collect::<Vec<_>>(), 1e-6, 5.0);
    }
    for got in outputs(LinearGradWeight { bias: true }, &[x.clone(), dy.clone()]) {
        let at = |i: usize| sum(rows, &|r| dys[r * units + i / inputs] * xs[r * inputs + i % inputs]);
        assert_close("dw", &got[0], &(0..units * inputs).map(at).collect::<Vec<_>>(), 1e-6, 10.0);
        let at = |u: usize| sum(rows, &|r| dys[r * units + u]);
        assert_close("db", &got[1], &(0..units).map(at).collect::<Vec<_>>(), 1e-6, 10.0);
    }
}

/// Calls `f(x, w, y)` with the places of every product that a convolution adds up.
fn products(op: &Conv2d, [n, h, w, c]: [usize; 4], [o, kh, kw, i]: [usize; 4], mut f: impl FnMut(usize, usize, usize)) {
    let [oh, ow] = op.out([h, w], [kh, kw]).unwrap();
    let per_group = o / op.groups;
    for at in 0..n * oh * ow * o {
        let (u, col, row, b) = (at % o, at / o % ow, at / o / ow % oh, at / o / ow / oh);
        for tap in 0..kh * kw * i {
            let (ch, kx, ky) = (tap % i, tap / i % kw, tap / i / kw);
            let y = (row * op.stride[0] + ky * op.dilation[0]).checked_sub(op.padding[0]).filter(|y| *y < h);
            let x = (col * op.stride[1] + kx * op.dilation[1]).checked_sub(op.padding[2]).filter(|x| *x < w);
            if let (Some(y), Some(x)) = (y, x) {
                f(((b * h + y) * w + x) * c + u / per_group * i + ch, u * kh * kw * i + tap, at);
            }
        }
    }
}

#[test]
fn convolutions() {
    let conv = |stride, padding, dilation, groups, act| (Conv2d { stride, padding, dilation, groups, bias: true }, act);
    for ((op, act), x, w) in [
        (conv([1, 1], [1; 4], [1, 1], 1, ACTS[1]), [3, 9, 7, 5], [20, 3, 3, 5]),
        (conv([2, 1], [2, 1, 0, 3], [1, 2], 2, ACTS[0]), [2, 11, 8, 6], [10, 3, 2, 3]),
        (conv([1, 1], [1; 4], [1, 1], 18, ACTS[2]), [2, 6, 5, 18], [18, 3, 3, 1]),
        (conv([1, 1], [0; 4], [1, 1], 1, ACTS[2]), [2, 6, 5, 17], [9, 1, 1, 17]),
    ] {
        let (input, weight, bias) = (Tensor::normal(x, 1), Tensor::normal(w, 2), Tensor::normal([w[0]], 3));
        let (xs, ws, bs) = (input.doubles(), weight.doubles(), bias.doubles());
        for got in outputs(Fused::activated(op.clone(), 3, act), &[input.clone(), weight.clone(), bias.clone()]) {
            let mut y: Vec<f64> = (0..got[0].shape.len()).map(|i| bs[i % w[0]]).collect();
            products(&op, x, w, |a, b, at| y[at] += xs[a] * ws[b]);
            let y: Vec<f64> = y.into_iter().map(|z| act.map_or(z, |f| value(f, z))).collect();
            assert_close("y", &got[0], &y, 1e-6, 10.0);
            let dy = Tensor::normal(got[0].shape.clone(), 4);
            let (mut dx, mut dw, dys) = (vec![0.0; xs.len()], vec![0.0; ws.len()], dy.doubles());
            products(&op, x, w, |a, b, at| {
                dx[a] += dys[at] * ws[b];
                dw[b] += dys[at] * xs[a];
            });
            for got in outputs(Conv2dGradInput { conv: op.clone(), input: [x[1], x[2]] }, &[dy.clone(), weight.clone()])
            {
                assert_close("dx", &got[0], &dx, 1e-6, 10.0);
            }
            let grad = Conv2dGradWeight { conv: op.clone(), kernel: [w[1], w[2]], bias: true };
            for got in outputs(grad, &[input.clone(), dy.clone()]) {
                assert_close("dw", &got[0], &dw, 1e-6, 10.0);
                let mut db = vec![0.0; w[0]];
                dys.iter().enumerate().for_each(|(i, d)| db[i % w[0]] += d);
                assert_close("db", &got[1], &db, 1e-6, 10.0);
            }
        }
    }
}
