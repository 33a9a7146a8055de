//! Normalisations, as in `torch.nn`, channels last. Batch normalisation keeps the float type of its images, forward and
//! backward; its parameters and statistics, and every operand and result of the other normalisations, are `F32`.

use super::operands::operands;
use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, floats, singles};
use crate::graph::{DType, Shape};

/// Batch normalisation (Ioffe & Szegedy 2015) with the statistics of the batch: each channel over all other axes.
/// Operands: `x [.., C]`; `gamma [C]`, `beta [C]` if `affine`; `running_mean [C]`, `running_var [C]`,
/// `num_batches_tracked [] (I64)` if `track` (updated in place: the running variance with the unbiased estimate, the
/// counter by one). Outputs: `y`, `mean [C]`, `invstd [C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Weight of the new statistics; `None` averages over all batches seen.
    pub momentum: Option<f32>,
    /// There are `gamma` and `beta`.
    pub affine: bool,
    /// There are running statistics.
    pub track: bool,
}

/// The statistics of [`BatchNorm`] alone, to the bit: a device may make them while `x` is written. Operands: `x [.., C]`;
/// `running_mean [C]`, `running_var [C]`, `num_batches_tracked [] (I64)` if `track`, updated likewise.
/// Outputs: `mean [C]`, `invstd [C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormStatistics {
    /// Added to the variance.
    pub eps: f32,
    /// Weight of the new statistics; `None` averages over all batches seen.
    pub momentum: Option<f32>,
    /// There are running statistics.
    pub track: bool,
}

/// Operands: `x`, `dy`, `mean`, `invstd`, and `gamma` if `affine`. Outputs: `dx`, and `dgamma`, `dbeta` if `affine`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormGrad {
    /// There is `gamma`.
    pub affine: bool,
}

/// The `y` of [`BatchNorm`], to the bit, from its statistics: what is cheap to compute again need not be kept for the backward
/// pass (Chen et al. 2016). Operands: `x`, `mean [C]`, `invstd [C]`; `gamma`, `beta` if
/// `affine`. Output: `y`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormApply {
    /// There are `gamma` and `beta`.
    pub affine: bool,
}

/// Batch normalisation with the running statistics. Operands: `x`; `gamma`, `beta` if `affine`; `running_mean`,
/// `running_var`. Output: `y`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormInfer {
    /// Added to the variance.
    pub eps: f32,
    /// There are `gamma` and `beta`.
    pub affine: bool,
}

/// Group normalisation (Wu & He 2018): each sample's channels in `groups` groups, over the group's channels and all
/// positions. Operands: `x [N, .., C]`; `gamma [C]`, `beta [C]` if `affine`.
/// Outputs: `y`, `mean [N, groups]`, `rstd [N, groups]`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNorm {
    /// Number of groups; divides C.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
    /// There are `gamma` and `beta`.
    pub affine: bool,
}

/// Operands: `x`, `dy`, `mean`, `rstd`, and `gamma` if `affine`. Outputs: `dx`, and `dgamma`, `dbeta` if `affine`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNormGrad {
    /// Number of groups.
    pub groups: usize,
    /// There is `gamma`.
    pub affine: bool,
}

/// Layer normalisation (Ba et al. 2016) over the last `dims` axes. Operands: `x`; `gamma` if `weight`; `beta` if `bias`
/// (both of the shape of those axes; `bias` only with `weight`). Outputs: `y`, `mean [rows]`, `rstd [rows]`. Unless it is `centered`,
/// zero stands for the mean, and so the mean square for the variance: root mean square normalisation (Zhang, Sennrich 2019).
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// How many trailing axes are normalised together.
    pub dims: usize,
    /// Added to the variance.
    pub eps: f32,
    /// There is `gamma`.
    pub weight: bool,
    /// There is `beta`.
    pub bias: bool,
    /// The mean is taken off.
    pub centered: bool,
}

/// Operands: `x`, `dy`, `mean`, `rstd`, and `gamma` if `weight`. Outputs: `dx`, `dgamma` if `weight`, `dbeta` if `bias`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNormGrad {
    /// How many trailing axes.
    pub dims: usize,
    /// There is `gamma`.
    pub weight: bool,
    /// There is `beta`.
    pub bias: bool,
    /// The mean has been taken off.
    pub centered: bool,
}

