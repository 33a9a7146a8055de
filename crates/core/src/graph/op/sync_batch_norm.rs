//! Batch normalisation over all shards of a step, as `torch.nn.SyncBatchNorm`: what each shard sums for itself, and what is made of the sums over all.
//!
//! The sums are those of values and of their squares, in double precision. The square of a `F32` is exact in a double, and what rounding does to the sum of
//! many is far below what the 24 bits of the values themselves leave open, also where the mean is large beside the deviation.
//! So sums of shards can simply be added, in whatever order the caller gives ([`super::ShardSum`], [`super::ShardReduce`]).

use super::norm::channels;
use super::{OpRules, Output, ShapeError, Value, arity, float, floats, singles};
use crate::graph::{DType, Shape};

/// The sums of a shard. Operand: `x [.., C]`. Output: `F64 [2C + 1]`: `Σ x` and `Σ x²` of each channel, and the number of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormSums {}

/// The statistics of all rows from their sums, as [`super::BatchNormStatistics`] has them. Operands: sums `F64 [2C + 1]`; `running_mean [C]`,
/// `running_var [C]`, `num_batches_tracked [] (I64)` if `track` (updated in place). Outputs: `mean [C]`, `invstd [C]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormFromSums {
    /// Added to the variance.
    pub eps: f32,
    /// Weight of the new statistics; `None` averages over all batches seen.
    pub momentum: Option<f32>,
    /// There are running statistics.
    pub track: bool,
}

/// The sums of a shard for the gradient. Operands: `x [.., C]`, `dy`, `mean [C]`, `invstd [C]`. Outputs: `F64 [2C]`: `Σ dy` and `Σ dy · (x − mean)` of
/// each channel; `dgamma [C]` and `dbeta [C]`, those of this shard, if `affine`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormGradSums {
    /// There are `gamma` and `beta`.
    pub affine: bool,
}

/// The gradient of a shard's input from the sums over all rows. Operands: `x [.., C]`, `dy`, `mean [C]`, `invstd [C]`, the sums of [`BatchNormSums`] and of
/// [`BatchNormGradSums`], and `gamma [C]` if `affine`. Output: `dx`, as [`super::BatchNormGrad`] has it.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormGradFromSums {
    /// There is `gamma`.
    pub affine: bool,
}

/// `infer` helper: operand `i` has that many doubles.
fn doubles(name: &str, inputs: &[&Value], i: usize, n: usize) -> Result<(), ShapeError> {
    match inputs[i].dtype == DType::F64 && inputs[i].shape.dims() == [n] {
        true => Ok(()),
        false => Err(ShapeError::of(
            i,
            format!("operand {i} of `{name}` must be {n} doubles, not {} {}", inputs[i].dtype, inputs[i].shape),
        )),
    }
}

impl OpRules for BatchNormSums {
    fn name(&self) -> &'static str {
        "batch_norm_sums"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_sums", inputs, 1)?;
        float("batch_norm_sums", inputs, 0)?;
        Ok(vec![(DType::F64, Shape::from([2 * inputs[0].shape.last() + 1]))])
    }
}

impl OpRules for BatchNormFromSums {
    fn name(&self) -> &'static str {
        "batch_norm_from_sums"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let name = "batch_norm_from_sums";
        arity(name, inputs, 1 + 3 * usize::from(self.track))?;
        let c = inputs[0].shape.len().saturating_sub(1) / 2;
        doubles(name, inputs, 0, 2 * c + 1)?;
        let tracked = 1..1 + 2 * usize::from(self.track);
        singles(name, inputs, tracked.clone())?;
        for i in tracked {
            if inputs[i].shape.dims() != [c] {
                return Err(ShapeError::of(
                    i,
                    format!("`{name}` has statistics of another number of channels than {c}"),
                ));
            }
        }
        let of_channels = (DType::F32, Shape::from([c]));
        Ok(vec![of_channels.clone(), of_channels])
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        if self.track { (inputs - 3..inputs).collect() } else { Vec::new() }
    }
}

impl OpRules for BatchNormGradSums {
    fn name(&self) -> &'static str {
        "batch_norm_grad_sums"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("batch_norm_grad_sums", inputs, 4)?;
        floats("batch_norm_grad_sums", inputs, 0, 1)?;
        channels("batch_norm_grad_sums", inputs, 2, 2)?;
        let c = inputs[0].shape.last();
        let mut out = vec![(DType::F64, Shape::from([2 * c]))];
        out.extend(std::iter::repeat_n((DType::F32, Shape::from([c])), 2 * usize::from(self.affine)));
        Ok(out)
    }
}

impl OpRules for BatchNormGradFromSums {
    fn name(&self) -> &'static str {
        "batch_norm_grad_from_sums"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let name = "batch_norm_grad_from_sums";
        arity(name, inputs, 6 + usize::from(self.affine))?;
        let dtype = floats(name, inputs, 0, 1)?;
        channels(name, inputs, 2, 2)?;
        channels(name, inputs, 6, usize::from(self.affine))?;
        let c = inputs[0].shape.last();
        doubles(name, inputs, 4, 2 * c + 1)?;
        doubles(name, inputs, 5, 2 * c)?;
        Ok(vec![(dtype, inputs[0].shape.clone())])
    }

    fn in_place(&self) -> Option<usize> {
        Some(1)
    }
}
