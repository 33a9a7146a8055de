//! Weights from any file that holds some, the format being recognised by its content; and to a file for PyTorch.

use super::element::Element;
use super::error::{CheckpointError, Reason};
use super::format::{self, averaged_weight, is_optimizer_state};
use super::pth::{self, Choose};
use super::tensor::{Tensor, TensorView};
use super::unread::Unread;
use crate::files::{self, output::Output};
use safetensors::tensor::Dtype;
use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write as _};
use std::path::Path;

/// The first bytes of a file, which decide the format.
const START: u64 = 16;

/// The tensors of a weight file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// By name. Floats are `F32` whatever they were in the file.
    pub tensors: BTreeMap<String, Tensor>,
    /// Tensors of the file that are not read.
    pub unread: BTreeMap<String, Unread>,
    /// Of tensors of whole numbers whose type is another one in the file: PyTorch's name of that.
    pub narrow: BTreeMap<String, &'static str>,
    /// What was done to get at them, for the user to know: `took the state dict under the key …`.
    pub notes: Vec<String>,
}

/// Reads the weights in a file that is no index, as [`super::load_chosen`].
///
/// # Errors
/// As there.
pub(super) fn load_one(path: &Path, choose: &Choose) -> Result<Loaded, CheckpointError> {
    let read = || {
        let opened = files::open(path)?;
        parse(BufReader::new(opened.file), opened.size, choose)
    };
    read().map_err(|e| CheckpointError::new(path, e))
}

/// Writes tensors as a state dict of PyTorch to where `path` leads, as an [`Output`] is written.
///
/// # Errors
/// The file cannot or may not be written; two tensors have one name; the bytes of one do not fit its shape.
pub fn write_state_dict(path: &Path, tensors: &[TensorView]) -> Result<(), CheckpointError> {
    let output = Output::at(path).map_err(|e| CheckpointError::new(path, e))?;
    let fill = |out: &mut files::output::Out| -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        pth::write(&mut out, tensors)?;
        out.flush()
    };
    output.write(fill).map(|_| ()).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput => CheckpointError::new(path, Reason::Invalid(e.to_string())),
        _ => CheckpointError::new(path, e),
    })
}

/// Reads from a file of `size` bytes. Its first bytes decide the format, and how much of it is worth reading.
fn parse(mut file: impl Read + Seek, size: u64, choose: &Choose) -> Result<Loaded, Reason> {
    let mut start = Vec::new();
    file.by_ref().take(START).read_to_end(&mut start)?;
    file.rewind()?;
    if pth::is_zip(&start) || pth::is_legacy(&start) {
        let pth::StateDict { tensors, unread, narrow, notes } = match pth::is_zip(&start) {
            true => pth::parse(file, size, choose)?,
            false => pth::parse_legacy(file, size, choose)?,
        };
        let narrow = narrow.into_iter().map(|(name, element)| (name, element.in_pytorch())).collect();
        let left_out =
            |(name, what): (&String, &Unread)| format!("left out `{name}`, which is {what}: {}", what.advice());
        let notes = notes.into_iter().chain(unread.iter().map(left_out)).collect();
        return Ok(Loaded { tensors, unread, narrow, notes });
    }
    // A safetensors file has its JSON after eight bytes. Without it an error about its header would be of no use.
    if start.get(8) != Some(&b'{') {
        return Err(Reason::UnknownFormat);
    }
    if let Some(key) = choose.key {
        return Err(Reason::Invalid(format!(
            "it has no key `{key}`: a safetensors file has one list of tensors; leave `weights_key` out"
        )));
    }
    let bytes = format::read_accounted(&mut file, size)?;
    let (file, meta) = format::open(&bytes)?;
    let mut out = Loaded::default();
    let mut averages = BTreeMap::new();
    let places = format::places(&bytes, &file);
    for (place, data) in format::take_apart(bytes, places) {
        let average = averaged_weight(&place.name).filter(|_| meta.is_some()).map(str::to_owned);
        if meta.is_some() && average.is_none() && is_optimizer_state(&place.name) {
            continue;
        }
        let element = element(place.dtype)
            .ok_or_else(|| Reason::ElementType { name: place.name.clone(), dtype: place.dtype.to_string() })?;
        out.narrow.extend(Some((place.name.clone(), element.in_pytorch())).filter(|_| element.is_narrow()));
        let (dtype, data) = element.widen(data);
        let tensor = Tensor { dtype, shape: place.shape, data };
        match average {
            Some(name) => averages.insert(name, tensor),
            None => out.tensors.insert(place.name, tensor),
        };
    }
    if meta.is_some() {
        let what = if averages.is_empty() { "the weights" } else { "the moving averages of the weights" };
        out.notes.push(format!("took {what} of a checkpoint"));
    }
    out.tensors.extend(averages);
    Ok(out)
}

