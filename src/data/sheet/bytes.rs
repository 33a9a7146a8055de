//! The bytes of a file as a text: unpacked where its name says that it is packed, and in whichever encoding.

use super::OBJECT_ENDINGS;
use super::packing::{Packing, all_of, inner_ending};
use crate::files;
use crate::files::host_memory::host_memory;
use crate::terminal::human_bytes;
use anyhow::{Context, Result, anyhow, bail};
use encoding_rs::{DecoderResult, Encoding, UTF_8};
use std::path::Path;

/// What is unpacked of a file may take so much of the memory that there is: its cells as numbers take as much again, and more.
const PART_OF_MEMORY: usize = 3;

/// The content of a file of at most `most` bytes, unpacked.
///
/// # Errors
/// It cannot be read or unpacked; it is larger than that, or than this machine has room for.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let (room, because) = match host_memory() {
        Some(host) => ((host.available / PART_OF_MEMORY) as u64, host.because),
        None => (u64::MAX, String::new()),
    };
    read_in(path, most, room, &because)
}

/// The same where what is read may take `room`; `because` says why no more.
fn read_in(path: &Path, most: u64, room: u64, because: &str) -> Result<Vec<u8>> {
    // A file without content can be of any size.
    let large = std::fs::metadata(path).ok().filter(|data| data.is_file()).map(|data| data.len());
    if let Some(large) = large.filter(|len| *len > room && *len <= most) {
        let [large, room] = [large, room].map(|n| human_bytes(usize::try_from(n).unwrap_or(usize::MAX)));
        bail!(
            "`{}` has {large}, and more than {room} are not read ({because}, a third of which a table may have): leave rows or columns out",
            path.display()
        );
    }
    let Some(packing) = Packing::of(path) else { return Ok(files::read(path, most)?) };
    let because = if room < most {
        format!("{because}, a third of which a packed file may have that is read whole")
    } else {
        String::new()
    };
    let unpacked = packing.unpacked(files::open(path)?.file);
    all_of(unpacked, most.min(room), &because).with_context(|| format!("`{}`", path.display()))
}

/// The text of a file of at most `most` bytes, unpacked.
///
/// # Errors
/// As [`read`] and [`text`].
pub fn file_text(path: &Path, most: u64) -> Result<String> {
    text_of(path, read(path, most)?, None, false)
}

/// The bytes as text, without the mark that some programs begin it with, which says that they are UTF-8 or UTF-16. Without a mark they are in `encoding`; UTF-8, if that is
/// `None`.
///
/// # Errors
/// They are no text, with the line.
pub fn text(path: &Path, bytes: Vec<u8>, encoding: Option<&'static Encoding>) -> Result<String> {
    text_of(path, bytes, encoding, has_cells(path))
}

/// Whether a file may be one of cells, by its name: of these alone a configuration can say what bytes stand for.
pub fn has_cells(path: &Path) -> bool {
    !OBJECT_ENDINGS.contains(&inner_ending(path).as_str())
}

fn text_of(path: &Path, mut bytes: Vec<u8>, encoding: Option<&'static Encoding>, cells: bool) -> Result<String> {
    let place = path.display();
    let marked = Encoding::for_bom(&bytes).is_some();
    if let Some(encoding) = encoding.filter(|encoding| !marked && *encoding != UTF_8) {
        return decoded(path, &bytes, encoding);
    }
    let wide = |bytes: &[u8], number: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].as_chunks::<2>().0.iter().map(|pair| number(*pair)).collect();
        String::from_utf16(&units).map_err(|_| anyhow!("`{place}` begins as UTF-16 and is none: save it as UTF-8"))
    };
    if bytes.starts_with(&[0xff, 0xfe]) {
        return wide(&bytes, u16::from_le_bytes);
    }
    if bytes.starts_with(&[0xfe, 0xff]) {
        return wide(&bytes, u16::from_be_bytes);
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if memchr::memchr(0, &bytes).is_some() {
        return Err(no_text(path, &bytes, 0, cells));
    }
    String::from_utf8(bytes).map_err(|error| no_text(path, error.as_bytes(), 0, cells))
}

