//! Photos: image files that are decoded as far as they are needed.

use super::claims::{MAX_DECODED, MAX_SIDE};
use super::decoders::{self, Measured, decode_any};
use super::transforms::{Image, ImageSource, Window};
use crate::files;
use anyhow::{Result, anyhow};
use image::metadata::Orientation;
use image::{DynamicImage, RgbImage};
use runner_jpeg::{Decoder, Jpeg, Region};
use std::cell::RefCell;
use std::io::Read;
use std::path::Path;

/// Largest file that is read, in bytes.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// Most memory that a thread keeps for the next photo, in bytes.
const MOST_KEPT: usize = 32 << 20;

/// What a thread has decoded a photo with.
#[derive(Default)]
struct Memory {
    file: Vec<u8>,
    decoder: Decoder,
    pixels: Vec<u8>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// Does something with the memory of the thread. A call within `act` gets new memory.
fn with_memory<T>(act: impl FnOnce(&mut Memory) -> T) -> T {
    let mut memory = MEMORY.take();
    let result = act(&mut memory);
    MEMORY.set(memory);
    result
}

/// The bytes of an image file, and what is known of it before it is decoded.
pub(super) enum Photo<'a> {
    /// One that can be decoded in parts.
    Jpeg {
        /// Its header.
        jpeg: Box<Jpeg<'a>>,
        /// All of it.
        file: &'a [u8],
    },
    /// Any other.
    Decoded(Image),
}

/// Reads an image file into memory that is there already.
///
/// # Errors
/// It cannot be read.
pub(super) fn read_photo(path: &Path, file: &mut Vec<u8>) -> Result<()> {
    files::read_into(path, MAX_FILE, file).map_err(|e| anyhow!("{}", e.problem))
}

/// Reads the first bytes of an image file.
///
/// # Errors
/// It cannot be read.
pub(super) fn read_head(path: &Path, most: u64, file: &mut Vec<u8>) -> Result<()> {
    let opened = files::open(path)?;
    file.clear();
    opened.file.take(most.min(MAX_FILE)).read_to_end(file)?;
    Ok(())
}

/// Reads an image file into memory that the thread has, and hands it over.
///
/// # Errors
/// It cannot be read, or is no image.
pub(super) fn with_photo<T>(
    read: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    act: impl FnOnce(Photo) -> Result<T>,
) -> Result<T> {
    let mut file = MEMORY.with_borrow_mut(|memory| std::mem::take(&mut memory.file));
    let read = read(&mut file);
    let result = read.and_then(|()| Photo::new(&file)).and_then(act);
    if file.capacity() <= MOST_KEPT {
        MEMORY.with_borrow_mut(|memory| memory.file = file);
    }
    result
}

/// Reads the header of a photo from the first bytes of its file, which has `size` bytes; `None`: it is none, or its header goes on after them.
pub(super) fn measure(bytes: &[u8], size: u64) -> Option<Measured> {
    if let Some((jpeg, Orientation::NoTransforms)) = common(bytes) {
        return Some(Measured { sides: [jpeg.height(), jpeg.width()], decoding: jpeg.decoding_bytes() });
    }
    decoders::measure(bytes, size)
}

impl<'a> Photo<'a> {
    /// Of the bytes of a file.
    ///
    /// # Errors
    /// It is no image.
    pub fn new(file: &'a [u8]) -> Result<Self> {
        match common(file) {
            // What has to be turned is decoded as a whole.
            Some((jpeg, Orientation::NoTransforms)) => Ok(Photo::Jpeg { jpeg: Box::new(jpeg), file }),
            _ => Ok(Photo::Decoded(colours(decode(file)?))),
        }
    }

    /// All of it, in colour.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn whole(self) -> Result<Image> {
        match self {
            Photo::Decoded(image) => Ok(image),
            Photo::Jpeg { file, .. } => Ok(colours(decode(file)?)),
        }
    }
}

impl Photo<'_> {
    /// Hands over an image that has the pixels of `window`, and where in it they are; none if the file is damaged there, as our own decoder
    /// finds.
    fn part<T>(&self, window: Window, take: impl FnOnce(Option<&Image>, Window) -> T) -> T {
        let jpeg = match self {
            Photo::Decoded(image) => return take(Some(image), window),
            Photo::Jpeg { jpeg, .. } => jpeg,
        };
        let mut image = Image { sides: window.sides, channels: 3, pixels: Vec::new() };
        let [(y, height), (x, width)] = [0, 1].map(|axis| (window.at[axis], window.sides[axis]));
        let decoded = with_memory(|memory| {
            image.pixels = std::mem::take(&mut memory.pixels);
            decode_region(&mut memory.decoder, jpeg, Region { x, y, width, height }, &mut image.pixels)
        });
        let result = match decoded {
            true => take(Some(&image), image.whole()),
            false => take(None, window),
        };
        if image.pixels.capacity() <= MOST_KEPT {
            with_memory(|memory| memory.pixels = image.pixels);
        }
        result
    }
}

