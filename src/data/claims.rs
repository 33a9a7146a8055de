//! What the header of an image file claims, read before a decoder of a dependency sees the file. Not all of those keep to limits, so what
//! they take is judged by what they are going to find.

use anyhow::{Result, bail, ensure};

/// Largest width or height that is read: a file that claims more is refused before it is unpacked.
pub const MAX_SIDE: u32 = 32_768;
/// Most memory that decoding one may take, in bytes, its file apart.
pub const MAX_DECODED: u64 = 512 << 20;
/// Pixels that an image may have, however small its file is: 4096×4096.
const FREE_PIXELS: u64 = 1 << 24;
/// Of a larger one, most pixels for each byte of its file. A byte of PNG or GIF cannot be more.
const PIXELS_PER_BYTE: u64 = 10_000;
/// Most blocks for each byte of a JPEG file: each has a code of one bit at least, in one scan at least.
const BLOCKS_PER_BYTE: u64 = 8;
/// Most scans of a JPEG file. Encoders write ten or so; each goes through all blocks of the image.
const MOST_SCANS: usize = 64;
/// Bytes before the first chunk of a RIFF file.
const RIFF: usize = 12;
/// Bytes beyond the length in a WebP file's header at which its decoder may still find a chunk.
const BEHIND: usize = 18;

/// What a file claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// Height and width, as they are in the file.
    pub sides: [u64; 2],
    /// Bytes of memory that its decoder takes beside the pixels that it hands over, tables of some hundred kilobytes apart.
    working: u64,
    /// How many copies of the file, or of parts of it, the decoder makes.
    copies: u64,
    /// Bytes that its file must have at least.
    least: u64,
}

/// Why a header was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It goes on after the bytes that are there.
    CutOff,
    /// It is that of no image that is read, or a wrong one: what is wrong.
    Wrong(&'static str),
}

impl From<Unread> for anyhow::Error {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::CutOff => anyhow::anyhow!("it is cut off: the file ends within its header"),
            Unread::Wrong(why) => anyhow::anyhow!("{why}"),
        }
    }
}

type Header<T> = Result<T, Unread>;

/// What a file is that is none of the images that are read.
fn other(file: &[u8]) -> &'static str {
    match file {
        [] => "it is empty",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => {
            "it is an AVIF image, which is not read: convert it to JPEG or PNG"
        }
        [_, _, _, _, b'f', b't', b'y', b'p', b'h' | b'm', b'e' | b'i' | b's', ..] => {
            "it is a HEIC image, which is not read: convert it to JPEG or PNG"
        }
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => {
            "it is a TIFF image or a camera's raw one, which is not read: convert it to JPEG or PNG"
        }
        [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => {
            "it is a JPEG XL image, which is not read: convert it to JPEG or PNG"
        }
        [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] => {
            "it is a JPEG 2000 image, which is not read: convert it to JPEG or PNG"
        }
        _ => "it is no image: PNG, JPEG, GIF, BMP and WebP files are read",
    }
}

impl Claims {
    /// What `file` claims; of the first bytes of a file, if the header is in them.
    ///
    /// # Errors
    /// It is no image of a kind that is read, or its header is wrong.
    pub fn of(file: &[u8]) -> Header<Claims> {
        match file {
            [0xff, 0xd8, ..] => jpeg(file),
            [0x89, b'P', b'N', b'G', ..] => png(file),
            [b'G', b'I', b'F', b'8', ..] => gif(file),
            [b'B', b'M', ..] => bmp(file),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(file),
            _ => Err(Unread::Wrong(other(file))),
        }
    }

    /// Whether it may be decoded.
    ///
    /// # Errors
    /// It has no pixels, or more than are read, or more than a file of `bytes` bytes can have.
    pub fn check(&self, bytes: u64) -> Result<()> {
        let [h, w] = self.sides;
        // Some formats can say so; nothing can be made of it.
        ensure!(w > 0 && h > 0, "it is an image of {w}×{h} pixels, which has none at all");
        let most = u64::from(MAX_SIDE);
        ensure!(
            w <= most && h <= most,
            "it claims to be an image of {w}×{h} pixels: the limit is {MAX_SIDE} on each side"
        );
        ensure!(
            bytes >= self.least,
            "it claims to be an image of {w}×{h} pixels in {bytes} bytes: the limit for so many pixels is {} bytes at least",
            self.least
        );
        Ok(())
    }

