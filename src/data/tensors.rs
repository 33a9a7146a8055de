//! Samples from a safetensors file: `inputs` and `targets`, and optionally `val_inputs` and `val_targets`. A model that names
//! its inputs takes the tensors of these names in the place of `inputs`. One more may say what samples weigh.
//!
//! Inputs are `[N, C, H, W]` images (floats or bytes), or floats of rank 2 (`[N, F]`) or 3 (`[N, L, F]`). `targets` are class
//! labels (integers, `[N]`, or `[N, …]` for a label at each position) or float values (`[N, …]`; `[N]` is taken for `[N, 1]`,
//! which is what a model with one output puts out).

mod elements;

use super::Describes;
use super::classes::Classes;
use super::dataset::Dataset;
use super::field::{DataSpec, Field, FieldKind, INPUTS, TARGETS, UnknownField};
use super::footprint::{Footprint, UNPACKING};
use super::labels::checked_labels;
use super::progress::Event;
use super::split::Split;
use super::values::Values;
use super::weights::is_weight;
use crate::files;
use crate::files::kind::{Kind, kind};
use crate::graph::op::TargetRange;
use crate::graph::{DType, Shape};
use anyhow::{Context, Result, bail, ensure};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The file and how to take it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TensorsOptions {
    /// The file.
    pub path: PathBuf,
    /// Number of classes; else one more than the largest label, which is the least that there can be.
    pub num_classes: Option<usize>,
    /// A label that stands for none.
    pub ignore_index: Option<i32>,
    /// The tensors that a model takes; none: `inputs`.
    pub inputs: Vec<String>,
    /// The tensor with what a sample weighs in the loss.
    pub sample_weight: Option<String>,
    /// The numbers that the loss is for, if those are not all.
    pub range: Option<TargetRange>,
}

/// A header larger than this is damage.
const MAX_HEADER: u64 = 100 << 20;
/// What the names of tensors for validation begin with.
const VAL: &str = "val_";

impl Describes for &TensorsOptions {
    fn describe(&self) -> Result<DataSpec> {
        describe(self)
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open(self)
    }

    fn footprint(&self) -> Footprint {
        let bytes = std::fs::metadata(&self.path).map_or(0, |m| m.len());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Labels are read as 64-bit numbers, whatever they become.
        Footprint { held: bytes, reading: bytes / 8 + UNPACKING, ..Footprint::default() }
    }
}

/// What the samples look like. Reads the header, and the labels if classes must be counted.
///
/// # Errors
/// The file cannot be read, or does not hold tensors that go together; a label is below 0. An [`UnknownField`], found by
/// `downcast_ref`, if a tensor is not there that the model names.
pub fn describe(options: &TensorsOptions) -> Result<DataSpec> {
    let mut file = TensorFile::open(&options.path, "the file that `path` of the `tensors` source names")?;
    let (train, val) = file.parts(options)?;
    let labels =
        [file.labels(&train, options.range)?, val.as_ref().map_or(Ok(None), |part| file.labels(part, options.range))?];
    let spec = file.spec(options, &train, val.as_ref(), &labels)?;
    for part in [Some(&train), val.as_ref()].into_iter().flatten() {
        file.weights(part)?;
    }
    // Wrong labels are a matter of the description, and need not wait for the reading.
    if let Some(classes) = spec.labels() {
        for (part, labels) in [Some(&train), val.as_ref()].into_iter().flatten().zip(labels) {
            let labels = labels.unwrap_or_default();
            checked_labels(
                labels.into_iter(),
                classes.number,
                options.ignore_index,
                part.target.each(),
                &file.place(&part.target),
            )?;
        }
    }
    Ok(spec)
}

/// Reads the file.
///
/// # Errors
/// As [`describe`].
pub fn open(options: &TensorsOptions) -> Result<Dataset> {
    let mut file = TensorFile::open(&options.path, "the file that `path` of the `tensors` source names")?;
    let (train, val) = file.parts(options)?;
    let labels =
        [file.labels(&train, options.range)?, val.as_ref().map_or(Ok(None), |part| file.labels(part, options.range))?];
    let spec = file.spec(options, &train, val.as_ref(), &labels)?;
    let [train_labels, val_labels] = labels;
    let train = file.split(&train, train_labels, options, &spec)?;
    let val = match val {
        Some(part) => file.split(&part, val_labels, options, &spec)?,
        None => train.first(0),
    };
    Ok(Dataset::new(spec, train, val))
}