operands! {
    /// Of [`BatchNorm`].
    BatchNorm => BatchNormOperands {
        x, gamma if |op| op.affine, beta if |op| op.affine,
        running_mean if |op| op.track, running_var if |op| op.track, num_batches_tracked if |op| op.track,
    }
    /// Of [`BatchNormStatistics`].
    BatchNormStatistics => BatchNormStatisticsOperands {
        x, running_mean if |op| op.track, running_var if |op| op.track, num_batches_tracked if |op| op.track,
    }
    /// Of [`BatchNormGrad`].
    BatchNormGrad => BatchNormGradOperands { x, dy, mean, invstd, gamma if |op| op.affine }
    /// Of [`BatchNormApply`].
    BatchNormApply => BatchNormApplyOperands { x, mean, invstd, gamma if |op| op.affine, beta if |op| op.affine }
    /// Of [`BatchNormInfer`].
    BatchNormInfer => BatchNormInferOperands {
        x, gamma if |op| op.affine, beta if |op| op.affine, running_mean, running_var,
    }
    /// Of [`GroupNorm`].
    GroupNorm => GroupNormOperands { x, gamma if |op| op.affine, beta if |op| op.affine }
    /// Of [`GroupNormGrad`].
    GroupNormGrad => GroupNormGradOperands { x, dy, mean, rstd, gamma if |op| op.affine }
    /// Of [`LayerNorm`].
    LayerNorm => LayerNormOperands { x, gamma if |op| op.weight, beta if |op| op.bias }
    /// Of [`LayerNormGrad`].
    LayerNormGrad => LayerNormGradOperands { x, dy, mean, rstd, gamma if |op| op.weight }
}

fn f32s(n: usize) -> Output {
    (DType::F32, Shape::from([n]))
}

/// Checks that operands `range` are per-channel vectors.
pub(super) fn channels(name: &str, inputs: &[&Value], from: usize, n: usize) -> Result<(), ShapeError> {
    let c = inputs[0].shape.last();
    for (i, v) in inputs.iter().enumerate().skip(from).take(n) {
        if v.shape.dims() != [c] {
            return Err(ShapeError::of(i, format!("`{name}` has parameters of shape {} for {c} channels", v.shape)));
        }
    }
    singles(name, inputs, from..from + n)
}

/// The gradients by operands: `dx`, then those of `gamma` and `beta` as the node's outputs give them, then nothing.
fn spread(cx: &GradContext, grads: &[ValueId]) -> Vec<Option<ValueId>> {
    (0..cx.inputs.len()).map(|i| grads.get(i).copied()).collect()
}

impl BatchNorm {
    /// Its first part; [`BatchNormApply`] is the second.
    pub fn statistics(&self) -> BatchNormStatistics {
        let BatchNorm { eps, momentum, track, .. } = *self;
        BatchNormStatistics { eps, momentum, track }
    }
}

/// Checks that there is more than one value per channel.
fn several_rows(x: &Value) -> Result<(), ShapeError> {
    if x.shape.rows() < 2 {
        return Err(ShapeError::of(
            0,
            format!(
                "batch normalisation needs more than one value per channel when training, but its input is {}",
                x.shape.to_pytorch()
            ),
        ));
    }
    Ok(())
}

impl OpRules for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm", inputs, self.arity())?;
        let dtype = float("batch_norm", inputs, 0)?;
        // All but the counter, which is the last of the running statistics.
        channels("batch_norm", inputs, 1, self.arity() - 1 - usize::from(self.track))?;
        several_rows(inputs[0])?;
        let c = inputs[0].shape.last();
        Ok(vec![(dtype, inputs[0].shape.clone()), f32s(c), f32s(c)])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let own = self.operands(cx.inputs);
        let operands = [own.x, cx.dy(), cx.outputs[1], cx.outputs[2]].into_iter().chain(own.gamma);
        let operands: Vec<ValueId> = operands.collect();
        let grads = cx.graph.add(BatchNormGrad { affine: self.affine }, &operands)?;
        Ok(spread(cx, &grads))
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        let places = self.places();
        [places.running_mean, places.running_var, places.num_batches_tracked].into_iter().flatten().collect()
    }
}

impl OpRules for BatchNormStatistics {
    fn name(&self) -> &'static str {
        "batch_norm_statistics"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_statistics", inputs, self.arity())?;
        float("batch_norm_statistics", inputs, 0)?;
        channels("batch_norm_statistics", inputs, 1, self.arity() - 1 - usize::from(self.track))?;
        several_rows(inputs[0])?;
        let c = inputs[0].shape.last();
        Ok(vec![f32s(c), f32s(c)])
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        let places = self.places();
        [places.running_mean, places.running_var, places.num_batches_tracked].into_iter().flatten().collect()
    }
}

