//! Decodes rectangles of common JPEG files (ITU-T T.81), with the pixels of libjpeg-turbo to the bit.
//!
//! Common are: baseline or extended sequential Huffman coding, 8 bits, one scan with all components, grey or YCbCr, whose chroma
//! is as large as the luma (4:4:4), half as wide (4:2:2), half as high (4:4:0) or both (4:2:0), with or without restart intervals. All else,
//! and whatever is cut off or broken where it is read, is [`Unsupported`]: the caller has another decoder for it, which can say what is wrong.
//!
//! ```text
//! header ── where everything is in the file
//! end ───── whether the file has its end
//! scan ──── the coded bits without stuffed bytes, cut at the restart markers
//! bits, huffman, block ── coefficients of a block, or past it
//! idct ──── a block of samples
//! upsample, colour ── rows of RGB
//! decode ── which blocks a rectangle needs, and all of the above for them
//! ```

mod bits;
mod block;
mod colour;
mod decode;
mod end;
mod header;
mod huffman;
mod idct;
mod scan;
mod upsample;

pub use decode::{Decoder, Region};
pub use end::is_cut_off;
pub use header::Jpeg;

use std::fmt;

/// The file is none that this decoder reads, or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JPEG file of an uncommon kind, or a damaged one")
    }
}

impl std::error::Error for Unsupported {}
