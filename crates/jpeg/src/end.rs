//! Whether a file has its end.

/// The marker that ends an image.
const END: [u8; 2] = [0xff, 0xd9];

/// True of a JPEG file, of any kind, that breaks off before the marker that ends its image.
pub fn is_cut_off(file: &[u8]) -> bool {
    let Some(mut rest) = file.strip_prefix(&[0xff, 0xd8]) else { return false };
    // Most files end there. Others have something after it, which may be another image.
    if file.ends_with(&END) {
        return false;
    }
    loop {
        // Coded data and whatever else lies before a marker; in coded data a byte of ones has a zero or a restart marker after it.
        let marker = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0x01 | 0xd0..=0xd7 | 0xff);
        let Some(at) = rest.windows(2).position(marker) else { return true };
        if rest[at..].starts_with(&END) {
            return false;
        }
        // A segment says how long it is. One in it may hold a small image with an end of its own.
        let Some(length) = rest[at + 2..].first_chunk() else { return true };
        match rest.get(at + 2 + usize::from(u16::from_be_bytes(*length)).max(2)..) {
            Some(behind) => rest = behind,
            None => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Of common files and of others; with a small image in the header, and with something after the end.
    #[test]
    fn a_file_is_cut_off_wherever_it_ends_before_its_image() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/jpeg");
        for name in ["420-37x53-edges", "other-progressive", "grey-37x53-noise"] {
            let plain = std::fs::read(folder.join(format!("{name}.jpg"))).unwrap();
            let small = [&[0xff, 0xe1, 0, 8][..], &[0xff, 0xd8, 1, 2], &END].concat();
            for file in [plain.clone(), [&plain[..2], &small, &plain[2..]].concat()] {
                assert!(!is_cut_off(&file) && !is_cut_off(&[&file, &b"more"[..]].concat()), "{name}");
                for length in (2..file.len()).filter(|length| !file[..*length].ends_with(&END)) {
                    assert!(is_cut_off(&file[..length]), "{name}: {length} of {} bytes", file.len());
                    assert!(is_cut_off(&[&file[..length], &[0; 3]].concat()), "{name}: {length}, and zeros");
                }
            }
        }
        for other in [&b""[..], b"\xff", b"GIF89a", b"\x89PNG"] {
            assert!(!is_cut_off(other), "{other:?} is none");
        }
    }
}
