//! The file of a checkpoint: safetensors, with the run's state in the metadata and a checksum over every byte.
//!
//! The checksum is the SHA-256 of the whole file with the checksum's own 64 digits read as zeros, so no byte of the
//! file, not even padding, can change unnoticed. The file is deterministic: tensors are ordered by the width of their
//! elements (which keeps each aligned) and then by name.

use super::error::{CheckpointError, Reason};
use super::matching::GRAD_SCALER;
use super::meta::Meta;
use super::tensor::{Tensor, TensorInfo, TensorView, count};
use crate::files::output::Output;
use crate::files::{self, durable};
use crate::graph::DType;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The metadata key of [`Meta`].
const KEY: &str = "runner";
/// What the value of [`KEY`] begins with: enough to know a checkpoint even where the key itself is damaged.
const META_START: &str = "{\"checksum\":\"";
/// How the checksum's digits are announced in the header, where the metadata is a JSON string within JSON.
const CHECKSUM_MARK: &str = "\\\"checksum\\\":\\\"";
const CHECKSUM_DIGITS: usize = 64;
/// Longer headers are no files of tensors: the format's own limit.
const MAX_HEADER: u64 = 100_000_000;
/// What the names of the optimizer's state begin with.
const OPTIMIZER_PREFIX: &str = "optimizer.";

/// True for the name of a tensor that is no weight: state of the optimizer or of loss scaling.
pub fn is_optimizer_state(name: &str) -> bool {
    name.starts_with(OPTIMIZER_PREFIX) || GRAD_SCALER.contains(&name)
}

/// What the name of the moving average of a weight begins with, before the weight's.
const AVERAGE_PREFIX: &str = "optimizer.average.";

/// The name of the weight that a tensor is the moving average of; `None` if it is something else.
pub fn averaged_weight(name: &str) -> Option<&str> {
    name.strip_prefix(AVERAGE_PREFIX)
}

/// A checkpoint as read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The run's state.
    pub meta: Meta,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// Writes a checkpoint to all of `paths`, one after the other. Each is written beside its place under the name
/// `.NAME.tmp-PID`, made durable and renamed, so that at any instant the old file or the new one is there, whole. A `best`
/// that is not finite is left out (JSON has no such numbers, and nothing finite is worse than it).
///
/// `content` is called once for each tensor, in the order of the file, with its place in `tensors`; it hands on the
/// tensor's bytes (row-major, outside layout, little-endian) in as many pieces as it likes. The file is written once, with
/// its checksum put in at the end, and copied for the other paths: no more than a piece of it ever is in memory.
///
/// # Errors
/// A file cannot be written, `content` failed or gave another number of bytes than the shape has, or two tensors have one
/// name.
pub fn write_streamed(
    paths: &[&Path],
    tensors: &[TensorInfo],
    meta: &Meta,
    content: &mut Content,
) -> anyhow::Result<()> {
    let Some((first, others)) = paths.split_first() else { return Ok(()) };
    let mut meta = meta.clone();
    meta.checksum = "0".repeat(CHECKSUM_DIGITS);
    meta.version = Meta::VERSION;
    meta.best = meta.best.filter(|b| b.value.is_finite());
    let text = serde_json::to_string(&meta)
        .map_err(|e| CheckpointError::new(first, Reason::Invalid(format!("the run's state is no JSON: {e}"))))?;
    debug_assert!(text.starts_with(META_START));
    write_file(first, tensors, &text, content)?;
    for path in others {
        let mut written = File::open(first).map_err(|e| CheckpointError::new(first, e))?;
        replace(path, |file| Ok(io::copy(&mut written, file).map(|_| ())?))?;
    }
    Ok(())
}

/// Writes a checkpoint of tensors that are in memory to `path`, as [`write_streamed`].
///
/// # Errors
/// As for [`write_streamed`]; a tensor's bytes do not fit its shape.
pub fn write(path: &Path, tensors: &[TensorView], meta: &Meta) -> Result<(), CheckpointError> {
    let infos: Vec<TensorInfo> = tensors.iter().map(TensorView::info).collect();
    write_streamed(&[path], &infos, meta, &mut |i, put| put(tensors[i].bytes)).map_err(|e| as_checkpoint(path, e))
}

