//! Numbers that are learnt, standardised for the loss and in their own unit.

use super::Builder;
use crate::data::{Field, Standard};
use crate::graph::op::Normalize;
use crate::graph::{DType, ValueId};

impl Builder<'_> {
    /// What a head puts out, in the unit of the field that it learns.
    pub(super) fn in_unit_of(&mut self, field: &Field, y: ValueId) -> ValueId {
        match &field.standard {
            Some(standard) => self.plain(undo(standard), &[y]),
            None => y,
        }
    }
}

/// `(x - mean) / deviation`
pub(super) fn standardize(standard: &Standard) -> Normalize {
    Normalize { scale: 1.0, mean: standard.mean.clone(), std: standard.deviation.clone(), to: DType::F32 }
}

/// `x · deviation + mean`, as the same operation has it: `(x - (-mean / deviation)) / (1 / deviation)`.
pub(super) fn undo(standard: &Standard) -> Normalize {
    let mean = standard.mean.iter().zip(&standard.deviation).map(|(mean, deviation)| -mean / deviation).collect();
    let std = standard.deviation.iter().map(|deviation| 1.0 / deviation).collect();
    Normalize { scale: 1.0, mean, std, to: DType::F32 }
}
