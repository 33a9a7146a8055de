//! The records of a TFRecord file: length, content, and checksums of both.

use std::io::{self, Write};

/// The polynomial of CRC-32C (Castagnoli), its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What a byte does to a checksum.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize])
}

/// The checksum as it is stored: a checksum of what has checksums in it is a weak one.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Writes a record.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, content: &[u8]) -> io::Result<()> {
    let length = (content.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(content)?;
    out.write_all(&masked(content).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // Of RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
