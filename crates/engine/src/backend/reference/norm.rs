//! Normalisations. All three share one picture: the elements of `x` fall into sets that are normalised together, and
//! each element has a parameter.

use super::Tensor;
use crate::graph::op::{
    BatchNorm, BatchNormApply, BatchNormApplyOperands, BatchNormGrad, BatchNormGradOperands, BatchNormInfer,
    BatchNormInferOperands, BatchNormOperands, BatchNormStatistics, BatchNormStatisticsOperands, GroupNorm,
    GroupNormGrad, GroupNormGradOperands, GroupNormOperands, LayerNorm, LayerNormGrad, LayerNormGradOperands,
    LayerNormOperands,
};

/// Which set, and which parameter, every element of `x` belongs to.
struct Sets {
    /// Number of sets.
    count: usize,
    /// Set of each element.
    set: Vec<usize>,
    /// Number of parameters.
    params: usize,
    /// Parameter of each element.
    param: Vec<usize>,
}

impl Sets {
    fn new(x: &Tensor, count: usize, set: impl Fn(usize) -> usize, params: usize) -> Self {
        let all = 0..x.data.len();
        Sets { count, set: all.clone().map(set).collect(), params, param: all.map(|i| i % params).collect() }
    }

    /// Each channel is a set.
    fn batch(x: &Tensor) -> Self {
        let c = x.last();
        Self::new(x, c, |i| i % c, c)
    }

    /// Each group of channels of each sample is a set.
    fn group(x: &Tensor, groups: usize) -> Self {
        let (n, c) = (x.dims[0], x.last());
        let sample = x.data.len() / n;
        Self::new(x, n * groups, |i| i / sample * groups + i % c / (c / groups), c)
    }

    /// The last `dims` axes of each row are a set.
    fn layer(x: &Tensor, dims: usize) -> Self {
        let len: usize = x.dims[x.dims.len() - dims..].iter().product();
        Self::new(x, x.data.len() / len, |i| i / len, len)
    }

    /// For every set, the sum of `f(i)` over its elements `i`.
    fn sums(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for (i, s) in self.set.iter().enumerate() {
            sums[*s] += f(i);
        }
        sums
    }

    /// For every set, the mean of `f(i)` over its elements `i`.
    fn means(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        let sizes = self.sums(|_| 1.0);
        self.sums(f).iter().zip(sizes).map(|(sum, n)| sum / n).collect()
    }

    /// For every parameter, the sum of `f(i)` over its elements `i`.
    fn param_sums(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.params];
        for (i, p) in self.param.iter().enumerate() {
            sums[*p] += f(i);
        }
        sums
    }

    /// Mean and (biased) variance of every set.
    fn statistics(&self, x: &Tensor) -> (Vec<f64>, Vec<f64>) {
        let mean = self.means(|i| x.data[i]);
        let var = self.means(|i| (x.data[i] - mean[self.set[i]]).powi(2));
        (mean, var)
    }

    /// `(x − mean) · rstd · gamma + beta`.
    fn normalise(
        &self,
        x: &Tensor,
        mean: &[f64],
        rstd: &[f64],
        gamma: Option<Tensor>,
        beta: Option<Tensor>,
    ) -> Vec<f64> {
        let one = |(i, x): (usize, &f64)| {
            let (s, p) = (self.set[i], self.param[i]);
            (x - mean[s]) * rstd[s] * gamma.map_or(1.0, |g| g.data[p]) + beta.map_or(0.0, |b| b.data[p])
        };
        x.data.iter().enumerate().map(one).collect()
    }

    /// `dx`, `dgamma` and `dbeta`. With `x̂ = (x − mean) · rstd` and `g = dy · gamma`:
    /// `dx = rstd · (g − mean(g) − x̂ · mean(g · x̂))`, the means over each set; without the second term unless `centered`.
    fn gradients(
        &self,
        x: &Tensor,
        dy: &Tensor,
        mean: &Tensor,
        rstd: &Tensor,
        gamma: Option<Tensor>,
        centered: bool,
    ) -> [Vec<f64>; 3] {
        let x_hat = |i: usize| (x.data[i] - mean.data[self.set[i]]) * rstd.data[self.set[i]];
        let g = |i: usize| dy.data[i] * gamma.map_or(1.0, |g| g.data[self.param[i]]);
        let mean_g = if centered { self.means(g) } else { vec![0.0; self.count] };
        let mean_gx = self.means(|i| g(i) * x_hat(i));
        let one = |i: usize| {
            let s = self.set[i];
            rstd.data[s] * (g(i) - mean_g[s] - x_hat(i) * mean_gx[s])
        };
        let dx = (0..x.data.len()).map(one).collect();
        [dx, self.param_sums(|i| dy.data[i] * x_hat(i)), self.param_sums(|i| dy.data[i])]
    }
}

fn rstd(var: &[f64], eps: f32) -> Vec<f64> {
    var.iter().map(|v| 1.0 / (v + f64::from(eps)).sqrt()).collect()
}

