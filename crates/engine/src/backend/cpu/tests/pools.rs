use super::harness::{Tensor, assert_close, outputs};
use crate::graph::DType;
use crate::graph::op::{AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad};

/// `i`-th tap of the window of output `o`, if it lies in `0 .. side`.
fn tap(o: usize, i: usize, stride: usize, padding: usize, dilation: usize, side: usize) -> Option<usize> {
    (o * stride + i * dilation).checked_sub(padding).filter(|p| *p < side)
}

fn max_pools() -> Vec<(MaxPool2d, [usize; 4])> {
    let pool =
        |kernel, stride, padding, dilation, ceil_mode| MaxPool2d { kernel, stride, padding, dilation, ceil_mode };
    vec![
        (pool([2, 2], [2, 2], [0, 0], [1, 1], false), [3, 8, 6, 32]),
        (pool([2, 2], [2, 2], [0, 0], [1, 1], true), [2, 7, 5, 5]),
        (pool([2, 2], [2, 2], [0, 0], [1, 1], false), [3, 7, 9, 37]),
        (pool([2, 2], [2, 2], [0, 0], [1, 1], false), [9, 40, 33, 24]),
        (pool([3, 3], [2, 2], [1, 1], [1, 1], false), [2, 11, 9, 64]),
        (pool([3, 3], [1, 1], [1, 1], [1, 1], false), [1, 5, 6, 17]),
        (pool([3, 2], [2, 3], [1, 1], [2, 1], true), [2, 10, 11, 7]),
        (pool([2, 2], [3, 3], [0, 0], [1, 1], false), [2, 8, 9, 20]),
        (pool([17, 20], [5, 3], [8, 10], [1, 1], false), [1, 21, 23, 3]),
    ]
}

#[test]
fn maxima_and_their_gradient() {
    for (op, dims) in max_pools() {
        let [n, h, w, c] = dims;
        // Few different values, so that windows hold equal maxima.
        let x = Tensor::normal(dims, 1).map(|v| (v * 2.0).round());
        let xs = x.f32s();
        for got in outputs(op.clone(), std::slice::from_ref(&x)) {
            let [_, oh, ow, _] = got[0].shape.nhwc().unwrap();
            let wide = op.kernel[0] * op.kernel[1] > 256;
            assert_eq!(got[1].dtype, if wide { DType::I32 } else { DType::U8 });
            let index: Vec<usize> = if wide {
                got[1].i32s().iter().map(|i| *i as usize).collect()
            } else {
                got[1].u8s().iter().map(|i| *i as usize).collect()
            };
            let dy = Tensor::normal(got[0].shape.clone(), 2);
            let dys = dy.doubles();
            let (y, mut dx) = (got[0].f32s(), vec![0.0; xs.len()]);
            for at in 0..y.len() {
                let (ch, o, p, b) = (at % c, at / c % ow, at / c / ow % oh, at / c / ow / oh);
                let mut best: Option<(f32, usize, usize)> = None;
                for i in 0..op.kernel[0] {
                    for j in 0..op.kernel[1] {
                        let row = tap(p, i, op.stride[0], op.padding[0], op.dilation[0], h);
                        let column = tap(o, j, op.stride[1], op.padding[1], op.dilation[1], w);
                        let (Some(row), Some(column)) = (row, column) else { continue };
                        let place = ((b * h + row) * w + column) * c + ch;
                        if best.is_none_or(|(v, ..)| xs[place] > v) {
                            best = Some((xs[place], i * op.kernel[1] + j, place));
                        }
                    }
                }
                let (value, position, place) = best.unwrap();
                assert_eq!((y[at], index[at]), (value, position), "{op:?} at {at}");
                dx[place] += dys[at];
            }
            let grad = MaxPool2dGrad { pool: op.clone(), input: [h, w] };
            assert_eq!(xs.len(), n * h * w * c);
            for back in outputs(grad, &[dy.clone(), got[1].clone()]) {
                assert_close("dx", &back[0], &dx, 1e-6, 1.0);
            }
        }
    }
}

#[test]
fn nan_and_infinity_in_a_window() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let op = MaxPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: false };
    let rows = [[1.0, nan, nan, 1.0, -inf, -inf, 3.0, 3.0], [2.0, 5.0, nan, 7.0, -inf, -inf, inf, inf]];
    for got in outputs(op, &[Tensor::from_f32([1, 2, 8, 1], rows.as_flattened())]) {
        let y = got[0].f32s();
        assert!(y[0].is_nan() && y[1].is_nan() && y[2] == -inf && y[3] == inf);
        assert_eq!(got[1].u8s(), [1, 2, 0, 2]);
    }
    let op = MaxPool2d { kernel: [1, 3], stride: [1, 3], padding: [0, 0], dilation: [1, 1], ceil_mode: false };
    let x = Tensor::from_f32([1, 1, 9, 1], &[1.0, nan, 2.0, -inf, -inf, -inf, 3.0, inf, inf]);
    for got in outputs(op, &[x]) {
        let y = got[0].f32s();
        assert!(y[0].is_nan() && y[1] == -inf && y[2] == inf);
        assert_eq!(got[1].u8s(), [1, 0, 1]);
    }
}

