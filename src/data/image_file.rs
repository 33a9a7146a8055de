//! Image files as a model's input.

use super::DataSpec;
use crate::graph::DType;
use anyhow::{Context, Result, bail};
use image::imageops::{FilterType, crop_imm, resize};
use image::{DynamicImage, ImageBuffer, ImageReader, Pixel};
use std::path::Path;

/// Largest width or height that is read: a file that claims more is refused before it is unpacked.
const MAX_SIDE: u32 = 32_768;

/// Reads an image file and brings it to the shape of the model's samples (`[H, W, C]`, C 1 or 3): grey or RGB, shrunk or
/// enlarged (bilinear, with antialiasing) until it covers the shape, the middle cut out. `invert` swaps black and white.
/// Native-endian elements: bytes, or floats from 0 to 1, as the data's type is.
///
/// # Errors
/// The file cannot be read, is no image, or the model takes no images.
pub fn image_sample(path: &Path, data: &DataSpec, invert: bool) -> Result<Vec<u8>> {
    let &[h, w, c] = data.input.dims() else {
        bail!("the model takes vectors of {} numbers, not images", data.input.len());
    };
    let image = read(path)?;
    let bytes = match c {
        1 => fit(&image.into_luma8(), w as u32, h as u32),
        3 => fit(&image.into_rgb8(), w as u32, h as u32),
        _ => bail!("the model takes images of {c} channels; files have 1 (grey) or 3 (colour)"),
    };
    let bytes: Vec<u8> = if invert { bytes.iter().map(|b| 255 - b).collect() } else { bytes };
    Ok(match data.dtype {
        DType::U8 => bytes,
        _ => bytes.iter().flat_map(|b| (*b as f32 / 255.0).to_ne_bytes()).collect(),
    })
}

fn read(path: &Path) -> Result<DynamicImage> {
    let name = || format!("cannot read the image `{}`", path.display());
    let mut reader = ImageReader::open(path).with_context(name)?.with_guessed_format().with_context(name)?;
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    reader.limits(limits);
    reader.decode().with_context(name)
}

fn fit<P: Pixel<Subpixel = u8> + 'static>(image: &ImageBuffer<P, Vec<u8>>, w: u32, h: u32) -> Vec<u8> {
    // Of an extremely long image the ends, which are cut off in any case, are not worth their memory when enlarged.
    let (iw, ih) = image.dimensions();
    let enough = |other: u32, to: u32, to_other: u32| (8 * other as u64 * to as u64 / to_other as u64).max(8) as u32;
    let (kw, kh) = (iw.min(enough(ih, w, h)), ih.min(enough(iw, h, w)));
    let cropped;
    let image = if (kw, kh) == (iw, ih) {
        image
    } else {
        cropped = crop_imm(image, (iw - kw) / 2, (ih - kh) / 2, kw, kh).to_image();
        &cropped
    };
    let (iw, ih) = (kw, kh);
    let scale = (w as f64 / iw as f64).max(h as f64 / ih as f64);
    let side = |s: u32, least: u32| ((s as f64 * scale).round() as u32).max(least);
    let (rw, rh) = (side(iw, w), side(ih, h));
    let scaled = if (rw, rh) == (iw, ih) { image.clone() } else { resize(image, rw, rh, FilterType::Triangle) };
    crop_imm(&scaled, (rw - w) / 2, (rh - h) / 2, w, h).to_image().into_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TargetSpec;
    use crate::graph::Shape;
    use image::{GrayImage, Luma, Rgb, RgbImage};

    fn spec(shape: [usize; 3], dtype: DType) -> DataSpec {
        DataSpec {
            input: Shape::from(shape),
            dtype,
            targets: TargetSpec::Classes(2),
            classes_exact: true,
            class_names: None,
            train: None,
            val: None,
        }
    }

    #[test]
    fn the_middle_of_a_wide_image_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        let image = GrayImage::from_fn(12, 4, |x, _| Luma([if (4..8).contains(&x) { 200 } else { 10 }]));
        image.save(&path).unwrap();
        assert_eq!(image_sample(&path, &spec([4, 4, 1], DType::U8), false).unwrap(), vec![200; 16]);
        assert_eq!(image_sample(&path, &spec([4, 4, 1], DType::U8), true).unwrap(), vec![55; 16]);
        assert_eq!(image_sample(&path, &spec([4, 4, 3], DType::U8), false).unwrap().len(), 48);
    }

    #[test]
    fn of_a_long_strip_the_middle_is_enlarged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        // Enlarged as a whole it would take gigabytes.
        let strip = GrayImage::from_fn(30_000, 1, |x, _| Luma([if (14_900..15_100).contains(&x) { 77 } else { 1 }]));
        strip.save(&path).unwrap();
        let sample = image_sample(&path, &spec([256, 256, 3], DType::U8), false).unwrap();
        assert_eq!(sample, vec![77; 256 * 256 * 3]);
    }

    #[test]
    fn floats_are_from_zero_to_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        RgbImage::from_pixel(8, 8, Rgb([255, 0, 51])).save(&path).unwrap();
        let bytes = image_sample(&path, &spec([2, 2, 3], DType::F32), false).unwrap();
        let floats: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
        assert_eq!(floats[..3], [1.0, 0.0, 0.2]);
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        std::fs::write(&path, "no image").unwrap();
        let e = format!("{:#}", image_sample(&path, &spec([2, 2, 1], DType::U8), false).unwrap_err());
        assert!(e.contains("a.png"), "{e}");
        let e = image_sample(&path, &DataSpec { input: Shape::from([5]), ..spec([2, 2, 1], DType::F32) }, false);
        assert!(e.unwrap_err().to_string().contains("vectors of 5"));
    }
}