/// Writes tensors as a plain safetensors file to where `path` leads, as an [`Output`] is written.
///
/// # Errors
/// As for [`write()`]; nothing may be written there.
pub fn write_weights(path: &Path, tensors: &[TensorView]) -> Result<(), CheckpointError> {
    let infos: Vec<TensorInfo> = tensors.iter().map(TensorView::info).collect();
    let order = sorted(path, &infos)?;
    let head = header(&infos, &order, None);
    let output = Output::at(path).map_err(|e| CheckpointError::new(path, e))?;
    let fill = |out: &mut files::output::Out| -> anyhow::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        put_all(path, &infos, (&head, &order), &mut |i, put| put(tensors[i].bytes), &mut |b| Ok(out.write_all(b)?))?;
        Ok(out.flush()?)
    };
    output.write(fill).map(|_| ()).map_err(|e| match e.downcast::<io::Error>() {
        Ok(e) => CheckpointError::new(path, e),
        Err(e) => as_checkpoint(path, e),
    })
}

/// A source of the tensors' bytes.
pub type Content<'a> = dyn FnMut(usize, &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> + 'a;

/// A failure of writing where nothing but the file can have failed.
fn as_checkpoint(path: &Path, e: anyhow::Error) -> CheckpointError {
    e.downcast().unwrap_or_else(|e| CheckpointError::new(path, Reason::Invalid(format!("{e:#}"))))
}

/// A checkpoint of `tensors` at `path`, with the metadata `meta`, in which the checksum's place is.
fn write_file(path: &Path, tensors: &[TensorInfo], meta: &str, content: &mut Content) -> anyhow::Result<()> {
    let order = sorted(path, tensors)?;
    let head = header(tensors, &order, Some(meta));
    let no_place = || CheckpointError::new(path, Reason::Invalid("the header has no place for a checksum".into()));
    let digits = checksum_range(&head).ok_or_else(no_place)?;
    replace(path, |file| {
        let mut hash = Sha256::new();
        let mut out = BufWriter::with_capacity(1 << 16, &mut *file);
        put_all(path, tensors, (&head, &order), content, &mut |piece| {
            hash.update(piece);
            Ok(out.write_all(piece)?)
        })?;
        out.flush()?;
        drop(out);
        file.seek(SeekFrom::Start(digits.start as u64))?;
        Ok(file.write_all(hex(&hash.finalize()).as_bytes())?)
    })
}

/// Hands on the header, and all tensors in the order of the file, in pieces.
fn put_all(
    path: &Path,
    tensors: &[TensorInfo],
    (head, order): (&[u8], &[(usize, usize)]),
    content: &mut Content,
    put: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let wrong = |t: &TensorInfo, how| CheckpointError::new(path, Reason::Invalid(wrong_size(t, how)));
    put(head)?;
    for (i, bytes) in order {
        let mut left = *bytes;
        content(*i, &mut |piece| {
            left = left.checked_sub(piece.len()).ok_or_else(|| wrong(&tensors[*i], "more"))?;
            put(piece)
        })?;
        if left > 0 {
            return Err(wrong(&tensors[*i], "fewer").into());
        }
    }
    Ok(())
}

fn wrong_size(t: &TensorInfo, how: &str) -> String {
    format!("`{}`: {how} bytes than {:?} of {} are", t.name, t.shape, t.dtype)
}

/// Reads a checkpoint and verifies every byte of it.
///
/// # Errors
/// The file cannot be read, is cut short, damaged, no checkpoint, or of a later version of the format.
pub fn read(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let read = || {
        let mut opened = files::open(path)?;
        parse(read_accounted(&mut opened.file, opened.size)?)
    };
    read().map_err(|e: Reason| CheckpointError::new(path, e))
}