/// The element type of a safetensors file; `None` for those that no weights come in.
fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::BF16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        Dtype::I8 => Element::I8,
        Dtype::I16 => Element::I16,
        Dtype::I32 => Element::I32,
        Dtype::I64 => Element::I64,
        Dtype::U8 => Element::U8,
        Dtype::U32 => Element::U32,
        Dtype::BOOL => Element::Bool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Meta, load_tensors, read, write, write_weights};
    use super::*;
    use crate::graph::DType;
    use half::f16;
    use std::fs;

    #[test]
    fn a_checkpoint_gives_its_weights_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.safetensors");
        let w = Tensor::from_f32([1, 2], &[1.0, 2.0]);
        write(&path, &[w.view("w"), w.view("optimizer.exp_avg.w")], &Meta::new("", 0)).unwrap();
        let loaded = load_tensors(&path).unwrap();
        assert_eq!(loaded.tensors, BTreeMap::from([("w".to_owned(), w.clone())]));
        // Where there is a moving average, that is what is taken.
        let average = Tensor::from_f32([1, 2], &[3.0, 4.0]);
        let all = [w.view("w"), w.view("v"), average.view("optimizer.average.w"), w.view("optimizer.average_step")];
        write(&path, &all, &Meta::new("", 0)).unwrap();
        let loaded = load_tensors(&path).unwrap();
        assert_eq!(loaded.tensors, BTreeMap::from([("w".to_owned(), average), ("v".to_owned(), w.clone())]));
        // A plain file is taken as it is, and is no checkpoint.
        write_weights(&path, &[w.view("w"), w.view("optimizer.w")]).unwrap();
        assert_eq!(load_tensors(&path).unwrap().tensors.len(), 2);
        assert!(matches!(read(&path).unwrap_err().reason, Reason::NotACheckpoint));
    }

    #[test]
    fn the_content_decides_and_strangers_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.pth");
        write_weights(&path, &[Tensor::from_f32([1], &[1.0]).view("w")]).unwrap();
        assert_eq!(load_tensors(&path).unwrap().tensors.len(), 1);
        for content in [&b""[..], b"PK", b"hello, I am a text file", &[0; 64]] {
            fs::write(&path, content).unwrap();
            let e = load_tensors(&path).unwrap_err();
            assert!(matches!(e.reason, Reason::UnknownFormat), "{e}");
            assert!(e.to_string().starts_with(path.to_str().unwrap()));
        }
        let missing = load_tensors(&dir.path().join("none")).unwrap_err();
        assert!(matches!(missing.reason, Reason::Io(_)));
    }

    #[test]
    fn half_precision_becomes_single() {
        let halves: Vec<u8> = [f16::from_f32(1.5), f16::from_f32(-0.25)].iter().flat_map(|v| v.to_le_bytes()).collect();
        let (dtype, data) = element(Dtype::F16).unwrap().widen(halves);
        assert_eq!((dtype, data), (DType::F32, Tensor::from_f32([2], &[1.5, -0.25]).data));
        assert!(element(Dtype::F8_E4M3).is_none());
    }
}
