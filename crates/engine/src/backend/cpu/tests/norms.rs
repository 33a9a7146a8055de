use super::harness::{Tensor, assert_close, outputs, run};
use crate::graph::op::{
    Activation, ActivationOp, BatchNorm, BatchNormGrad, BatchNormInfer, Fused, GroupNorm, GroupNormGrad, LayerNorm,
    LayerNormGrad, Source,
};

/// Normalisation in double precision: `group(i)` numbers the set that element `i` is normalised with.
struct Reference {
    mean: Vec<f64>,
    inv: Vec<f64>,
    var: Vec<f64>,
    count: Vec<f64>,
    group: Vec<usize>,
}

impl Reference {
    fn new(x: &[f64], groups: usize, eps: f32, group: impl Fn(usize) -> usize) -> Self {
        let group: Vec<usize> = (0..x.len()).map(group).collect();
        let sum = |f: &dyn Fn(usize) -> f64| {
            let mut out = vec![0.0; groups];
            (0..x.len()).for_each(|i| out[group[i]] += f(i));
            out
        };
        let count = sum(&|_| 1.0);
        let mean: Vec<f64> = sum(&|i| x[i]).iter().zip(&count).map(|(s, n)| s / n).collect();
        let var = sum(&|i| (x[i] - mean[group[i]]).powi(2));
        let var: Vec<f64> = var.iter().zip(&count).map(|(s, n)| s / n).collect();
        let inv = var.iter().map(|v| 1.0 / (v + eps as f64).sqrt()).collect();
        Reference { mean, inv, var, count, group }
    }

    fn normal(&self, x: &[f64]) -> Vec<f64> {
        x.iter().zip(&self.group).map(|(x, g)| (x - self.mean[*g]) * self.inv[*g]).collect()
    }

    /// `dx` from `g = dy · gamma`.
    fn gradient(&self, x: &[f64], g: &[f64]) -> Vec<f64> {
        let n = self.normal(x);
        let (mut a, mut b) = (vec![0.0; self.mean.len()], vec![0.0; self.mean.len()]);
        for i in 0..x.len() {
            a[self.group[i]] += g[i] / self.count[self.group[i]];
            b[self.group[i]] += g[i] * n[i] / self.count[self.group[i]];
        }
        (0..x.len()).map(|i| self.inv[self.group[i]] * (g[i] - a[self.group[i]] - n[i] * b[self.group[i]])).collect()
    }
}

/// `Σ f(i)` by `i % columns`.
fn by_column(columns: usize, n: usize, f: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut out = vec![0.0; columns];
    (0..n).for_each(|i| out[i % columns] += f(i));
    out
}

/// Numbers whose mean is far from 0.
fn shifted(shape: &[usize], stream: u64) -> Tensor {
    Tensor::normal(shape, stream).map(|v| 0.5 * v + 20.0)
}

const IMAGES: [&[usize]; 6] = [&[2, 1], &[5, 33], &[3, 5, 7, 16], &[2, 9, 9, 300], &[4, 30, 30, 3], &[70, 8, 8, 40]];

#[test]
fn batch_norm_and_its_running_statistics() {
    for shape in IMAGES {
        let x = shifted(shape, 1);
        let (xs, c) = (x.doubles(), x.shape.last());
        let (gamma, beta) = (Tensor::normal([c], 2), Tensor::normal([c], 3));
        let (mean, var) = (Tensor::normal([c], 4), Tensor::normal([c], 5).map(|v| v * v));
        let r = Reference::new(&xs, c, 1e-5, |i| i % c);
        for (affine, momentum) in [(true, Some(0.1)), (false, Some(0.3)), (true, None)] {
            let op = BatchNorm { eps: 1e-5, momentum, affine, track: true };
            let mut operands = vec![x.clone()];
            if affine {
                operands.extend([gamma.clone(), beta.clone()]);
            }
            operands.extend([mean.clone(), var.clone(), Tensor::from_i64(Vec::new(), &[3])]);
            let n = r.normal(&xs);
            let want: Vec<f64> = (0..xs.len())
                .map(|i| if affine { n[i] * gamma.doubles()[i % c] + beta.doubles()[i % c] } else { n[i] })
                .collect();
            for got in run(op, &operands) {
                // The mean is rounded to single precision, as everywhere, which shows where it is 40 times the deviation.
                assert_close("y", &got.outputs[0], &want, 2e-6, 10.0);
                assert_close("mean", &got.outputs[1], &r.mean, 1e-7, 0.0);
                assert_close("invstd", &got.outputs[2], &r.inv, 1e-6, 0.0);
                let weight = momentum.map_or(0.25, f64::from);
                let first = operands.len() - 3;
                let running = |old: &Tensor, new: &dyn Fn(usize) -> f64| -> Vec<f64> {
                    let old = old.doubles();
                    (0..c).map(|i| (1.0 - weight) * old[i] + weight * new(i)).collect()
                };
                assert_close("running_mean", &got.operands[first], &running(&mean, &|i| r.mean[i]), 2e-7, 1.0);
                let unbiased = |i: usize| r.var[i] * r.count[i] / (r.count[i] - 1.0);
                assert_close("running_var", &got.operands[first + 1], &running(&var, &unbiased), 2e-6, 0.0);
                assert_eq!(got.operands[first + 2].i64s(), [4]);
            }
        }
        let op = BatchNorm { eps: 1e-5, momentum: None, affine: false, track: false };
        let op = Fused::of(op.into(), 1).then(ActivationOp { act: Activation::Relu }, vec![Source::Step(0)]);
        let op = op.with_result(0, 1).with_result(0, 2);
        let want: Vec<f64> = r.normal(&xs).into_iter().map(|v| v.max(0.0)).collect();
        for got in outputs(op, &[x]) {
            assert_close("relu", &got[0], &want, 2e-6, 10.0);
        }
    }
}