impl ImageSource for Photo<'_> {
    fn sides(&self) -> [usize; 2] {
        match self {
            Photo::Jpeg { jpeg, .. } => [jpeg.height(), jpeg.width()],
            Photo::Decoded(image) => image.sides,
        }
    }

    fn with<T>(&self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> Result<T> {
        self.part(window, |image, at| match (image, self) {
            (Some(image), _) | (None, Photo::Decoded(image)) => Ok(take(image, at)),
            // How badly it is damaged, and what is left of it, the other decoder says.
            (None, Photo::Jpeg { file, .. }) => Ok(take(&colours(decode_any(file)?), window)),
        })
    }
}

/// A photo that can be decoded only if it is not damaged. What is left of a damaged one comes from one of two decoders, depending on
/// the window; of a sound one every window has the pixels of the whole.
pub(super) struct Sound<'a>(pub &'a Photo<'a>);

impl ImageSource for Sound<'_> {
    fn sides(&self) -> [usize; 2] {
        self.0.sides()
    }

    fn with<T>(&self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> Result<T> {
        self.0.part(window, |image, at| image.map(|image| take(image, at))).ok_or_else(|| anyhow!("it is damaged"))
    }
}

/// A JPEG file of a common kind and of a size that is read, and how it is to be turned.
fn common(file: &[u8]) -> Option<(Jpeg<'_>, Orientation)> {
    let jpeg = Jpeg::read(file).ok()?;
    let (width, height) = (jpeg.width(), jpeg.height());
    // At most as many samples as there are bytes of pixels.
    let fits = width.max(height) <= MAX_SIDE as usize && (6 * width * height) as u64 <= MAX_DECODED;
    let orientation = jpeg.exif().and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms);
    fits.then_some((jpeg, orientation))
}

/// Decodes a rectangle, if the file is whole.
fn decode_region(decoder: &mut Decoder, jpeg: &Jpeg, region: Region, pixels: &mut Vec<u8>) -> bool {
    let decoded = decoder.decode(jpeg, region, pixels).is_ok();
    if decoder.held_bytes() > MOST_KEPT {
        *decoder = Decoder::new();
    }
    decoded
}

/// All of a JPEG file of a common kind, turned as its EXIF orientation says.
fn whole_jpeg(file: &[u8]) -> Option<DynamicImage> {
    let (jpeg, orientation) = common(file)?;
    let region = Region { x: 0, y: 0, width: jpeg.width(), height: jpeg.height() };
    let mut pixels = Vec::new();
    if !with_memory(|memory| decode_region(&mut memory.decoder, &jpeg, region, &mut pixels)) {
        return None;
    }
    let mut image = DynamicImage::from(RgbImage::from_raw(region.width as u32, region.height as u32, pixels)?);
    image.apply_orientation(orientation);
    Some(image)
}

/// Decodes an image file of any kind that is read, and turns it as its EXIF orientation says.
///
/// # Errors
/// It is no image, or too large.
pub(super) fn decode(bytes: &[u8]) -> Result<DynamicImage> {
    whole_jpeg(bytes).map_or_else(|| decode_any(bytes), Ok)
}

