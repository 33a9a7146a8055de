//! Writes a state dict as `torch.save` does, so that `torch.load` takes it with `weights_only=True`.
//!
//! The pickle makes an `OrderedDict` of tensors; each tensor is a call of `torch._utils._rebuild_tensor_v2` on a storage of its own.
//! Storages lie uncompressed in the archive, at multiples of 64 bytes, so that `torch.load(mmap=True)` can map them.

use crate::checkpoint::tensor::{TensorView, count};
use crate::graph::DType;
use flate2::Crc;
use std::collections::HashSet;
use std::io::{self, Write};

/// The folder in the archive. PyTorch takes any name, and has this one where it writes to memory.
const FOLDER: &str = "archive";
/// Storages begin at multiples of it.
const ALIGNMENT: u64 = 64;
/// What an entry has besides its content and its name, generously.
const ROOM: u64 = 256;

/// Writes `tensors`, in their order, to `file`. What cannot be written at all is [`io::ErrorKind::InvalidInput`].
pub(in crate::checkpoint) fn write(file: impl Write, tensors: &[TensorView]) -> io::Result<()> {
    let mut names = HashSet::new();
    for t in tensors {
        if !names.insert(t.name) {
            return Err(invalid(format!("the name `{}` is taken", t.name)));
        }
        if count(t.shape).and_then(|n| n.checked_mul(t.dtype.bytes())) != Some(t.bytes.len()) {
            return Err(invalid(format!("`{}`: {:?} of {} are not {} bytes", t.name, t.shape, t.dtype, t.bytes.len())));
        }
    }
    let pickle = pickle(tensors)?;
    let bytes = tensors.iter().map(|t| t.bytes.len() as u64 + ROOM).sum::<u64>() + pickle.len() as u64 + 3 * ROOM;
    let large = bytes > u32::MAX.into() || tensors.len() + 3 > u16::MAX.into();
    write_archive(file, &pickle, tensors, large)
}

