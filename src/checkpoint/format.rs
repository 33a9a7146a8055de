//! The file of a checkpoint: safetensors, with the run's state in the metadata and a checksum over every byte.
//!
//! The checksum is the SHA-256 of the whole file with the checksum's own 64 digits read as zeros, so no byte of the
//! file, not even padding, can change unnoticed. The file is deterministic: tensors are ordered by the width of their
//! elements (which keeps each aligned) and then by name.

use super::error::{CheckpointError, Reason};
use super::matching::GRAD_SCALER;
use super::meta::Meta;
use super::tensor::{Tensor, TensorView, count};
use crate::files;
use crate::graph::DType;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The metadata key of [`Meta`].
const KEY: &str = "runner";
/// What the value of [`KEY`] begins with: enough to know a checkpoint even where the key itself is damaged.
const META_START: &str = "{\"checksum\":\"";
/// How the checksum's digits are announced in the header, where the metadata is a JSON string within JSON.
const CHECKSUM_MARK: &str = "\\\"checksum\\\":\\\"";
const CHECKSUM_DIGITS: usize = 64;
/// Longer headers are no files of tensors: the format's own limit.
const MAX_HEADER: u64 = 100_000_000;
/// Between the name and the process of a file that is being written.
const TEMPORARY: &str = ".tmp-";
/// What the names of the optimizer's state begin with.
const OPTIMIZER_PREFIX: &str = "optimizer.";

/// True for the name of a tensor that is no weight: state of the optimizer or of loss scaling.
pub fn is_optimizer_state(name: &str) -> bool {
    name.starts_with(OPTIMIZER_PREFIX) || GRAD_SCALER.contains(&name)
}

/// A checkpoint as read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The run's state.
    pub meta: Meta,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// Writes a checkpoint to `path`. It is written beside its place under the name `.NAME.tmp-PID`, made durable and
/// renamed, so that at any instant the old file or the new one is there, whole. A `best` that is not finite is left out
/// (JSON has no such numbers, and nothing finite is worse than it).
///
/// # Errors
/// The file cannot be written, or a tensor's bytes do not fit its shape, or two have one name.
pub fn write(path: &Path, tensors: &[TensorView], meta: &Meta) -> Result<(), CheckpointError> {
    let mut meta = meta.clone();
    meta.checksum = "0".repeat(CHECKSUM_DIGITS);
    meta.version = Meta::VERSION;
    meta.best = meta.best.filter(|b| b.value.is_finite());
    let text = serde_json::to_string(&meta)
        .map_err(|e| CheckpointError::new(path, Reason::Invalid(format!("the run's state is no JSON: {e}"))))?;
    debug_assert!(text.starts_with(META_START));
    let tensors = sorted(path, tensors)?;
    let mut head = header(&tensors, Some(&text));
    let digits = checksum_range(&head)
        .ok_or_else(|| CheckpointError::new(path, Reason::Invalid("the header has no place for a checksum".into())))?;
    let mut hash = Sha256::new();
    hash.update(&head);
    tensors.iter().for_each(|t| hash.update(t.bytes));
    head[digits].copy_from_slice(hex(&hash.finalize()).as_bytes());
    replace(path, &head, &tensors).map_err(|e| CheckpointError::new(path, e))
}

/// Writes tensors as a plain safetensors file, in the same safe way as [`write()`].
///
/// # Errors
/// As for [`write()`].
pub fn write_weights(path: &Path, tensors: &[TensorView]) -> Result<(), CheckpointError> {
    let tensors = sorted(path, tensors)?;
    replace(path, &header(&tensors, None), &tensors).map_err(|e| CheckpointError::new(path, e))
}

/// Reads a checkpoint and verifies every byte of it.
///
/// # Errors
/// The file cannot be read, is cut short, damaged, no checkpoint, or of a later version of the format.
pub fn read(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let read = || {
        let mut opened = files::open(path)?;
        parse(&read_accounted(&mut opened.file, opened.size)?)
    };
    read().map_err(|e: Reason| CheckpointError::new(path, e))
}

/// The steps done when the checkpoint was written; nothing but the header is read, and nothing is verified.
pub(super) fn peek_step(path: &Path) -> Result<u64, CheckpointError> {
    let read = || -> Result<u64, Reason> {
        let mut opened = files::open(path)?;
        let (_, metadata) = read_metadata(&read_header(&mut opened.file, opened.size)?)?;
        meta_of(&metadata)?.map(|m| m.step).ok_or(Reason::NotACheckpoint)
    };
    read().map_err(|e| CheckpointError::new(path, e))
}

/// True for a file that says that it is a checkpoint; whether it is a whole one, only [`read`] tells.
pub fn is_checkpoint(path: &Path) -> bool {
    !matches!(peek_step(path), Err(CheckpointError { reason: Reason::NotACheckpoint | Reason::NotSafetensors(_), .. }))
}

