//! What a sample consists of: named fields, of which a model takes some and learns another.

use crate::graph::{DType, Input, Shape};
use std::fmt;

/// The name of the field that a model takes where it names none.
pub const INPUTS: &str = "inputs";
/// The name of the field that is learnt.
pub const TARGETS: &str = "targets";

/// One tensor of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What a configuration calls it.
    pub name: String,
    /// Element type: `U8` for byte images, `I32` for whole numbers such as labels, else `F32`.
    pub dtype: DType,
    /// Shape of one sample: `[H, W, C]` for an image (`[0, 0, C]` for images of any size), `[H, W]` for its mask, `[L, F]` for a sequence, `[F]` for a vector, `[]` for one number.
    pub shape: Shape,
    /// True for what is to be learnt, false for what a model may take.
    pub target: bool,
    /// True if the first dimension of `shape` is a length in which batches may differ: then `shape` has the largest.
    pub sequence: bool,
}

impl Field {
    /// What a model may take.
    pub fn input(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        Field { name: name.into(), dtype, shape: shape.into(), target: false, sequence: false }
    }

    /// What is to be learnt.
    pub fn target(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        Field { target: true, ..Field::input(name, dtype, shape) }
    }

    /// The same with a first dimension in which batches may differ.
    pub fn of_any_length(self) -> Self {
        Field { sequence: true, ..self }
    }

    /// Images of that many channels, each of a size of its own, which transforms bring to one: their height and width are 0 here.
    pub fn photo(name: impl Into<String>, channels: usize) -> Self {
        Field::input(name, DType::U8, [0, 0, channels])
    }

    /// True for images of any size.
    pub fn is_of_any_size(&self) -> bool {
        matches!(self.shape.dims(), [0, 0, _])
    }

    /// Bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.shape.len().saturating_mul(self.dtype.bytes())
    }

    /// Its shape in batches of that length of sequences.
    pub fn shape_of(&self, length: Option<usize>) -> Shape {
        let mut shape = self.shape.clone();
        if let (true, Some(length), Some(first)) = (self.sequence, length, shape.0.first_mut()) {
            *first = length;
        }
        shape
    }
}

/// What the targets of a set are. Their shape is that of their field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// Class labels `0 .. n`.
    Classes(usize),
    /// Real values.
    Values,
}

/// What a set's samples look like: all that a model needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSpec {
    /// The fields of a sample. Their places in this list are their numbers in a batch ([`Input::Field`]).
    pub fields: Vec<Field>,
    /// What the targets are.
    pub targets: TargetSpec,
    /// False if the number of classes was only seen in the labels, so that it is the least that there can be.
    pub classes_exact: bool,
    /// The names of the classes, where the source knows them.
    pub class_names: Option<Vec<String>>,
    /// Folders where each is a class that hold no samples, and so are none.
    pub empty_folders: Vec<String>,
    /// Number of training samples, where it is known.
    pub train: Option<usize>,
    /// Number of test samples (0: the source has none), where it is known.
    pub val: Option<usize>,
}

impl DataSpec {
    /// A set of an unknown number of samples: what a model takes, of one field, and what is learnt.
    pub fn new(dtype: DType, shape: impl Into<Shape>, target: Field, targets: TargetSpec) -> Self {
        DataSpec {
            fields: vec![Field::input(INPUTS, dtype, shape), target],
            targets,
            classes_exact: true,
            class_names: None,
            empty_folders: Vec::new(),
            train: None,
            val: None,
        }
    }

    /// The same with one label, of `classes`, a sample.
    pub fn labelled(dtype: DType, shape: impl Into<Shape>, classes: usize) -> Self {
        DataSpec::new(dtype, shape, Field::target(TARGETS, DType::I32, []), TargetSpec::Classes(classes))
    }

    /// The same with values of that shape for each sample.
    pub fn valued(dtype: DType, shape: impl Into<Shape>, values: impl Into<Shape>) -> Self {
        DataSpec::new(dtype, shape, Field::target(TARGETS, DType::F32, values), TargetSpec::Values)
    }

    /// The fields that a model takes, with their places in a batch.
    pub fn inputs(&self) -> impl Iterator<Item = (Input, &Field)> {
        self.numbered().filter(|(_, field)| !field.target)
    }

    /// The field that is learnt, with its place in a batch; `None` if the samples have none.
    pub fn target(&self) -> Option<(Input, &Field)> {
        self.numbered().find(|(_, field)| field.target)
    }

    /// The one field that a model takes, unless it takes several.
    pub fn only_input(&self) -> Option<&Field> {
        let mut inputs = self.inputs();
        inputs.next().filter(|_| inputs.next().is_none()).map(|(_, field)| field)
    }

