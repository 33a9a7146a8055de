//! Data sets in memory: what their samples look like, and views of them.

use super::fingerprint::Fingerprint;
use super::known::Known;
use crate::graph::{DType, Shape};
use anyhow::{Result, bail, ensure};
use std::sync::Arc;

/// What the targets of a set are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// A class label `0 .. n` for every sample.
    Classes(usize),
    /// A class label `0 .. n` for every position of this shape in a sample: rows and columns of an image, places in a
    /// sequence.
    PositionClasses(usize, Shape),
    /// Real values of this shape for every sample (channels last, where they are images).
    Values(Shape),
}

impl TargetSpec {
    /// Number of classes; `None` if the targets are values.
    pub fn classes(&self) -> Option<usize> {
        match self {
            TargetSpec::Classes(n) | TargetSpec::PositionClasses(n, _) => Some(*n),
            TargetSpec::Values(_) => None,
        }
    }

    /// Shape of one sample's targets.
    pub fn shape(&self) -> Shape {
        match self {
            TargetSpec::Classes(_) => Shape::default(),
            TargetSpec::PositionClasses(_, shape) | TargetSpec::Values(shape) => shape.clone(),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            TargetSpec::Classes(_) | TargetSpec::PositionClasses(..) => DType::I32,
            TargetSpec::Values(_) => DType::F32,
        }
    }
}

/// What a set's samples look like: all that a model needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSpec {
    /// One sample: `[H, W, C]` for an image, `[F]` for a vector.
    pub input: Shape,
    /// Element type of the samples: `U8` for byte images, else `F32`.
    pub dtype: DType,
    /// What the targets are.
    pub targets: TargetSpec,
    /// False if the number of classes was only seen in the labels, so that it is the least that there can be.
    pub classes_exact: bool,
    /// The names of the classes, where the source knows them.
    pub class_names: Option<Vec<String>>,
    /// Number of training samples, where it is known.
    pub train: Option<usize>,
    /// Number of test samples (0: the source has none), where it is known.
    pub val: Option<usize>,
}

/// The inputs of all samples of a store, sample after sample, channels last.
#[derive(Debug, Clone, PartialEq)]
pub enum Inputs {
    /// Byte images.
    Bytes(Vec<u8>),
    /// Floats.
    Floats(Vec<f32>),
}

impl Inputs {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Inputs::Bytes(_) => DType::U8,
            Inputs::Floats(_) => DType::F32,
        }
    }

    /// The memory, native endian.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Inputs::Bytes(v) => v,
            Inputs::Floats(v) => float_bytes(v),
        }
    }
}

/// The targets of all samples of a store.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The labels, sample after sample.
    Classes(Vec<i32>),
    /// The values, sample after sample.
    Values(Vec<f32>),
}

impl Targets {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Targets::Classes(_) => DType::I32,
            Targets::Values(_) => DType::F32,
        }
    }

    /// The memory, native endian.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Targets::Classes(v) => {
                // SAFETY: the bytes of initialised integers, alive and unchanged as long as the borrow.
                unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), std::mem::size_of_val(v.as_slice())) }
            }
            Targets::Values(v) => float_bytes(v),
        }
    }
}

fn float_bytes(v: &[f32]) -> &[u8] {
    // SAFETY: the bytes of initialised floats, alive and unchanged as long as the borrow.
    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), std::mem::size_of_val(v)) }
}

/// What a [`Split`] looks into.
#[derive(Debug)]
struct Store {
    inputs: Inputs,
    targets: Targets,
    input_shape: Shape,
    target_shape: Shape,
}

/// A list of samples in memory. Cheap to copy and to divide: all splits of a source look into the same memory.
#[derive(Debug, Clone)]
pub struct Split {
    store: Arc<Store>,
    /// Which samples of the store, in order; `None`: all.
    index: Option<Arc<[u32]>>,
    len: usize,
}

impl Split {
    /// A split of `len` samples. `input_shape` is that of one sample; `target_shape` that of one sample's values, and
    /// is ignored for class labels.
    ///
    /// # Errors
    /// The lengths of the lists do not fit the shapes, or there are more than 2^32 samples.
    pub fn new(inputs: Inputs, targets: Targets, input_shape: Shape, target_shape: Shape, len: usize) -> Result<Self> {
        ensure!(u32::try_from(len).is_ok(), "a split of {len} samples: more than 4,294,967,295 are not supported");
        for (what, bytes, shape, dtype) in [
            ("inputs", inputs.bytes().len(), &input_shape, inputs.dtype()),
            ("targets", targets.bytes().len(), &target_shape, targets.dtype()),
        ] {
            let needed = shape.len().checked_mul(dtype.bytes()).and_then(|b| b.checked_mul(len));
            ensure!(
                needed == Some(bytes),
                "{len} samples with {what} of shape {shape} ({dtype}) cannot be {bytes} bytes"
            );
        }
        Ok(Split { store: Arc::new(Store { inputs, targets, input_shape, target_shape }), index: None, len })
    }

    /// Bytes of the memory that it looks into, whichever part of that it shows.
    pub fn held_bytes(&self) -> usize {
        self.store.inputs.bytes().len() + self.store.targets.bytes().len()
    }

    /// True if both look into the same memory.
    pub fn shares_memory_with(&self, other: &Split) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shape of one sample, channels last.
    pub fn input_shape(&self) -> &Shape {
        &self.store.input_shape
    }