/// The archive; a `large` one has the zip format's 64-bit sizes.
pub(super) fn write_archive(file: impl Write, pickle: &[u8], tensors: &[TensorView], large: bool) -> io::Result<()> {
    let mut archive = Archive { file, at: 0, large, directory: Vec::new(), entries: 0 };
    archive.entry("data.pkl", pickle)?;
    archive.entry("byteorder", b"little")?;
    for (key, t) in tensors.iter().enumerate() {
        archive.entry(&format!("data/{key}"), t.bytes)?;
    }
    archive.entry("version", b"3\n")?;
    archive.finish()
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// A zip archive of entries as they are. All is known before it is written, so that nothing is changed afterwards.
struct Archive<W> {
    file: W,
    /// Bytes written so far.
    at: u64,
    /// Sizes and places have 64 bits.
    large: bool,
    /// The list of entries at the end of the file.
    directory: Vec<u8>,
    entries: u64,
}

impl<W: Write> Archive<W> {
    /// The version of the format, the encoding of names (UTF-8), no compression, no time, and the day that the format begins with.
    fn features(&self) -> [u16; 5] {
        [if self.large { 45 } else { 20 }, 1 << 11, 0, 0, 0x21]
    }

    /// A size or place; those of large archives are elsewhere.
    fn short(&self, n: u64) -> u32 {
        if self.large { u32::MAX } else { n as u32 }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn entry(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let name = format!("{FOLDER}/{name}");
        let (start, size) = (self.at, content.len() as u64);
        let mut crc = Crc::new();
        crc.update(content);
        let mut common = Vec::new();
        self.features().iter().for_each(|n| common.extend(n.to_le_bytes()));
        let short = self.short(size);
        [crc.sum(), short, short].iter().for_each(|n| common.extend(n.to_le_bytes()));
        common.extend((name.len() as u16).to_le_bytes());
        let field = |numbers: &[u64]| {
            let mut field = vec![1, 0, 8 * numbers.len() as u8, 0];
            numbers.iter().for_each(|n| field.extend(n.to_le_bytes()));
            if self.large { field } else { Vec::new() }
        };

        let mut extra = field(&[size, size]);
        // A field of zeros, as PyTorch has it, up to where the content is to begin.
        let before = start + 30 + (name.len() + extra.len() + 4) as u64;
        let padding = (before.next_multiple_of(ALIGNMENT) - before) as u16;
        extra.extend(b"FB");
        extra.extend(padding.to_le_bytes());
        extra.resize(extra.len() + usize::from(padding), 0);
        let length = (extra.len() as u16).to_le_bytes();
        let header = [b"PK\x03\x04".as_slice(), &common, &length, name.as_bytes(), &extra].concat();

        let extra = field(&[size, size, start]);
        let length = (extra.len() as u16).to_le_bytes();
        // No comment, no attributes; the whole archive is one file.
        let place = [[0; 10].as_slice(), &self.short(start).to_le_bytes()].concat();
        let made_by = self.features()[0].to_le_bytes();
        let row = [b"PK\x01\x02".as_slice(), &made_by, &common, &length, &place, name.as_bytes(), &extra].concat();
        self.directory.extend(row);
        self.entries += 1;
        self.put(&header)?;
        self.put(content)
    }

    fn finish(mut self) -> io::Result<()> {
        let (start, size) = (self.at, self.directory.len() as u64);
        let directory = std::mem::take(&mut self.directory);
        self.put(&directory)?;
        if self.large {
            let end = self.at;
            let version = u32::from(self.features()[0]);
            let mut record = b"PK\x06\x06".to_vec();
            record.extend(44u64.to_le_bytes());
            record.extend((version | version << 16).to_le_bytes());
            [0, self.entries, self.entries, size, start].iter().for_each(|n| record.extend(n.to_le_bytes()));
            record.extend(b"PK\x06\x07\0\0\0\0");
            record.extend(end.to_le_bytes());
            record.extend(1u32.to_le_bytes());
            self.put(&record)?;
        }
        let entries = if self.large { u16::MAX } else { self.entries as u16 };
        let mut record = b"PK\x05\x06\0\0\0\0".to_vec();
        [entries; 2].iter().for_each(|n| record.extend(n.to_le_bytes()));
        [size, start].iter().for_each(|n| record.extend(self.short(*n).to_le_bytes()));
        record.extend([0; 2]);
        self.put(&record)?;
        self.file.flush()
    }
}

/// The class of a storage, as a pickle names it.
fn storage(t: &TensorView) -> io::Result<&'static str> {
    Ok(match t.dtype {
        DType::F32 => "FloatStorage",
        DType::BF16 => "BFloat16Storage",
        DType::F16 => "HalfStorage",
        DType::F64 => "DoubleStorage",
        DType::U8 => "ByteStorage",
        DType::I32 => "IntStorage",
        DType::I64 => "LongStorage",
        DType::U32 => {
            return Err(invalid(format!("`{}` is of {}, which PyTorch's files have not", t.name, t.dtype)));
        }
    })
}

/// The description of the tensors: protocol 2. The storage of tensor `i` has the key `i`.
pub(super) fn pickle(tensors: &[TensorView]) -> io::Result<Vec<u8>> {
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
    out.push(b'u');
    // `_metadata`: the version of the outermost module. Without it torchvision's MNASNet takes no state dict.
    out.push(b'}');
    text(&mut out, "_metadata")?;
    out.push(b'}');
    text(&mut out, "")?;
    out.push(b'}');
    text(&mut out, "version")?;
    int(&mut out, 1);
    out.extend(b"sssb.");
    Ok(out)
}

fn text(out: &mut Vec<u8>, s: &str) -> io::Result<()> {
    let len = u32::try_from(s.len()).map_err(|_| invalid("a name is too long"))?;
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
