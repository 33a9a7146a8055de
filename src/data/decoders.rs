//! Image files in decoders of dependencies. They are the only ones that call those: with what the file claims held to the limits first, and
//! so that a panic is an error of the file.

use super::claims::{Claims, MAX_DECODED, MAX_SIDE, check_memory};
use super::declared_colours::with_declared_colours;
use crate::files::contained;
use anyhow::{Result, anyhow, ensure};
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};
use runner_jpeg::is_cut_off;
use std::error::Error;
use std::io::{self, Cursor, ErrorKind};

/// Most memory for what a header has beside the image, such as a profile of its colours, in bytes.
const MAX_HEADER: u64 = 32 << 20;

/// What decoders say where a file ends, in small letters.
const ENDS: [&str; 2] = ["unexpected end of file", "failed to fill whole buffer"];

/// The header of a photo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Height and width, turned as its EXIF orientation says.
    pub sides: [usize; 2],
    /// Bytes of memory that decoding all of it takes, its file apart.
    pub decoding: usize,
}

/// Height and width of the image in the bytes of a file, turned as its EXIF orientation says, without decoding it.
///
/// # Errors
/// It is no image, or claims more than is read.
pub fn sides(bytes: &[u8]) -> Result<[usize; 2]> {
    let claims = Claims::of(bytes)?;
    claims.check(bytes.len() as u64)?;
    contained(|| {
        let (decoder, orientation) = opened(bytes)?;
        Ok(turned_sides(&decoder, orientation))
    })
}

/// Reads the header of a photo from the first bytes of its file, which has `size` bytes; `None`: it is none, or its header goes on after them.
pub fn measure(bytes: &[u8], size: u64) -> Option<Measured> {
    let claims = Claims::of(bytes).ok()?;
    let size = size.max(bytes.len() as u64);
    claims.check(size).ok()?;
    contained(|| {
        let (decoder, orientation) = opened(bytes)?;
        let decoding = claims.decoding(size, decoder.total_bytes(), is_colours(&decoder), is_turned(orientation));
        let decoding = usize::try_from(decoding).unwrap_or(usize::MAX);
        Ok(Measured { sides: turned_sides(&decoder, orientation), decoding })
    })
    .ok()
}

/// Decodes an image file of any kind that is read, and turns it as its EXIF orientation says.
///
/// # Errors
/// It is no image, damaged, or too large.
pub fn decode_any(bytes: &[u8]) -> Result<DynamicImage> {
    // The decoder would fill up what is lacking with grey.
    ensure!(!is_cut_off(bytes), "it is cut off: the file ends before the JPEG image in it does");
    let claims = Claims::of(bytes)?;
    claims.check(bytes.len() as u64)?;
    let bytes = &with_declared_colours(bytes)[..];
    contained(|| {
        let (mut decoder, orientation) = opened(bytes)?;
        let (w, h) = decoder.dimensions();
        let sides = [h, w].map(u64::from);
        ensure!(sides == claims.sides, "its header contradicts itself about its {w}×{h} pixels");
        let pixels = decoder.total_bytes();
        let taken = claims.decoding(bytes.len() as u64, pixels, is_colours(&decoder), is_turned(orientation));
        check_memory(taken, sides)?;
        // The decoder may have what the pixels leave.
        decoder.set_limits(limits(MAX_DECODED - pixels))?;
        let mut image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
        image.apply_orientation(orientation);
        Ok(image)
    })
}

fn limits(memory: u64) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(memory);
    limits
}

/// A decoder that has read the header, and how the image is to be turned.
fn opened(bytes: &[u8]) -> Result<(impl ImageDecoder, Orientation)> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    reader.limits(limits(MAX_HEADER));
    let mut decoder = reader.into_decoder().map_err(|e| match e {
        ImageError::Unsupported(_) => anyhow!("{e}; PNG, JPEG, GIF, BMP and WebP files are read"),
        other => damaged(other),
    })?;
    // Cameras store what the sensor saw and say how it was held. Where that cannot be read, the pixels still can.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((decoder, orientation))
}

/// Why an image was not decoded. Decoders name the end of a file in words of their own, several times over.
pub fn damaged(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    let mut causes = error.chain();
    let is_end = |cause: &(dyn Error + 'static)| {
        let of_file = cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::UnexpectedEof);
        let said = cause.to_string().to_ascii_lowercase();
        of_file || ENDS.iter().any(|end| said.contains(end))
    };
    match causes.any(is_end) {
        true => anyhow!("it is cut off: the file ends before the image in it does"),
        false => error,
    }
}

fn is_colours(decoder: &impl ImageDecoder) -> bool {
    decoder.color_type() == ColorType::Rgb8
}

fn is_turned(orientation: Orientation) -> bool {
    orientation != Orientation::NoTransforms
}

fn turned_sides(decoder: &impl ImageDecoder, orientation: Orientation) -> [usize; 2] {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    let (w, h) = decoder.dimensions();
    match orientation {
        Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH => [w as usize, h as usize],
        _ => [h as usize, w as usize],
    }
}
