//! What a sample consists of: named fields, each of which says what it is. A model takes some of them and learns another.

use super::classes::Classes;
use crate::graph::{DType, Input, Shape};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

pub use super::lengths::{BatchShape, Length, Lengths, MAX_LENGTHS};

/// The name of the field that a model takes where it names none.
pub const INPUTS: &str = "inputs";
/// The name of the field that is learnt.
pub const TARGETS: &str = "targets";
/// The name of the field with the lengths of samples.
pub const LENGTHS: &str = "lengths";
/// The name of the field that says what samples weigh.
pub const SAMPLE_WEIGHT: &str = "sample_weight";
/// The name of the field with the tokens of answers, as a model is given them.
pub const ANSWERS: &str = "answers";
/// The name of the field that says where the second texts of pairs begin.
pub const PAIR_START: &str = "pair_start";

/// What a field is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A model may take it.
    Input,
    /// It is to be learnt.
    Target,
    /// What the sample weighs in the loss.
    Weight,
}

/// What the elements of a field are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldKind {
    /// Pixels, `[H, W, C]`: bytes or floats.
    Image,
    /// A class for every pixel of the sample's image, `[H, W]`.
    Mask(Classes),
    /// The number of a class or of a category: one, or one at every position.
    Category(Classes),
    /// 1 for each class that a sample belongs to and 0 for the others.
    Labels(Classes),
    /// The number of a token at every position.
    Tokens(Classes),
    /// How many of the positions of length number 0 a sample has: what stands after is there to fill the batch.
    Length,
    /// How many of the positions of length number 0 belong to the first of two texts: after them is the second.
    PairStart,
    /// Real numbers.
    Number,
}

impl FieldKind {
    /// What labels of that shape are, beside those fields: of the pixels of an image, if one has such sides.
    pub fn of_labels(classes: Classes, shape: &Shape, fields: &[Field]) -> FieldKind {
        match fields.iter().any(|field| field.is_image() && field.shape.dims()[..2] == *shape.dims()) {
            true => FieldKind::Mask(classes),
            false => FieldKind::Category(classes),
        }
    }

    /// The classes that its elements stand for.
    pub fn classes(&self) -> Option<&Classes> {
        match self {
            FieldKind::Mask(classes)
            | FieldKind::Category(classes)
            | FieldKind::Labels(classes)
            | FieldKind::Tokens(classes) => Some(classes),
            FieldKind::Image | FieldKind::Number | FieldKind::Length | FieldKind::PairStart => None,
        }
    }

    fn classes_mut(&mut self) -> Option<&mut Classes> {
        match self {
            FieldKind::Mask(classes)
            | FieldKind::Category(classes)
            | FieldKind::Labels(classes)
            | FieldKind::Tokens(classes) => Some(classes),
            FieldKind::Image | FieldKind::Number | FieldKind::Length | FieldKind::PairStart => None,
        }
    }
}

/// One tensor of a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// What a configuration calls it.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// What its elements are.
    pub kind: FieldKind,
    /// Element type: `U8` for byte images, `I32` for whole numbers such as labels, else `F32`.
    pub dtype: DType,
    /// Shape of one sample: `[H, W, C]` for an image (`[0, 0, C]` for images of any size), `[H, W]` for its mask, `[L, F]` for a sequence, `[F]` for a vector, `[]` for one number.
    pub shape: Shape,
    /// The axes in which batches may differ: there `shape` has the largest extent.
    pub lengths: Vec<Length>,
    /// What its numbers are standardised by where they are learnt. Batches have the numbers as they are.
    pub standard: Option<Standard>,
    /// What each of its numbers is called, where they are columns of a list; empty: nothing.
    pub columns: Vec<String>,
}

/// Means and standard deviations of the numbers of a target, one for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standard {
    /// The means.
    pub mean: Vec<f32>,
    /// The standard deviations, none of them 0.
    pub deviation: Vec<f32>,
}

