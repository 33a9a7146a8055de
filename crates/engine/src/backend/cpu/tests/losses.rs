use super::harness::{Tensor, assert_close, outputs, run};
use crate::graph::op::{
    CrossEntropy, ElementwiseLoss, Loss, LossGrad, LossOp, METRIC_SLOTS, Metrics, Softmax, SoftmaxGrad, Task,
    metric_slot as slot,
};

const ROWS: [(usize, usize); 7] = [(1, 1), (3, 10), (256, 10), (7, 33), (5, 1000), (700, 17), (2, 40_000)];

/// `softmax(x)` and the log-sum-exp of each row.
fn softmax(x: &[f64], row: usize) -> (Vec<f64>, Vec<f64>) {
    let lse = |x: &[f64]| {
        let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + x.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
    };
    let lses: Vec<f64> = x.chunks(row).map(lse).collect();
    (x.iter().enumerate().map(|(i, v)| (v - lses[i / row]).exp()).collect(), lses)
}

#[test]
fn softmax_and_its_gradient() {
    for (rows, row) in ROWS {
        let x = Tensor::normal([rows, row], 1).map(|v| 5.0 * v + 30.0);
        let dy = Tensor::normal([rows, row], 2);
        let (want, _) = softmax(&x.doubles(), row);
        for got in outputs(Softmax {}, std::slice::from_ref(&x)) {
            // Rounding the difference from the largest logit, some 30, is an error of 1e-6 of the exponential.
            assert_close("softmax", &got[0], &want, 3e-6, 1e-30);
            let (y, g) = (got[0].doubles(), dy.doubles());
            let dot: Vec<f64> = (0..rows).map(|r| (r * row..(r + 1) * row).map(|i| y[i] * g[i]).sum()).collect();
            let dx: Vec<f64> = (0..rows * row).map(|i| y[i] * (g[i] - dot[i / row])).collect();
            for got in outputs(SoftmaxGrad {}, &[got[0].clone(), dy.clone()]) {
                assert_close("softmax_grad", &got[0], &dx, 1e-6, 0.3);
            }
        }
    }
}

