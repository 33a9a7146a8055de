//! The bytes of a sheet: unpacked where its name says that it is packed, and as text.

use crate::files;
use crate::files::host_memory::host_memory;
use crate::terminal::human_bytes;
use anyhow::{Context, Result, anyhow, bail};
use encoding_rs::{DecoderResult, Encoding, UTF_8};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, Read};
use std::path::Path;

/// What is unpacked of a file may take so much of the memory that there is: its cells as numbers take as much again, and more.
const PART_OF_MEMORY: usize = 3;

/// How a file is packed, by the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstandard,
}

impl Packing {
    fn of(path: &Path) -> Option<Packing> {
        match ending(path).as_str() {
            "gz" => Some(Packing::Gzip),
            "zst" => Some(Packing::Zstandard),
            _ => None,
        }
    }
}

/// Whether a file is packed, by its name.
pub fn is_packed(path: &Path) -> bool {
    Packing::of(path).is_some()
}

/// The ending of a file's name in small letters.
fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// The ending that says what is in a file: that before `.gz` and the like.
pub fn inner_ending(path: &Path) -> String {
    match Packing::of(path) {
        Some(_) => ending(&path.with_extension("")),
        None => ending(path),
    }
}

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
    let bytes = files::read(path, most)?;
    let Some(packing) = Packing::of(path) else { return Ok(bytes) };
    let because =
        if room < most { format!("{because}, a third of which a packed table may have") } else { String::new() };
    unpack(&bytes, packing, most.min(room), &because).with_context(|| format!("`{}`", path.display()))
}

/// Unpacks at most `most` bytes; `because` says why no more.
fn unpack(bytes: &[u8], packing: Packing, most: u64, because: &str) -> Result<Vec<u8>> {
    let mut reader: Box<dyn Read> = match packing {
        Packing::Gzip => Box::new(MultiGzDecoder::new(bytes)),
        Packing::Zstandard => Box::new(Frames { rest: bytes, frame: None }),
    };
    let mut unpacked = Vec::new();
    reader.by_ref().take(most.saturating_add(1)).read_to_end(&mut unpacked).context("cannot be unpacked")?;
    if unpacked.len() as u64 > most {
        let most = human_bytes(usize::try_from(most).unwrap_or(usize::MAX));
        let because = if because.is_empty() { String::new() } else { format!(" ({because})") };
        bail!(
            "is larger than {most} once it is unpacked, and no more is read{because}: unpack it, and leave rows or columns out"
        );
    }
    Ok(unpacked)
}

/// The frames of a Zstandard file, one behind the other (RFC 8878): tools that work in parallel and joined files have several. What stands in skippable ones is
/// for others.
struct Frames<'a> {
    /// What has not been looked at.
    rest: &'a [u8],
    frame: Option<StreamingDecoder<&'a [u8], FrameDecoder>>,
}

impl<'a> Frames<'a> {
    /// The rest behind a skippable frame, if it begins with one.
    fn skipped(rest: &'a [u8]) -> Option<io::Result<&'a [u8]>> {
        let number = |at: usize| Some(u32::from_le_bytes(*rest.get(at..at + 4)?.as_array()?));
        let length = number(0).filter(|magic| magic & !0xf == 0x184d_2a50).and_then(|_| number(4))?;
        let behind = usize::try_from(length).ok().and_then(|length| rest.get(8..)?.get(length..));
        Some(behind.ok_or_else(|| io::Error::other("the file is cut short")))
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(mut frame) = self.frame.take() else {
                match (self.rest, Frames::skipped(self.rest)) {
                    ([], _) => return Ok(0),
                    (_, Some(behind)) => self.rest = behind?,
                    (rest, None) => self.frame = Some(StreamingDecoder::new(rest).map_err(io::Error::other)?),
                }
                continue;
            };
            let read = frame.read(into)?;
            if read > 0 || into.is_empty() {
                self.frame = Some(frame);
                return Ok(read);
            }
            let (rest, decoder) = frame.into_parts();
            let told = decoder.get_checksum_from_data();
            if told.is_some() && told != decoder.get_calculated_checksum() {
                return Err(io::Error::other("the checksum of a frame is wrong: the file is damaged"));
            }
            self.rest = rest;
        }
    }
}

/// The text of a file of at most `most` bytes, unpacked.
///
/// # Errors
/// As [`read`] and [`text`].
pub fn file_text(path: &Path, most: u64) -> Result<String> {
    text(path, read(path, most)?, None)
}