/// Bytes of an encoding as text.
fn decoded(path: &Path, bytes: &[u8], encoding: &'static Encoding) -> Result<String> {
    let place = path.display();
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let most = decoder.max_utf8_buffer_length_without_replacement(bytes.len());
    let mut text = String::with_capacity(most.context("the text is too large")?);
    let (result, read) = decoder.decode_to_string_without_replacement(bytes, &mut text, true);
    let line = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1;
    if result != DecoderResult::InputEmpty {
        let byte = bytes[..read].last().copied().unwrap_or_default();
        bail!(
            "`{place}`, line {}: the byte 0x{byte:02x} is not {}: is `encoding` right?",
            line(&text),
            encoding.name()
        );
    }
    if let Some(at) = memchr::memchr(0, text.as_bytes()) {
        bail!("`{place}`, line {} has a zero byte: it is no text, or `encoding` is not right", line(&text[..at]));
    }
    text.shrink_to_fit();
    Ok(text)
}

/// What is to be said of bytes that are no text, before which there are so many lines; `cells`: in a file of cells.
pub fn no_text(path: &Path, bytes: &[u8], lines: usize, cells: bool) -> anyhow::Error {
    let place = path.display();
    let line_of = |at: usize| lines + memchr::memchr_iter(b'\n', &bytes[..at]).count() + 1;
    if let Some(at) = memchr::memchr(0, bytes) {
        return anyhow!("`{place}`, line {} has a zero byte: it is no text", line_of(at));
    }
    let at = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let (line, byte) = (line_of(at), bytes.get(at).copied().unwrap_or_default());
    let otherwise = match cells {
        true => {
            ", for example with `iconv -f WINDOWS-1252 -t UTF-8`; a table of `source = \"csv\"` may say what it is with `encoding`"
        }
        false => ", for example with `iconv -t UTF-8`",
    };
    anyhow!("`{place}`, line {line}: the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8{otherwise}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_memory_for_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        assert_eq!(read_in(&path, 1 << 30, 8, "").unwrap(), b"a,b\n1,2\n");
        let error = read_in(&path, 1 << 30, 7, "the machine has 21 B").unwrap_err().to_string();
        assert!(error.contains("has 8 B, and more than 7 B are not read (the machine has 21 B, a third"), "{error}");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read_in(&path, 1 << 41, 1 << 30, "").unwrap_err().to_string().contains("1.0 TiB"));
    }

    #[test]
    fn bytes_are_what_the_encoding_says() {
        let read = |bytes: &[u8], label: &str| {
            text(Path::new("t.csv"), bytes.to_vec(), Encoding::for_label_no_replacement(label.as_bytes()))
        };
        // As Python's codecs have them.
        for (bytes, label, expected) in [
            (&b"caf\xe9;\x80\n"[..], "windows-1252", "caf\u{e9};\u{20ac}\n"),
            (b"caf\xe9", "latin1", "caf\u{e9}"),
            (b"\xcf\xf0\xe8", "windows-1251", "\u{41f}\u{440}\u{438}"),
            (b"\x93\xfa\x96\x7b", "shift_jis", "\u{65e5}\u{672c}"),
            (b"a\0;\0", "utf-16", "a;"),
            (b"\0a\0;", "utf-16be", "a;"),
            ("\u{e9}".as_bytes(), "utf-8", "\u{e9}"),
            // A mark says more.
            (b"\xef\xbb\xbf\xc3\xa9", "windows-1252", "\u{e9}"),
            (b"\xff\xfea\0", "windows-1252", "a"),
        ] {
            assert_eq!(read(bytes, label).unwrap(), expected, "{label}");
        }
        for (bytes, label, part) in [
            (&b"a\nb\n\x93"[..], "shift_jis", "line 3: the byte 0x93 is not Shift_JIS"),
            (b"a\nb\xff\xff\n", "euc-jp", "line 2: the byte 0xff is not EUC-JP: is `encoding` right?"),
            (b"a\0b", "windows-1252", "line 1 has a zero byte"),
            (b"a\0b", "utf-16", "is not UTF-16LE"),
            (b"\xe9", "utf-8", "is not UTF-8"),
        ] {
            let error = read(bytes, label).unwrap_err().to_string();
            assert!(error.contains(part), "{label}: {error}");
        }
    }
}