    /// Element type of the samples.
    pub fn input_dtype(&self) -> DType {
        self.store.inputs.dtype()
    }

    /// Shape of one sample's target: a scalar for class labels.
    pub fn target_shape(&self) -> &Shape {
        &self.store.target_shape
    }

    /// Element type of the targets: `I32` for class labels, `F32` for values.
    pub fn target_dtype(&self) -> DType {
        self.store.targets.dtype()
    }

    /// The bytes of sample `i`, native endian.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn input(&self, i: usize) -> &[u8] {
        let bytes = self.store.input_shape.len() * self.store.inputs.dtype().bytes();
        &self.store.inputs.bytes()[self.at(i) * bytes..][..bytes]
    }

    /// The bytes of the target of sample `i`, native endian.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn target(&self, i: usize) -> &[u8] {
        let bytes = self.store.target_shape.len() * self.store.targets.dtype().bytes();
        &self.store.targets.bytes()[self.at(i) * bytes..][..bytes]
    }

    /// The label of sample `i`; `None` if it has none or several.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn label(&self, i: usize) -> Option<i32> {
        match &self.store.targets {
            Targets::Classes(v) if self.store.target_shape.rank() == 0 => Some(v[self.at(i)]),
            Targets::Classes(_) | Targets::Values(_) => None,
        }
    }

    /// The bytes of all samples in one piece, if they are that.
    pub(super) fn all_inputs(&self) -> Option<&[u8]> {
        self.index.is_none().then(|| self.store.inputs.bytes())
    }

    /// The bytes of all targets in one piece, if they are that.
    pub(super) fn all_targets(&self) -> Option<&[u8]> {
        self.index.is_none().then(|| self.store.targets.bytes())
    }

    fn at(&self, i: usize) -> usize {
        assert!(i < self.len, "sample {i} of a split of {}", self.len);
        self.index.as_ref().map_or(i, |index| index[i] as usize)
    }

    /// The samples at these places, in this order.
    ///
    /// # Panics
    /// If a place is beyond the end.
    pub fn select(&self, places: &[u32]) -> Split {
        let index: Arc<[u32]> = places.iter().map(|p| self.at(*p as usize) as u32).collect();
        Split { store: Arc::clone(&self.store), len: index.len(), index: Some(index) }
    }
}

/// A source's data, loaded.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the samples look like; counts are those of the two splits.
    pub spec: DataSpec,
    /// The training set.
    pub train: Split,
    /// The source's test set; may be empty.
    pub val: Split,
    /// Something that the user must be told, and that the run's files record: the data are not what was asked for.
    pub note: Option<String>,
    /// Tells these samples from any others.
    pub fingerprint: Fingerprint,
}

impl Dataset {
    /// Puts a set together, and the splits' sizes into its description.
    pub(super) fn new(mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        let fingerprint = Fingerprint::of(&train, &val);
        Dataset { spec, train, val, note: None, fingerprint }
    }

    /// The samples of a public set, from files that have been verified.
    pub(super) fn known(set: Known, mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        Dataset { spec, train, val, note: None, fingerprint: Fingerprint::of_known(set) }
    }
}

/// Labels as `i32`, all of them within `0 .. classes`.
pub(super) fn checked_labels(
    labels: impl ExactSizeIterator<Item = i64>,
    classes: usize,
    ignore_index: Option<i32>,
    file: &str,
) -> Result<Vec<i32>> {
    let mut out = Vec::with_capacity(labels.len());
    for (i, label) in labels.enumerate() {
        match i32::try_from(label) {
            Ok(l) if l >= 0 && (l as usize) < classes || Some(l) == ignore_index => out.push(l),
            _ => bail!("{file}: label {label} of sample {i} is not within 0 .. {}", classes.saturating_sub(1)),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        let inputs = Inputs::Floats((0..12).map(|v| v as f32).collect());
        Split::new(inputs, Targets::Classes(vec![5, 6, 7, 8]), [3].into(), Shape::default(), 4).unwrap()
    }

    #[test]
    fn samples_and_views() {
        let s = split();
        assert_eq!(s.input(1), [3f32, 4., 5.].map(f32::to_ne_bytes).concat());
        assert_eq!(s.target(3), 8i32.to_ne_bytes());
        let v = s.select(&[3, 1]).select(&[1]);
        assert_eq!((v.len(), v.label(0)), (1, Some(6)));
        assert_eq!(v.input(0), s.input(1));
    }

    #[test]
    fn lengths_must_fit() {
        let e = Split::new(Inputs::Bytes(vec![0; 5]), Targets::Classes(vec![0; 2]), [3].into(), [].into(), 2);
        assert!(e.unwrap_err().to_string().contains("inputs of shape [3]"));
        let e = Split::new(Inputs::Bytes(vec![0; 6]), Targets::Values(vec![0.0; 3]), [3].into(), [2].into(), 2);
        assert!(e.unwrap_err().to_string().contains("targets of shape [2]"));
    }

    #[test]
    fn labels_must_be_classes() {
        assert_eq!(checked_labels([0i64, 9].into_iter(), 10, None, "f").unwrap(), [0, 9]);
        assert!(checked_labels([10i64].into_iter(), 10, None, "f").unwrap_err().to_string().contains("0 .. 9"));
        assert!(checked_labels([-1i64].into_iter(), 10, None, "f").is_err());
        assert_eq!(checked_labels([3i64, -1].into_iter(), 10, Some(-1), "f").unwrap(), [3, -1]);
    }
}