impl Standard {
    /// The same for so many numbers of each, side by side.
    pub fn repeated(&self, each: usize) -> Standard {
        let repeat = |list: &[f32]| list.iter().flat_map(|number| std::iter::repeat_n(*number, each)).collect();
        Standard { mean: repeat(&self.mean), deviation: repeat(&self.deviation) }
    }

    /// The numbers of a sample, standardised.
    pub fn of(&self, numbers: &[f32]) -> Vec<f32> {
        let by = self.mean.iter().zip(&self.deviation);
        numbers.iter().zip(by).map(|(number, (mean, deviation))| (number - mean) / deviation).collect()
    }
}

impl Field {
    /// What its classes are called or, of yes and no in columns of numbers, these columns; where the source knows it.
    pub fn label_names(&self) -> Option<&[String]> {
        let named = self.kind.classes().and_then(|classes| classes.names.as_deref());
        named.or((self.kind == FieldKind::Number && !self.columns.is_empty()).then_some(&self.columns[..]))
    }

    /// Numbers that a model may take.
    pub fn numbers(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        let (name, shape) = (name.into(), shape.into());
        Field {
            name,
            role: Role::Input,
            kind: FieldKind::Number,
            dtype,
            shape,
            lengths: Vec::new(),
            standard: None,
            columns: Vec::new(),
        }
    }

    /// Images of one size, `[H, W, C]`, that a model may take.
    pub fn image(name: impl Into<String>, dtype: DType, shape: [usize; 3]) -> Self {
        Field { kind: FieldKind::Image, ..Field::numbers(name, dtype, shape) }
    }

    /// Images of that many channels, each of a size of its own, which transforms bring to one: their height and width are 0 here.
    pub fn photo(name: impl Into<String>, channels: usize) -> Self {
        Field::image(name, DType::U8, [0, 0, channels])
    }

    /// What a model may take of a file that says no more of it than its shape: images, if it has three dimensions.
    pub fn by_rank(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        let field = Field::numbers(name, dtype, shape);
        let kind = if field.shape.rank() == 3 { FieldKind::Image } else { FieldKind::Number };
        Field { kind, ..field }
    }

    /// A target. Its kind gives the element type.
    pub fn target(name: impl Into<String>, kind: FieldKind, shape: impl Into<Shape>) -> Self {
        let dtype = match kind {
            FieldKind::Mask(_)
            | FieldKind::Category(_)
            | FieldKind::Tokens(_)
            | FieldKind::Length
            | FieldKind::PairStart => DType::I32,
            FieldKind::Image | FieldKind::Labels(_) | FieldKind::Number => DType::F32,
        };
        Field { role: Role::Target, kind, ..Field::numbers(name, dtype, shape) }
    }

    /// What a sample weighs in the loss.
    pub fn sample_weight() -> Self {
        Field { role: Role::Weight, ..Field::numbers(SAMPLE_WEIGHT, DType::F32, []) }
    }

    /// The same with an axis in which batches may differ: length number `number` of the data set.
    pub fn of_any_length(mut self, axis: usize, number: usize) -> Self {
        assert!(axis < self.shape.rank() && number < MAX_LENGTHS, "no such axis or length");
        self.lengths.push(Length { axis, number });
        self
    }

    /// True for what is to be learnt.
    pub fn is_target(&self) -> bool {
        self.role == Role::Target
    }

    /// True for what a model may take.
    pub fn is_input(&self) -> bool {
        self.role == Role::Input
    }

    /// True for images.
    pub fn is_image(&self) -> bool {
        self.kind == FieldKind::Image
    }

    /// True for images of any size.
    pub fn is_of_any_size(&self) -> bool {
        self.is_image() && matches!(self.shape.dims(), [0, 0, _])
    }

    /// Bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.shape.len().saturating_mul(self.dtype.bytes())
    }

    /// Its shape in batches of those lengths.
    pub fn shape_of(&self, lengths: Lengths) -> Shape {
        let mut shape = self.shape.clone();
        for Length { axis, number } in &self.lengths {
            if let Some(length) = lengths.0[*number] {
                shape.0[*axis] = length as usize;
            }
        }
        shape
    }
}