#[test]
fn variance_survives_a_large_mean() {
    let x = Tensor::normal([5000, 3], 1).map(|v| 1000.0 + v);
    let r = Reference::new(&x.doubles(), 3, 0.0, |i| i % 3);
    for got in outputs(BatchNorm { eps: 0.0, momentum: None, affine: false, track: false }, &[x]) {
        assert_close("invstd", &got[2], &r.inv, 1e-6, 0.0);
    }
}

#[test]
fn batch_norm_gradient() {
    for shape in IMAGES {
        let (x, dy) = (Tensor::normal(shape, 1), Tensor::normal(shape, 2));
        let (xs, dys, c) = (x.doubles(), dy.doubles(), x.shape.last());
        let gamma = Tensor::normal([c], 3);
        let r = Reference::new(&xs, c, 1e-3, |i| i % c);
        let mean = Tensor::from_f32([c], &r.mean.iter().map(|v| *v as f32).collect::<Vec<_>>());
        let inv = Tensor::from_f32([c], &r.inv.iter().map(|v| *v as f32).collect::<Vec<_>>());
        let n = r.normal(&xs);
        for affine in [true, false] {
            let g: Vec<f64> =
                (0..xs.len()).map(|i| dys[i] * if affine { gamma.doubles()[i % c] } else { 1.0 }).collect();
            let mut operands = vec![x.clone(), dy.clone(), mean.clone(), inv.clone()];
            if affine {
                operands.push(gamma.clone());
            }
            for got in outputs(BatchNormGrad { affine }, &operands) {
                assert_close("dx", &got[0], &r.gradient(&xs, &g), 2e-6, 2.0);
                if affine {
                    let dgamma = by_column(c, xs.len(), |i| dys[i] * n[i]);
                    assert_close("dgamma", &got[1], &dgamma, 1e-6, 10.0);
                    assert_close("dbeta", &got[2], &by_column(c, xs.len(), |i| dys[i]), 1e-6, 10.0);
                }
            }
        }
    }
}

#[test]
fn batch_norm_with_running_statistics() {
    for shape in IMAGES {
        let x = Tensor::normal(shape, 1);
        let c = x.shape.last();
        let [gamma, beta, mean] = [2, 3, 4].map(|s| Tensor::normal([c], s));
        let var = Tensor::normal([c], 5).map(|v| v * v + 0.1);
        for (affine, act) in [(true, None), (false, None), (true, Some(Activation::Relu6))] {
            let mut operands = vec![x.clone()];
            if affine {
                operands.extend([gamma.clone(), beta.clone()]);
            }
            operands.extend([mean.clone(), var.clone()]);
            let op = Fused::activated(BatchNormInfer { eps: 1e-5, affine }, operands.len(), act);
            let at = |t: &Tensor, i: usize| t.f32s()[i % c] as f64;
            let want: Vec<f64> = x
                .doubles()
                .iter()
                .enumerate()
                .map(|(i, v)| {
                    let n = (v - at(&mean, i)) / (at(&var, i) + 1e-5).sqrt();
                    let y = if affine { n * at(&gamma, i) + at(&beta, i) } else { n };
                    if act.is_some() { y.clamp(0.0, 6.0) } else { y }
                })
                .collect();
            for got in outputs(op, &operands) {
                assert_close("y", &got[0], &want, 1e-6, 1.0);
            }
        }
    }
}

