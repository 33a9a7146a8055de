//! Mask files: images whose values are classes.

use super::claims::{Claims, MAX_DECODED, check_memory};
use super::decoders::damaged;
use super::photo::decode;
use super::transforms::Image;
use crate::files::contained;
use anyhow::{Result, bail, ensure};
use image::DynamicImage;
use std::io::Cursor;

/// Where a PNG file says of what kind its pixels are, and the kind that are numbers of colours in a palette.
const PNG: (&[u8], usize, u8) = (b"\x89PNG\r\n\x1a\n", 25, 3);

/// The values of a mask, a byte a pixel: shades of grey, or the numbers of colours in a PNG file's palette.
///
/// # Errors
/// It is no image, or one whose pixels are no single numbers up to 255.
pub fn read_mask(file: &[u8]) -> Result<Image> {
    ensure!(
        !file.starts_with(b"\xff\xd8"),
        "it is a JPEG file, which does not keep numbers as they are: save masks as PNG"
    );
    let (begin, kind, palette) = PNG;
    if file.starts_with(begin) && file.get(kind) == Some(&palette) {
        let claims = Claims::of(file)?;
        claims.check(file.len() as u64)?;
        return contained(|| numbers_of_colours(file, claims.sides)).map_err(damaged);
    }
    let image = decode(file)?;
    let sides = [image.height() as usize, image.width() as usize];
    let pixels = match image {
        DynamicImage::ImageLuma8(grey) => grey.into_raw(),
        DynamicImage::ImageLuma16(grey) => match grey.iter().map(|value| u8::try_from(*value)).collect() {
            Ok(values) => values,
            Err(_) => bail!("it has a value above 255: a mask has one from 0 to 255 a pixel"),
        },
        colours => {
            let colours = colours.into_rgb8();
            let grey = colours.pixels().all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]);
            ensure!(grey, "it is in colours: a mask is in shades of grey, or a PNG file with a palette");
            colours.pixels().map(|pixel| pixel[0]).collect()
        }
    };
    Ok(Image { sides, channels: 1, pixels })
}

/// The numbers that the pixels of a PNG file with a palette have there.
fn numbers_of_colours(file: &[u8], sides: [u64; 2]) -> Result<Image> {
    let limits = png::Limits { bytes: MAX_DECODED as usize };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    // As they are in the file.
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info()?;
    let bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
    check_memory((bytes as u64).saturating_add(sides[0] * sides[1]), sides)?;
    let mut packed = vec![0; bytes];
    let frame = reader.next_frame(&mut packed)?;
    let [height, width] = sides.map(|side| side as usize);
    let bits = frame.bit_depth as usize;
    let (in_a_byte, most) = (8 / bits, u8::MAX >> (8 - bits));
    let mut pixels = Vec::with_capacity(height * width);
    for row in packed.chunks_exact(frame.line_size).take(height) {
        // The first pixel has the highest bits.
        pixels.extend((0..width).map(|x| row[x / in_a_byte] >> (8 - bits - x % in_a_byte * bits) & most));
    }
    Ok(Image { sides: [height, width], channels: 1, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{GrayImage, ImageBuffer, ImageFormat, Luma, Rgb, RgbImage};

    fn saved(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        image.into().write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    /// A PNG file with a palette, whose colours say nothing of their numbers.
    fn with_palette(bits: usize, [height, width]: [usize; 2], numbers: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::from_u8(bits as u8).unwrap());
        encoder.set_palette((0..3 << bits).map(|i| (i * 7 + 100) as u8).collect::<Vec<u8>>());
        let mut rows = Vec::new();
        for row in numbers.chunks(width) {
            rows.extend(row.chunks(8 / bits).map(|some| {
                some.iter().enumerate().fold(0, |byte, (i, number)| byte | number << (8 - bits - i * bits))
            }));
        }
        encoder.write_header().unwrap().write_image_data(&rows).unwrap();
        file
    }

    #[test]
    fn values_are_kept() {
        let numbers: Vec<u8> = (0..15).map(|i| i * 17).collect();
        let grey = GrayImage::from_raw(5, 3, numbers.clone()).unwrap();
        let colours = RgbImage::from_fn(5, 3, |x, y| Rgb([grey.get_pixel(x, y)[0]; 3]));
        let wide = ImageBuffer::from_fn(5, 3, |x, y| Luma([u16::from(grey.get_pixel(x, y)[0])]));
        for file in [
            saved(grey.clone(), ImageFormat::Png),
            saved(grey, ImageFormat::Bmp),
            saved(colours, ImageFormat::Png),
            saved(wide, ImageFormat::Png),
        ] {
            assert_eq!(read_mask(&file).unwrap(), Image { sides: [3, 5], channels: 1, pixels: numbers.clone() });
        }
    }

    #[test]
    fn a_palette_s_numbers_are_the_classes() {
        for bits in [1, 2, 4, 8] {
            let numbers: Vec<u8> = (0..3 * 11).map(|i: u8| i.wrapping_mul(5) & (u8::MAX >> (8 - bits))).collect();
            let mask = read_mask(&with_palette(bits, [3, 11], &numbers)).unwrap();
            assert_eq!(mask, Image { sides: [3, 11], channels: 1, pixels: numbers }, "{bits} bits");
        }
    }

    #[test]
    fn what_has_no_classes_is_refused() {
        let message = |file: &[u8]| format!("{:#}", read_mask(file).unwrap_err());
        let colours = RgbImage::from_pixel(4, 4, Rgb([1, 2, 1]));
        assert!(message(&saved(colours.clone(), ImageFormat::Png)).contains("it is in colours"));
        assert!(message(&saved(colours, ImageFormat::Jpeg)).contains("save masks as PNG"));
        let wide: ImageBuffer<Luma<u16>, _> = ImageBuffer::from_pixel(4, 4, Luma([256]));
        assert!(message(&saved(wide, ImageFormat::Png)).contains("above 255"));
        assert!(!message(b"no image").is_empty());
        let whole = with_palette(4, [40, 40], &[7; 1600]);
        for length in [20, 30, 60, whole.len() - 20] {
            let message = message(&whole[..length]);
            assert!(message.starts_with("it is cut off: the file ends"), "{length}: {message}");
        }
    }
}