    /// The set as a model sees it that takes the fields of these names, in this order.
    ///
    /// # Errors
    /// There is no such field.
    pub fn taking(&self, names: &[String]) -> Result<DataSpec, UnknownField> {
        let find = |name: &String| {
            let found = self.inputs().find(|(_, field)| field.name == *name);
            found.map(|(_, field)| field.clone()).ok_or_else(|| UnknownField {
                name: name.clone(),
                known: self.inputs().map(|(_, field)| field.name.clone()).collect(),
            })
        };
        let mut fields = names.iter().map(find).collect::<Result<Vec<Field>, _>>()?;
        fields.extend(self.fields.iter().filter(|field| field.target).cloned());
        Ok(DataSpec { fields, ..self.clone() })
    }

    fn numbered(&self) -> impl Iterator<Item = (Input, &Field)> {
        self.fields.iter().enumerate().map(|(i, field)| (Input::Field(i as u32), field))
    }
}

/// The number of the field that transforms change: the one that a model takes or, of several, the one that is an image.
/// `None` if none is, or more than one.
pub fn transformed(fields: &[Field]) -> Option<usize> {
    let inputs = || fields.iter().enumerate().filter(|(_, field)| !field.target);
    let images = || inputs().filter(|(_, field)| field.shape.rank() == 3);
    let one = if inputs().count() == 1 { inputs().next() } else { images().next().filter(|_| images().count() == 1) };
    one.map(|(number, _)| number)
}

/// The number of the field that has a class for every pixel of that image, if one has: a mask, which transforms change with its
/// image. It has the image's height and width, zeros where every image has a size of its own.
pub fn mask(fields: &[Field]) -> Option<usize> {
    let &[h, w, _] = fields[transformed(fields)?].shape.dims() else { return None };
    fields.iter().position(|field| field.target && field.dtype == DType::I32 && *field.shape.dims() == [h, w])
}

/// A field was asked for that the samples do not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// What was asked for.
    pub name: String,
    /// The fields that a model may take.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        write!(f, "the samples have no field `{}`; a model may take {}", self.name, known.join(", "))
    }
}

impl std::error::Error for UnknownField {}

#[cfg(test)]
mod tests {
    use super::*;

    fn several() -> DataSpec {
        let image = |name: &str| Field::input(name, DType::U8, [4, 4, 3]);
        let one = DataSpec::labelled(DType::F32, [5], 3);
        let fields =
            vec![image("left"), Field::input("numbers", DType::F32, [5]), image("right"), one.fields[1].clone()];
        DataSpec { fields, ..one }
    }

    #[test]
    fn fields_are_taken_by_name_and_in_order() {
        let set = several();
        let taken = set.taking(&["right".into(), "numbers".into()]).unwrap();
        let names: Vec<&str> = taken.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["right", "numbers", "targets"]);
        assert_eq!(taken.target().map(|(at, _)| at), Some(Input::Field(2)));
        let error = set.taking(&["number".into()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the samples have no field `number`; a model may take `left`, `numbers`, `right`"
        );
        // What is learnt is not given to the model.
        assert!(set.taking(&["targets".into()]).is_err());
    }

    #[test]
    fn transforms_change_the_one_image() {
        let set = several();
        assert_eq!(transformed(&set.fields), None, "two images");
        assert_eq!(transformed(&set.taking(&["numbers".into(), "left".into()]).unwrap().fields), Some(1));
        assert_eq!(transformed(&DataSpec::labelled(DType::F32, [5], 3).fields), Some(0), "there is no other");
    }

    #[test]
    fn a_mask_has_the_sides_of_the_image() {
        let with = |field: Field| mask(&[Field::photo("x", 3), field]);
        assert_eq!(with(Field::target(TARGETS, DType::I32, [0, 0])), Some(1));
        for other in [Field::target(TARGETS, DType::I32, []), Field::target(TARGETS, DType::F32, [0, 0])] {
            assert_eq!(with(other), None);
        }
        let fields =
            |target: [usize; 2]| [Field::input("x", DType::F32, [4, 5, 3]), Field::target(TARGETS, DType::I32, target)];
        assert_eq!([[4, 5], [5, 4]].map(|target| mask(&fields(target))), [Some(1), None]);
    }

    #[test]
    fn a_length_stands_in_the_first_dimension_of_sequences() {
        let field = Field::input("x", DType::F32, [9, 2]);
        assert_eq!(field.shape_of(Some(4)), [9, 2].into());
        assert_eq!(field.clone().of_any_length().shape_of(Some(4)), [4, 2].into());
        assert_eq!(field.of_any_length().shape_of(None), [9, 2].into());
    }
}