impl OpRules for BatchNormGrad {
    fn name(&self) -> &'static str {
        "batch_norm_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_grad", inputs, self.arity())?;
        let dtype = floats("batch_norm_grad", inputs, 0, 1)?;
        singles("batch_norm_grad", inputs, 2..inputs.len())?;
        let c = inputs[0].shape.last();
        let mut out = vec![(dtype, inputs[0].shape.clone())];
        if self.affine {
            out.extend([f32s(c), f32s(c)]);
        }
        Ok(out)
    }

    fn in_place(&self) -> Option<usize> {
        Some(1)
    }
}

impl OpRules for BatchNormApply {
    fn name(&self) -> &'static str {
        "batch_norm_apply"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_apply", inputs, self.arity())?;
        channels("batch_norm_apply", inputs, 1, self.arity() - 1)?;
        Ok(vec![(float("batch_norm_apply", inputs, 0)?, inputs[0].shape.clone())])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl OpRules for BatchNormInfer {
    fn name(&self) -> &'static str {
        "batch_norm_infer"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_infer", inputs, self.arity())?;
        channels("batch_norm_infer", inputs, 1, self.arity() - 1)?;
        Ok(vec![(float("batch_norm_infer", inputs, 0)?, inputs[0].shape.clone())])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl OpRules for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("group_norm", inputs, self.arity())?;
        singles("group_norm", inputs, 0..inputs.len())?;
        channels("group_norm", inputs, 1, self.arity() - 1)?;
        let x = &inputs[0].shape;
        if x.rank() < 2 || !x.last().is_multiple_of(self.groups) {
            return Err(ShapeError::of(
                0,
                format!("`group_norm` cannot split {} channels into {} groups", x.last(), self.groups),
            ));
        }
        let stats = (DType::F32, Shape::from([x.dims()[0], self.groups]));
        Ok(vec![(DType::F32, x.clone()), stats.clone(), stats])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let own = self.operands(cx.inputs);
        let operands = [own.x, cx.dy(), cx.outputs[1], cx.outputs[2]].into_iter().chain(own.gamma);
        let operands: Vec<ValueId> = operands.collect();
        let grads = cx.graph.add(GroupNormGrad { groups: self.groups, affine: self.affine }, &operands)?;
        Ok(spread(cx, &grads))
    }
}

impl OpRules for GroupNormGrad {
    fn name(&self) -> &'static str {
        "group_norm_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("group_norm_grad", inputs, self.arity())?;
        singles("group_norm_grad", inputs, 0..inputs.len())?;
        let c = inputs[0].shape.last();
        let mut out = vec![(DType::F32, inputs[0].shape.clone())];
        if self.affine {
            out.extend([f32s(c), f32s(c)]);
        }
        Ok(out)
    }
}

impl OpRules for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("layer_norm", inputs, self.arity())?;
        singles("layer_norm", inputs, 0..inputs.len())?;
        let x = &inputs[0].shape;
        if self.dims == 0 || self.dims >= x.rank() {
            return Err(ShapeError::of(
                0,
                format!("`layer_norm` cannot normalise the last {} axes of {}", self.dims, x.to_pytorch()),
            ));
        }
        let tail = &x.dims()[x.rank() - self.dims..];
        for (i, p) in inputs.iter().enumerate().skip(1) {
            if p.shape.dims() != tail {
                return Err(ShapeError::of(i, format!("`layer_norm` has parameters of shape {}", p.shape)));
            }
        }
        let rows = x.dims()[..x.rank() - self.dims].iter().product();
        Ok(vec![(DType::F32, x.clone()), f32s(rows), f32s(rows)])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let own = self.operands(cx.inputs);
        let operands = [own.x, cx.dy(), cx.outputs[1], cx.outputs[2]].into_iter().chain(own.gamma);
        let operands: Vec<ValueId> = operands.collect();
        let op = LayerNormGrad { dims: self.dims, weight: self.weight, bias: self.bias, centered: self.centered };
        let grads = cx.graph.add(op, &operands)?;
        Ok(spread(cx, &grads))
    }
}

impl OpRules for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("layer_norm_grad", inputs, self.arity())?;
        singles("layer_norm_grad", inputs, 0..inputs.len())?;
        let x = &inputs[0].shape;
        let tail = (DType::F32, Shape::from(&x.dims()[x.rank() - self.dims..]));
        let mut out = vec![(DType::F32, x.clone())];
        out.extend(std::iter::repeat_n(tail, self.weight as usize + self.bias as usize));
        Ok(out)
    }
}
