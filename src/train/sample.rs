//! What a sample looks like, as a checkpoint tells it: a model can be used where its data is not.

use crate::data::{DataSpec, TargetSpec};
use crate::graph::{DType, Shape};
use serde::{Deserialize, Serialize};

/// The part of a [`DataSpec`] that a model depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its shape, channels last.
    input: Vec<usize>,
    /// Whether its elements are bytes; else floats.
    bytes: bool,
    /// Number of classes, if the targets are that.
    classes: Option<usize>,
    classes_exact: bool,
    /// Shape of a target: of the values, or of the positions that have a class each.
    values: Vec<usize>,
    class_names: Option<Vec<String>>,
}

/// More elements in a sample, or classes, than any model here can have: the checkpoint may come from anybody.
const MAX: usize = 1 << 24;

impl Sample {
    /// That of a data set.
    pub fn of(spec: &DataSpec) -> Sample {
        Sample {
            input: spec.input.dims().to_vec(),
            bytes: spec.dtype == DType::U8,
            classes: spec.targets.classes(),
            classes_exact: spec.classes_exact,
            values: spec.targets.shape().0,
            class_names: spec.class_names.clone(),
        }
    }

    /// A data set of an unknown number of such samples; `None` if there is no such sample.
    pub fn spec(&self) -> Option<DataSpec> {
        let sane = |dims: &[usize]| dims.len() <= 4 && !dims.contains(&0) && Shape(dims.to_vec()).len() <= MAX;
        let targets = match self.classes {
            Some(n) if self.values.is_empty() => TargetSpec::Classes(n),
            Some(n) => TargetSpec::PositionClasses(n, Shape(self.values.clone())),
            None => TargetSpec::Values(Shape(self.values.clone())),
        };
        let classes = self.classes.is_none_or(|n| (1..=MAX).contains(&n));
        if self.input.is_empty() || !sane(&self.input) || !sane(&self.values) || !classes {
            return None;
        }
        Some(DataSpec {
            input: Shape(self.input.clone()),
            dtype: if self.bytes { DType::U8 } else { DType::F32 },
            targets,
            classes_exact: self.classes_exact,
            class_names: self.class_names.clone(),
            train: None,
            val: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let spec = DataSpec {
            input: [8, 8, 3].into(),
            dtype: DType::U8,
            targets: TargetSpec::Classes(3),
            classes_exact: false,
            class_names: Some(vec!["a".into(), "b".into()]),
            train: None,
            val: None,
        };
        let values = TargetSpec::Values([2, 1].into());
        let positions = DataSpec { targets: TargetSpec::PositionClasses(3, [8, 8].into()), ..spec.clone() };
        let values = DataSpec { dtype: DType::F32, targets: values, class_names: None, ..spec.clone() };
        for spec in [spec, positions, values] {
            let text = serde_json::to_string(&Sample::of(&spec)).unwrap();
            assert_eq!(serde_json::from_str::<Sample>(&text).unwrap().spec(), Some(spec));
        }
    }

    #[test]
    fn absurd_shapes_are_refused() {
        let sample = Sample {
            input: vec![4],
            bytes: false,
            classes: Some(2),
            classes_exact: true,
            values: Vec::new(),
            class_names: None,
        };
        assert!(sample.spec().is_some());
        for input in [vec![], vec![0], vec![1 << 13, 1 << 12], vec![usize::MAX, 2], vec![1; 5]] {
            assert_eq!(Sample { input, ..sample.clone() }.spec(), None);
        }
        assert_eq!(Sample { classes: Some(usize::MAX), ..sample.clone() }.spec(), None);
        assert_eq!(Sample { classes: Some(0), ..sample }.spec(), None);
    }
}
