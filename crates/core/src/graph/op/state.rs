//! Backup and restoration of buffers, so that a step whose loss is not finite changes nothing.

use super::{OpRules, Output, ShapeError, Value, singles};

/// Makes copies of variables, before a step changes them. Operands: `mark [1]` if `once`; then a variable and its copy, in turn.
/// The copies are updated in place. With `once` that happens only where the mark is zero, and the mark becomes one: of
/// several micro-batches the first one does it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeepState {
    /// There is a mark.
    pub once: bool,
}

/// Restores variables from their copies, unless the loss is finite. Operands: `loss [1]`; then a variable and its copy, in
/// turn. The variables are updated in place.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreState {}

/// Checks that the operands from `first` on are pairs of a type and shape.
fn pairs(name: &str, inputs: &[&Value], first: usize) -> Result<(), ShapeError> {
    let list = inputs.get(first..).unwrap_or_default();
    if !list.len().is_multiple_of(2) {
        return Err(ShapeError::new(format!("`{name}` takes pairs of variables, not {}", list.len())));
    }
    match list.chunks(2).position(|p| (p[0].dtype, &p[0].shape) != (p[1].dtype, &p[1].shape)) {
        Some(i) => Err(ShapeError::of(first + 2 * i + 1, format!("`{name}` has a copy of another type or shape"))),
        None => Ok(()),
    }
}

impl OpRules for KeepState {
    fn name(&self) -> &'static str {
        "keep_state"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let first = usize::from(self.once);
        singles("keep_state", inputs, 0..first)?;
        pairs("keep_state", inputs, first)?;
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        let first = usize::from(self.once);
        (0..first).chain((first + 1..inputs).step_by(2)).collect()
    }
}

impl OpRules for RestoreState {
    fn name(&self) -> &'static str {
        "restore_state"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        singles("restore_state", inputs, [0])?;
        pairs("restore_state", inputs, 1)?;
        Ok(Vec::new())
    }

    fn mutates(&self, inputs: usize) -> Vec<usize> {
        (1..inputs).step_by(2).collect()
    }
}
