//! The description of a sample in a checkpoint, so that a model can be used without its data.

use crate::data::{Classes, DataSpec, Field, FieldKind, Length, MAX_LENGTHS, Role, Standard, fields_of, mask};
use crate::graph::{DType, Shape};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The part of a [`DataSpec`] that a model depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample(Written);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Fields(Fields),
    One(One),
}

/// As checkpoints are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fields {
    /// In the order of their numbers.
    fields: Vec<OneField>,
    /// [`DataSpec::fitted`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fitted: Option<Value>,
    /// Of checkpoints whose fields did not say what they are: the number of classes, if those are the targets.
    #[serde(default, skip_serializing)]
    classes: Option<usize>,
    #[serde(default, skip_serializing)]
    classes_exact: bool,
    #[serde(default, skip_serializing)]
    class_names: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OneField {
    name: String,
    dtype: String,
    /// Channels last.
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    target: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    weight: bool,
    /// Absent in older checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<WrittenKind>,
    /// Axes in which batches may differ, each with the number of its length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<(usize, usize)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    standard: Option<Standard>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
}

/// [`FieldKind`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenKind {
    Image,
    Mask(WrittenClasses),
    Category(WrittenClasses),
    Labels(WrittenClasses),
    Tokens { vocabulary: usize },
    Length,
    PairStart,
    Number,
}

/// [`Classes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WrittenClasses {
    number: usize,
    exact: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
}

impl WrittenKind {
    fn of(kind: &FieldKind) -> WrittenKind {
        let written = |c: &Classes| WrittenClasses { number: c.number, exact: c.exact, names: c.names.clone() };
        match kind {
            FieldKind::Image => WrittenKind::Image,
            FieldKind::Mask(classes) => WrittenKind::Mask(written(classes)),
            FieldKind::Category(classes) => WrittenKind::Category(written(classes)),
            FieldKind::Labels(classes) => WrittenKind::Labels(written(classes)),
            FieldKind::Tokens(classes) => WrittenKind::Tokens { vocabulary: classes.number },
            FieldKind::Length => WrittenKind::Length,
            FieldKind::PairStart => WrittenKind::PairStart,
            FieldKind::Number => WrittenKind::Number,
        }
    }

    fn kind(self) -> FieldKind {
        let read = |WrittenClasses { number, exact, names }: WrittenClasses| Classes { number, exact, names };
        match self {
            WrittenKind::Image => FieldKind::Image,
            WrittenKind::Mask(classes) => FieldKind::Mask(read(classes)),
            WrittenKind::Category(classes) => FieldKind::Category(read(classes)),
            WrittenKind::Labels(classes) => FieldKind::Labels(read(classes)),
            WrittenKind::Tokens { vocabulary } => FieldKind::Tokens(Classes::at_least(vocabulary)),
            WrittenKind::Length => FieldKind::Length,
            WrittenKind::PairStart => FieldKind::PairStart,
            WrittenKind::Number => FieldKind::Number,
        }
    }
}

