//! Files that are packed, unpacked while they are read.

use crate::files::{self, Contained};
use crate::terminal::human_bytes;
use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

/// Bytes of a packed file that are read at a time.
const BUFFER: usize = 64 << 10;

/// How a file is packed, by the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Zstandard,
}

impl Packing {
    /// That of a file, if it is packed.
    pub fn of(path: &Path) -> Option<Packing> {
        match ending(path).as_str() {
            "gz" => Some(Packing::Gzip),
            "zst" => Some(Packing::Zstandard),
            _ => None,
        }
    }

    /// That of a file which begins with these bytes.
    pub fn by_bytes(begin: &[u8]) -> Option<Packing> {
        match begin {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstandard),
            _ => None,
        }
    }

    /// What a file has in it.
    pub fn unpacked(self, file: File) -> Box<dyn Read + Send> {
        self.reader(BufReader::with_capacity(BUFFER, Uninterrupted(file)))
    }

    fn reader(self, packed: impl BufRead + Send + 'static) -> Box<dyn Read + Send> {
        match self {
            Packing::Gzip => Box::new(Contained::new(MultiGzDecoder::new(packed))),
            Packing::Zstandard => Box::new(Contained::new(Frames::Between(packed))),
        }
    }
}

/// All of what is `unpacked`, at most `most` bytes; `because` says why no more.
///
/// # Errors
/// It is damaged, or has more in it.
pub fn all_of(unpacked: impl Read, most: u64, because: &str) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    unpacked.take(most.saturating_add(1)).read_to_end(&mut all).context(NOT_UNPACKED)?;
    expect_size(all.len() as u64, most, because)?;
    Ok(all)
}

/// A file whose reads are begun anew where a signal has ended them: decoders take that for the end.
struct Uninterrupted(File);

impl Read for Uninterrupted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        files::uninterrupted(|| self.0.read(into))
    }
}

/// The error for a packed file that cannot be read.
pub const NOT_UNPACKED: &str = "cannot be unpacked";

/// Refuses what is larger than `most` bytes once it is unpacked; `because` says why no more.
///
/// # Errors
/// It is larger.
pub fn expect_size(unpacked: u64, most: u64, because: &str) -> Result<()> {
    if unpacked > most {
        let most = human_bytes(usize::try_from(most).unwrap_or(usize::MAX));
        let because = if because.is_empty() { String::new() } else { format!(" ({because})") };
        bail!(
            "is larger than {most} once it is unpacked, and no more is read{because}: unpack it, and leave rows or columns out"
        );
    }
    Ok(())
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

/// The begin of a frame.
type Magic = [u8; 4];

/// The frames of a Zstandard file, one after the other (RFC 8878): tools that work in parallel and joined files have several. What stands in skippable ones is
/// for others.
enum Frames<R: Read> {
    /// Before a frame, or at the end.
    Between(R),
    /// In a frame, whose first bytes were read before.
    Within(Box<StreamingDecoder<Chain<Cursor<Magic>, R>, FrameDecoder>>),
    /// It cannot be read.
    Failed,
}

impl<R: BufRead> Frames<R> {
    /// The next frame that is not skipped; `Between` at the end.
    fn next(mut rest: R) -> io::Result<Frames<R>> {
        let cut = || io::Error::other("the file is cut short");
        while !rest.fill_buf()?.is_empty() {
            let mut magic = Magic::default();
            rest.read_exact(&mut magic).map_err(|_| cut())?;
            if u32::from_le_bytes(magic) & !0xf != 0x184d_2a50 {
                let all = Cursor::new(magic).chain(rest);
                let frame = StreamingDecoder::new(all).map_err(io::Error::other)?;
                return Ok(Frames::Within(Box::new(frame)));
            }
            let mut length = [0; 4];
            rest.read_exact(&mut length).map_err(|_| cut())?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut rest.by_ref().take(length), &mut io::sink())? < length {
                return Err(cut());
            }
        }
        Ok(Frames::Between(rest))
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(self, Frames::Failed) {
                Frames::Between(rest) => {
                    *self = Frames::next(rest)?;
                    if matches!(self, Frames::Between(_)) {
                        return Ok(0);
                    }
                }
                Frames::Within(mut frame) => {
                    let read = frame.read(into)?;
                    if read > 0 || into.is_empty() {
                        *self = Frames::Within(frame);
                        return Ok(read);
                    }
                    let (rest, decoder) = frame.into_parts();
                    let checksum = decoder.get_checksum_from_data();
                    if checksum.is_some() && checksum != decoder.get_calculated_checksum() {
                        return Err(io::Error::other("the checksum of a frame is wrong: the file is damaged"));
                    }
                    *self = Frames::Between(rest.into_inner().1);
                }
                Frames::Failed => return Err(io::Error::other("it was damaged further ahead")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn unpack(bytes: &[u8], packing: Packing, most: u64, because: &str) -> Result<Vec<u8>> {
        all_of(packing.reader(Cursor::new(bytes.to_vec())), most, because)
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
    fn all_members_of_gzip_are_unpacked() {
        let member = |text: &str| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let mut two = [member("a,b\n1,"), member("2\n")].concat();
        assert_eq!(unpack(&two, Packing::Gzip, 1 << 20, "").unwrap(), b"a,b\n1,2\n");
        two.pop();
        assert!(unpack(&two, Packing::Gzip, 1 << 20, "").is_err());
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
            (&[&FRAME, b"no"], "cut short"),
            (&[&FRAME, &skippable[..11]], "cut short"),
            (&[&FRAME, &skippable[..6]], "cut short"),
            (&[&FRAME, &FRAME[..30]], "cannot be unpacked"),
            (&[&damaged], "checksum"),
        ] {
            let error = format!("{:#}", unpack(parts).unwrap_err());
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    /// A frame of 23 bytes that asks for a window of 2 GiB.
    #[test]
    fn a_large_window_is_refused() {
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        let error = format!("{:#}", unpack(&frame, Packing::Zstandard, 1 << 20, "").unwrap_err());
        assert!(error.contains("window"), "{error}");
    }

    #[test]
    fn endings_say_what_is_inside() {
        let inner = |name: &str| inner_ending(Path::new(name));
        assert_eq!(["a.csv", "a.CSV.GZ", "b.jsonl.zst", "c.gz", "d"].map(inner), ["csv", "csv", "jsonl", "", ""]);
    }
}
