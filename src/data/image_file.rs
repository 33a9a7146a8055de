//! Image files as a model's input.

use super::Field;
use super::claims::Claims;
use super::decoders::sides as sides_of;
use super::photo::{Photo, measure, read_photo, with_photo};
use super::transforms::{ImageSource, Interpolation, Size, Transform, apply, transform, transform_source};
use crate::graph::DType;
use crate::random::{Purpose, Stream};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Reads an image file, turned as its EXIF orientation says, and brings it to the shape of samples (`[H, W, C]`, C 1 or 3): grey or RGB, then torchvision's
/// `Resize` (bilinear, with antialiasing) until it covers the shape, and `CenterCrop`. `invert` swaps black and white first.
/// Native-endian elements: bytes, or floats from 0 to 1, as the data's type is.
///
/// # Errors
/// The file cannot be read, is no image, or the samples are none.
pub fn image_sample(path: &Path, field: &Field, invert: bool) -> Result<Vec<u8>> {
    let sides = sides(field)?;
    let sample = with_photo(|file| read_photo(path, file), |photo| fitted(photo, sides, field.dtype, invert));
    sample.with_context(|| format!("cannot read the image `{}`", path.display()))
}

/// Height, width and channels of a field that is an image.
fn sides(field: &Field) -> Result<[usize; 3]> {
    let &[h, w, c] = field.shape.dims() else {
        bail!(
            "the model takes vectors of {} numbers, not images: give a .safetensors file with a tensor `{}`",
            field.shape.len(),
            field.name
        );
    };
    if ![1, 3].contains(&c) {
        bail!("the model takes images of {c} channels; files have 1 (grey) or 3 (colour)");
    }
    Ok([h, w, c])
}

/// An image brought to these sides.
fn fitted(photo: Photo, [h, w, c]: [usize; 3], dtype: DType, invert: bool) -> Result<Vec<u8>> {
    let [from_h, from_w] = photo.sides();
    // Of squares, what torchvision makes of the length of the shorter side.
    let covering = match w * from_h >= h * from_w {
        true => [w * from_h / from_w, w],
        false => [h, h * from_w / from_h],
    };
    let (size, interpolation) = (Size::Both(covering), Interpolation::Bilinear);
    let list = [Transform::Resize { size, interpolation, antialias: true }, Transform::CenterCrop { size: [h, w] }];
    let mut draws = no_draws();
    let image = if c == 3 && !invert {
        transform_source(&list, &mut draws, &photo)?
    } else {
        let mut image = photo.whole()?;
        if c == 1 {
            image = transform(&[Transform::Grayscale { channels: 1 }], &mut draws, image);
        }
        if invert {
            swap_black_and_white(&mut image.pixels);
        }
        transform_source(&list, &mut draws, &image)?
    };
    Ok(match dtype {
        DType::U8 => image.pixels,
        _ => image.pixels.iter().flat_map(|b| (*b as f32 / 255.0).to_ne_bytes()).collect(),
    })
}

fn swap_black_and_white(pixels: &mut [u8]) {
    pixels.iter_mut().for_each(|b| *b = 255 - *b);
}

/// For transforms that draw nothing: those of validation.
fn no_draws() -> Stream {
    Stream::new(0, Purpose::Augment, 0, 0)
}

/// Writes a sample of the field that `transforms` change, those of validation, to `out` as it comes out of them.
pub fn changed_sample(transforms: &[Transform], field: &Field, sample: &[u8], out: &mut [u8]) {
    let mut draws = no_draws();
    match *field.shape.dims() {
        [h, w, ref channels @ ..] => {
            let pixel = channels.iter().product::<usize>() * field.dtype.bytes();
            apply(transforms, &mut draws, sample, [h, w], pixel, out);
        }
        _ => out.copy_from_slice(sample),
    }
}

/// Reads an image file as a model's input, by way of the transforms that its samples have gone through in validation.
/// `invert` swaps black and white first.
///
/// # Errors
/// The file cannot be read, or is no image.
pub fn photo_sample(path: &Path, transforms: &[Transform], invert: bool) -> Result<Vec<u8>> {
    let sample = with_photo(|file| read_photo(path, file), |photo| transformed(photo, transforms, invert));
    sample.with_context(|| format!("cannot read the image `{}`", path.display()))
}