/// Reads the samples of these fields, and nothing else: what a model is to be used on.
///
/// # Errors
/// The file cannot be read, or does not hold tensors of these names, shapes and types.
pub fn read_fields(path: &Path, fields: &[Field]) -> Result<Split> {
    let mut file = TensorFile::open(path, "a file of samples")?;
    let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
    let mut tensors = Vec::new();
    for field in fields {
        let Some(info) = file.header.info(&field.name).cloned() else {
            bail!("{} must hold the tensors that the model takes, {}; {}", file.name, names.join(", "), file.holds());
        };
        let found = file.input(&field.name, info)?;
        ensure!(
            (&found.field.shape, found.field.dtype) == (&field.shape, field.dtype),
            "{}: a sample of `{}` is {} {}, but the model takes {} {}",
            file.name,
            field.name,
            found.field.dtype,
            outside(&found.field.shape),
            field.dtype,
            outside(&field.shape),
        );
        tensors.push(found);
    }
    let len = tensors.first().map_or(0, Tensor::len);
    for other in &tensors {
        ensure!(other.len() == len, file.different_numbers(&tensors[0], other));
    }
    let mut list = Vec::new();
    for tensor in tensors {
        let values = file.values(&tensor)?;
        list.push((tensor.field, values));
    }
    Split::in_memory(list, len)
}

/// The shape of a sample as PyTorch shows it.
fn outside(shape: &Shape) -> Shape {
    match *shape.dims() {
        [h, w, c] => [c, h, w].into(),
        _ => shape.clone(),
    }
}

/// A tensor of the file as a field of samples.
#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    info: TensorInfo,
    field: Field,
}

impl Tensor {
    /// Number of samples.
    fn len(&self) -> usize {
        self.info.shape.first().copied().unwrap_or(0)
    }

    /// Elements of a sample.
    fn each(&self) -> usize {
        self.field.shape.len()
    }
}

/// Tensors that go together.
#[derive(Debug, Clone)]
struct Part {
    inputs: Vec<Tensor>,
    target: Tensor,
    weight: Option<Tensor>,
}

impl Part {
    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain([&self.target]).chain(&self.weight)
    }

    fn fields(&self) -> Vec<Field> {
        self.all().map(|tensor| tensor.field.clone()).collect()
    }

    /// The names of its tensors for people.
    fn names(&self) -> String {
        in_words(&self.all().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>())
    }
}

