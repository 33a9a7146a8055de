//! Sums over the shards of a step, in the order of a tree ([`crate::shards`]).

use super::{OpRules, Output, ShapeError, Value, arity, same, singles};
use crate::graph::{DType, Shape};
use crate::shards::Shards;

/// Elements of the operand [`crate::graph::Input::Shard`]: the slot that a shard's sum is stored in, how many slots from there on hold sums that
/// are added to it first, how many shards the step has, and 1 for the last shard of the rank in its step.
pub const SHARD_INPUTS: usize = 4;

/// Most slots that sums may have: more than a step of a million shards needs on any rank.
pub const MAX_SHARD_SLOTS: usize = 40;

/// Takes tensors of a shard into the sums over shards. Operands: the shard's place (`I32 [4]`), then for each tensor: what the shard has of it
/// (`F32`, `F64` or `I64`), and `slots` sums of the same type and shape, which are updated in place.
///
/// With the place `(slot, merged, _, _)`, `x` is stored in `slot` after the sums in the slots from `slot + merged − 1` down to `slot` have been
/// added to it, each from the left. A place beyond the slots is brought back to the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSum {
    /// Partial sums that are kept of each tensor.
    pub slots: usize,
}

/// Joins the sums of all ranks: afterwards the first slot of each tensor has the sum over all shards of the step, on the ranks that receive it. All
/// others are unspecified. Operands: a shard's place (`I32 [4]`), then the `slots` sums of each tensor, which are updated in place.
/// With one rank nothing changes.
///
/// Where it has a `bucket`, [`ShardBegin`] may have begun it, and then it waits for the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardReduce {
    /// Partial sums that are kept of each tensor.
    pub slots: usize,
    /// The shards, and how ranks have divided them.
    pub shards: Shards,
    /// Who is given the sums.
    pub to: Receivers,
    /// Its number among those that are begun ahead.
    pub bucket: Option<usize>,
}

/// Which ranks are given a sum over all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receivers {
    /// All.
    All,
    /// Each its part of every tensor ([`crate::shards::part_of`]).
    Parts,
    /// One for each tensor: which.
    Owners(Vec<usize>),
}

/// Begins the [`ShardReduce`] of the same bucket, with the same operands, if the fourth number of the shard's place says that this shard is the last one of
/// the rank in its step. Nothing may use the sums until that operation has ended it. With one rank it does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardBegin {
    /// What is begun.
    pub reduce: ShardReduce,
}

/// Gives all ranks what belongs to each. Operands: tensors, which are updated in place. Their elements, one tensor after the other, are cut into `parts`, of
/// which none is in two tensors. With one rank nothing changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardGather {
    /// Number of elements, and the rank that they belong to.
    pub parts: Vec<(usize, usize)>,
}

/// Sets variables to the mean over the shards of a step, unless the loss is not finite. Operands: loss `[1]`, a shard's place (`I32 [4]`),
/// then for each variable (`F32` or `I64`): the variable, updated in place, and the sum over shards. That of integers is
/// a multiple of the number of shards: each has counted the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMean {}

/// The mean loss from the sums `(Σ share · loss, Σ share)`: 0 if nothing has counted, unless the first sum is not finite. Operand: `F64 [2]`.
/// Output: `[1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanLoss {}

/// `infer` helper: operand `i` is the place of a shard.
fn place(name: &str, inputs: &[&Value], i: usize) -> Result<(), ShapeError> {
    match inputs.get(i) {
        Some(value) if value.dtype == DType::I32 && value.shape.len() == SHARD_INPUTS => Ok(()),
        _ => Err(ShapeError::of(i, format!("operand {i} of `{name}` must be {SHARD_INPUTS} integers of 32 bits"))),
    }
}

impl ShardSum {
    /// Operands of a tensor.
    pub fn stride(&self) -> usize {
        1 + self.slots
    }

    /// The slot that a sum is stored in, and how many slots from there on are added to it first, for the numbers that the operand has.
    pub fn bounded(&self, place: [i64; 2]) -> (usize, usize) {
        let last = self.slots as i64 - 1;
        let slot = place[0].clamp(0, last);
        (slot as usize, place[1].clamp(0, last + 1 - slot) as usize)
    }
}

