//! Photos: image files that are decoded as far as they are needed.

use super::transforms::{Image, ImageSource, Window};
use crate::files;
use anyhow::{Result, anyhow, ensure};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits, RgbImage};
use runner_jpeg::{Decoder, Jpeg, Region};
use std::cell::RefCell;
use std::io::Cursor;
use std::path::Path;

/// Largest width or height that is read: a file that claims more is refused before it is unpacked.
const MAX_SIDE: u32 = 32_768;
/// Largest file that is read, in bytes.
pub(super) const MAX_FILE: u64 = 256 << 20;
/// Most memory that unpacking one may take, in bytes: an image of 11,000×11,000 pixels in 32 bits.
const MAX_DECODED: u64 = 512 << 20;

/// Most memory that a thread keeps for the next photo, in bytes.
const MOST_KEPT: usize = 64 << 20;

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

/// Does something with the memory of the thread. Whoever asks meanwhile has new memory.
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

/// Reads an image file, and hands it over.
///
/// # Errors
/// It cannot be read, or is no image.
pub(super) fn with_photo<T>(path: &Path, act: impl FnOnce(Photo) -> Result<T>) -> Result<T> {
    let mut file = MEMORY.with_borrow_mut(|memory| std::mem::take(&mut memory.file));
    let read = files::read_into(path, MAX_FILE, &mut file).map_err(|e| anyhow!("{}", e.problem));
    let result = read.and_then(|()| Photo::new(&file)).and_then(act);
    if file.capacity() <= MOST_KEPT {
        MEMORY.with_borrow_mut(|memory| memory.file = file);
    }
    result
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

impl ImageSource for Photo<'_> {
    fn sides(&self) -> [usize; 2] {
        match self {
            Photo::Jpeg { jpeg, .. } => [jpeg.height(), jpeg.width()],
            Photo::Decoded(image) => image.sides,
        }
    }

    fn with<T>(self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> Result<T> {
        let (jpeg, file) = match self {
            Photo::Decoded(image) => return image.with(window, take),
            Photo::Jpeg { jpeg, file } => (jpeg, file),
        };
        let mut image = Image { sides: window.sides, channels: 3, pixels: Vec::new() };
        let [(y, height), (x, width)] = [0, 1].map(|axis| (window.at[axis], window.sides[axis]));
        let decoded = with_memory(|memory| {
            image.pixels = std::mem::take(&mut memory.pixels);
            decode_region(&mut memory.decoder, &jpeg, Region { x, y, width, height }, &mut image.pixels)
        });
        let result = match decoded {
            true => take(&image, image.whole()),
            // It is damaged: how badly, and what is left of it, the other decoder says.
            false => take(&colours(decode_any(file)?), window),
        };
        if image.pixels.capacity() <= MOST_KEPT {
            with_memory(|memory| memory.pixels = image.pixels);
        }
        Ok(result)
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

/// The same without our own decoder.
fn decode_any(bytes: &[u8]) -> Result<DynamicImage> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(|e| match e {
        ImageError::Unsupported(_) => anyhow!("{e}; PNG, JPEG, GIF, BMP and WebP files are read"),
        other => other.into(),
    })?;
    let (w, h) = decoder.dimensions();
    // Some formats can say so; nothing can be made of it.
    ensure!(w > 0 && h > 0, "it is an image of {w}×{h} pixels, which has none at all");
    // The pixels count, too, and the decoder may have what they leave.
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    // Cameras store what the sensor saw and say how it was held. Where that cannot be read, the pixels still can.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// An image in colour.
fn colours(image: DynamicImage) -> Image {
    let image = image.into_rgb8();
    let (w, h) = image.dimensions();
    Image { sides: [h as usize, w as usize], channels: 3, pixels: image.into_raw() }
}
