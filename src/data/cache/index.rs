//! The index of the images that are kept in a file: what each was made of, and where its pixels are.
//!
//! The file begins with [`HEADER`], and goes on with rows of [`ROW`] bytes, each of which ends in a hash of the rest of it. A row is
//! written when its pixels are, so whatever ends the process, and whenever, leaves either a whole row whose pixels are there or none
//! that counts.

use super::super::transforms::Transform;
use std::time::UNIX_EPOCH;

/// The first bytes of an index.
pub const HEADER: &[u8; 16] = b"runner: photos 1";
/// Bytes of a row.
pub const ROW: usize = 104;
/// What an image takes beside its pixels, at most.
pub const OVERHEAD: u64 = 128;

/// A hash.
pub type Hash = [u8; 16];

/// A hash of some bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    first(&blake3::hash(bytes))
}

fn first(hash: &blake3::Hash) -> Hash {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// The name of the files of a part of a source. The pixels that a file is decoded to, and those that transforms make of them, are
/// a matter of the version of this program.
pub fn key(part: &str, folder: &str, transforms: &[Transform]) -> String {
    let text = format!("{}\n{part}\n{folder}\n{transforms:?}", env!("CARGO_PKG_VERSION"));
    first(&blake3::hash(text.as_bytes())).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identity of a sample.
pub fn located(sample: usize, locate: super::Locate) -> Hash {
    let mut hash = blake3::Hasher::new();
    locate(sample, &mut |bytes| _ = hash.update(bytes));
    first(&hash.finalize())
}

/// How a file was when it was read: its size in bytes and the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    size: u64,
    seconds: u64,
    nanoseconds: u32,
}

impl Stamp {
    /// Of a file of which that is known.
    pub fn of(metadata: &std::fs::Metadata) -> Option<Self> {
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Stamp { size: metadata.len(), seconds: changed.as_secs(), nanoseconds: changed.subsec_nanos() })
    }
}

/// An image that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which sample it is.
    pub image: Hash,
    /// How its file was.
    pub stamp: Stamp,
    /// Where its pixels begin.
    pub offset: u64,
    /// Height, width and channels.
    pub shape: [u32; 3],
    /// The hash of its pixels.
    pub pixels: Hash,
}

impl Row {
    /// Bytes of its pixels.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().map(|side| u64::from(*side)).fold(1, u64::saturating_mul)
    }

    /// Where its pixels end.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes())
    }

    pub fn to_bytes(self) -> [u8; ROW] {
        let Stamp { size, seconds, nanoseconds } = self.stamp;
        let mut out = Vec::with_capacity(ROW);
        out.extend(self.image);
        out.extend([size, seconds, self.offset].into_iter().flat_map(u64::to_le_bytes));
        out.extend(self.shape.into_iter().chain([nanoseconds]).flat_map(u32::to_le_bytes));
        out.extend(self.pixels);
        out.resize(ROW - size_of::<Hash>(), 0);
        out.extend(hash(&out));
        out.try_into().unwrap_or([0; ROW])
    }

    /// Reads one; `None` if it is none, or is not whole.
    pub fn read(bytes: &[u8; ROW]) -> Option<Row> {
        let (row, check) = bytes.split_last_chunk::<{ size_of::<Hash>() }>()?;
        if hash(row) != *check {
            return None;
        }
        let (image, rest) = row.split_first_chunk()?;
        let (words, rest) = rest.split_first_chunk::<24>()?;
        let [size, seconds, offset] = [0, 1, 2].map(|i| u64::from_le_bytes(words.as_chunks().0[i]));
        let (words, rest) = rest.split_first_chunk::<16>()?;
        let [h, w, c, nanoseconds] = [0, 1, 2, 3].map(|i| u32::from_le_bytes(words.as_chunks().0[i]));
        let pixels = *rest.first_chunk()?;
        let stamp = Stamp { size, seconds, nanoseconds };
        Some(Row { image: *image, stamp, offset, shape: [h, w, c], pixels })
    }
}