/// The content of an image file as a model's input: with `transforms` as [`photo_sample`] makes it of a file, else as [`image_sample`].
///
/// # Errors
/// It is no image, or the model takes none.
pub fn image_bytes(file: &[u8], field: &Field, transforms: Option<&[Transform]>, invert: bool) -> Result<Vec<u8>> {
    let sample = match transforms {
        Some(transforms) => Photo::new(file).and_then(|photo| transformed(photo, transforms, invert)),
        None => {
            let sides = sides(field)?;
            Photo::new(file).and_then(|photo| fitted(photo, sides, field.dtype, invert))
        }
    };
    sample.context("cannot read the image")
}

/// Height and width that the header of an image file claims, whatever they are, as they are in the file; `None`: it cannot be read.
pub fn image_claims(file: &[u8]) -> Option<[u64; 2]> {
    Claims::of(file).ok().map(|claims| claims.sides)
}

/// Height and width of the image in the content of a file, and the bytes that decoding it takes besides; without decoding it.
///
/// # Errors
/// It is no image, or claims more than is read.
pub fn image_measures(file: &[u8]) -> Result<([usize; 2], usize)> {
    if let Some(measured) = measure(file, file.len() as u64) {
        return Ok((measured.sides, measured.decoding));
    }
    // Only for the reason.
    let sides = sides_of(file).context("cannot read the image")?;
    Ok((sides, sides[0].saturating_mul(sides[1]).saturating_mul(8)))
}

/// A photo after the transforms of validation.
fn transformed(photo: Photo, transforms: &[Transform], invert: bool) -> Result<Vec<u8>> {
    let mut draws = no_draws();
    let image = match invert {
        false => transform_source(transforms, &mut draws, &photo),
        true => {
            let mut image = photo.whole()?;
            swap_black_and_white(&mut image.pixels);
            transform_source(transforms, &mut draws, &image)
        }
    };
    Ok(image?.pixels)
}

#[cfg(test)]
mod tests {
    use super::super::photo::decode;
    use super::*;
    use image::{GrayImage, Luma, Rgb, RgbImage};