/// The state of the run when the checkpoint was written; nothing but the header is read, and nothing is verified.
///
/// # Errors
/// The file cannot be read, or has no such state.
pub fn peek(path: &Path) -> Result<Meta, CheckpointError> {
    let read = || -> Result<Meta, Reason> {
        let mut opened = files::open(path)?;
        let (_, metadata) = read_metadata(&read_header(&mut opened.file, opened.size)?)?;
        meta_of(&metadata)?.ok_or(Reason::NotACheckpoint)
    };
    read().map_err(|e| CheckpointError::new(path, e))
}

/// The names of the tensors of a safetensors file; nothing but the header is read.
///
/// # Errors
/// The file cannot be read, is none, or is not as long as its header says.
pub(super) fn names_of_one(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> Result<Vec<String>, Reason> {
        let mut opened = files::open(path)?;
        let header = read_header(&mut opened.file, opened.size)?;
        let (_, metadata) = read_metadata(&header)?;
        accounted(&header, &metadata, opened.size)?;
        Ok(metadata.tensors().into_keys().collect())
    };
    read().map_err(|e| CheckpointError::new(path, e))
}

/// The steps done when the checkpoint was written, by its header.
pub(super) fn peek_step(path: &Path) -> Result<u64, CheckpointError> {
    peek(path).map(|meta| meta.step)
}

/// True for a file that says that it is a checkpoint. Only [`read`] checks that it is whole.
pub fn is_checkpoint(path: &Path) -> bool {
    let strange =
        |reason: &Reason| matches!(reason, Reason::NotACheckpoint | Reason::NotSafetensors(_) | Reason::Header(_));
    !peek_step(path).is_err_and(|error| strange(&error.reason))
}

/// As [`read`], from memory.
pub(super) fn parse(bytes: Vec<u8>) -> Result<Checkpoint, Reason> {
    let (file, meta) = open(&bytes)?;
    let meta = meta.ok_or(Reason::NotACheckpoint)?;
    let places = places(&bytes, &file);
    let mut tensors = BTreeMap::new();
    for (Place { name, dtype, shape, .. }, data) in take_apart(bytes, places) {
        let dtype = from_safetensors(dtype)
            .ok_or_else(|| Reason::ElementType { name: name.clone(), dtype: dtype.to_string() })?;
        tensors.insert(name, Tensor { dtype, shape, data });
    }
    Ok(Checkpoint { meta, tensors })
}

/// Where a tensor lies in a file.
pub(super) struct Place {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    start: usize,
    bytes: usize,
}

/// The places of a file's tensors, the last one first.
pub(super) fn places(bytes: &[u8], file: &SafeTensors) -> Vec<Place> {
    let mut list: Vec<Place> = file
        .iter()
        .map(|(name, view)| Place {
            name: name.to_owned(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            start: view.data().as_ptr().addr().saturating_sub(bytes.as_ptr().addr()),
            bytes: view.data().len(),
        })
        .collect();
    list.sort_by_key(|p| (std::cmp::Reverse(p.start), std::cmp::Reverse(p.bytes)));
    list
}

/// Bytes of a file that may be in memory although they have been copied from it.
const SLACK: usize = 16 << 20;

/// The tensors of a file with bytes of their own. The file goes as they come, so that they are not in memory twice.
pub(super) fn take_apart(mut bytes: Vec<u8>, places: Vec<Place>) -> impl Iterator<Item = (Place, Vec<u8>)> {
    places.into_iter().map(move |place| {
        let data = bytes.get(place.start..place.start + place.bytes).unwrap_or_default().to_vec();
        bytes.truncate(place.start);
        if bytes.capacity() - bytes.len() > SLACK {
            bytes.shrink_to_fit();
        }
        (place, data)
    })
}

/// Any safetensors file; with its [`Meta`], verified, if it is a checkpoint.
pub(super) fn open(bytes: &[u8]) -> Result<(SafeTensors<'_>, Option<Meta>), Reason> {
    let (header_bytes, metadata) = read_metadata(bytes)?;
    let file = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
    let meta = meta_of(&metadata)?;
    if let Some(meta) = &meta {
        verify_bytes(bytes, header_bytes, meta)?;
    }
    Ok((file, meta))
}

/// The header's length and its content.
fn read_metadata(bytes: &[u8]) -> Result<(usize, Metadata), Reason> {
    // The parser reads the header alone if given no more, but then finds the tensors' bytes lacking: so the header is
    // taken apart here, and the whole is checked by `SafeTensors::deserialize`.
    let damaged = |why: &str| Reason::NotSafetensors(why.to_owned());
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged("shorter than a header"))?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged("the header's length is absurd"))?;
    let header = rest.get(..length).ok_or_else(|| damaged("the header is longer than the file"))?;
    let metadata = serde_json::from_slice(header).map_err(|e| match offsets::wrong(header) {
        Some(why) => Reason::Header(why),
        None if e.is_data() => Reason::Header(e.to_string()),
        None => Reason::NotSafetensors(format!("the header is no JSON: {e}")),
    })?;
    Ok((8 + length, metadata))
}