pub(super) fn batch_norm(op: &BatchNorm, x: &[Tensor]) -> Vec<Vec<f64>> {
    let BatchNormOperands { x, gamma, beta, running_mean, running_var, num_batches_tracked } = op.operands(x);
    let running = [running_mean, running_var, num_batches_tracked];
    let mut results = statistics_of(&op.statistics(), x, running);
    let y = Sets::batch(&x).normalise(&x, &results[0], &results[1], gamma, beta);
    results.insert(0, y);
    results
}

pub(super) fn batch_norm_statistics(op: &BatchNormStatistics, x: &[Tensor]) -> Vec<Vec<f64>> {
    let BatchNormStatisticsOperands { x, running_mean, running_var, num_batches_tracked } = op.operands(x);
    statistics_of(op, x, [running_mean, running_var, num_batches_tracked])
}

/// The statistics, and the running ones after them: mean, variance, number of batches.
fn statistics_of(op: &BatchNormStatistics, x: Tensor, running: [Option<Tensor>; 3]) -> Vec<Vec<f64>> {
    let (mean, var) = Sets::batch(&x).statistics(&x);
    let mut results = vec![mean.clone(), rstd(&var, op.eps)];
    if let [Some(old_mean), Some(old_var), Some(batches)] = running {
        let batches = batches.data[0] + 1.0;
        let weight = op.momentum.map_or(1.0 / batches, f64::from);
        let n = x.rows() as f64;
        let blend = |old: &Tensor, new: Vec<f64>| {
            old.data.iter().zip(new).map(|(old, new)| (1.0 - weight) * old + weight * new).collect()
        };
        let unbiased = var.iter().map(|v| v * n / (n - 1.0)).collect();
        results.extend([blend(&old_mean, mean), blend(&old_var, unbiased), vec![batches]]);
    }
    results
}

pub(super) fn batch_norm_grad(op: &BatchNormGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let BatchNormGradOperands { x, dy, mean, invstd, gamma } = op.operands(x);
    let [dx, dgamma, dbeta] = Sets::batch(&x).gradients(&x, &dy, &mean, &invstd, gamma, true);
    if op.affine { vec![dx, dgamma, dbeta] } else { vec![dx] }
}

pub(super) fn batch_norm_apply(op: &BatchNormApply, x: &[Tensor]) -> Vec<Vec<f64>> {
    let BatchNormApplyOperands { x, mean, invstd, gamma, beta } = op.operands(x);
    vec![Sets::batch(&x).normalise(&x, mean.data, invstd.data, gamma, beta)]
}

pub(super) fn batch_norm_infer(op: &BatchNormInfer, x: &[Tensor]) -> Vec<Vec<f64>> {
    let BatchNormInferOperands { x, gamma, beta, running_mean, running_var } = op.operands(x);
    vec![Sets::batch(&x).normalise(&x, running_mean.data, &rstd(running_var.data, op.eps), gamma, beta)]
}

pub(super) fn group_norm(op: &GroupNorm, x: &[Tensor]) -> Vec<Vec<f64>> {
    let GroupNormOperands { x, gamma, beta } = op.operands(x);
    let sets = Sets::group(&x, op.groups);
    let (mean, var) = sets.statistics(&x);
    let rstd = rstd(&var, op.eps);
    let y = sets.normalise(&x, &mean, &rstd, gamma, beta);
    vec![y, mean, rstd]
}

pub(super) fn group_norm_grad(op: &GroupNormGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let GroupNormGradOperands { x, dy, mean, rstd, gamma } = op.operands(x);
    let [dx, dgamma, dbeta] = Sets::group(&x, op.groups).gradients(&x, &dy, &mean, &rstd, gamma, true);
    if op.affine { vec![dx, dgamma, dbeta] } else { vec![dx] }
}

pub(super) fn layer_norm(op: &LayerNorm, x: &[Tensor]) -> Vec<Vec<f64>> {
    let LayerNormOperands { x, gamma, beta } = op.operands(x);
    let sets = Sets::layer(&x, op.dims);
    let (mean, var) = match op.centered {
        true => sets.statistics(&x),
        false => (vec![0.0; sets.count], sets.means(|i| x.data[i].powi(2))),
    };
    let rstd = rstd(&var, op.eps);
    let y = sets.normalise(&x, &mean, &rstd, gamma, beta);
    vec![y, mean, rstd]
}

pub(super) fn layer_norm_grad(op: &LayerNormGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let LayerNormGradOperands { x, dy, mean, rstd, gamma } = op.operands(x);
    let [dx, dgamma, dbeta] = Sets::layer(&x, op.dims).gradients(&x, &dy, &mean, &rstd, gamma, op.centered);
    let mut results = vec![dx];
    if op.weight {
        results.push(dgamma);
    }
    if op.bias {
        results.push(dbeta);
    }
    results
}