    /// Bytes of memory that decoding a file of `bytes` bytes takes at most, until there is an image of three bytes a pixel. The decoder hands
    /// over `pixels` bytes, which are those already if they are `colours`; afterwards it is `turned`.
    pub fn decoding(&self, bytes: u64, pixels: u64, colours: bool, turned: bool) -> u64 {
        let [h, w] = self.sides;
        let working = self.working.saturating_add(self.copies.saturating_mul(bytes));
        let after = if colours { 0 } else { 3 * w * h };
        pixels.saturating_add(working.max(after).max(if turned { pixels } else { 0 }))
    }

    /// Those of an image of these sides. `working` are bytes for each pixel, and some in any case.
    fn new([h, w]: [u64; 2], working: [u64; 2]) -> Claims {
        let pixels = w.saturating_mul(h);
        let working = pixels.saturating_mul(working[0]).saturating_add(working[1]);
        let least = if pixels <= FREE_PIXELS { 0 } else { pixels / PIXELS_PER_BYTE };
        Claims { sides: [h, w], working, copies: 0, least }
    }
}

/// Whether what decoding takes is within the limit.
///
/// # Errors
/// It is not.
pub fn check_memory(bytes: u64, [h, w]: [u64; 2]) -> Result<()> {
    if bytes > MAX_DECODED {
        bail!("it is an image of {w}×{h} pixels, which takes {bytes} bytes to decode: the limit is {MAX_DECODED}");
    }
    Ok(())
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Header<[u8; N]> {
    let piece = file.get(at..).and_then(|rest| rest.first_chunk::<N>());
    piece.copied().ok_or(Unread::CutOff)
}

fn png(file: &[u8]) -> Header<Claims> {
    // The signature; then the length and the name of the first chunk.
    ensure_header(bytes::<4>(file, 12)? == *b"IHDR", "a PNG file begins with its header, and this one does not")?;
    let [w, h] = [16, 20].map(|at| bytes(file, at).map(|side| u64::from(u32::from_be_bytes(side))));
    let (w, h) = (w?, h?);
    // Two rows of eight bytes a pixel.
    Ok(Claims::new([h, w], [0, 16 * w]))
}

fn gif(file: &[u8]) -> Header<Claims> {
    let [w, h] = [6, 8].map(|at| bytes(file, at).map(|side| u64::from(u16::from_le_bytes(side))));
    // A frame that is not as large as the image is decoded by itself; the decoder keeps to the limit that it is given for that.
    Ok(Claims::new([h?, w?], [0, 0]))
}

fn bmp(file: &[u8]) -> Header<Claims> {
    let length = u32::from_le_bytes(bytes(file, 14)?);
    let sides = match length {
        12 => [18, 20].map(|at| bytes(file, at).map(|side| u64::from(u16::from_le_bytes(side)))),
        // A negative height: from the top down.
        _ => [18, 22].map(|at| bytes(file, at).map(|side| u64::from(i32::from_le_bytes(side).unsigned_abs()))),
    };
    let [w, h] = sides;
    let (w, h) = (w?, h?);
    Ok(Claims::new([h, w], [0, 8 * w]))
}

fn ensure_header(right: bool, why: &'static str) -> Header<()> {
    if right { Ok(()) } else { Err(Unread::Wrong(why)) }
}

/// Segments up to the first scan, as ITU-T T.81 has them.
fn jpeg(file: &[u8]) -> Header<Claims> {
    let mut at = 2;
    let mut frame = None;
    loop {
        let [first, marker] = bytes(file, at)?;
        // What a decoder passes over between segments, this passes over, too.
        if first != 0xff || marker == 0xff || marker == 0 {
            at += 1;
            continue;
        }
        at += 2;
        // Markers without a segment.
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        ensure_header(marker != 0xd9, "it is a JPEG file that ends before its image")?;
        let length = usize::from(u16::from_be_bytes(bytes(file, at)?));
        ensure_header(length >= 2, "it is a JPEG file with a segment that is shorter than its length")?;
        let segment = file.get(at + 2..at + length).ok_or(Unread::CutOff)?;
        at += length;
        match marker {
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => {
                ensure_header(frame.is_none(), "it is a JPEG file with two frames")?;
                frame = Some((marker, segment));
            }
            0xda => {
                let (marker, frame) = frame.ok_or(Unread::Wrong("it is a JPEG file with a scan before its frame"))?;
                let scanned = usize::from(bytes::<1>(segment, 0)?[0]);
                return jpeg_frame(file, marker, frame, scanned, at);
            }
            _ => {}
        }
    }
}

/// What decoding takes: `scanned` components are in the first scan, which begins at `at`.
fn jpeg_frame(file: &[u8], marker: u8, frame: &[u8], scanned: usize, at: usize) -> Header<Claims> {
    let wrong = |_| Unread::Wrong("it is a JPEG file with a frame that is cut off");
    let [_, h1, h0, w1, w0, count] = bytes(frame, 0).map_err(wrong)?;
    let [h, w] = [[h1, h0], [w1, w0]].map(|side| u64::from(u16::from_be_bytes(side)));
    let count = usize::from(count);
    let factors = |number: usize| -> Header<[u64; 2]> {
        let [_, sampling, _] = bytes(frame, 6 + 3 * number).map_err(wrong)?;
        let factors = [sampling >> 4, sampling & 15].map(u64::from);
        ensure_header(
            factors.iter().all(|factor| (1..=4).contains(factor)),
            "it is a JPEG file with sampling factors that there are not",
        )?;
        Ok(factors)
    };
    ensure_header((1..=4).contains(&count), "it is a JPEG file of no components, or of more than four")?;
    let factors = (0..count).map(factors).collect::<Header<Vec<_>>>()?;
    let [across, down] = [0, 1].map(|axis| factors.iter().map(|f| f[axis]).max().unwrap_or(1));
    if let [luma, one, other] = &factors[..] {
        // The decoder would make other colours of it.
        let fits = [one, other].iter().all(|chroma| chroma[0] <= luma[0] && chroma[1] <= luma[1]);
        ensure_header(
            fits,
            "it is a JPEG file whose colours have more samples than its luma, which is not read: save it anew",
        )?;
    }
    let mcus = [w.div_ceil(8 * across), h.div_ceil(8 * down)];
    let coefficients: u64 = factors.iter().map(|[x, y]| 64 * mcus[0] * x * mcus[1] * y).sum();
    let progressive = matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce);
    let all = progressive || scanned != count;
    if all {
        ensure_header(
            scans(&file[at.min(file.len())..]) <= MOST_SCANS,
            "it is a JPEG file of more scans than the limit of 64",
        )?;
    }
    // The coefficients of the whole image, 16 bits each, where it comes in several scans. Some rows of blocks as numbers of 16 bits, in the size
    // of the component and enlarged. A copy of the file, and another if what it says of its colours is to be changed.
    let rows = 2 * 8 * 8 * across * mcus[0] * down * (count as u64) * 8;
    let working = if all { 2 * coefficients } else { 0 } + rows;
    let blocks: u64 = factors.iter().map(|[x, y]| (w * x).div_ceil(8 * across) * (h * y).div_ceil(8 * down)).sum();
    Ok(Claims { working, copies: 2, least: blocks / BLOCKS_PER_BYTE, ..Claims::new([h, w], [0, 0]) })
}