impl OpRules for ShardSum {
    fn name(&self) -> &'static str {
        "shard_sum"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        place("shard_sum", inputs, 0)?;
        let stride = self.stride();
        if !(1..=MAX_SHARD_SLOTS).contains(&self.slots) || !(inputs.len() - 1).is_multiple_of(stride) {
            return Err(ShapeError::new(format!(
                "`shard_sum` takes 1 to {MAX_SHARD_SLOTS} slots, and {stride} operands for each tensor"
            )));
        }
        for first in (1..inputs.len()).step_by(stride) {
            let dtype = inputs[first].dtype;
            if !matches!(dtype, DType::F32 | DType::F64 | DType::I64) {
                return Err(ShapeError::of(first, format!("`shard_sum` takes f32, f64 or i64, not {dtype}")));
            }
            for sum in first + 1..first + stride {
                same("shard_sum", inputs, first, sum)?;
                if inputs[sum].dtype != dtype {
                    return Err(ShapeError::of(sum, "`shard_sum` has a sum of another type than what is summed"));
                }
            }
        }
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (1..inputs).filter(|i| !(i - 1).is_multiple_of(self.stride())).collect()
    }
}

impl ShardReduce {
    fn infer_as(&self, name: &str, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        place(name, inputs, 0)?;
        if self.slots == 0 || !(inputs.len() - 1).is_multiple_of(self.slots) {
            return Err(ShapeError::new(format!("`{name}` takes {} operands for each tensor", self.slots)));
        }
        for first in (1..inputs.len()).step_by(self.slots) {
            for other in first + 1..first + self.slots {
                same(name, inputs, first, other)?;
                if inputs[first].dtype != inputs[other].dtype {
                    return Err(ShapeError::of(other, format!("`{name}` has slots of two types")));
                }
            }
        }
        let tensors = (inputs.len() - 1) / self.slots;
        if let Receivers::Owners(owners) = &self.to
            && owners.len() != tensors
        {
            return Err(ShapeError::new(format!("`{name}` has {} owners for {tensors} tensors", owners.len())));
        }
        Ok(Vec::new())
    }
}

impl OpRules for ShardReduce {
    fn name(&self) -> &'static str {
        "shard_reduce"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        self.infer_as("shard_reduce", inputs)
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (1..inputs).collect()
    }
}

impl OpRules for ShardBegin {
    fn name(&self) -> &'static str {
        "shard_begin"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        if self.reduce.bucket.is_none() {
            return Err(ShapeError::new("`shard_begin` has no bucket"));
        }
        self.reduce.infer_as("shard_begin", inputs)
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (1..inputs).collect()
    }
}

impl OpRules for ShardGather {
    fn name(&self) -> &'static str {
        "shard_gather"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let mut parts = self.parts.iter();
        for (i, tensor) in inputs.iter().enumerate() {
            let mut left = tensor.shape.len();
            while left > 0 {
                left = match parts.next() {
                    Some((length, _)) if (1..=left).contains(length) => left - length,
                    _ => return Err(ShapeError::of(i, format!("the parts of `shard_gather` do not fit operand {i}"))),
                };
            }
        }
        match parts.next() {
            Some(_) => Err(ShapeError::new("`shard_gather` has more parts than elements")),
            None => Ok(Vec::new()),
        }
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (0..inputs).collect()
    }
}

impl OpRules for ShardMean {
    fn name(&self) -> &'static str {
        "shard_mean"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        singles("shard_mean", inputs, [0])?;
        place("shard_mean", inputs, 1)?;
        if !inputs.len().is_multiple_of(2) {
            return Err(ShapeError::new("`shard_mean` takes a variable and a sum, in turn"));
        }
        for variable in (2..inputs.len()).step_by(2) {
            let (of, sum) = (inputs[variable], inputs[variable + 1]);
            if !matches!(of.dtype, DType::F32 | DType::I64) || of.dtype != sum.dtype {
                return Err(ShapeError::of(
                    variable,
                    "`shard_mean` takes variables of f32 or i64, and sums of the same type",
                ));
            }
            same("shard_mean", inputs, variable, variable + 1)?;
        }
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (2..inputs).step_by(2).collect()
    }
}

impl OpRules for MeanLoss {
    fn name(&self) -> &'static str {
        "mean_loss"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("mean_loss", inputs, 1)?;
        if inputs[0].dtype != DType::F64 || inputs[0].shape.len() != 2 {
            return Err(ShapeError::of(0, "`mean_loss` takes two doubles"));
        }
        Ok(vec![(DType::F32, Shape::from([1]))])
    }
}