/// The bytes as text, without the mark that some programs begin it with, which says that they are UTF-8 or UTF-16. Without a mark they are in `encoding`; UTF-8, if that is
/// `None`.
///
/// # Errors
/// They are no text, with the line.
pub fn text(path: &Path, mut bytes: Vec<u8>, encoding: Option<&'static Encoding>) -> Result<String> {
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
        return Err(no_text(path, &bytes, 0));
    }
    String::from_utf8(bytes).map_err(|error| no_text(path, error.as_bytes(), 0))
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

/// What is to be said of bytes that are no text, before which there are so many lines.
pub fn no_text(path: &Path, bytes: &[u8], lines: usize) -> anyhow::Error {
    let place = path.display();
    let line_of = |at: usize| lines + memchr::memchr_iter(b'\n', &bytes[..at]).count() + 1;
    if let Some(at) = memchr::memchr(0, bytes) {
        return anyhow!("`{place}`, line {} has a zero byte: it is no text", line_of(at));
    }
    let at = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let (line, byte) = (line_of(at), bytes.get(at).copied().unwrap_or_default());
    anyhow!(
        "`{place}`, line {line}: the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8, or say what it is with `encoding`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
    fn what_unpacks_to_too_much_is_stopped() {
        // A megabyte of zeros packs to a thousandth of that.
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![b'0'; 1 << 20]).unwrap();
        let gzip = gzip.finish().unwrap();
        assert!(gzip.len() < 4096);
        assert_eq!(unpack(&gzip, Packing::Gzip, 1 << 20, "").unwrap().len(), 1 << 20);
        let zstandard =
            ruzstd::encoding::compress_to_vec(&vec![b'0'; 1 << 20][..], ruzstd::encoding::CompressionLevel::Fastest);
        assert_eq!(unpack(&zstandard, Packing::Zstandard, 1 << 20, "").unwrap(), vec![b'0'; 1 << 20]);
        for (bytes, packing) in [(&gzip, Packing::Gzip), (&zstandard, Packing::Zstandard)] {
            let error = unpack(bytes, packing, (1 << 20) - 1, "the reason").unwrap_err().to_string();
            assert!(error.contains("once it is unpacked") && error.contains("(the reason)"), "{error}");
            // What is cut off or no such file is an error as well.
            assert!(unpack(&bytes[..bytes.len() / 2], packing, 1 << 20, "").is_err());
            assert!(unpack(b"a,b\n1,2\n", packing, 1 << 20, "").is_err());
        }
    }

    #[test]
    fn all_frames_of_zstandard_are_unpacked() {
        // Three lines as a frame with a checksum.
        const FRAME: [u8; 42] = [
            0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x30, 0xed, 0x00, 0x00, 0xa8, 0x7b, 0x22, 0x74, 0x65, 0x78, 0x74, 0x22, 0x3a,
            0x22, 0x72, 0x6f, 0x77, 0x30, 0x22, 0x7d, 0x0a, 0x31, 0x32, 0x22, 0x7d, 0x0a, 0x02, 0x00, 0xa0, 0x13, 0x86,
            0x9b, 0x4b, 0x5c, 0x1c, 0x61, 0xa6,
        ];
        let lines = "{\"text\":\"row0\"}\n{\"text\":\"row1\"}\n{\"text\":\"row2\"}\n";
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"size"].concat();
        let unpack = |parts: &[&[u8]]| unpack(&parts.concat(), Packing::Zstandard, 1 << 20, "");
        for (parts, times) in [
            (&[&FRAME[..]][..], 1),
            (&[&FRAME, &FRAME], 2),
            (&[&skippable, &FRAME, &skippable, &FRAME, &FRAME, &skippable], 3),
        ] {
            assert_eq!(String::from_utf8(unpack(parts).unwrap()).unwrap(), lines.repeat(times));
        }
        let mut damaged = FRAME;
        damaged[41] ^= 1;
        for (parts, why) in [
            (&[&FRAME[..], b"no frame"][..], "cannot be unpacked"),
            (&[&FRAME, &skippable[..11]], "cut short"),
            (&[&FRAME, &FRAME[..30]], "cannot be unpacked"),
            (&[&damaged], "checksum"),
        ] {
            let error = format!("{:#}", unpack(parts).unwrap_err());
            assert!(error.contains(why), "{why}: {error}");
        }
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

    #[test]
    fn endings_say_what_is_inside() {
        let inner = |name: &str| inner_ending(Path::new(name));
        assert_eq!(["a.csv", "a.CSV.GZ", "b.jsonl.zst", "c.gz", "d"].map(inner), ["csv", "csv", "jsonl", "", ""]);
    }
}