/// What a set's samples look like: all that a model needs to know of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataSpec {
    /// The fields of a sample. Their places in this list are their numbers in a batch ([`Input::Field`]).
    pub fields: Vec<Field>,
    /// Folders where each is a class that hold no samples, and so are none.
    pub empty_folders: Vec<String>,
    /// Columns of a table from each of which a target follows.
    pub leaks: Vec<String>,
    /// Number of training samples, where it is known.
    pub train: Option<usize>,
    /// Number of test samples (0: the source has none), where it is known.
    pub val: Option<usize>,
    /// The lengths that batches may have, ascending in each, where samples differ in theirs; empty: all have those of their fields.
    pub lengths: Vec<Lengths>,
    /// Bytes of the text that is validated on for each of its tokens, where that is asked for.
    pub bytes_per_token: Option<f64>,
    /// What the source has fitted on the samples of training, as it writes that: how the rows of a table become samples.
    pub fitted: Option<Arc<Value>>,
}

impl DataSpec {
    /// A set of an unknown number of samples of these fields.
    pub fn new(fields: Vec<Field>) -> Self {
        DataSpec { fields, ..DataSpec::default() }
    }

    /// Images (where `shape` has three dimensions) or numbers, with one label, of `classes`, a sample.
    pub fn labelled(dtype: DType, shape: impl Into<Shape>, classes: usize) -> Self {
        let target = Field::target(TARGETS, FieldKind::Category(Classes::of(classes)), []);
        DataSpec::new(vec![Field::by_rank(INPUTS, dtype, shape), target])
    }

    /// The same with values of that shape for each sample.
    pub fn valued(dtype: DType, shape: impl Into<Shape>, values: impl Into<Shape>) -> Self {
        DataSpec::new(vec![Field::by_rank(INPUTS, dtype, shape), Field::target(TARGETS, FieldKind::Number, values)])
    }

    /// The same with names for the classes of its target.
    pub fn named<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        if let Some(classes) = self.classes_mut() {
            classes.names = Some(names.into_iter().map(Into::into).collect());
        }
        self
    }

    /// The same with a number of classes that was only seen in the labels, so that it is the least that there can be.
    pub fn seen(mut self) -> Self {
        self.classes_mut().into_iter().for_each(|classes| classes.exact = false);
        self
    }

    /// The fields that a model takes, with their places in a batch.
    pub fn inputs(&self) -> impl Iterator<Item = (Input, &Field)> {
        self.numbered().filter(|(_, field)| field.is_input())
    }

    /// The field that is learnt, with its place in a batch; `None` if the samples have none.
    pub fn target(&self) -> Option<(Input, &Field)> {
        self.numbered().find(|(_, field)| field.is_target())
    }

    /// The fields that are learnt beside that, with their places in a batch: those of heads, in their order.
    pub fn heads(&self) -> impl Iterator<Item = (Input, &Field)> {
        self.numbered().filter(|(_, field)| field.is_target()).skip(1)
    }

    /// The field with what samples weigh, with its place in a batch; `None` if all weigh the same.
    pub fn sample_weight(&self) -> Option<(Input, &Field)> {
        self.numbered().find(|(_, field)| field.role == Role::Weight)
    }

    /// How many tokens there are, if a model takes some.
    pub fn vocabulary(&self) -> Option<usize> {
        self.inputs().find_map(|(_, field)| match &field.kind {
            FieldKind::Tokens(tokens) => Some(tokens.number),
            _ => None,
        })
    }

    /// The classes that the target stands for: one of them, or several, a sample or a position.
    pub fn classes(&self) -> Option<&Classes> {
        self.target()?.1.kind.classes()
    }

    /// Those classes, to be changed.
    pub fn classes_mut(&mut self) -> Option<&mut Classes> {
        self.fields.iter_mut().find(|field| field.is_target())?.kind.classes_mut()
    }

    /// The classes of which the target is one a sample or a position. `None`: its values are numbers, also 1 and 0 of labels.
    pub fn labels(&self) -> Option<&Classes> {
        match &self.target()?.1.kind {
            FieldKind::Category(classes) | FieldKind::Mask(classes) | FieldKind::Tokens(classes) => Some(classes),
            FieldKind::Image | FieldKind::Labels(_) | FieldKind::Number | FieldKind::Length | FieldKind::PairStart => {
                None
            }
        }
    }

    /// The names of the target's classes, where the source knows them.
    pub fn class_names(&self) -> Option<&[String]> {
        self.classes()?.names.as_deref()
    }

    /// What the classes of the target, or its labels, are called, where the source knows them.
    pub fn label_names(&self) -> Option<&[String]> {
        self.target()?.1.label_names()
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
        // Layers look at them without naming them.
        let of_layers = |field: &&Field| matches!(field.kind, FieldKind::Length | FieldKind::PairStart);
        fields.extend(self.fields.iter().filter(of_layers).filter(|field| !names.contains(&field.name)).cloned());
        fields.extend(self.fields.iter().filter(|field| !field.is_input()).cloned());
        Ok(DataSpec { fields, ..self.clone() })
    }

    fn numbered(&self) -> impl Iterator<Item = (Input, &Field)> {
        self.fields.iter().enumerate().map(|(i, field)| (Input::Field(i as u32), field))
    }
}

