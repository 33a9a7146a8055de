//! Changes of colours, as Pillow makes them.

use super::image::Image;
use super::uniform;
use crate::bulk::{grey, luma};
use crate::random::Stream;

/// The ranges of torchvision's `ColorJitter`, each `[least, most]`; `None` changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ColorJitter {
    /// Factors for the brightness.
    pub brightness: Option<[f64; 2]>,
    /// Factors for the contrast.
    pub contrast: Option<[f64; 2]>,
    /// Factors for the saturation.
    pub saturation: Option<[f64; 2]>,
    /// Turns of the hue, of which 1 is the whole circle.
    pub hue: Option<[f64; 2]>,
}

/// Shades of grey in so many channels, all the same.
pub(super) fn grayscale(image: Image, channels: usize) -> Image {
    if image.channels == channels && channels == 1 {
        return image;
    }
    let pixels = grey(&image.pixels, image.channels, channels);
    Image { channels, pixels, ..image }
}

/// `from + factor · (to − from)`; cut off, not rounded, as Pillow's `blend`.
pub(super) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    (from + factor * (to - from)) as u8
}

/// Factor 0 is black, 1 leaves the image as it is.
pub(super) fn adjust_brightness(image: &mut Image, factor: f64) {
    let table: [u8; 256] = std::array::from_fn(|value| blend(0, value as u8, factor as f32));
    image.pixels.iter_mut().for_each(|value| *value = table[usize::from(*value)]);
}

/// Factor 0 is the mean shade of grey, 1 leaves the image as it is.
pub(super) fn adjust_contrast(image: &mut Image, factor: f64) {
    let greys: u64 = match image.channels {
        1 => image.pixels.iter().map(|grey| u64::from(*grey)).sum(),
        _ => {
            image.pixels.chunks_exact(image.channels).map(|pixel| u64::from(luma([pixel[0], pixel[1], pixel[2]]))).sum()
        }
    };
    let mean = (greys as f64 / (image.sides[0] * image.sides[1]) as f64 + 0.5) as u8;
    let table: [u8; 256] = std::array::from_fn(|value| blend(mean, value as u8, factor as f32));
    image.pixels.iter_mut().for_each(|value| *value = table[usize::from(*value)]);
}

/// Factor 0 is grey, 1 leaves the image as it is.
pub(super) fn adjust_saturation(image: &mut Image, factor: f64) {
    if image.channels == 1 {
        return;
    }
    for pixel in image.pixels.chunks_exact_mut(image.channels) {
        let grey = luma([pixel[0], pixel[1], pixel[2]]);
        pixel.iter_mut().for_each(|value| *value = blend(grey, *value, factor as f32));
    }
}

/// Turns the hue; 0.5 is half of the circle, in either direction.
pub(super) fn adjust_hue(image: &mut Image, turn: f64) {
    if image.channels == 1 {
        return;
    }
    let turn = (turn * 255.0) as i32 as u8;
    for pixel in image.pixels.chunks_exact_mut(image.channels) {
        let [h, s, v] = to_hsv([pixel[0], pixel[1], pixel[2]]);
        pixel.copy_from_slice(&to_rgb([h.wrapping_add(turn), s, v]));
    }
}

/// Hue, saturation and value, each from 0 to 255, rounded where Pillow rounds.
fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let saturation = range / f32::from(most);
    let [from_r, from_g, from_b] = [r, g, b].map(|value| f32::from(most - value) / range);
    let sixth = if r == most {
        from_b - from_g
    } else if g == most {
        (2.0 + f64::from(from_r) - f64::from(from_b)) as f32
    } else {
        (4.0 + f64::from(from_g) - f64::from(from_r)) as f32
    };
    // From 5/6 to below 2.
    let turns = f64::from(sixth) / 6.0 + 1.0;
    let hue = (if turns >= 1.0 { turns - 1.0 } else { turns }) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

fn to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sixths = f64::from(h) * 6.0 / 255.0;
    let whole = sixths.floor();
    let rest = (sixths - whole) as f32;
    let saturation = (f64::from(s) / 255.0) as f32;
    let less = |share: f64| (f64::from(v) * (1.0 - share)).round() as u8;
    let p = less(f64::from(saturation));
    let q = less(f64::from(saturation * rest));
    let t = less(f64::from(saturation) * (1.0 - f64::from(rest)));
    match whole as usize % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

impl ColorJitter {
    /// The order of the changes, and how much of each.
    pub(super) fn draw(&self, draws: &mut Stream) -> ([usize; 4], [Option<f64>; 4]) {
        let mut order = [0, 1, 2, 3];
        draws.shuffle(&mut order);
        let ranges = [self.brightness, self.contrast, self.saturation, self.hue];
        (order, ranges.map(|range| range.map(|range| uniform(draws, range))))
    }

    /// The four changes, in a random order.
    pub(super) fn apply(&self, draws: &mut Stream, image: &mut Image) {
        let (order, amounts) = self.draw(draws);
        for which in order {
            let Some(amount) = amounts[which] else { continue };
            match which {
                0 => adjust_brightness(image, amount),
                1 => adjust_contrast(image, amount),
                2 => adjust_saturation(image, amount),
                _ => adjust_hue(image, amount),
            }
        }
    }
}