    fn spec(shape: [usize; 3], dtype: DType) -> Field {
        Field::image("image", dtype, shape)
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
    fn other_formats_are_refused_with_those_that_are_read() {
        let read = "PNG, JPEG, GIF, BMP and WebP files are read";
        for (bytes, part) in [
            (&b"P2 1 1 255 7"[..], read),
            (b"no image", read),
            (b"II*\0\x08\0\0\0", "a TIFF image or a camera's raw one, which is not read: convert it to JPEG or PNG"),
        ] {
            let text = decode(bytes).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn colours_become_the_grey_of_pillow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        // What `Image.convert("L")` makes of them.
        for (colour, grey) in
            [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([9, 99, 200], 84), ([7; 3], 7)]
        {
            RgbImage::from_pixel(4, 4, Rgb(colour)).save(&path).unwrap();
            assert_eq!(image_sample(&path, &spec([4, 4, 1], DType::U8), false).unwrap(), vec![grey; 16]);
            assert_eq!(image_sample(&path, &spec([2, 3, 1], DType::U8), true).unwrap(), vec![255 - grey; 6]);
        }
    }

    #[test]
    fn images_are_scaled_as_by_pillow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        GrayImage::from_fn(7, 5, |x, y| Luma([(x * 37 + y * y * 11 + x * y * 5) as u8])).save(&path).unwrap();
        // `resize((4, 3), BILINEAR).crop((0, 0, 3, 3))`.
        let expected = [25, 86, 158, 74, 147, 164, 165, 140, 133];
        assert_eq!(image_sample(&path, &spec([3, 3, 1], DType::U8), false).unwrap(), expected);
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

    /// A JPEG of `image` whose EXIF says how it is to be turned.
    fn jpeg(image: &GrayImage, orientation: u8) -> Vec<u8> {
        let mut plain = Vec::new();
        image::codecs::jpeg::JpegEncoder::new_with_quality(&mut plain, 100).encode_image(image).unwrap();
        let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let length = (exif.len() as u16 + 2).to_be_bytes();
        [&plain[..2], &[0xff, 0xe1], &length, &exif, &plain[2..]].concat()
    }

    #[test]
    fn images_are_turned_as_they_are_meant() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jpg");
        // Four fields of 8×8 pixels, which JPEG keeps apart:  0  80
        //                                                   160 240
        let fields = [[0u8, 80], [160, 240]];
        let stored = GrayImage::from_fn(16, 16, |x, y| Luma([fields[y as usize / 8][x as usize / 8]]));
        // What the standard says of the stored rows and columns: "row 0 is the visual top, column 0 the left side", …
        let seen = [
            (1, [[0, 80], [160, 240]]),
            (2, [[80, 0], [240, 160]]),
            (3, [[240, 160], [80, 0]]),
            (4, [[160, 240], [0, 80]]),
            (5, [[0, 160], [80, 240]]),
            (6, [[160, 0], [240, 80]]),
            (7, [[240, 80], [160, 0]]),
            (8, [[80, 240], [0, 160]]),
            // None that the standard knows.
            (0, [[0, 80], [160, 240]]),
            (9, [[0, 80], [160, 240]]),
        ];
        for (orientation, expected) in seen {
            std::fs::write(&path, jpeg(&stored, orientation)).unwrap();
            let sample = image_sample(&path, &spec([16, 16, 1], DType::U8), false).unwrap();
            let at = |x: usize, y: usize| sample[16 * y + x];
            let found = [[at(4, 4), at(12, 4)], [at(4, 12), at(12, 12)]];
            let near =
                found.iter().flatten().zip(expected.iter().flatten()).all(|(a, b): (&u8, &u8)| a.abs_diff(*b) < 8);
            assert!(near, "orientation {orientation}: {found:?} instead of {expected:?}");
        }
        // Sides change places before the image is fitted to the model.
        let wide = GrayImage::from_fn(32, 16, |x, _| Luma([if x < 16 { 240 } else { 20 }]));
        std::fs::write(&path, jpeg(&wide, 6)).unwrap();
        let sample = image_sample(&path, &spec([32, 16, 1], DType::U8), false).unwrap();
        assert!(sample[..16 * 16].iter().all(|v| v.abs_diff(240) < 8), "the left half is on top");
        assert!(sample[16 * 16..].iter().all(|v| v.abs_diff(20) < 8), "the right half is below");
    }

    fn refusal(bytes: &[u8]) -> String {
        format!("{:#}", decode(bytes).unwrap_err())
    }

    #[test]
    fn images_without_pixels_are_refused() {
        // The whole of a GIF: its sides, no table of colours, one frame of the same sides, the end.
        for (w, h) in [(0u8, 8u8), (8, 0), (0, 0)] {
            let gif = [
                &b"GIF89a"[..],
                &[w, 0, h, 0, 0x80, 0, 0, 0, 0, 0, 255, 255, 255],
                &[0x2c, 0, 0, 0, 0, w, 0, h, 0, 0],
                &[2, 2, 0x4c, 1, 0, 0x3b],
            ]
            .concat();
            assert_eq!(gif.len(), 35);
            let text = refusal(&gif);
            assert!(text.contains(&format!("{w}×{h} pixels")), "{text}");
        }
    }

    #[test]
    fn images_that_claim_too_much_are_refused() {
        let gif = |w: u16, h: u16| {
            let head = [&b"GIF89a"[..], &w.to_le_bytes(), &h.to_le_bytes(), &[0x80, 0, 0, 0, 0, 0, 255, 255, 255]];
            let frame = [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x4c, 1, 0, 0x3b];
            [&head.concat()[..], &frame].concat()
        };
        // 4 GiB of pixels in 35 bytes, and a side beyond all.
        for bytes in [gif(32_000, 32_000), gif(65_535, 1)] {
            let text = refusal(&bytes);
            assert!(text.contains("limit") || text.contains("exceed"), "{text}");
        }
        // A BMP header of 30,000×30,000 pixels, 2.7 GB.
        let mut bmp = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bmp.extend([30_000u32.to_le_bytes(), 30_000u32.to_le_bytes()].concat());
        bmp.extend([1, 0, 24, 0]);
        bmp.extend([0; 24]);
        let text = refusal(&bmp);
        assert!(text.contains("limit") || text.contains("exceed"), "{text}");
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.png");
        std::fs::write(&path, "no image").unwrap();
        let e = format!("{:#}", image_sample(&path, &spec([2, 2, 1], DType::U8), false).unwrap_err());
        assert!(e.contains("a.png"), "{e}");
        let e = image_sample(&path, &Field::numbers("x", DType::F32, [5]), false);
        assert!(e.unwrap_err().to_string().contains("vectors of 5"));
    }
}