/// As [`read`], from memory.
pub(super) fn parse(bytes: &[u8]) -> Result<Checkpoint, Reason> {
    let (file, meta) = open(bytes)?;
    let meta = meta.ok_or(Reason::NotACheckpoint)?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let dtype = from_safetensors(view.dtype())
            .ok_or_else(|| Reason::ElementType { name: name.to_owned(), dtype: view.dtype().to_string() })?;
        tensors.insert(name.to_owned(), Tensor { dtype, shape: view.shape().to_vec(), data: view.data().to_vec() });
    }
    Ok(Checkpoint { meta, tensors })
}

/// Any safetensors file; with its [`Meta`], verified, if it is a checkpoint.
pub(super) fn open(bytes: &[u8]) -> Result<(SafeTensors<'_>, Option<Meta>), Reason> {
    let (header_bytes, metadata) = read_metadata(bytes)?;
    let file = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
    let meta = meta_of(&metadata)?;
    if let Some(meta) = &meta {
        verify(bytes, header_bytes, meta)?;
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
    let metadata =
        serde_json::from_slice(header).map_err(|e| Reason::NotSafetensors(format!("the header is no JSON: {e}")))?;
    Ok((8 + length, metadata))
}

/// The header's bytes with the length before them, from the begin of a file of `size` bytes.
fn read_header(file: &mut impl Read, size: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    file.take(8).read_to_end(&mut bytes)?;
    if let Ok(length) = <[u8; 8]>::try_from(bytes.as_slice()) {
        let length = u64::from_le_bytes(length);
        // A length beyond the file's end is told by whoever looks for the header's own end.
        if length > MAX_HEADER && length <= size {
            return Err(Reason::NotSafetensors(format!("it claims a header of {length} bytes")));
        }
        file.take(length.min(size)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The whole of a safetensors file of `size` bytes, from its begin. Beyond the header nothing is read unless that accounts
/// for every byte of the file: no garbage is taken into memory, however large.
pub(super) fn read_accounted(file: &mut impl Read, size: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = read_header(file, size)?;
    let (header, metadata) = read_metadata(&bytes)?;
    let (described, held) = (metadata.data_len() as u64, size.saturating_sub(header as u64));
    if described != held {
        let why = format!("the header describes {described} bytes of tensors, and the file holds {held}");
        return Err(Reason::NotSafetensors(why));
    }
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

fn verify(bytes: &[u8], header_bytes: usize, meta: &Meta) -> Result<(), Reason> {
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

/// Where the checksum's digits stand in a header.
fn checksum_range(header: &[u8]) -> Option<std::ops::Range<usize>> {
    let mark = CHECKSUM_MARK.as_bytes();
    let start = header.windows(mark.len()).position(|w| w == mark)? + mark.len();
    (start + CHECKSUM_DIGITS <= header.len()).then_some(start..start + CHECKSUM_DIGITS)
}

fn sorted<'a>(path: &Path, tensors: &[TensorView<'a>]) -> Result<Vec<TensorView<'a>>, CheckpointError> {
    let invalid = |why: String| Err(CheckpointError::new(path, Reason::Invalid(why)));
    let mut names = HashSet::new();
    for t in tensors {
        if count(t.shape).and_then(|n| n.checked_mul(t.dtype.bytes())) != Some(t.bytes.len()) {
            return invalid(format!("`{}`: {} bytes for {:?} of {}", t.name, t.bytes.len(), t.shape, t.dtype));
        }
        // The format keeps this name for the metadata.
        if !names.insert(t.name) || t.name == "__metadata__" {
            return invalid(format!("the name `{}` is taken", t.name));
        }
    }
    let mut list = tensors.to_vec();
    list.sort_by(|a, b| b.dtype.bytes().cmp(&a.dtype.bytes()).then(a.name.cmp(b.name)));
    Ok(list)
}

/// Length, JSON, and spaces up to a multiple of 8.
fn header(tensors: &[TensorView], meta: Option<&str>) -> Vec<u8> {
    let quote = |s: &str| serde_json::Value::from(s).to_string();
    let mut json = String::from("{\"__metadata__\":{\"format\":\"pt\"");
    if let Some(meta) = meta {
        let _ = write!(json, ",\"{KEY}\":{}", quote(meta));
    }
    json.push('}');
    let mut at = 0;
    for t in tensors {
        let (start, end) = (at, at + t.bytes.len());
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

/// Puts a file in the place of another, or of none, in one instant.
fn replace(path: &Path, head: &[u8], tensors: &[TensorView]) -> io::Result<()> {
    let temporary = temporary_name(path)?;
    let result = (|| {
        // A link in its place, which could lead anywhere, is not followed.
        let mut file = match fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => File::create_new(&temporary)?,
        };
        file.write_all(head)?;
        for t in tensors {
            file.write_all(t.bytes)?;
        }
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        // The first error is the one worth telling.
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_folder(path)
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file's name"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!("{TEMPORARY}{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// The name that a temporary file would have been given in the end; `None` if `name` is not that of one.
pub(super) fn written_as(name: &str) -> Option<&str> {
    let (name, process) = name.strip_prefix('.')?.rsplit_once(TEMPORARY)?;
    (!process.is_empty() && process.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}

/// Makes a rename last: the entry in the folder is data of the folder.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    // Folders cannot be opened for this elsewhere; the file system orders its own journal.
    Ok(())
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

#[cfg(test)]
mod tests;
