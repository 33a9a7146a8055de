//! Samples from a safetensors file: `inputs` and `targets`, and optionally `val_inputs` and `val_targets`.
//!
//! `inputs` are `[N, C, H, W]` images (floats or bytes), or floats of rank 2 (`[N, F]`) or 3. `targets` are class
//! labels (integers, `[N]`, or `[N, …]` for one at each position of a sample) or float values (`[N, …]`; `[N]` is taken for `[N, 1]`, which is what a model with one
//! output puts out).

use super::set::checked_labels;
use super::{DataSpec, Dataset, Inputs, Split, TargetSpec, Targets};
use crate::files;
use crate::graph::{DType, Shape};
use anyhow::{Context, Result, anyhow, bail, ensure};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// The file and how to take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorsOptions {
    /// The file.
    pub path: PathBuf,
    /// Number of classes; else one more than the largest label, which is the least that there can be.
    pub num_classes: Option<usize>,
    /// A label that stands for none.
    pub ignore_index: Option<i32>,
}

/// A header larger than this is damage.
const MAX_HEADER: u64 = 100 << 20;

/// What the samples look like. Reads the header, and the labels if classes must be counted.
///
/// # Errors
/// The file cannot be read, or does not hold tensors that go together; a label is below 0.
pub fn describe(options: &TensorsOptions) -> Result<DataSpec> {
    let mut file = TensorFile::open(options)?;
    let labels = [file.labels(&file.train.clone())?, file.val.clone().map_or(Ok(None), |p| file.labels(&p))?];
    let spec = file.spec(options, &labels)?;
    // Wrong labels are a matter of the description, and need not wait for the reading.
    if let Some(classes) = spec.targets.classes() {
        for (tensor, labels) in ["targets", "val_targets"].into_iter().zip(labels) {
            checked_labels(
                labels.into_iter().flatten().collect::<Vec<_>>().into_iter(),
                classes,
                options.ignore_index,
                &format!("{}, `{tensor}`", file.name),
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
    let mut file = TensorFile::open(options)?;
    let (train, val) = (file.train.clone(), file.val.clone());
    let labels = [file.labels(&train)?, val.as_ref().map_or(Ok(None), |p| file.labels(p))?];
    let spec = file.spec(options, &labels)?;
    let [train_labels, val_labels] = labels;
    let train = file.split(&train, train_labels, options, &spec)?;
    let val = match val {
        Some(pair) => file.split(&pair, val_labels, options, &spec)?,
        None => train.limit(0),
    };
    Ok(Dataset::new(spec, train, val))
}

/// A tensor of inputs and one of targets.
#[derive(Debug, Clone)]
struct Pair {
    inputs: (&'static str, TensorInfo),
    targets: (&'static str, TensorInfo),
}

struct TensorFile {
    name: String,
    file: BufReader<File>,
    /// Where the data begin, in bytes from the file's start.
    start: u64,
    train: Pair,
    val: Option<Pair>,
}

impl TensorFile {
    fn open(options: &TensorsOptions) -> Result<Self> {
        let name = options.path.display().to_string();
        let files::Opened { file, size, .. } = files::open(&options.path)
            .map_err(|e| anyhow!("{}", e.problem))
            .with_context(|| format!("cannot open {name}, the file that `path` of the `tensors` source names"))?;
        let memory = files::machine_memory();
        ensure!(size <= memory, "{name} holds {size} bytes, and this machine's whole memory is {memory} bytes");
        let mut file = BufReader::with_capacity(1 << 18, file);
        let mut length = [0; 8];
        file.read_exact(&mut length).with_context(|| format!("{name} is too short to be a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        ensure!(
            length <= MAX_HEADER && length <= size.saturating_sub(8),
            "{name} is no safetensors file, or is cut short: it claims a header of {length} bytes"
        );
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
        let pair = |inputs, targets| {
            let get = |n| header.info(n).map(|info| (n, info.clone()));
            (get(inputs), get(targets))
        };
        let mut names = header.offset_keys();
        names.sort_unstable();
        let train = match pair("inputs", "targets") {
            (Some(inputs), Some(targets)) => Pair { inputs, targets },
            _ => bail!("{name} must hold the tensors `inputs` and `targets`; it holds: {}", names.join(", ")),
        };
        let val = match pair("val_inputs", "val_targets") {
            (Some(inputs), Some(targets)) => Some(Pair { inputs, targets }),
            (None, None) => None,
            _ => bail!("{name} holds only one of `val_inputs` and `val_targets`: both or neither are needed"),
        };
        Ok(TensorFile { name, file, start, train, val })
    }

    /// What the samples of both pairs look like; `labels` are those of the two pairs, if there are any.
    fn spec(&self, options: &TensorsOptions, labels: &[Option<Vec<i64>>; 2]) -> Result<DataSpec> {
        let (input, dtype) = self.input(&self.train)?;
        let (target, kind) = self.target(&self.train)?;
        if let Some(val) = &self.val {
            let other = (self.input(val)?, self.target(val)?);
            ensure!(
                other == ((input.clone(), dtype), (target.clone(), kind)),
                "{}: `val_inputs` and `val_targets` differ from `inputs` and `targets` in shape or type",
                self.name
            );
        }
        let counts = |l: &&i64| options.ignore_index.is_none_or(|ignored| **l != i64::from(ignored));
        let seen = labels.iter().flatten().flatten().filter(counts).max().map_or(1, |l| l.saturating_add(1).max(1));
        let targets = match (kind, options.num_classes) {
            (DType::I32, n) if target.rank() == 0 => TargetSpec::Classes(n.unwrap_or(seen as usize)),
            (DType::I32, n) => TargetSpec::PositionClasses(n.unwrap_or(seen as usize), target),
            (_, None) => TargetSpec::Values(target),
            (_, Some(n)) => {
                bail!("{}: `targets` are real values, so there are no {n} classes", self.name)
            }
        };
        Ok(DataSpec {
            input,
            dtype,
            classes_exact: options.num_classes.is_some() || matches!(targets, TargetSpec::Values(_)),
            targets,
            class_names: None,
            train: Some(self.train.inputs.1.shape[0]),
            val: Some(self.val.as_ref().map_or(0, |p| p.inputs.1.shape[0])),
        })
    }

    /// Shape (channels last) and type of one input of the pair, and that there is a target for each.
    fn input(&self, pair: &Pair) -> Result<(Shape, DType)> {
        let (name, info) = &pair.inputs;
        let shape = Shape::from(&info.shape[..]);
        let (target_name, targets) = &pair.targets;
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
        ensure!(
            targets.shape.first() == Some(&info.shape[0]),
            "{}: `{name}` of shape {shape} and `{target_name}` of shape {} differ in the number of samples",
            self.name,
            Shape::from(&targets.shape[..])
        );
        Ok((sample, if info.dtype == Dtype::U8 { DType::U8 } else { DType::F32 }))
    }

    /// Shape (channels last) of one target, and its type: `I32` for class labels.
    fn target(&self, pair: &Pair) -> Result<(Shape, DType)> {
        let (name, info) = &pair.targets;
        let shape = Shape::from(&info.shape[..]);
        ensure!(!info.shape.contains(&0), "{}: `{name}`, of shape {shape}, is empty", self.name);
        match (info.dtype, &info.shape[..]) {
            (Dtype::I64 | Dtype::I32 | Dtype::U8, [_, positions @ ..]) if positions.len() <= 2 => {
                Ok((positions.into(), DType::I32))
            }
            (Dtype::I64 | Dtype::I32 | Dtype::U8, _) => bail!(
                "{}: `{name}` of shape {shape}: class labels must be of shape [N], or [N, L] or [N, H, W] for one at each \
                 position",
                self.name
            ),
            (Dtype::F32, [_]) => Ok(([1].into(), DType::F32)),
            (Dtype::F32, [_, c, h, w]) => Ok(([*h, *w, *c].into(), DType::F32)),
            (Dtype::F32, [_, rest @ ..]) => Ok((rest.into(), DType::F32)),
            (Dtype::F32, []) => bail!("{}: `{name}` is a single number: must be one for each sample", self.name),
            (other, _) => bail!(
                "{}: `{name}` is {other:?}: must be I64 or I32 for class labels (in PyTorch, `.long()`), or F32 for \
                 values (`.float()`)",
                self.name
            ),
        }
    }

    /// The class labels of the pair, unchecked; `None` if its targets are values.
    fn labels(&mut self, pair: &Pair) -> Result<Option<Vec<i64>>> {
        // Shapes and types are checked before anything is read by them.
        self.input(pair)?;
        let (target, kind) = self.target(pair)?;
        if kind != DType::I32 {
            return Ok(None);
        }
        let info = &pair.targets.1;
        let mut out = self.room(&pair.targets, info.shape[0] * target.len())?;
        self.each(&pair.targets, info.dtype.bitsize() / 8, |b| {
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
        pair: &Pair,
        labels: Option<Vec<i64>>,
        options: &TensorsOptions,
        spec: &DataSpec,
    ) -> Result<Split> {
        let n = pair.inputs.1.shape[0];
        let inputs = match spec.dtype {
            DType::U8 => Inputs::Bytes(self.channels_last(&pair.inputs, |[b]: [u8; 1]| b)?),
            _ => Inputs::Floats(self.channels_last(&pair.inputs, f32::from_le_bytes)?),
        };
        let targets = match (spec.targets.classes(), labels) {
            (Some(n), Some(labels)) => {
                let place = format!("{}, `{}`", self.name, pair.targets.0);
                Targets::Classes(checked_labels(labels.into_iter(), n, options.ignore_index, &place)?)
            }
            (None, _) => Targets::Values(self.channels_last(&pair.targets, f32::from_le_bytes)?),
            (Some(_), None) => bail!("{}: `{}` are no class labels", self.name, pair.targets.0),
        };
        Split::new(inputs, targets, spec.input.clone(), spec.targets.shape(), n)
    }

    /// Reads a tensor; images become channels-last.
    fn channels_last<T: Copy, const B: usize>(
        &mut self,
        tensor: &(&'static str, TensorInfo),
        decode: impl Fn([u8; B]) -> T,
    ) -> Result<Vec<T>> {
        let shape = &tensor.1.shape;
        let sample: usize = shape[1..].iter().product();
        let mut out = self.room(tensor, shape[0] * sample)?;
        let pixels = if shape.len() == 4 { shape[2] * shape[3] } else { sample };
        self.each(tensor, sample * B, |bytes| {
            let (elements, _) = bytes.as_chunks::<B>();
            for p in 0..pixels {
                out.extend(elements.iter().skip(p).step_by(pixels).map(|b| decode(*b)));
            }
        })?;
        Ok(out)
    }

    /// Room for `len` values of a tensor.
    fn room<T>(&self, tensor: &(&'static str, TensorInfo), len: usize) -> Result<Vec<T>> {
        let mut out = Vec::new();
        match out.try_reserve_exact(len) {
            Ok(()) => Ok(out),
            Err(_) => bail!("{}: there is not enough memory for `{}` ({len} values)", self.name, tensor.0),
        }
    }

    /// Hands a tensor's bytes to `take`, `size` bytes at a time.
    fn each(&mut self, tensor: &(&'static str, TensorInfo), size: usize, mut take: impl FnMut(&[u8])) -> Result<()> {
        let (begin, end) = tensor.1.data_offsets;
        let context = || format!("cannot read `{}` from {}", tensor.0, self.name);
        self.file.seek(SeekFrom::Start(self.start + begin as u64)).with_context(context)?;
        let mut bytes = vec![0; size];
        for _ in 0..(end - begin) / size.max(1) {
            self.file.read_exact(&mut bytes).with_context(context)?;
            take(&bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