#[test]
fn softmax_of_masked_and_huge_logits() {
    let x = Tensor::from_f32([2, 3], &[f32::NEG_INFINITY, 0.0, 0.0, 1e30, 0.0, -1e30]);
    for got in outputs(Softmax {}, &[x]) {
        assert_eq!(got[0].f32s(), [0.0, 0.5, 0.5, 1.0, 0.0, 0.0]);
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    for (rows, row) in ROWS {
        for smoothing in [0.0f32, 0.1] {
            let x = Tensor::normal([rows, row], 3).map(|v| 4.0 * v);
            let targets: Vec<i32> = (0..rows).map(|r| (r * 7 % row) as i32).collect();
            let t = Tensor::from_i32([rows], &targets);
            let (p, lse) = softmax(&x.doubles(), row);
            let (xs, e) = (x.doubles(), smoothing as f64);
            let loss: f64 = (0..rows)
                .map(|r| {
                    let mean = xs[r * row..(r + 1) * row].iter().sum::<f64>() / row as f64;
                    (1.0 - e) * (lse[r] - xs[r * row + targets[r] as usize]) + e * (lse[r] - mean)
                })
                .sum::<f64>()
                / rows as f64;
            for got in outputs(LossOp::from(CrossEntropy::smoothed(smoothing)), &[x.clone(), t.clone()]) {
                assert_close("loss", &got[0], &[loss], 3e-7, 1e-6);
                assert_eq!(got[1].f32s(), [rows as f32]);
                let dloss = 1.7f32;
                let dx: Vec<f64> = (0..rows * row)
                    .map(|i| {
                        let hot = if i % row == targets[i / row] as usize { 1.0 - e } else { 0.0 };
                        dloss as f64 / rows as f64 * (p[i] - hot - e / row as f64)
                    })
                    .collect();
                let operands = [x.clone(), t.clone(), got[1].clone(), Tensor::from_f32([1], &[dloss])];
                let op = LossGrad { loss: Loss::from(CrossEntropy::smoothed(smoothing)), weighted: false };
                for got in outputs(op, &operands) {
                    assert_close("gradient", &got[0], &dx, 1e-6, 1.0 / rows as f64);
                }
            }
        }
    }
}

#[test]
fn a_target_that_is_no_class_makes_the_loss_nan() {
    for bad in [-1, 3, i32::MAX, i32::MIN] {
        let operands = [Tensor::normal([2, 3], 1), Tensor::from_i32([2], &[0, bad])];
        for got in outputs(LossOp::from(CrossEntropy::smoothed(0.0)), &operands) {
            assert!(got[0].f32s()[0].is_nan());
        }
    }
}

#[test]
fn squared_error_and_its_gradient() {
    for n in [1, 10, 1000, 50_001] {
        let (x, t) = (Tensor::normal([n, 1], 1), Tensor::normal([n], 2));
        let diff: Vec<f64> = x.doubles().iter().zip(t.doubles()).map(|(a, b)| a - b).collect();
        let loss = diff.iter().map(|d| d * d).sum::<f64>() / n as f64;
        for got in outputs(LossOp::from(ElementwiseLoss::Mse), &[x.clone(), t.clone()]) {
            assert_close("mse", &got[0], &[loss], 3e-7, 0.0);
        }
        let want: Vec<f64> = diff.iter().map(|d| 0.5 * 2.0 / n as f64 * d).collect();
        let [weight, dloss] = [n as f32, 0.5].map(|v| Tensor::from_f32([1], &[v]));
        let op = LossGrad { loss: ElementwiseLoss::Mse.into(), weighted: false };
        for got in outputs(op, &[x.clone(), t.clone(), weight, dloss]) {
            assert_close("mse_grad", &got[0], &want, 3e-7, 1e-7 / n as f64);
        }
    }
}

#[test]
fn classification_metrics() {
    for (rows, row) in ROWS {
        // Few different values, so that there are ties.
        let x = Tensor::normal([rows, row], 4).map(|v| v.round());
        let targets: Vec<i32> = (0..rows).map(|r| (r % row.min(3)) as i32).collect();
        let xs = x.f32s();
        let right = (0..rows)
            .filter(|r| {
                let logits = &xs[r * row..(r + 1) * row];
                let best = (0..row).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
                best as i32 == targets[*r]
            })
            .count() as f64;
        let sums: Vec<f64> = (0..METRIC_SLOTS).map(|i| i as f64).collect();
        let mut want = sums.clone();
        want[slot::LOSS] += 0.25 * 7.5;
        want[slot::WEIGHT] += 7.5;
        want[slot::ITEMS] += rows as f64;
        want[slot::CORRECT] += right;
        let operands = [
            Tensor::from_f32([1], &[0.25]),
            Tensor::from_f32([1], &[7.5]),
            x,
            Tensor::from_i32([rows], &targets),
            Tensor::from_f64([METRIC_SLOTS], &sums),
        ];
        for got in run(Metrics { task: Task::Classification, ignore_index: None }, &operands) {
            assert_eq!(got.operands[4].f64s(), want);
        }
    }
}

#[test]
fn regression_metrics_and_losses_that_are_not_finite() {
    let (rows, row) = (9001, 3);
    let (x, t) = (Tensor::normal([rows, row], 1), Tensor::normal([rows, row], 2));
    let diff: Vec<f64> = x.doubles().iter().zip(t.doubles()).map(|(a, b)| a - b).collect();
    let operands = |loss: f32| {
        let sums = Tensor::from_f64([METRIC_SLOTS], &[0.0; METRIC_SLOTS]);
        [Tensor::from_f32([1], &[loss]), Tensor::from_f32([1], &[rows as f32]), x.clone(), t.clone(), sums]
    };
    for got in run(Metrics { task: Task::Regression, ignore_index: None }, &operands(2.0)) {
        let sums = got.operands[4].f64s();
        assert_eq!((sums[slot::LOSS], sums[slot::WEIGHT], sums[slot::CORRECT]), (2.0 * rows as f64, rows as f64, 0.0));
        assert_eq!(sums[slot::ITEMS], (rows * row) as f64);
        let absolute: f64 = diff.iter().map(|d| d.abs()).sum();
        let squared: f64 = diff.iter().map(|d| d * d).sum();
        assert!((sums[slot::ABS_ERROR] / absolute - 1.0).abs() < 1e-6);
        assert!((sums[slot::SQUARED_ERROR] / squared - 1.0).abs() < 1e-6);
    }
    // Squares of numbers that single precision has, and that it does not have.
    for scale in [1e30, 1e-30] {
        let of = |tensor: &Tensor| -> Vec<f32> { tensor.doubles().iter().map(|x| (x * scale) as f32).collect() };
        let (large, targets) = (of(&x), of(&t));
        let pairs = large.iter().zip(&targets).map(|(x, t)| f64::from(*x) - f64::from(*t));
        let squared: f64 = pairs.map(|d| d * d).sum();
        let [loss, weight, .., sums] = operands(2.0);
        let tensors =
            [loss, weight, Tensor::from_f32([rows, row], &large), Tensor::from_f32([rows, row], &targets), sums];
        for got in run(Metrics { task: Task::Regression, ignore_index: None }, &tensors) {
            assert!((got.operands[4].f64s()[slot::SQUARED_ERROR] / squared - 1.0).abs() < 1e-12);
        }
    }
    for loss in [f32::NAN, f32::INFINITY] {
        for got in run(Metrics { task: Task::Regression, ignore_index: None }, &operands(loss)) {
            let mut want = [0.0; METRIC_SLOTS];
            want[slot::NOT_FINITE] = 1.0;
            assert_eq!(got.operands[4].f64s(), want);
        }
    }
}