/// As checkpoints were written when a sample was one input and its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// More elements in a sample, or classes, than any model here can have: the checkpoint may come from elsewhere.
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
            target: field.is_target(),
            weight: field.role == Role::Weight,
            kind: Some(WrittenKind::of(&field.kind)),
            lengths: field.lengths.iter().map(|length| (length.axis, length.number)).collect(),
            standard: field.standard.clone(),
            columns: field.columns.clone(),
        };
        let fields = spec.fields.iter().map(one).collect();
        Sample(Written::Fields(Fields {
            fields,
            fitted: spec.fitted.as_deref().cloned(),
            classes: None,
            classes_exact: false,
            class_names: None,
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
            let image = field.is_of_any_size() && field.is_input() && dims[2] <= 4;
            let of_any_size = image || masks == Some(number);
            let sane = dims.len() <= 4 && (of_any_size || !dims.contains(&0)) && field.shape.len() <= MAX;
            let lengths = field.lengths.iter().all(|length| length.axis < dims.len() && length.number < MAX_LENGTHS);
            let kind = match &field.kind {
                FieldKind::Image => dims.len() == 3 && field.dtype != DType::I32,
                FieldKind::Mask(_) => dims.len() == 2 && field.dtype == DType::I32,
                FieldKind::Category(_) | FieldKind::Tokens(_) => field.dtype == DType::I32,
                FieldKind::Length | FieldKind::PairStart => field.dtype == DType::I32 && dims.is_empty(),
                FieldKind::Labels(classes) => field.dtype == DType::F32 && dims == [classes.number],
                FieldKind::Number => true,
            };
            let number = field.kind.classes().map(|classes| classes.number);
            let positive = |deviation: &f32| deviation.is_finite() && *deviation > 0.0;
            let standard = field.standard.as_ref().is_none_or(|standard| {
                let sizes = [standard.mean.len(), standard.deviation.len()];
                sizes == [field.shape.len(); 2] && standard.deviation.iter().all(positive)
            });
            let columns = [0, field.shape.len()].contains(&field.columns.len());
            let sane = sane
                && lengths
                && kind
                && standard
                && columns
                && number.is_none_or(|number| (1..=MAX).contains(&number));
            // A sample is of so many dimensions that a batch of it is one of vectors at least.
            sane && (!field.is_input() || !dims.is_empty() || field.dtype == DType::I32)
        };
        let fields = (1..=MAX_FIELDS).contains(&spec.fields.len()) && spec.fields.iter().enumerate().all(elements);
        (fields && spec.inputs().next().is_some() && spec.target().is_some()).then_some(spec)
    }
}

impl Fields {
    fn spec(&self) -> Option<DataSpec> {
        let field = |written: &OneField| {
            let dtype = TYPES.into_iter().find(|dtype| dtype.name() == written.dtype)?;
            let plain = Field::by_rank(written.name.clone(), dtype, Shape(written.shape.clone()));
            let role = match (written.target, written.weight) {
                (true, _) => Role::Target,
                (false, true) => Role::Weight,
                (false, false) => Role::Input,
            };
            let kind = match &written.kind {
                Some(kind) => kind.clone().kind(),
                None if written.target => self.old_target(dtype, &plain.shape),
                None => plain.kind.clone(),
            };
            let lengths = written.lengths.iter().map(|(axis, number)| Length { axis: *axis, number: *number });
            let (standard, columns) = (written.standard.clone(), written.columns.clone());
            Some(Field { role, kind, lengths: lengths.collect(), standard, columns, ..plain })
        };
        let fields: Vec<Field> = self.fields.iter().map(field).collect::<Option<_>>()?;
        // What was fitted makes samples of these fields, or is not what was fitted.
        if let Some(written) = &self.fitted
            && fields_of(written)? != fields
        {
            return None;
        }
        Some(DataSpec { fitted: self.fitted.clone().map(Arc::new), ..DataSpec::new(fields) })
    }

    /// What the target of an older checkpoint is, which had one, and said so beside it.
    fn old_target(&self, dtype: DType, shape: &Shape) -> FieldKind {
        let classes =
            Classes { number: self.classes.unwrap_or(0), exact: self.classes_exact, names: self.class_names.clone() };
        let of_image = |field: &OneField| !field.target && field.shape.len() == 3 && field.shape[..2] == *shape.dims();
        match self.classes {
            Some(_) if self.fields.iter().any(of_image) => FieldKind::Mask(classes),
            Some(_) => FieldKind::Category(classes),
            None if self.class_names.is_some() && dtype == DType::F32 => {
                FieldKind::Labels(Classes { number: shape.len(), ..classes })
            }
            None => FieldKind::Number,
        }
    }
}

