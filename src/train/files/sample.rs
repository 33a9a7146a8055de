//! The description of a sample in a checkpoint, so that a model can be used without its data.

use crate::data::{DataSpec, Field, TargetSpec, mask};
use crate::graph::{DType, Shape};
use serde::{Deserialize, Serialize};

/// The part of a [`DataSpec`] that a model depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample(Written);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Fields(Fields),
    One(One),
}

/// As checkpoints are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fields {
    /// In the order of their numbers.
    fields: Vec<OneField>,
    /// Number of classes, if those are the targets.
    classes: Option<usize>,
    classes_exact: bool,
    class_names: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OneField {
    name: String,
    dtype: String,
    /// Channels last.
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    target: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sequence: bool,
}

/// As checkpoints were written when a sample was one input and its targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct One {
    /// Its shape, channels last.
    input: Vec<usize>,
    /// Whether its elements are bytes; else floats.
    bytes: bool,
    /// Number of classes; else `values` has the shape of a target.
    classes: Option<usize>,
    classes_exact: bool,
    values: Vec<usize>,
    class_names: Option<Vec<String>>,
}

/// More elements in a sample, or classes, than any model here can have: the checkpoint may come from anybody.
const MAX: usize = 1 << 24;
/// More fields than a sample has.
const MAX_FIELDS: usize = 256;
/// The element types of fields.
const TYPES: [DType; 3] = [DType::U8, DType::I32, DType::F32];

impl Sample {
    /// That of a data set.
    pub fn of(spec: &DataSpec) -> Sample {
        let one = |field: &Field| OneField {
            name: field.name.clone(),
            dtype: field.dtype.name().into(),
            shape: field.shape.dims().to_vec(),
            target: field.target,
            sequence: field.sequence,
        };
        Sample(Written::Fields(Fields {
            fields: spec.fields.iter().map(one).collect(),
            classes: if let TargetSpec::Classes(n) = spec.targets { Some(n) } else { None },
            classes_exact: spec.classes_exact,
            class_names: spec.class_names.clone(),
        }))
    }

    /// A data set of an unknown number of such samples; `None` if there is no such sample.
    pub fn spec(&self) -> Option<DataSpec> {
        let spec = match &self.0 {
            Written::Fields(sample) => sample.spec()?,
            Written::One(sample) => sample.spec(),
        };
        let masks = mask(&spec.fields);
        let elements = |(number, field): (usize, &Field)| {
            let dims = field.shape.dims();
            let image = field.is_of_any_size() && !field.target && dims[2] <= 4;
            let of_any_size = image || masks == Some(number);
            let sane = dims.len() <= 4 && (of_any_size || !dims.contains(&0)) && field.shape.len() <= MAX;
            // A sample is of so many dimensions that a batch of it is one of vectors at least.
            sane && (field.target || !dims.is_empty())
        };
        let classes = if let TargetSpec::Classes(n) = spec.targets { (1..=MAX).contains(&n) } else { true };
        let fields = (1..=MAX_FIELDS).contains(&spec.fields.len()) && spec.fields.iter().enumerate().all(elements);
        (classes && fields && spec.inputs().next().is_some() && spec.target().is_some()).then_some(spec)
    }
}

impl Fields {
    fn spec(&self) -> Option<DataSpec> {
        let field = |written: &OneField| {
            Some(Field {
                name: written.name.clone(),
                dtype: TYPES.into_iter().find(|dtype| dtype.name() == written.dtype)?,
                shape: Shape(written.shape.clone()),
                target: written.target,
                sequence: written.sequence,
            })
        };
        Some(DataSpec {
            fields: self.fields.iter().map(field).collect::<Option<_>>()?,
            targets: self.classes.map_or(TargetSpec::Values, TargetSpec::Classes),
            classes_exact: self.classes_exact,
            class_names: self.class_names.clone(),
            empty_folders: Vec::new(),
            train: None,
            val: None,
        })
    }
}

impl One {
    fn spec(&self) -> DataSpec {
        let dtype = if self.bytes { DType::U8 } else { DType::F32 };
        let spec = match self.classes {
            Some(n) => DataSpec::labelled(dtype, self.input.clone(), n),
            None => DataSpec::valued(dtype, self.input.clone(), self.values.clone()),
        };
        DataSpec { classes_exact: self.classes_exact, class_names: self.class_names.clone(), ..spec }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let images = DataSpec { classes_exact: false, ..DataSpec::labelled(DType::U8, [8, 8, 3], 3) };
        let named = DataSpec { class_names: Some(vec!["a".into(), "b".into()]), ..images.clone() };
        let values = DataSpec::valued(DType::F32, [5], [2, 1]);
        let mut several = images.clone();
        several.fields.insert(1, Field::input("numbers", DType::F32, [9, 2]).of_any_length());
        several.fields[2].shape = [9].into();
        let fields = vec![Field::photo("inputs", 3), Field::target("targets", DType::I32, [0, 0])];
        let masks = DataSpec { fields, ..named.clone() };
        for spec in [images, named, values, several, masks] {
            let text = serde_json::to_string(&Sample::of(&spec)).unwrap();
            assert_eq!(serde_json::from_str::<Sample>(&text).unwrap().spec(), Some(spec));
        }
    }

    /// Checkpoints from when a sample was one input and its targets are still used.
    #[test]
    fn what_was_written_is_read_again() {
        let read = |text: &str| serde_json::from_str::<Sample>(text).unwrap().spec();
        let classes =
            r#"{"input":[8,8,3],"bytes":true,"classes":3,"classes_exact":false,"values":[],"class_names":["a"]}"#;
        let expected = DataSpec {
            classes_exact: false,
            class_names: Some(vec!["a".into()]),
            ..DataSpec::labelled(DType::U8, [8, 8, 3], 3)
        };
        assert_eq!(read(classes), Some(expected));
        let values =
            r#"{"input":[5],"bytes":false,"classes":null,"classes_exact":true,"values":[2],"class_names":null}"#;
        assert_eq!(read(values), Some(DataSpec::valued(DType::F32, [5], [2])));
    }

    #[test]
    fn absurd_shapes_are_refused() {
        let of = |input: Vec<usize>, classes| Sample::of(&DataSpec::labelled(DType::F32, input, classes)).spec();
        assert!(of(vec![4], 2).is_some());
        for input in [vec![], vec![0], vec![1 << 13, 1 << 12], vec![usize::MAX, 2], vec![1; 5]] {
            assert_eq!(of(input, 2), None);
        }
        assert_eq!(of(vec![4], usize::MAX), None);
        assert_eq!(of(vec![4], 0), None);
        let spec = DataSpec::labelled(DType::F32, [4], 2);
        // A target of any size is the mask of an image of any size.
        let target = Field::target("targets", DType::I32, [0, 0]);
        let mask_of_none = vec![spec.fields[0].clone(), target];
        for fields in [vec![], vec![spec.fields[0].clone()], vec![spec.fields[1].clone()], mask_of_none] {
            assert_eq!(Sample::of(&DataSpec { fields, ..spec.clone() }).spec(), None);
        }
        let mut text = serde_json::to_value(Sample::of(&spec)).unwrap();
        text["fields"][0]["dtype"] = "f64".into();
        assert_eq!(serde_json::from_value::<Sample>(text).unwrap().spec(), None);
    }
}