/// An image in colour.
fn colours(image: DynamicImage) -> Image {
    let image = image.into_rgb8();
    let (w, h) = image.dimensions();
    Image { sides: [h as usize, w as usize], channels: 3, pixels: image.into_raw() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/golden/jpeg/{name}.jpg", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// The file with an EXIF orientation.
    fn turned(file: &[u8], orientation: u8) -> Vec<u8> {
        let mut exif = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        [&file[..2], &exif, &file[2..]].concat()
    }

    /// Whether it is decoded in parts or as a whole, and by which decoder.
    #[test]
    fn a_window_is_what_the_whole_image_has_there() {
        let plain = golden("420-37x53-edges");
        let cases = [
            (plain.clone(), true, [53, 37]),
            (turned(&plain, 1), true, [53, 37]),
            (turned(&plain, 6), false, [37, 53]),
            (golden("grey-37x53-noise"), true, [53, 37]),
            (golden("other-progressive"), false, [9, 17]),
        ];
        for (number, (file, in_parts, sides)) in cases.iter().enumerate() {
            let whole = Photo::new(file).unwrap().whole().unwrap();
            let photo = Photo::new(file).unwrap();
            assert_eq!((photo.sides(), whole.sides), (*sides, *sides), "{number}");
            assert_eq!(matches!(photo, Photo::Jpeg { .. }), *in_parts, "{number}");
            let window = Window { at: [2, 5], sides: [6, 11] };
            let same = |image: &Image, at| image.rows(at).eq(whole.rows(window));
            assert!(photo.with(window, same).unwrap(), "{number}");
        }
    }

    /// As Pillow refuses it, wherever it breaks off, and of whatever kind it is.
    #[test]
    fn what_is_cut_off_is_broken() {
        for name in ["420-37x53-edges", "other-progressive"] {
            let file = golden(name);
            for length in [file.len() * 2 / 3, file.len() - 40, file.len() - 2, file.len() - 1] {
                let message = |result: Result<Image>| format!("{:#}", result.map(|_| ()).unwrap_err());
                let file = &file[..length];
                // The first rows, which would be there.
                let top = Window { at: [0, 0], sides: [2, 2] };
                let rows = |photo: Photo| photo.with(top, |image, _| image.clone());
                for refusal in
                    [message(Photo::new(file).and_then(rows)), message(Photo::new(file).and_then(Photo::whole))]
                {
                    assert!(refusal.starts_with("it is cut off"), "{name}, {length} bytes: {refusal}");
                }
            }
        }
    }

    #[test]
    fn files_that_are_not_read_are_called_what_they_are() {
        let message = |file: &[u8]| format!("{:#}", decode(file).unwrap_err());
        for (file, part) in [
            (&b""[..], "it is empty"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "it is a HEIC image"),
            (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "it is a HEIC image"),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "it is an AVIF image"),
            (b"II*\0\x08\0\0\0", "it is a TIFF image"),
            (b"MM\0*\0\0\0\x08", "it is a TIFF image"),
            (b"\xff\x0a\x01\x02", "it is a JPEG XL image"),
            (b"\0\0\0\x0cjP  \r\n\x87\n", "it is a JPEG 2000 image"),
            (b"\0\0\0\x18ftypmp42\0\0\0\0", "it is no image"),
            (b"hello", "it is no image"),
        ] {
            assert!(message(file).contains(part), "{part}: {}", message(file));
        }
    }

    #[test]
    fn files_that_end_too_soon_are_called_cut_off() {
        use image::ImageFormat::{Bmp, Gif, Png, WebP};
        let shade = |x: u32, y: u32| ((x * 37 + y * 101 + x * y) % 251) as u8;
        let whole = image::RgbImage::from_fn(64, 48, |x, y| image::Rgb([shade(x, y), shade(y, x), 9]));
        for format in [Bmp, Gif, Png, WebP] {
            let mut file = std::io::Cursor::new(Vec::new());
            whole.write_to(&mut file, format).unwrap();
            let file = file.into_inner();
            decode(&file).unwrap();
            let message = format!("{:#}", decode(&file[..file.len() / 2]).unwrap_err());
            assert!(message.starts_with("it is cut off: the file ends"), "{format:?}: {message}");
        }
    }

    /// What is decoded by one or the other is the same image, but for the rounding of the transform, of chroma and of colours.
    #[test]
    fn other_decoders_come_to_nearly_the_same() {
        for name in ["444-37x53-edges", "422-16x33-edges", "420-37x53-edges", "grey-37x53-noise", "420-5x40-edges"] {
            let file = golden(name);
            let (ours, theirs) = (decode(&file).unwrap().into_rgb8(), decode_any(&file).unwrap().into_rgb8());
            assert_eq!(ours.dimensions(), theirs.dimensions());
            let apart: Vec<u8> = ours.iter().zip(theirs.iter()).map(|(a, b)| a.abs_diff(*b)).collect();
            let mean = apart.iter().map(|d| f64::from(*d)).sum::<f64>() / apart.len() as f64;
            assert!(mean < 1.5 && ours != image::RgbImage::new(ours.width(), ours.height()), "{name}: {mean}");
        }
    }

    /// Of what our own decoder leaves to the other one, too: `scripts/golden/jpegs.py` has files of which Pillow's pixels are known.
    #[test]
    fn colours_are_those_that_libjpeg_takes_them_for() {
        let adobe = |file: &[u8], transform: u8| {
            let segment = [&b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"[..], &[transform]].concat();
            [&file[..2], &segment, &file[2..]].concat()
        };
        // JFIF knows nothing but YCbCr.
        let progressive = golden("other-progressive");
        for transform in [0, 1, 2] {
            assert_eq!(decode(&adobe(&progressive, transform)).unwrap(), decode(&progressive).unwrap(), "{transform}");
        }
        // Two ways to say that there is no transform.
        let rgb = decode(&golden("other-names-rgb")).unwrap();
        assert_eq!(rgb, decode(&golden("other-adobe-0")).unwrap());
        assert_ne!(rgb, decode(&golden("colours-names")).unwrap());
    }

    /// What a decoder panics on, or takes gigabytes for, is refused with a reason; the next file is not touched by it.
    #[test]
    fn what_decoders_do_not_survive_is_an_error() {
        let folder = format!("{}/fuzz/crashes/image", env!("CARGO_MANIFEST_DIR"));
        let mut decoded = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = std::fs::read(entry.unwrap().path()).unwrap();
            decoded += usize::from(Photo::new(&file).and_then(Photo::whole).is_ok());
            assert!(decode(&golden("other-progressive")).is_ok());
        }
        assert_eq!(decoded, 0);
        let webp = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\xf3\xf3\xfc\x0c\x07\x10\x11\xfd\x0f\x44\x44\xff\x03";
        let message = format!("{:#}", decode(webp).unwrap_err());
        assert!(message.contains("pixels in 34 bytes: the limit for so many pixels is"), "{message}");
    }
}