/// The header's bytes with the length before them, from the begin of a file of `size` bytes.
fn read_header(file: &mut impl Read, size: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    file.take(8).read_to_end(&mut bytes)?;
    if let Ok(length) = <[u8; 8]>::try_from(bytes.as_slice()) {
        let length = u64::from_le_bytes(length);
        // A length beyond the file's end is reported where the header is read.
        if length > MAX_HEADER && length <= size {
            return Err(Reason::NotSafetensors(format!("it claims a header of {length} bytes")));
        }
        file.take(length.min(size)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The bytes of tensors that a file of `size` bytes has after its header: as many as that says.
fn accounted(header: &[u8], metadata: &Metadata, size: u64) -> Result<u64, Reason> {
    let (described, held) = (metadata.data_len() as u64, size.saturating_sub(header.len() as u64));
    if described == held {
        return Ok(described);
    }
    let why = format!("the header describes {described} bytes of tensors, and the file holds {held}");
    Err(Reason::NotSafetensors(why))
}

/// The whole of a safetensors file of `size` bytes, from its begin. Beyond the header nothing is read unless that accounts
/// for every byte of the file: no garbage is taken into memory, however large.
pub(super) fn read_accounted(file: &mut impl Read, size: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = read_header(file, size)?;
    let (_, metadata) = read_metadata(&bytes)?;
    let described = accounted(&bytes, &metadata, size)?;
    let limit = files::machine_memory();
    if size > limit {
        return Err(Reason::File(files::Problem::TooLarge { bytes: size, limit }));
    }
    let rest = described as usize;
    bytes.try_reserve_exact(rest).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    file.take(described).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn meta_of(metadata: &Metadata) -> Result<Option<Meta>, Reason> {
    let Some(entries) = metadata.metadata() else { return Ok(None) };
    let Some(text) = entries.get(KEY) else {
        return match entries.values().any(|v| v.starts_with(META_START)) {
            true => Err(Reason::Damaged(format!("the metadata key `{KEY}` is misspelt"))),
            false => Ok(None),
        };
    };
    #[derive(serde::Deserialize)]
    struct Version {
        version: u64,
    }
    let bad = |e: serde_json::Error| Reason::Damaged(format!("the metadata `{KEY}` cannot be read: {e}"));
    let Version { version } = serde_json::from_str(text).map_err(bad)?;
    if version > Meta::VERSION as u64 {
        return Err(Reason::Newer { found: version, known: Meta::VERSION });
    }
    serde_json::from_str(text).map(Some).map_err(bad)
}

fn verify_bytes(bytes: &[u8], header_bytes: usize, meta: &Meta) -> Result<(), Reason> {
    let digits = checksum_range(&bytes[..header_bytes])
        .filter(|r| &bytes[r.clone()] == meta.checksum.as_bytes())
        .ok_or_else(|| Reason::Damaged("the checksum is not where it should be".into()))?;
    let mut hash = Sha256::new();
    hash.update(&bytes[..digits.start]);
    hash.update([b'0'; CHECKSUM_DIGITS]);
    hash.update(&bytes[digits.end..]);
    if hex(&hash.finalize()) != meta.checksum {
        return Err(Reason::Damaged("its content does not match its checksum".into()));
    }
    Ok(())
}

/// The position of the checksum's digits in a header.
fn checksum_range(header: &[u8]) -> Option<std::ops::Range<usize>> {
    let mark = CHECKSUM_MARK.as_bytes();
    let start = header.windows(mark.len()).position(|w| w == mark)? + mark.len();
    (start + CHECKSUM_DIGITS <= header.len()).then_some(start..start + CHECKSUM_DIGITS)
}

/// The places of the tensors in the order of the file, with their sizes.
fn sorted(path: &Path, tensors: &[TensorInfo]) -> Result<Vec<(usize, usize)>, CheckpointError> {
    let invalid = |why: String| Err(CheckpointError::new(path, Reason::Invalid(why)));
    let mut names = HashSet::new();
    let mut order = Vec::with_capacity(tensors.len());
    for (i, t) in tensors.iter().enumerate() {
        let Some(bytes) = count(t.shape).and_then(|n| n.checked_mul(t.dtype.bytes())) else {
            return invalid(format!("`{}`: {:?} of {} are too many bytes", t.name, t.shape, t.dtype));
        };
        // The format keeps this name for the metadata.
        if !names.insert(t.name) || t.name == "__metadata__" {
            return invalid(format!("the name `{}` is taken", t.name));
        }
        order.push((i, bytes));
    }
    order.sort_by(|(a, _), (b, _)| {
        let (a, b) = (&tensors[*a], &tensors[*b]);
        b.dtype.bytes().cmp(&a.dtype.bytes()).then(a.name.cmp(b.name))
    });
    Ok(order)
}

/// Length, JSON, and spaces up to a multiple of 8.
fn header(tensors: &[TensorInfo], order: &[(usize, usize)], meta: Option<&str>) -> Vec<u8> {
    let quote = |s: &str| serde_json::Value::from(s).to_string();
    let mut json = String::from("{\"__metadata__\":{\"format\":\"pt\"");
    if let Some(meta) = meta {
        let _ = write!(json, ",\"{KEY}\":{}", quote(meta));
    }
    json.push('}');
    let mut at = 0;
    for (i, bytes) in order {
        let t = &tensors[*i];
        let (start, end) = (at, at + bytes);
        let _ = write!(
            json,
            ",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{start},{end}]}}",
            quote(t.name),
            safetensors_name(t.dtype),
            serde_json::Value::from(t.shape),
        );
        at = end;
    }
    json.push('}');
    while !json.len().is_multiple_of(8) {
        json.push(' ');
    }
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend(json.as_bytes());
    out
}

/// Replaces a file by another, or makes a new one, atomically. An error names the file.
fn replace(path: &Path, fill: impl FnOnce(&mut File) -> anyhow::Result<()>) -> anyhow::Result<()> {
    durable::replace(path, fill).map_err(|e| match e.downcast::<io::Error>() {
        Ok(e) => CheckpointError::new(path, e).into(),
        Err(e) => e,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

fn not_safetensors(e: SafeTensorError) -> Reason {
    Reason::NotSafetensors(e.to_string())
}

fn safetensors_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::BF16 => "BF16",
        DType::F16 => "F16",
        DType::F64 => "F64",
        DType::U8 => "U8",
        DType::U32 => "U32",
        DType::I32 => "I32",
        DType::I64 => "I64",
    }
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::U8 => DType::U8,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        _ => return None,
    })
}

mod offsets;
mod stream;

pub use stream::{Header, read_header_of, read_streamed, verify};

#[cfg(test)]
mod tests;
