//! Reading a checkpoint tensor by tensor, so that it is never in memory in addition to the state that is made of it.

use super::{
    CHECKSUM_DIGITS, CheckpointError, Meta, Reason, accounted, checksum_range, count, files, from_safetensors, hex,
    meta_of, read_header, read_metadata,
};
use crate::graph::DType;
use safetensors::tensor::{Metadata, TensorInfo};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;

/// A tensor of a file, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<usize>,
}

/// A checkpoint whose header has been read.
struct Opened {
    /// What comes after the header, and counts into the checksum as it is read.
    rest: Summed<BufReader<File>>,
    meta: Meta,
    /// Names and tensors in the order of the file.
    tensors: Vec<(String, Header)>,
}

/// A reader that sums up what is read from it.
struct Summed<R> {
    from: R,
    sum: Sha256,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(into)?;
        self.sum.update(&into[..n]);
        Ok(n)
    }
}

fn open(path: &Path) -> Result<Opened, Reason> {
    let mut opened = files::open(path)?;
    let header = read_header(&mut opened.file, opened.size)?;
    let (_, metadata) = read_metadata(&header)?;
    accounted(&header, &metadata, opened.size)?;
    let meta = meta_of(&metadata)?.ok_or(Reason::NotACheckpoint)?;
    let digits = digits(&header, &meta)?;
    let mut sum = Sha256::new();
    sum.update(&header[..digits.start]);
    sum.update([b'0'; CHECKSUM_DIGITS]);
    sum.update(&header[digits.end..]);
    let tensors = in_order(&metadata)?;
    Ok(Opened { rest: Summed { from: BufReader::with_capacity(1 << 18, opened.file), sum }, meta, tensors })
}

fn digits(header: &[u8], meta: &Meta) -> Result<Range<usize>, Reason> {
    checksum_range(header)
        .filter(|r| &header[r.clone()] == meta.checksum.as_bytes())
        .ok_or_else(|| Reason::Damaged("the checksum is not where it should be".into()))
}

/// The tensors as they lie in the file, one right after the other.
fn in_order(metadata: &Metadata) -> Result<Vec<(String, Header)>, Reason> {
    let all: BTreeMap<String, &TensorInfo> = metadata.tensors().into_iter().collect();
    let mut list: Vec<(String, &TensorInfo)> = all.into_iter().collect();
    list.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut out = Vec::with_capacity(list.len());
    for (name, info) in list {
        let dtype = from_safetensors(info.dtype)
            .ok_or_else(|| Reason::ElementType { name: name.clone(), dtype: info.dtype.to_string() })?;
        let bytes = count(&info.shape).and_then(|n| n.checked_mul(dtype.bytes()));
        let (start, stop) = info.data_offsets;
        if start != end || bytes.and_then(|b| start.checked_add(b)) != Some(stop) {
            return Err(Reason::NotSafetensors(format!("tensor `{name}` does not lie where it should")));
        }
        end = stop;
        out.push((name, Header { dtype, shape: info.shape.clone() }));
    }
    Ok(out)
}

/// Hands the tensors of the checkpoint at `path` to `take`, in the order of the file, each with its bytes to be read from
/// it (row-major, little-endian); bytes that are left are skipped. Every byte of the file counts into the checksum, which
/// can only be compared with the file's at the end: what was read may be used only if this returns without an error.
///
/// # Errors
/// The file cannot be read, is cut short, damaged, no checkpoint, or of a later version of the format; `take` failed.
pub fn read_streamed(
    path: &Path,
    take: &mut dyn FnMut(&str, &Header, &mut dyn Read) -> anyhow::Result<()>,
) -> anyhow::Result<Meta> {
    let Opened { mut rest, meta, tensors } = open(path).map_err(|e| CheckpointError::new(path, e))?;
    let failed = |e: io::Error| CheckpointError::new(path, e);
    for (name, header) in &tensors {
        // The product has been looked at.
        let bytes = header.shape.iter().product::<usize>() * header.dtype.bytes();
        let mut part = (&mut rest).take(bytes as u64);
        take(name, header, &mut part)?;
        io::copy(&mut part, &mut io::sink()).map_err(failed)?;
        if part.limit() > 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()).into());
        }
    }
    if hex(&rest.sum.finalize()) != meta.checksum {
        let why = Reason::Damaged("its content does not match its checksum".into());
        return Err(CheckpointError::new(path, why).into());
    }
    Ok(meta)
}

/// Verifies every byte of a checkpoint; the run's state.
///
/// # Errors
/// As for [`super::read`].
pub fn verify(path: &Path) -> Result<Meta, CheckpointError> {
    read_streamed(path, &mut |_, _, _| Ok(())).map_err(|e| super::as_checkpoint(path, e))
}

/// The tensors of a checkpoint by name, without their bytes. Nothing is verified.
///
/// # Errors
/// The file cannot be read, or is no checkpoint.
pub fn read_header_of(path: &Path) -> Result<BTreeMap<String, Header>, CheckpointError> {
    open(path).map(|o| o.tensors.into_iter().collect()).map_err(|e| CheckpointError::new(path, e))
}