#[test]
fn group_norm_and_its_gradient() {
    let cases: [(&[usize], usize); 5] =
        [(&[3, 4], 2), (&[2, 5, 7, 6], 3), (&[3, 6, 5, 160], 2), (&[1, 40, 30, 32], 32), (&[5, 3, 3, 130], 1)];
    for (shape, groups) in cases {
        let (x, dy) = (shifted(shape, 1), Tensor::normal(shape, 2));
        let (xs, dys) = (x.doubles(), dy.doubles());
        let (c, n) = (x.shape.last(), shape[0]);
        let group = |i: usize| i / (xs.len() / n) * groups + i % c / (c / groups);
        let r = Reference::new(&xs, n * groups, 1e-5, group);
        let (gamma, beta) = (Tensor::normal([c], 3), Tensor::normal([c], 4));
        let normal = r.normal(&xs);
        for affine in [true, false] {
            let scale = |i: usize| if affine { gamma.f32s()[i % c] as f64 } else { 1.0 };
            let scales: Vec<f64> = (0..c).map(scale).collect();
            let offsets = if affine { beta.doubles() } else { vec![0.0; c] };
            let want: Vec<f64> = (0..xs.len()).map(|i| normal[i] * scales[i % c] + offsets[i % c]).collect();
            let mut operands = vec![x.clone()];
            if affine {
                operands.extend([gamma.clone(), beta.clone()]);
            }
            for got in outputs(GroupNorm { groups, eps: 1e-5, affine }, &operands) {
                assert_close("y", &got[0], &want, 2e-6, 10.0);
                assert_close("mean", &got[1], &r.mean, 2e-7, 0.0);
                assert_close("rstd", &got[2], &r.inv, 5e-7, 0.0);
                let mut operands = vec![x.clone(), dy.clone(), got[1].clone(), got[2].clone()];
                if affine {
                    operands.push(gamma.clone());
                }
                let g: Vec<f64> = (0..xs.len()).map(|i| dys[i] * scales[i % c]).collect();
                for got in outputs(GroupNormGrad { groups, affine }, &operands) {
                    assert_close("dx", &got[0], &r.gradient(&xs, &g), 5e-6, 10.0);
                    if affine {
                        let dgamma = by_column(c, xs.len(), |i| dys[i] * normal[i]);
                        assert_close("dgamma", &got[1], &dgamma, 5e-6, 30.0);
                        assert_close("dbeta", &got[2], &by_column(c, xs.len(), |i| dys[i]), 1e-6, 10.0);
                    }
                }
            }
        }
    }
}

#[test]
fn layer_norm_and_its_gradient() {
    let cases: [(&[usize], usize); 5] =
        [(&[3, 5], 1), (&[700, 33], 1), (&[2, 9, 128], 1), (&[4, 3, 5, 7], 3), (&[2, 5000], 1)];
    for (shape, dims) in cases {
        let (x, dy) = (shifted(shape, 1), Tensor::normal(shape, 2));
        let (xs, dys) = (x.doubles(), dy.doubles());
        let tail = &shape[shape.len() - dims..];
        let k: usize = tail.iter().product();
        let r = Reference::new(&xs, xs.len() / k, 1e-5, |i| i / k);
        let (gamma, beta) = (Tensor::normal(tail, 3), Tensor::normal(tail, 4));
        let normal = r.normal(&xs);
        for (weight, bias) in [(true, true), (true, false), (false, false)] {
            let scales = if weight { gamma.doubles() } else { vec![1.0; k] };
            let offsets = if bias { beta.doubles() } else { vec![0.0; k] };
            let want: Vec<f64> = (0..xs.len()).map(|i| normal[i] * scales[i % k] + offsets[i % k]).collect();
            let mut operands = vec![x.clone()];
            operands.extend(weight.then(|| gamma.clone()));
            operands.extend(bias.then(|| beta.clone()));
            for got in outputs(LayerNorm { dims, eps: 1e-5, weight, bias, centered: true }, &operands) {
                assert_close("y", &got[0], &want, 2e-6, 10.0);
                assert_close("mean", &got[1], &r.mean, 2e-7, 0.0);
                assert_close("rstd", &got[2], &r.inv, 1e-6, 0.0);
                let mut operands = vec![x.clone(), dy.clone(), got[1].clone(), got[2].clone()];
                operands.extend(weight.then(|| gamma.clone()));
                let g: Vec<f64> = (0..xs.len()).map(|i| dys[i] * scales[i % k]).collect();
                for got in outputs(LayerNormGrad { dims, weight, bias, centered: true }, &operands) {
                    assert_close("dx", &got[0], &r.gradient(&xs, &g), 5e-6, 10.0);
                    if weight {
                        let dgamma = by_column(k, xs.len(), |i| dys[i] * normal[i]);
                        assert_close("dgamma", &got[1], &dgamma, 5e-6, 30.0);
                    }
                    if bias {
                        assert_close("dbeta", &got[2], &by_column(k, xs.len(), |i| dys[i]), 1e-6, 10.0);
                    }
                }
            }
        }
    }
}
