//! Writes a state dict as `torch.save` does, so that `torch.load` takes it with `weights_only=True`.
//!
//! The pickle makes an `OrderedDict` of tensors; each tensor is a call of `torch._utils._rebuild_tensor_v2` on a storage of its own.
//! Storages lie uncompressed in the archive, at multiples of 64 bytes, so that `torch.load(mmap=True)` can map them.

use crate::checkpoint::error::Reason;
use crate::checkpoint::tensor::{TensorView, count};
use crate::graph::DType;
use std::collections::HashSet;
use std::io::{self, Seek, Write};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The folder in the archive. PyTorch takes any name, and has this one where it writes to memory.
const FOLDER: &str = "archive";
/// Where storages begin.
const ALIGNMENT: u16 = 64;
/// Larger entries need the zip format's 64-bit sizes.
const MAX_SMALL: usize = u32::MAX as usize - 1;

/// Writes `tensors`, in their order, to `file`.
pub(super) fn write(file: impl Write + Seek, tensors: &[TensorView]) -> Result<(), Reason> {
    let invalid = |why: String| Reason::Invalid(why);
    let mut names = HashSet::new();
    for t in tensors {
        if !names.insert(t.name) {
            return Err(invalid(format!("the name `{}` is taken", t.name)));
        }
        if count(t.shape).and_then(|n| n.checked_mul(t.dtype.bytes())) != Some(t.bytes.len()) {
            return Err(invalid(format!("`{}`: {:?} of {} are not {} bytes", t.name, t.shape, t.dtype, t.bytes.len())));
        }
    }
    let mut zip = ZipWriter::new(file);
    let mut entry = |name: &str, content: &[u8]| -> Result<(), Reason> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(ALIGNMENT)
            .large_file(content.len() > MAX_SMALL);
        zip.start_file(format!("{FOLDER}/{name}"), options).map_err(reason)?;
        Ok(zip.write_all(content)?)
    };
    entry("data.pkl", &pickle(tensors)?)?;
    entry("byteorder", b"little")?;
    for (key, t) in tensors.iter().enumerate() {
        entry(&format!("data/{key}"), t.bytes)?;
    }
    entry("version", b"3\n")?;
    zip.finish().map_err(reason)?.flush()?;
    Ok(())
}

fn reason(error: ZipError) -> Reason {
    match error {
        ZipError::Io(e) => Reason::Io(e),
        other => Reason::Io(io::Error::other(other)),
    }
}

/// The class of a storage, as a pickle names it.
fn storage(t: &TensorView) -> Result<&'static str, Reason> {
    Ok(match t.dtype {
        DType::F32 => "FloatStorage",
        DType::BF16 => "BFloat16Storage",
        DType::F16 => "HalfStorage",
        DType::F64 => "DoubleStorage",
        DType::U8 => "ByteStorage",
        DType::I32 => "IntStorage",
        DType::I64 => "LongStorage",
        DType::U32 => {
            return Err(Reason::Invalid(format!("`{}` is of {}, which PyTorch's files have not", t.name, t.dtype)));
        }
    })
}

/// The description of the tensors: protocol 2. The storage of tensor `i` has the key `i`.
fn pickle(tensors: &[TensorView]) -> Result<Vec<u8>, Reason> {
    const EMPTY_DICT: &[u8] = b"ccollections\nOrderedDict\n)R";
    let mut out = b"\x80\x02".to_vec();
    out.extend(EMPTY_DICT);
    out.push(b'(');
    for (key, t) in tensors.iter().enumerate() {
        text(&mut out, t.name)?;
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n(");
        // The storage: a reference that the reader looks up in the archive.
        out.push(b'(');
        text(&mut out, "storage")?;
        out.extend(format!("ctorch\n{}\n", storage(t)?).bytes());
        text(&mut out, &key.to_string())?;
        text(&mut out, "cpu")?;
        int(&mut out, t.bytes.len() / t.dtype.bytes());
        out.extend(b"tQ");
        // Offset, sizes, strides.
        int(&mut out, 0);
        let mut strides = vec![1usize; t.shape.len()];
        for i in (1..t.shape.len()).rev() {
            strides[i - 1] = strides[i] * t.shape[i].max(1);
        }
        for list in [t.shape, &strides] {
            out.push(b'(');
            list.iter().for_each(|n| int(&mut out, *n));
            out.push(b't');
        }
        // It needs no gradient and has no hooks.
        out.push(0x89);
        out.extend(EMPTY_DICT);
        out.extend(b"tR");
    }
    out.extend(b"u.");
    Ok(out)
}

fn text(out: &mut Vec<u8>, s: &str) -> Result<(), Reason> {
    let len = u32::try_from(s.len()).map_err(|_| Reason::Invalid("a name is too long".into()))?;
    out.push(b'X');
    out.extend(len.to_le_bytes());
    out.extend(s.as_bytes());
    Ok(())
}

/// A whole number that is not negative.
fn int(out: &mut Vec<u8>, n: usize) {
    match i32::try_from(n) {
        Ok(n) => {
            out.push(b'J');
            out.extend(n.to_le_bytes());
        }
        // Two's complement of eight bytes: no memory has so many elements that it would be negative.
        Err(_) => {
            out.extend([0x8a, 8]);
            out.extend((n as u64).to_le_bytes());
        }
    }
}
