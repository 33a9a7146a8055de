//! Running sums of what is reported, gathered on the device.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

/// The task of the model, which decides what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One of several classes a row.
    Classification,
    /// Yes or no for every number: a logit above 0 is a yes, a target above one half too.
    BinaryClassification,
    /// Real numbers.
    Regression,
}

/// A figure that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Mean loss over what counts.
    Loss,
    /// Share of what counts whose class is right.
    Accuracy,
    /// Mean absolute error.
    Mae,
    /// Root of the mean squared error.
    Rmse,
}

impl Task {
    /// The figures that there are, the loss first.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Task::Classification | Task::BinaryClassification => &[Figure::Loss, Figure::Accuracy],
            Task::Regression => &[Figure::Loss, Figure::Mae, Figure::Rmse],
        }
    }

    /// The figure by which two models are compared, unless the configuration names another.
    pub fn monitor(self) -> Figure {
        match self {
            Task::Classification | Task::BinaryClassification => Figure::Accuracy,
            Task::Regression => Figure::Loss,
        }
    }
}

impl Figure {
    /// All figures, in the order in which they are reported.
    pub const ALL: [Figure; 4] = [Figure::Loss, Figure::Accuracy, Figure::Mae, Figure::Rmse];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Loss => "loss",
            Figure::Accuracy => "accuracy",
            Figure::Mae => "mae",
            Figure::Rmse => "rmse",
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        match self {
            Figure::Accuracy => true,
            Figure::Loss | Figure::Mae | Figure::Rmse => false,
        }
    }

    /// Whether it is a fraction that is shown in percent.
    pub fn is_share(self) -> bool {
        match self {
            Figure::Accuracy => true,
            Figure::Loss | Figure::Mae | Figure::Rmse => false,
        }
    }

    /// Its value, from `sums`.
    pub fn value(self, sums: &[f64; METRIC_SLOTS]) -> f64 {
        let items = sums[metric_slot::ITEMS];
        match self {
            Figure::Loss => sums[metric_slot::LOSS] / sums[metric_slot::WEIGHT],
            Figure::Accuracy => sums[metric_slot::CORRECT] / items,
            Figure::Mae => sums[metric_slot::ABS_ERROR] / items,
            Figure::Rmse => (sums[metric_slot::SQUARED_ERROR] / items).sqrt(),
        }
    }
}

/// Length of the metric sums.
pub const METRIC_SLOTS: usize = 8;

/// Places in the metric sums (`F64 [METRIC_SLOTS]`).
pub mod metric_slot {
    /// Σ loss · weight
    pub const LOSS: usize = 0;
    /// Σ weight: what the batches weigh in the mean of the loss
    pub const WEIGHT: usize = 1;
    /// Items whose class is right (of equal logits the first counts)
    pub const CORRECT: usize = 2;
    /// Σ |x − t|
    pub const ABS_ERROR: usize = 3;
    /// Σ (x − t)²
    pub const SQUARED_ERROR: usize = 4;
    /// Number of items compared: rows that count, or elements
    pub const ITEMS: usize = 5;
    /// Batches whose loss was not finite
    pub const NOT_FINITE: usize = 6;
}

/// Adds a batch to the sums. Operands: loss `[1]`, what the batch weighs `[1]` and prediction (all `F32`), target, sums
/// (`F64 [METRIC_SLOTS]`, updated in place). A loss that is not finite is counted in its slot and left out of the sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// What to measure.
    pub task: Task,
    /// Rows with this target do not count.
    pub ignore_index: Option<i32>,
}

impl OpRules for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("metrics", inputs, 5)?;
        singles("metrics", inputs, [0, 1, 2])?;
        if inputs[4].dtype != DType::F64 || inputs[4].shape.len() != METRIC_SLOTS {
            return Err(ShapeError::of(4, "`metrics` adds to eight doubles"));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![4]
    }
}