/// How many scans begin in what follows.
fn scans(rest: &[u8]) -> usize {
    1 + rest.windows(2).filter(|pair| *pair == [0xff, 0xda]).count()
}

/// A chunk of a RIFF file: its name and its content.
type Chunk<'a> = ([u8; 4], &'a [u8]);

/// The chunk that begins `rest`, and what follows.
fn chunk(rest: &[u8]) -> Header<(Chunk<'_>, &[u8])> {
    let (name, size) = (bytes::<4>(rest, 0)?, u32::from_le_bytes(bytes(rest, 4)?) as usize);
    let content = rest.get(8..8 + size).ok_or(Unread::CutOff)?;
    Ok(((name, content), rest.get(8 + size + size % 2..).unwrap_or_default()))
}

fn little_24(content: &[u8], at: usize) -> Header<u64> {
    let [a, b, c] = bytes(content, at)?;
    Ok(u64::from(u32::from_le_bytes([a, b, c, 0])))
}

/// Width and height of the bit stream in a chunk, if it is one.
fn stream_sides((name, content): Chunk) -> Header<Option<[u64; 2]>> {
    Ok(match &name {
        b"VP8L" => {
            let packed = u32::from_le_bytes(bytes(content, 1)?);
            Some([packed & 0x3fff, packed >> 14 & 0x3fff].map(|side| u64::from(side) + 1))
        }
        b"VP8 " => {
            let [w, h] = [6, 8].map(|at| bytes(content, at).map(|side| u64::from(u16::from_le_bytes(side) & 0x3fff)));
            Some([w?, h?])
        }
        _ => None,
    })
}

