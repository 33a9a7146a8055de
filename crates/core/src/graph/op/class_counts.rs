//! Counts of what was taken for what, gathered on the device in evaluation.

use super::{OpRules, Output, ShapeError, Value, arity, singles};
use crate::graph::DType;

/// Ranks that are counted: of top-k accuracies, `k` is at most this.
pub const RANKS: usize = 10;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Rows of logits `[.., C]` with one class (`I32`) for each. The class that is predicted is that of the largest logit, of
    /// equal ones the first. The rank of a target is the number of logits that are larger than its own, or as large with a
    /// lower index.
    Classes {
        /// Rows with this target do not count.
        ignore_index: Option<i32>,
        /// Whether to count, for every class, as which classes it was predicted.
        matrix: bool,
    },
    /// Logits with a number (`F32`) for each, of which the last axis has so many labels: yes or no for each of them, a logit
    /// above 0 being a yes, and a target above one half.
    Labels(usize),
}

/// Adds the counts of a batch. Operands: loss `[1]` and prediction (both `F32`), target, counts (`F64`, updated in place). A
/// batch whose loss is not finite is left out. Counts are whole numbers, exact up to 2^53. In order:
/// - `[RANKS]`: the rows whose target has the rank 0, 1, … (of labels, zeros);
/// - `[C, 3]`: for each class or label, how often it was predicted rightly, how often predicted, and how often the target;
/// - `[C, C]`, with `matrix`: how often a class (first axis) was predicted as another.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassCounts {
    /// What.
    pub of: Counted,
}

impl ClassCounts {
    /// The number of classes or labels, for predictions of which the last axis has that length.
    pub fn classes(&self, last: usize) -> usize {
        match self.of {
            Counted::Classes { .. } => last,
            Counted::Labels(labels) => labels,
        }
    }

    /// The number of counts, for predictions of which the last axis has that length.
    pub fn len(&self, last: usize) -> usize {
        let classes = self.classes(last);
        let matrix = matches!(self.of, Counted::Classes { matrix: true, .. });
        RANKS + 3 * classes + if matrix { classes * classes } else { 0 }
    }
}

impl OpRules for ClassCounts {
    fn name(&self) -> &'static str {
        "class_counts"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity("class_counts", inputs, 4)?;
        singles("class_counts", inputs, [0, 1])?;
        let (x, t) = (inputs[1], inputs[2]);
        let fits = match self.of {
            Counted::Classes { .. } => t.dtype == DType::I32 && t.shape.len() == x.shape.rows(),
            Counted::Labels(labels) => {
                t.dtype == DType::F32 && t.shape.len() == x.shape.len() && labels > 0 && x.shape.len() % labels == 0
            }
        };
        if !fits {
            let (x, t) = (x.shape.to_pytorch(), t.shape.to_pytorch());
            return Err(ShapeError::of(2, format!("`class_counts` cannot compare predictions {x} with targets {t}")));
        }
        let len = self.len(x.shape.last());
        if inputs[3].dtype != DType::F64 || inputs[3].shape.len() != len {
            return Err(ShapeError::of(3, format!("`class_counts` adds to {len} doubles")));
        }
        Ok(Vec::new())
    }

    fn mutates(&self, _: usize) -> Vec<usize> {
        vec![3]
    }
}