impl One {
    fn spec(&self) -> DataSpec {
        let dtype = if self.bytes { DType::U8 } else { DType::F32 };
        let mut spec = match self.classes {
            Some(n) => DataSpec::labelled(dtype, self.input.clone(), n),
            None => DataSpec::valued(dtype, self.input.clone(), self.values.clone()),
        };
        if let Some(classes) = spec.classes_mut() {
            (classes.exact, classes.names) = (self.classes_exact, self.class_names.clone());
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let images = DataSpec::labelled(DType::U8, [8, 8, 3], 3).seen();
        let named = images.clone().named(["a", "b"]);
        let values = DataSpec::valued(DType::F32, [5], [2, 1]);
        let mut several = images.clone();
        several.fields.insert(1, Field::numbers("numbers", DType::F32, [9, 2]).of_any_length(0, 1));
        several.fields[2].shape = [9].into();
        let with = |kind, shape: &[usize]| {
            DataSpec::new(vec![Field::photo("inputs", 3), Field::target("targets", kind, shape)])
        };
        let classes = || Classes::named(vec!["a".into(), "b".into()]);
        let (masks, labels) = (with(FieldKind::Mask(classes()), &[0, 0]), with(FieldKind::Labels(classes()), &[2]));
        let mut tokens = DataSpec::new(vec![
            Field::numbers("ids", DType::I32, [16]).of_any_length(0, 0),
            Field::target("targets", FieldKind::Tokens(Classes::at_least(65)), [16]).of_any_length(0, 0),
        ]);
        tokens.fields[0].kind = FieldKind::Tokens(Classes::at_least(65));
        // Four dimensions with the batch, and no images.
        let mut heads = DataSpec::valued(DType::F32, [2, 5, 3], [2, 5, 3]);
        heads.fields[0].kind = FieldKind::Number;
        let mut columns = with(FieldKind::Number, &[2]);
        columns.fields[1].columns = vec!["bright".into(), "area".into()];
        for spec in [images, named, values, several, masks, labels, tokens, heads, columns] {
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
        let expected = DataSpec::labelled(DType::U8, [8, 8, 3], 3).seen().named(["a"]);
        assert_eq!(read(classes), Some(expected));
        let values =
            r#"{"input":[5],"bytes":false,"classes":null,"classes_exact":true,"values":[2],"class_names":null}"#;
        assert_eq!(read(values), Some(DataSpec::valued(DType::F32, [5], [2])));
    }

    /// Checkpoints from when fields did not say what they are.
    #[test]
    fn fields_without_kinds_are_read_again() {
        let read = |fields: &str, classes: &str| {
            let text = format!("{{\"fields\":[{fields}],{classes}}}");
            serde_json::from_str::<Sample>(&text).unwrap().spec()
        };
        let photo = r#"{"name":"inputs","dtype":"u8","shape":[0,0,3]}"#;
        let two = r#""classes":2,"classes_exact":true,"class_names":["a","b"]"#;
        let none = r#""classes":null,"classes_exact":true,"class_names":["a","b"]"#;
        let classes = || Classes::named(vec!["a".into(), "b".into()]);
        for (target, classes_json, kind, shape) in [
            (r#""i32","shape":[]"#, two, FieldKind::Category(classes()), &[][..]),
            (r#""i32","shape":[0,0]"#, two, FieldKind::Mask(classes()), &[0, 0]),
            (r#""f32","shape":[2]"#, none, FieldKind::Labels(classes()), &[2]),
        ] {
            let fields = format!(r#"{photo},{{"name":"targets","dtype":{target},"target":true}}"#);
            let expected = DataSpec::new(vec![Field::photo("inputs", 3), Field::target("targets", kind, shape)]);
            assert_eq!(read(&fields, classes_json), Some(expected));
        }
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
        let target = Field::target("targets", FieldKind::Mask(Classes::of(2)), [0, 0]);
        let mask_of_none = vec![spec.fields[0].clone(), target];
        for fields in [vec![], vec![spec.fields[0].clone()], vec![spec.fields[1].clone()], mask_of_none] {
            assert_eq!(Sample::of(&DataSpec { fields, ..spec.clone() }).spec(), None);
        }
        let mut text = serde_json::to_value(Sample::of(&spec)).unwrap();
        text["fields"][1]["columns"] = vec!["a", "b"].into();
        assert_eq!(serde_json::from_value::<Sample>(text.clone()).unwrap().spec(), None);
        text["fields"][1]["columns"] = vec!["a"].into();
        assert!(serde_json::from_value::<Sample>(text.clone()).unwrap().spec().is_some());
        text["fields"][0]["dtype"] = "f64".into();
        assert_eq!(serde_json::from_value::<Sample>(text).unwrap().spec(), None);
    }
}
