//! What a JPEG file says of its colours, for a decoder that understands it otherwise than libjpeg (`default_decompress_parms`) does.

use std::borrow::Cow;

/// Bytes that a JFIF segment has at least.
const JFIF: usize = 14;
/// Where the transform stands in a segment of Adobe's.
const TRANSFORM: usize = 11;
/// A segment of Adobe's that says: no transform, so RGB.
const RGB: [u8; 16] = *b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0";

/// What a header says of colours.
#[derive(Default)]
struct Declared {
    jfif: bool,
    /// Where in the file the transform of Adobe's segment is.
    adobe: Option<usize>,
    names: Vec<u8>,
}

/// The file with Adobe's segment as the decoder needs it to come to libjpeg's colours. The decoder reads that segment alone, and takes three components
/// without it for YCbCr. For libjpeg a JFIF file is YCbCr whatever Adobe's segment says, and components called `R`, `G` and `B` are RGB.
pub fn with_declared_colours(file: &[u8]) -> Cow<'_, [u8]> {
    let Some(Declared { jfif, adobe, names }) = declared(file).filter(|declared| declared.names.len() == 3) else {
        return Cow::Borrowed(file);
    };
    let is_rgb = match adobe {
        _ if jfif => false,
        Some(at) => file[at] == 0,
        None => names == b"RGB",
    };
    match adobe {
        Some(at) if !is_rgb && file[at] != 1 => {
            let mut changed = file.to_vec();
            changed[at] = 1;
            Cow::Owned(changed)
        }
        None if is_rgb => Cow::Owned([&file[..2], &RGB, &file[2..]].concat()),
        _ => Cow::Borrowed(file),
    }
}

/// Up to the first scan.
fn declared(file: &[u8]) -> Option<Declared> {
    let mut found = Declared::default();
    let mut at = file.starts_with(&[0xff, 0xd8]).then_some(2)?;
    loop {
        let &[first, marker] = file.get(at..)?.first_chunk()?;
        if first != 0xff || matches!(marker, 0 | 0xff) {
            at += 1;
            continue;
        }
        at += 2;
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        let length = usize::from(u16::from_be_bytes(*file.get(at..)?.first_chunk()?));
        let segment = file.get(at + 2..at + length)?;
        match marker {
            0xe0 if segment.starts_with(b"JFIF\0") && segment.len() >= JFIF => found.jfif = true,
            0xee if segment.starts_with(b"Adobe") && segment.len() > TRANSFORM => {
                found.adobe = Some(at + 2 + TRANSFORM)
            }
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => found.names = segment.get(6..)?.chunks_exact(3).map(|component| component[0]).collect(),
            0xda => return Some(found),
            _ => {}
        }
        at += length;
    }
}
