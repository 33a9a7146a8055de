//! The IDX format of MNIST: two zero bytes, an element type, the rank, the dimensions (32 bits, big-endian), the data.
//! Only unsigned bytes (type 0x08) occur in the sets that are read here. Files may be gzipped or not: the first
//! bytes decide, and not the name.

use super::digest::{Digest, Digesting};
use crate::files::{self, Contained};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Most bytes that an array may have: far more than any set in this format.
pub const MAX_BYTES: usize = 1 << 30;

/// An array of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx {
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements, row-major.
    pub data: Vec<u8>,
}

/// An array with what its file is known by.
#[derive(Debug)]
pub(super) struct Digested {
    pub idx: Idx,
    /// Of the file as it lies there.
    pub file: Digest,
}

impl Idx {
    /// The digest of the file that holds the array and is not packed.
    pub(super) fn digest(&self) -> Digest {
        let dims: Vec<u8> = self.dims.iter().flat_map(|d| (*d as u32).to_be_bytes()).collect();
        Digest::of(&[&[0, 0, 8, self.dims.len() as u8], &dims, &self.data])
    }
}

/// What the dimensions of an array must be; `None`: anything.
pub(super) type Expected<'a> = &'a [Option<usize>];

/// Reads the file at `path`.
///
/// # Errors
/// The file cannot be read, or is not an array of these dimensions, whole.
pub(super) fn read(path: &Path, dims: Expected) -> Result<Idx> {
    parse_shaped(open(path)?, &path.display().to_string(), dims)
}

/// As [`read`], with the digest of the file.
///
/// # Errors
/// As [`read`].
pub(super) fn read_digested(path: &Path, dims: Expected) -> Result<Digested> {
    let mut from = Digesting::new(open(path)?);
    let idx = parse_shaped(&mut from, &path.display().to_string(), dims)?;
    Ok(Digested { idx, file: from.digest() })
}

fn open(path: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::with_capacity(1 << 16, files::open(path)?.file))
}

/// Reads an array of `rank` dimensions, whatever they are; `name` is for messages.
///
/// # Errors
/// What is read is no such array, whole, or one of more than [`MAX_BYTES`].
pub fn parse(from: impl BufRead, name: &str, rank: usize) -> Result<Idx> {
    parse_shaped(from, name, &vec![None; rank])
}

fn parse_shaped(mut from: impl BufRead, name: &str, expected: Expected) -> Result<Idx> {
    let start = from.fill_buf().with_context(|| format!("cannot read {name}"))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        parse_plain(Contained::new(flate2::bufread::MultiGzDecoder::new(from)), name, expected)
    } else {
        parse_plain(from, name, expected)
    }
}

fn parse_plain(mut from: impl Read, name: &str, expected: Expected) -> Result<Idx> {
    let rank = expected.len();
    let cut_short = || format!("{name} is damaged or cut short: delete it and fetch it again");
    let mut magic = [0; 4];
    from.read_exact(&mut magic).with_context(cut_short)?;
    let [0, 0, kind, dimensions] = magic else {
        bail!("{name} is no IDX file: it begins with {magic:02x?}, not with two zero bytes");
    };
    ensure!(kind == 8, "{name} holds elements of IDX type {kind:#04x}; only unsigned bytes (0x08) are supported");
    ensure!(
        usize::from(dimensions) == rank,
        "{name} holds an array of {dimensions} dimensions where {rank} are expected: images and labels swapped?"
    );
    let mut dims = Vec::with_capacity(rank);
    for _ in 0..rank {
        let mut d = [0; 4];
        from.read_exact(&mut d).with_context(cut_short)?;
        dims.push(u32::from_be_bytes(d) as usize);
    }
    // Before anything is made room for, or unpacked.
    if dims.iter().zip(expected).any(|(d, e)| e.is_some_and(|e| *d != e)) {
        return Err(OtherShape { name: name.into(), dims, expected: expected.to_vec() }.into());
    }
    let size = dims.iter().try_fold(1usize, |p, d| p.checked_mul(*d)).filter(|s| *s <= MAX_BYTES);
    let Some(size) = size else {
        bail!("{name} claims the dimensions {dims:?}: more than the {MAX_BYTES} bytes that such a file may unpack to");
    };
    let mut data = Vec::new();
    if data.try_reserve_exact(size).is_err() {
        bail!("{name} has the dimensions {dims:?}, {size} bytes: more than there is memory");
    }
    from.by_ref().take(size as u64).read_to_end(&mut data).with_context(cut_short)?;
    ensure!(
        data.len() == size,
        "{name} is cut short: {dims:?} are {size} bytes, and it holds {}; delete it and fetch it again",
        data.len()
    );
    let more = from.read(&mut [0]).with_context(cut_short)?;
    ensure!(more == 0, "{name} holds more data than its dimensions {dims:?} say: it is not what it claims to be");
    Ok(Idx { dims, data })
}

/// An array has other dimensions than those expected.
#[derive(Debug)]
pub(super) struct OtherShape {
    name: String,
    dims: Vec<usize>,
    expected: Vec<Option<usize>>,
}