/// Means and their gradient, from the inputs of each window along both axes and the divisor.
fn means(
    x: &[f64],
    [n, h, w, c]: [usize; 4],
    rows: &[(Vec<usize>, usize)],
    columns: &[(Vec<usize>, usize)],
    dy: impl Fn(usize) -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut dx) = (Vec::new(), vec![0.0; x.len()]);
    for b in 0..n {
        for (is, ni) in rows {
            for (js, nj) in columns {
                for ch in 0..c {
                    let count = (ni * nj) as f64;
                    let g = dy(y.len());
                    let mut sum = 0.0;
                    for i in is {
                        for j in js {
                            let at = ((b * h + i) * w + j) * c + ch;
                            sum += x[at];
                            dx[at] += g / count;
                        }
                    }
                    y.push(sum / count);
                }
            }
        }
    }
    (y, dx)
}

#[test]
fn averages_and_their_gradient() {
    for include in [true, false] {
        for (kernel, stride, padding, ceil, dims) in [
            ([2, 2], [2, 2], [0, 0], false, [3, 8, 6, 32]),
            ([3, 3], [2, 2], [1, 1], true, [2, 6, 9, 5]),
            ([3, 2], [1, 3], [1, 0], false, [2, 5, 9, 17]),
            ([2, 2], [3, 3], [1, 1], true, [1, 8, 9, 20]),
        ] {
            let op = AvgPool2d { kernel, stride, padding, ceil_mode: ceil, count_include_pad: include };
            let (x, [_, h, w, _]) = (Tensor::normal(dims, 1), dims);
            for got in outputs(op.clone(), std::slice::from_ref(&x)) {
                let [_, oh, ow, _] = got[0].shape.nhwc().unwrap();
                let windows = |axis: usize, outs: usize, side: usize| -> Vec<(Vec<usize>, usize)> {
                    (0..outs)
                        .map(|o| {
                            let start = o * stride[axis];
                            let padded = start..(start + kernel[axis]).min(side + 2 * padding[axis]);
                            let inside = |p: usize| p.checked_sub(padding[axis]).filter(|p| *p < side);
                            let taps: Vec<usize> = padded.clone().filter_map(inside).collect();
                            let count = if include { padded.len() } else { taps.len() };
                            (taps, count)
                        })
                        .collect()
                };
                let dy = Tensor::normal(got[0].shape.clone(), 2);
                let dys = dy.doubles();
                let (y, dx) = means(&x.doubles(), dims, &windows(0, oh, h), &windows(1, ow, w), |i| dys[i]);
                assert_close("y", &got[0], &y, 5e-7, 1.0);
                for back in outputs(AvgPool2dGrad { pool: op.clone(), input: [h, w] }, std::slice::from_ref(&dy)) {
                    assert_close("dx", &back[0], &dx, 5e-7, 1.0);
                }
            }
        }
    }
}

#[test]
fn adaptive_averages_and_their_gradient() {
    for (output, dims) in [
        ([1, 1], [3, 7, 7, 100]),
        ([1, 1], [1, 60, 60, 3]),
        ([3, 2], [2, 7, 5, 17]),
        ([5, 7], [2, 3, 4, 6]),
        ([4, 4], [2, 4, 4, 16]),
    ] {
        let (x, [_, h, w, _]) = (Tensor::normal(dims, 1).map(|v| v + 2.0), dims);
        let windows = |outs: usize, side: usize| -> Vec<(Vec<usize>, usize)> {
            (0..outs)
                .map(|o| {
                    let taps: Vec<usize> = (o * side / outs..((o + 1) * side).div_ceil(outs)).collect();
                    let count = taps.len();
                    (taps, count)
                })
                .collect()
        };
        for got in outputs(AdaptiveAvgPool2d { output }, std::slice::from_ref(&x)) {
            let dy = Tensor::normal(got[0].shape.clone(), 2);
            let dys = dy.doubles();
            let (y, dx) = means(&x.doubles(), dims, &windows(output[0], h), &windows(output[1], w), |i| dys[i]);
            assert_close("y", &got[0], &y, 5e-7, 1.0);
            for back in outputs(AdaptiveAvgPool2dGrad { input: [h, w] }, std::slice::from_ref(&dy)) {
                assert_close("dx", &back[0], &dx, 5e-7, 1.0);
            }
        }
    }
}