/// The number of the field that transforms change: the one that a model takes or, of several, the one that is an image.
/// `None` if none is, or more than one.
pub fn transformed(fields: &[Field]) -> Option<usize> {
    let inputs = || fields.iter().enumerate().filter(|(_, field)| field.is_input());
    let images = || inputs().filter(|(_, field)| field.is_image());
    let one = if inputs().count() == 1 { inputs().next() } else { images().next().filter(|_| images().count() == 1) };
    one.map(|(number, _)| number)
}

/// The number of the field that has a class for every pixel of that image, if one has: a mask, which transforms change with its
/// image. It has the image's height and width, zeros where every image has a size of its own.
pub fn mask(fields: &[Field]) -> Option<usize> {
    let image = transformed(fields).map(|number| &fields[number]).filter(|field| field.is_image())?;
    let sides = &image.shape.dims()[..2];
    fields.iter().position(|field| matches!(field.kind, FieldKind::Mask(_)) && field.shape.dims() == sides)
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
        let image = |name: &str| Field::image(name, DType::U8, [4, 4, 3]);
        let one = DataSpec::labelled(DType::F32, [5], 3);
        let fields =
            vec![image("left"), Field::numbers("numbers", DType::F32, [5]), image("right"), one.fields[1].clone()];
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
    fn a_mask_belongs_to_the_image() {
        let target = |kind| Field::target(TARGETS, kind, [0, 0]);
        let with = |input: Field, kind| mask(&[input, target(kind)]);
        let classes = || Classes::of(3);
        assert_eq!(with(Field::photo("x", 3), FieldKind::Mask(classes())), Some(1));
        assert_eq!(with(Field::photo("x", 3), FieldKind::Category(classes())), None);
        assert_eq!(with(Field::numbers("x", DType::F32, [5]), FieldKind::Mask(classes())), None);
    }

    #[test]
    fn lengths_stand_where_the_field_has_them() {
        let field = Field::numbers("x", DType::F32, [9, 2]);
        assert_eq!(field.shape_of(Lengths::first(4)), [9, 2].into());
        assert_eq!(field.clone().of_any_length(0, 0).shape_of(Lengths::first(4)), [4, 2].into());
        assert_eq!(field.clone().of_any_length(1, 1).shape_of(Lengths::first(4)), [9, 2].into());
        let both = field.of_any_length(0, 0).of_any_length(1, 1);
        assert_eq!(both.shape_of(Lengths([Some(3), Some(1)])), [3, 1].into());
        assert_eq!(both.shape_of(Lengths::default()), [9, 2].into());
    }
}
