//! Batch normalisation over all shards of a step: sums of a shard, and what is made of those of all.

use super::Size;
use super::grad::Gradient;
use super::statistics::Partial;
use crate::fusions::NormGrad;
use crate::graph::op::{BatchNormFromSums, BatchNormGradFromSums, BatchNormGradSums};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::simd::SimdLevel;

/// [`crate::graph::op::BatchNormSums`].
pub struct SumsKernel {
    size: Size,
    level: SimdLevel,
}

impl SumsKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(rows: usize, channels: usize, level: SimdLevel) -> Self {
        SumsKernel { size: Size::new(rows, channels), level }
    }
}

impl NodeKernel for SumsKernel {
    fn scratch_bytes(&self) -> usize {
        2 * Scratch::size::<f64>(self.size.partials())
    }

    fn run(&self, frame: &Frame<'_>) {
        let Size { rows, channels, folded, grid } = self.size;
        let partial = Partial::new(self.size, self.level, &mut frame.scratch());
        partial.pass(frame, frame.input(0));
        // SAFETY: all blocks have been summed.
        let [sums, squares] = unsafe { partial.all() };
        let out = frame.output::<f64>(0);
        out.fill(0.0);
        // A block has the squares of distances from its own mean.
        for part in 0..grid.rows.count() * folded {
            let n = grid.rows.range(part / folded).len() as f64;
            for c in 0..channels {
                let sum = sums[part * channels + c];
                out[c] += sum;
                out[channels + c] += squares[part * channels + c] + sum * (sum / n);
            }
        }
        out[2 * channels] = rows as f64;
    }
}

/// [`BatchNormFromSums`].
pub struct FromSumsKernel {
    /// The operation.
    pub op: BatchNormFromSums,
}

impl NodeKernel for FromSumsKernel {
    fn run(&self, frame: &Frame<'_>) {
        let BatchNormFromSums { eps, momentum, track } = self.op;
        let (sums, mean, invstd) = (frame.input::<f64>(0), frame.output::<f32>(0), frame.output::<f32>(1));
        let (channels, rows) = (mean.len(), sums[2 * mean.len()]);
        let of = |c: usize| {
            let mean = sums[c] / rows;
            let variance = sums[channels + c] / rows - mean * mean;
            // What is not a number stays so.
            (mean, if variance < 0.0 { 0.0 } else { variance })
        };
        for c in 0..channels {
            let (m, variance) = of(c);
            (mean[c], invstd[c]) = (m as f32, (1.0 / (variance + f64::from(eps)).sqrt()) as f32);
        }
        if track {
            let counter = frame.update::<i64>(3);
            counter[0] += 1;
            let weight = momentum.map_or(1.0 / counter[0] as f64, f64::from);
            let unbiased = rows / (rows - 1.0).max(1.0);
            let towards = |old: f32, new: f64| ((1.0 - weight) * f64::from(old) + weight * new) as f32;
            let (means, variances) = (frame.update::<f32>(1), frame.update::<f32>(2));
            for (c, (mean, variance)) in means.iter_mut().zip(variances).enumerate() {
                let (new_mean, new_variance) = of(c);
                *mean = towards(*mean, new_mean);
                *variance = towards(*variance, new_variance * unbiased);
            }
        }
    }
}

/// What [`Gradient`] works on: operands as [`crate::graph::op::BatchNormGrad`] has them, but for `gamma`.
fn node(gamma: Option<usize>) -> NormGrad {
    NormGrad { act: None, dz: 1, statistics: [2, 3], gamma, beta: None }
}

/// [`BatchNormGradSums`].
pub struct GradSumsKernel {
    affine: bool,
    node: NormGrad,
    size: Size,
    level: SimdLevel,
}

impl GradSumsKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNormGradSums, rows: usize, channels: usize, level: SimdLevel) -> Self {
        GradSumsKernel { affine: op.affine, node: node(None), size: Size::new(rows, channels), level }
    }

    fn gradient(&self) -> Gradient<'_> {
        Gradient { node: &self.node, size: self.size, level: self.level }
    }
}

impl NodeKernel for GradSumsKernel {
    fn scratch_bytes(&self) -> usize {
        self.gradient().scratch_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let channels = self.size.channels;
        let mut scratch = frame.scratch();
        let gradient = self.gradient();
        let tables = gradient.tables(frame, &mut scratch);
        let parts = gradient.sums(frame, &mut scratch, &tables);
        let (dys, dots) = frame.output::<f64>(0).split_at_mut(channels);
        for (sums, parts) in [&mut *dys, &mut *dots].into_iter().zip(parts) {
            (0..channels).for_each(|c| sums[c] = parts[c..].iter().step_by(channels).sum());
        }
        if self.affine {
            let (invstd, dgamma, dbeta) = (frame.input::<f32>(3), frame.output::<f32>(1), frame.output::<f32>(2));
            for c in 0..channels {
                (dgamma[c], dbeta[c]) = ((dots[c] * f64::from(invstd[c])) as f32, dys[c] as f32);
            }
        }
    }
}

/// [`BatchNormGradFromSums`].
pub struct GradFromSumsKernel {
    node: NormGrad,
    size: Size,
    level: SimdLevel,
}

impl GradFromSumsKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNormGradFromSums, rows: usize, channels: usize, level: SimdLevel) -> Self {
        GradFromSumsKernel { node: node(op.affine.then_some(6)), size: Size::new(rows, channels), level }
    }

    fn gradient(&self) -> Gradient<'_> {
        Gradient { node: &self.node, size: self.size, level: self.level }
    }
}

impl NodeKernel for GradFromSumsKernel {
    fn scratch_bytes(&self) -> usize {
        self.gradient().scratch_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let channels = self.size.channels;
        let (invstd, sums, grad_sums) = (frame.input::<f32>(3), frame.input::<f64>(4), frame.input::<f64>(5));
        let rows = sums[2 * channels];
        let mut scratch = frame.scratch();
        let gradient = self.gradient();
        let tables = gradient.tables(frame, &mut scratch);
        gradient.of_input(frame, &mut scratch, &tables, |c| {
            let inv = f64::from(invstd[c]);
            [(grad_sums[c] / rows) as f32, (grad_sums[channels + c] * inv * inv / rows) as f32]
        });
    }
}