/// Names for people.
fn in_words(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

struct TensorFile {
    name: String,
    file: BufReader<File>,
    header: Metadata,
    /// Where the data begin, in bytes from the file's start.
    start: u64,
}

impl TensorFile {
    /// Reads the header; `what` says what the file is for.
    fn open(path: &Path, what: &str) -> Result<Self> {
        let name = path.display().to_string();
        let files::Opened { file, size, .. } =
            files::open(path).map_err(|e| e.problem).with_context(|| format!("cannot open {name}, {what}"))?;
        let memory = files::machine_memory();
        ensure!(size <= memory, "{name} holds {size} bytes, and this machine's whole memory is {memory} bytes");
        let mut file = BufReader::with_capacity(1 << 18, file);
        let mut length = [0; 8];
        file.read_exact(&mut length).with_context(|| format!("{name} is too short to be a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER || length > size.saturating_sub(8) {
            let what = match kind(path) {
                Some(Kind::Text) => {
                    "a text: the source `csv` reads tables of numbers and texts, and `image_list` lists of image files"
                }
                Some(Kind::Zip) => {
                    "a zip archive, as which NumPy (.npz) and PyTorch save: write its arrays by `safetensors.numpy.save_file`"
                }
                Some(Kind::Image) => "an image: the sources `image_folder` and `image_list` read those",
                Some(Kind::Compressed) => "compressed: unpack it first",
                _ => bail!("{name} is no safetensors file, or is cut short: it claims a header of {length} bytes"),
            };
            bail!("{name} is no safetensors file, but {what}");
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).with_context(|| format!("cannot read {name}"))?;
        let header: Metadata =
            serde_json::from_slice(&header).with_context(|| format!("{name} has no valid safetensors header"))?;
        let start = 8 + length;
        ensure!(
            size - start == header.data_len() as u64,
            "{name} is damaged or cut short: its header describes {} bytes of data, and it holds {}",
            header.data_len(),
            size - start
        );
        Ok(TensorFile { name, file, header, start })
    }

    /// What tensors there are, for people.
    fn holds(&self) -> String {
        let mut names = self.header.offset_keys();
        names.sort_unstable();
        format!("it holds: {}", names.join(", "))
    }

    fn place(&self, tensor: &Tensor) -> String {
        format!("{}, `{}`", self.name, tensor.name)
    }

    /// The tensors to train on, and those to test on.
    fn parts(&self, options: &TensorsOptions) -> Result<(Part, Option<Part>)> {
        let inputs: Vec<&str> = match &options.inputs[..] {
            [] => vec![INPUTS],
            names => names.iter().map(String::as_str).collect(),
        };
        let weight = options.sample_weight.as_deref();
        let names: Vec<&str> = inputs.iter().copied().chain([TARGETS]).chain(weight).collect();
        let is_there = |name: &str| self.header.info(name).is_some();
        if let Some(name) = options.inputs.iter().find(|name| !is_there(name)) {
            let mut known = self.header.offset_keys();
            known.retain(|name| name != TARGETS && Some(name.as_str()) != weight && !name.starts_with(VAL));
            known.sort_unstable();
            return Err(UnknownField { name: name.clone(), known }.into());
        }
        if !names.iter().all(|name| is_there(name)) {
            bail!("{} must hold the tensors {}; {}", self.name, in_words(&names), self.holds());
        }
        let train = self.part("", &inputs, weight)?;
        let for_val: Vec<String> = names.iter().map(|name| format!("{VAL}{name}")).collect();
        let val = match for_val.iter().filter(|name| is_there(name)).count() {
            0 => None,
            n if n == names.len() => Some(self.part(VAL, &inputs, weight)?),
            _ => {
                let list: Vec<&str> = for_val.iter().map(String::as_str).collect();
                let (only, all) = if for_val.len() == 2 { ("one", "both or neither") } else { ("some", "all or none") };
                bail!("{} holds only {only} of {}: {all} are needed", self.name, in_words(&list))
            }
        };
        Ok((train, val))
    }

    fn part(&self, prefix: &str, inputs: &[&str], weight: Option<&str>) -> Result<Part> {
        let info = |name: &str| {
            let name = format!("{prefix}{name}");
            self.header.info(&name).cloned().with_context(|| format!("{}: `{name}` is gone", self.name))
        };
        let mut list = Vec::new();
        for name in inputs {
            let tensor = self.input(&format!("{prefix}{name}"), info(name)?)?;
            // A field is called the same in training and in validation.
            list.push(Tensor { field: Field { name: (*name).into(), ..tensor.field }, ..tensor });
        }
        let target = self.target(&format!("{prefix}{TARGETS}"), info(TARGETS)?)?;
        let of = |name: &str| self.weight(&format!("{prefix}{name}"), info(name)?);
        let weight = weight.map(of).transpose()?;
        for tensor in list.iter().chain(&weight) {
            ensure!(tensor.len() == target.len(), self.different_numbers(tensor, &target));
        }
        Ok(Part { inputs: list, target, weight })
    }

    /// The tensor that says what samples weigh.
    fn weight(&self, name: &str, info: TensorInfo) -> Result<Tensor> {
        ensure!(
            info.dtype == Dtype::F32 && info.shape.len() == 1,
            "{}: `{name}` is {:?} of shape {}: a weight for each sample is one number, F32 of shape [N]",
            self.name,
            info.dtype,
            Shape::from(&info.shape[..])
        );
        Ok(Tensor { name: name.into(), info, field: Field::sample_weight() })
    }

    /// What samples weigh, if they weigh differently.
    fn weights(&mut self, part: &Part) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = &part.weight else { return Ok(None) };
        let mut all = self.room(tensor, tensor.len())?;
        self.each(tensor, size_of::<f32>(), |bytes| {
            all.extend(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)))
        })?;
        let place = self.place(tensor);
        if let Some(at) = all.iter().position(|weight| !is_weight(*weight)) {
            bail!("{place}: number {at}, counted from 0, is {}, and a weight is a number of at least 0", all[at]);
        }
        ensure!(all.iter().any(|weight| *weight > 0.0), "{place}: every weight is 0");
        Ok(Some(all))
    }

    fn different_numbers(&self, a: &Tensor, b: &Tensor) -> String {
        format!(
            "{}: `{}` of shape {} and `{}` of shape {} differ in the number of samples",
            self.name,
            a.name,
            Shape::from(&a.info.shape[..]),
            b.name,
            Shape::from(&b.info.shape[..])
        )
    }

    /// What the samples of both parts look like; `labels` are theirs, if there are any.
    fn spec(
        &self,
        options: &TensorsOptions,
        train: &Part,
        val: Option<&Part>,
        labels: &[Option<Vec<i64>>; 2],
    ) -> Result<DataSpec> {
        if let Some(val) = val {
            ensure!(
                val.fields() == train.fields(),
                "{}: {} differ from {} in shape or type",
                self.name,
                val.names(),
                train.names()
            );
        }
        let counts = |l: &&i64| options.ignore_index.is_none_or(|ignored| **l != i64::from(ignored));
        let seen = labels.iter().flatten().flatten().filter(counts).max().map_or(1, |l| l.saturating_add(1).max(1));
        let mut fields = train.fields();
        match (train.target.field.dtype, options.num_classes) {
            (DType::I32, n) => {
                let classes = Classes { exact: n.is_some(), ..Classes::of(n.unwrap_or(seen as usize)) };
                let kind = FieldKind::of_labels(classes, &train.target.field.shape, &fields);
                fields.iter_mut().filter(|field| field.is_target()).for_each(|field| field.kind = kind.clone());
            }
            (_, None) => (),
            (_, Some(n)) => bail!("{}: `targets` are real values, so there are no {n} classes", self.name),
        }
        Ok(DataSpec {
            train: Some(train.target.len()),
            val: Some(val.map_or(0, |part| part.target.len())),
            ..DataSpec::new(fields)
        })
    }

    /// A tensor that a model takes.
    fn input(&self, name: &str, info: TensorInfo) -> Result<Tensor> {
        let shape = Shape::from(&info.shape[..]);
        // Before any product of dimensions: with a zero among them, the others may be anything.
        ensure!(!info.shape.contains(&0), "{}: `{name}`, of shape {shape}, is empty", self.name);
        let sample: Shape = match (&info.shape[..], info.dtype) {
            ([_, c, h, w], Dtype::F32 | Dtype::U8) => [*h, *w, *c].into(),
            ([_, sample @ ..], Dtype::F32) if (1..=2).contains(&sample.len()) => sample.into(),
            (_, Dtype::F32 | Dtype::U8) => bail!(
                "{}: `{name}` of shape {shape}: must be [N, C, H, W] for images (floats or bytes), or [N, F] floats",
                self.name
            ),
            (_, other) => {
                bail!("{}: `{name}` is {other:?}: must be F32 (in PyTorch, `.float()`), or U8 for images", self.name)
            }
        };
        let dtype = if info.dtype == Dtype::U8 { DType::U8 } else { DType::F32 };
        Ok(Tensor { name: name.into(), info, field: Field::by_rank(name, dtype, sample) })
    }

    /// The tensor that is learnt.
    fn target(&self, name: &str, info: TensorInfo) -> Result<Tensor> {
        let shape = Shape::from(&info.shape[..]);
        ensure!(!info.shape.contains(&0), "{}: `{name}`, of shape {shape}, is empty", self.name);
        let (dtype, sample): (DType, Shape) = match (info.dtype, &info.shape[..]) {
            (Dtype::I64 | Dtype::I32 | Dtype::U8 | Dtype::F32, []) => {
                bail!("{}: `{name}` is a single number: must be one for each sample", self.name)
            }
            (Dtype::I64 | Dtype::I32 | Dtype::U8, [_, rest @ ..]) => (DType::I32, rest.into()),
            (Dtype::F32, [_]) => (DType::F32, [1].into()),
            (Dtype::F32, [_, c, h, w]) => (DType::F32, [*h, *w, *c].into()),
            (Dtype::F32, [_, rest @ ..]) => (DType::F32, rest.into()),
            (other, _) => bail!(
                "{}: `{name}` is {other:?}: must be I64 or I32 for class labels (in PyTorch, `.long()`), or F32 for \
                 values (`.float()`)",
                self.name
            ),
        };
        // The number of classes follows from all parts together.
        let kind = if dtype == DType::I32 { FieldKind::Category(Classes::of(0)) } else { FieldKind::Number };
        Ok(Tensor { name: name.into(), info, field: Field::target(TARGETS, kind, sample) })
    }

    /// The class labels of the part, unchecked; `None` if its targets are values, which are within `range`.
    fn labels(&mut self, part: &Part, range: Option<TargetRange>) -> Result<Option<Vec<i64>>> {
        let target = &part.target;
        if target.field.dtype != DType::I32 {
            return range.map(|range| self.expect_within(target, range)).transpose().map(|_| None);
        }
        let mut out = self.room(target, target.len() * target.each())?;
        self.each(target, target.info.dtype.bitsize() / 8, |b| {
            out.push(match *b {
                [b] => i64::from(b),
                [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
                _ => -1,
            });
        })?;
        Ok(Some(out))
    }

    fn split(
        &mut self,
        part: &Part,
        labels: Option<Vec<i64>>,
        options: &TensorsOptions,
        spec: &DataSpec,
    ) -> Result<Split> {
        let mut list = Vec::new();
        for tensor in &part.inputs {
            list.push((tensor.field.clone(), self.values(tensor)?));
        }
        let target = &part.target;
        let values = match (spec.labels(), labels) {
            (Some(classes), Some(labels)) => Values::Ints(checked_labels(
                labels.into_iter(),
                classes.number,
                options.ignore_index,
                target.each(),
                &self.place(target),
            )?),
            (None, _) => self.values(target)?,
            (Some(_), None) => bail!("{}: `{}` are no class labels", self.name, target.name),
        };
        let field = spec.target().map_or(&target.field, |(_, field)| field);
        list.push((field.clone(), values));
        list.extend(self.weights(part)?.map(|weights| (Field::sample_weight(), Values::Floats(weights))));
        Split::in_memory(list, target.len())
    }
}

#[cfg(test)]
mod tests;
