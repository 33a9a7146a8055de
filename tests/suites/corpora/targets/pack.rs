//! The wrappings of formats, made here so that a fuzzer need not find lengths and checksums.

use std::io::Write;

/// A zip archive whose entries are stored as they are.
pub fn stored_zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        // Version, flags, method, time, date, CRC-32, both sizes, lengths of the name and of the extra field.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 33, 0];
        common.extend(crc.sum().to_le_bytes());
        common.extend((bytes.len() as u32).to_le_bytes());
        common.extend((bytes.len() as u32).to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        let at = out.len() as u32;
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(*bytes);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        // Comment, disk, attributes.
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (at, count) = (out.len() as u32, entries.len() as u16);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// Gzipped.
pub fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// The tar archive whose headers are given: each gets its checksum, and as many bytes as it says (few at most) of its last byte.
pub fn headers(list: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 512;
    const MOST: u64 = 4 * 3073;
    let mut out = Vec::new();
    for header in list.chunks(BLOCK).take(64) {
        let mut block = [0; BLOCK];
        block[..header.len()].copy_from_slice(header);
        let filler = block[BLOCK - 1];
        block[BLOCK - 1] = 0;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[124..136].iter().filter(|b| b.is_ascii_digit()).map(|b| u64::from(*b - b'0'));
        let size = digits.fold(0u64, |n, d| n.saturating_mul(8).saturating_add(d)).min(MOST) as usize;
        out.extend(block);
        out.extend(std::iter::repeat_n(filler, size));
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.extend([0; 2 * BLOCK]);
    out
}