impl fmt::Display for OtherShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |dims: &mut dyn Iterator<Item = String>| dims.collect::<Vec<_>>().join("×");
        let found = list(&mut self.dims.iter().map(usize::to_string));
        let expected = list(&mut self.expected.iter().map(|d| d.map_or("N".into(), |d| d.to_string())));
        write!(f, "{} holds {found} bytes where {expected} are expected", self.name)
    }
}

impl std::error::Error for OtherShape {}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// An IDX file.
    pub fn file(dims: &[u32], data: &[u8]) -> Vec<u8> {
        let mut out = vec![0, 0, 8, dims.len() as u8];
        out.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
        out.extend(data);
        out
    }

    /// The same, gzipped.
    pub fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    fn error(bytes: &[u8], rank: usize) -> String {
        format!("{:#}", parse(bytes, "the-file", rank).unwrap_err())
    }

    #[test]
    fn plain_and_gzipped() {
        let plain = file(&[2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        let expected = Idx { dims: vec![2, 1, 3], data: vec![1, 2, 3, 4, 5, 6] };
        assert_eq!(parse(&plain[..], "f", 3).unwrap(), expected);
        assert_eq!(parse(&gz(&plain)[..], "f", 3).unwrap(), expected);
    }

    #[test]
    fn every_fault_is_named() {
        let good = file(&[2, 2], &[1, 2, 3, 4]);
        assert!(error(b"PK\x03\x04 and so on", 2).contains("no IDX file"));
        assert!(error(&good[..11], 2).contains("cut short"));
        assert!(error(&good[..15], 2).contains("cut short: [2, 2] are 4 bytes, and it holds 3"));
        assert!(error(&[&good[..], b"x"].concat(), 2).contains("more data"));
        assert!(error(&good, 3).contains("2 dimensions where 3"));
        assert!(error(&[0, 0, 0x0d, 1, 0, 0, 0, 0], 1).contains("0x0d"));
        assert!(error(&file(&[u32::MAX, u32::MAX, u32::MAX], &[]), 3).contains("more than the 1073741824 bytes"));
        let whole = gz(&file(&[400], &[7; 400]));
        assert!(error(&whole[..whole.len() - 9], 1).contains("cut short"));
        let mut flipped = whole.clone();
        let at = whole.len() - 6;
        flipped[at] ^= 1;
        assert!(error(&flipped, 1).contains("damaged"));
        assert!(error(&[], 1).contains("the-file"));
    }

    /// A few hundred kilobytes that claim gigabytes, and hold them.
    #[test]
    fn what_unpacks_to_gigabytes_is_refused_by_its_header() {
        let head = gz(&file(&[3000, 1000, 1000], &[]));
        assert!(error(&head, 3).contains("more than the 1073741824 bytes"));
        // Dimensions that the set cannot have are refused even where they are small.
        let got = parse_shaped(&gz(&file(&[2, 3], &[0; 6]))[..], "f", &[None, Some(4)]).unwrap_err();
        assert!(got.is::<OtherShape>() && got.to_string() == "f holds 2×3 bytes where N×4 are expected", "{got}");
        assert!(parse_shaped(&file(&[2, 3], &[0; 6])[..], "f", &[Some(2), Some(3)]).is_ok());
        // More data than the dimensions say is not unpacked further than one byte.
        let long = gz(&file(&[1], &[0; 1 << 20]));
        assert!(error(&long, 1).contains("more data"));
    }

    #[test]
    fn digests_are_those_of_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let plain = file(&[2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        for (bytes, packed) in [(plain.clone(), false), (gz(&plain), true)] {
            std::fs::write(&path, &bytes).unwrap();
            let read = read_digested(&path, &[None; 3]).unwrap();
            assert_eq!(read.file, Digest::of(&[&bytes]));
            assert_eq!(read.idx.digest(), Digest::of(&[&plain]));
            assert_eq!(read.file == read.idx.digest(), !packed);
        }
    }

    /// Every single flipped bit of a packed file is found, or changes nothing that is read.
    #[test]
    fn no_flipped_bit_changes_what_is_read() {
        let data: Vec<u8> = (0..600u32).map(|i| (i * i % 7) as u8).collect();
        let whole = gz(&file(&[600], &data));
        let expected = parse(&whole[..], "f", 1).unwrap();
        let mut refused = 0;
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match parse(&flipped[..], "f", 1) {
                Ok(idx) => assert_eq!(idx, expected, "bit {bit}"),
                Err(_) => refused += 1,
            }
        }
        // The rest is the time and the system in the gzip header, and padding.
        assert!(refused > 8 * (whole.len() - 10), "{refused} of {}", 8 * whole.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), rank in 0usize..5) {
            let _ = parse(&bytes[..], "f", rank);
        }

        #[test]
        fn any_header_is_read_or_refused(dims in prop::collection::vec(prop_oneof![0u32..5, any::<u32>()], 0..4),
                                         data in prop::collection::vec(any::<u8>(), 0..64), zip in any::<bool>()) {
            let mut bytes = file(&dims, &data);
            if zip {
                bytes = gz(&bytes);
            }
            let size = dims.iter().map(|d| *d as u128).product::<u128>();
            let got = parse(&bytes[..], "f", dims.len());
            prop_assert_eq!(got.is_ok(), size == data.len() as u128);
        }
    }
}
