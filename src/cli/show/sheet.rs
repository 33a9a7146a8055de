//! A contact sheet: images side by side, a label below each.

use super::font::{LETTER, has_ink};
use image::{Rgb, RgbImage};

/// Images smaller than this are enlarged by a whole factor, until they are as large.
const LEAST_SIDE: usize = 64;
/// The largest side of a sheet.
const MOST_SIDE: usize = 16_384;
/// Pixels between images.
const GAP: usize = 6;
/// Pixels of the sheet for each of a letter.
const INK: usize = 2;

const PAPER: Rgb<u8> = Rgb([24, 24, 24]);
const TEXT: Rgb<u8> = Rgb([230, 230, 230]);

/// An image that is shown: `[H, W, C]` bytes, and what is written below.
pub struct Shown {
    /// The bytes.
    pub pixels: Vec<u8>,
    /// The label; empty where there is none.
    pub label: String,
}

/// The sheet of images that all have these dimensions, and its rows and columns. Images that no longer fit are left out.
pub fn draw(images: &[Shown], [height, width, channels]: [usize; 3]) -> (RgbImage, [usize; 2]) {
    let scale = LEAST_SIDE.div_ceil(height.max(width)).max(1);
    let labelled = images.iter().any(|image| !image.label.is_empty());
    let text = if labelled { (LETTER[1] + 2) * INK } else { 0 };
    let cell = [height * scale + text + GAP, width * scale + GAP];
    let fit = cell.map(|side| ((MOST_SIDE - GAP) / side).max(1));
    // About as wide as high.
    let columns = ((images.len() * cell[0]) as f64 / cell[1] as f64).sqrt().round() as usize;
    let columns = columns.clamp(1, images.len().max(1)).min(fit[1]);
    let rows = images.len().div_ceil(columns).min(fit[0]);
    let size = [rows * cell[0] + GAP, columns * cell[1] + GAP].map(|side| side as u32);
    let mut sheet = RgbImage::from_pixel(size[1], size[0], PAPER);
    for (i, image) in images.iter().take(rows * columns).enumerate() {
        let (top, left) = (GAP + i / columns * cell[0], GAP + i % columns * cell[1]);
        for y in 0..height * scale {
            for x in 0..width * scale {
                let at = (y / scale * width + x / scale) * channels;
                let colour = match channels {
                    3.. => [0, 1, 2].map(|c| image.pixels[at + c]),
                    _ => [image.pixels[at]; 3],
                };
                sheet.put_pixel((left + x) as u32, (top + y) as u32, Rgb(colour));
            }
        }
        write(&mut sheet, &image.label, [top + height * scale + INK, left], width * scale);
    }
    (sheet, [rows, columns])
}

/// Writes as much of a text as there is room for.
fn write(sheet: &mut RgbImage, text: &str, [top, left]: [usize; 2], room: usize) {
    let step = (LETTER[0] + 1) * INK;
    for (i, letter) in text.chars().take((room + INK) / step).enumerate() {
        for (y, x) in (0..LETTER[1] * INK).flat_map(|y| (0..LETTER[0] * INK).map(move |x| (y, x))) {
            if has_ink(letter, y / INK, x / INK) {
                sheet.put_pixel((left + i * step + x) as u32, (top + y) as u32, TEXT);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_lie_side_by_side_with_their_labels() {
        let images: Vec<Shown> =
            (0..5u8).map(|i| Shown { pixels: vec![40 * i; 40 * 80], label: i.to_string() }).collect();
        let (sheet, [rows, columns]) = draw(&images, [40, 80, 1]);
        assert_eq!((rows, columns), (3, 2));
        assert_eq!(sheet.dimensions(), (2 * 86 + 6, 3 * (40 + 14 + 6) + 6));
        for i in 0..5 {
            let at = (6 + i % 2 * 86, 6 + i / 2 * 60);
            for (x, y) in [at, (at.0 + 79, at.1 + 39)] {
                assert_eq!(sheet.get_pixel(x, y).0, [40 * i as u8; 3], "{i}");
            }
            // All five digits have ink in the upper row, in the middle; the paper is seen beside it.
            let ink = if i == 4 { 0 } else { 2 };
            assert_eq!(*sheet.get_pixel(at.0 + ink, at.1 + 42), TEXT, "{i}");
            assert_eq!(*sheet.get_pixel(at.0 + 6, at.1 + 42), PAPER);
        }
        // Small images are enlarged, colours are kept.
        let (sheet, _) = draw(&[Shown { pixels: vec![1, 2, 3, 7, 8, 9], label: String::new() }], [1, 2, 3]);
        assert_eq!(sheet.dimensions(), (64 + 12, 32 + 12));
        assert_eq!((sheet.get_pixel(6, 6).0, sheet.get_pixel(69, 37).0), ([1, 2, 3], [7, 8, 9]));
    }
}
