//! The IDX format of MNIST: two zero bytes, an element type, the rank, the dimensions (32 bits, big-endian), the data.
//! Only unsigned bytes (type 0x08) occur in the sets that are read here. Files may be gzipped or not: the first bytes
//! tell, not the name.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// An array of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx {
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements, row-major.
    pub data: Vec<u8>,
}

/// Reads the file at `path`, which must hold an array of `rank` dimensions.
///
/// # Errors
/// The file cannot be read, or is not such an array, whole.
pub fn read(path: &Path, rank: usize) -> Result<Idx> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    parse(BufReader::with_capacity(1 << 16, file), &name, rank)
}

/// Reads an array of `rank` dimensions; `name` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(mut from: impl BufRead, name: &str, rank: usize) -> Result<Idx> {
    let start = from.fill_buf().with_context(|| format!("cannot read {name}"))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        parse_plain(flate2::bufread::MultiGzDecoder::new(from), name, rank)
    } else {
        parse_plain(from, name, rank)
    }
}

fn parse_plain(mut from: impl Read, name: &str, rank: usize) -> Result<Idx> {
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
    let size = dims.iter().try_fold(1usize, |p, d| p.checked_mul(*d)).filter(|s| *s < isize::MAX as usize);
    let Some(size) = size else {
        bail!("{name} claims the impossible dimensions {dims:?}: delete it and fetch it again");
    };
    let mut data = Vec::new();
    // A made-up size must not end the program.
    if data.try_reserve_exact(size).is_err() {
        bail!("{name} claims the dimensions {dims:?}, {size} bytes: more than there is memory");
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
        assert!(error(&file(&[u32::MAX, u32::MAX, u32::MAX], &[]), 3).contains("impossible"));
        let whole = gz(&file(&[400], &[7; 400]));
        assert!(error(&whole[..whole.len() - 9], 1).contains("cut short"));
        let mut flipped = whole.clone();
        let at = whole.len() - 6;
        flipped[at] ^= 1;
        assert!(error(&flipped, 1).contains("damaged"));
        assert!(error(&[], 1).contains("the-file"));
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