/// All chunks are looked at: the decoder takes memory for the length that one claims.
fn webp(file: &[u8]) -> Header<Claims> {
    const SIDES: &str = "it is a WebP file whose parts are not as large as its header says";
    // Bytes after the end in the header are not looked at; the decoder goes some bytes further than that.
    let declared_size = u32::from_le_bytes(bytes(file, 4)?) as usize;
    let (first, mut rest) = chunk(&file[RIFF..file.len().min(declared_size.saturating_add(BEHIND)).max(RIFF)])?;
    let (mut sides, mut animated, mut transparent) = ([0; 2], false, false);
    match &first.0 {
        b"VP8X" => {
            let [flags] = bytes(first.1, 0)?;
            (animated, transparent) = (flags & 2 != 0, flags & 16 != 0);
            sides = [little_24(first.1, 4)? + 1, little_24(first.1, 7)? + 1];
        }
        b"VP8L" => transparent = bytes::<1>(first.1, 4)?[0] & 16 != 0,
        _ => {}
    }
    if let Some(stream) = stream_sides(first)? {
        sides = stream;
    }
    ensure_header(sides != [0; 2], "it is a WebP file whose first chunk is no image")?;
    let mut lossy = first.0 == *b"VP8 ";
    while rest.len() >= 8 {
        let (next, after) = chunk(rest)?;
        rest = after;
        if next.0 == *b"ANMF" {
            let frame = [little_24(next.1, 6)? + 1, little_24(next.1, 9)? + 1];
            ensure_header(frame[0] <= sides[0] && frame[1] <= sides[1], SIDES)?;
            let mut inner = next.1.get(16..).unwrap_or_default();
            while inner.len() >= 8 {
                let (part, after) = chunk(inner)?;
                inner = after;
                ensure_header(stream_sides(part)?.is_none_or(|stream| stream == frame), SIDES)?;
            }
        } else if let Some(stream) = stream_sides(next)? {
            ensure_header(stream == sides, SIDES)?;
            lossy |= next.0 == *b"VP8 ";
        }
    }
    let [w, h] = sides;
    // Beside the pixels handed over, in bytes of a pixel: lossless, four where those are three, and one for what predicts them. Lossy,
    // planes of luma and of half the chroma each way; and transparency, which is a lossless image by itself, and a plane. Of an animation
    // the canvas, a frame, and either.
    let each = match (animated, lossy, transparent) {
        (true, ..) => 16,
        (false, true, true) => 8,
        (false, true, false) => 2,
        (false, false, true) => 1,
        (false, false, false) => 5,
    };
    // Blocks of 16 pixels that are not full, and what is copied of the file, tables of codes among it.
    Ok(Claims { copies: 2, ..Claims::new([h, w], [each, 64 * (w + h)]) })
}
