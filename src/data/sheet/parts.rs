//! A text that comes in parts, each after what was left of the one before.

use super::bytes;
use super::quotes::PIECE;
use anyhow::{Result, ensure};
use std::path::Path;

/// Texts up to this size are in memory as a whole. Tests have larger ones.
pub const SMALL: u64 = if cfg!(test) { 256 } else { 16 << 20 };
/// Bytes at the begin of a text in which its first line is looked for.
pub const HEAD: u64 = 1 << 20;

/// The size of the mark that a text begins with, which says that it is UTF-8, and the text after it, up to bytes that are none. `None`: it is UTF-16, or empty so far.
pub fn head_of(bytes: &[u8]) -> Option<(usize, String)> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return None;
    }
    let mark = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    // Bytes that are no UTF-8 end the head. A scan reports them when it reaches them.
    let head = bytes[mark..].utf8_chunks().next().map_or("", |chunk| chunk.valid()).to_owned();
    (!head.trim().is_empty()).then_some((mark, head))
}

/// Hands the text of the file at `path` in parts to `look`, and whether a part is the last one. `look` says how many bytes of the part it is done with; the others stand before
/// the next part. `more` adds about so many bytes to those that there are, and says whether they are the last.
///
/// # Errors
/// `more` or `look` fails; it is no text, with the line.
pub fn scan(
    path: &Path,
    mut more: impl FnMut(&mut Vec<u8>, usize) -> Result<bool>,
    mut look: impl FnMut(&str, bool) -> Result<usize>,
) -> Result<()> {
    let (mut buffer, mut lines) = (Vec::new(), 0);
    loop {
        // More at once each time that a record goes on, so that its begin is not looked at again and again.
        let kept = buffer.len();
        let last = more(&mut buffer, PIECE.max(kept))?;
        // The error names the line.
        let no_text = || bytes::no_text(path, &buffer, lines, bytes::has_cells(path));
        ensure!(memchr::memchr(0, &buffer[kept..]).is_none(), no_text());
        let whole = match std::str::from_utf8(&buffer) {
            Ok(text) => text.len(),
            // A character goes on in the next part.
            Err(error) if !last && error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(no_text()),
        };
        let text = std::str::from_utf8(&buffer[..whole]).map_err(|_| no_text())?;
        let done = look(text, last)?;
        if last {
            return Ok(());
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..done]).count();
        buffer.drain(..done);
    }
}
