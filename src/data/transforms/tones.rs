//! Changes of each value, by itself or by the histogram of its channel, as Pillow's `ImageOps` and `ImageEnhance` make them.

use super::color::blend;
use super::image::Image;

/// Replaces every value of a channel by that of its table.
fn look_up(image: &mut Image, channel: usize, table: &[u8; 256]) {
    let channels = image.channels;
    image.pixels.iter_mut().skip(channel).step_by(channels).for_each(|value| *value = table[usize::from(*value)]);
}

/// Dark becomes bright.
pub(super) fn invert(image: &mut Image) {
    image.pixels.iter_mut().for_each(|value| *value = 255 - *value);
}

/// So many bits of each value, the highest ones.
pub(super) fn posterize(image: &mut Image, bits: u32) {
    let mask = 0xff00u32 >> bits.min(8);
    image.pixels.iter_mut().for_each(|value| *value &= mask as u8);
}

/// Values from `threshold` on are inverted.
pub(super) fn solarize(image: &mut Image, threshold: f64) {
    for value in &mut image.pixels {
        *value = if f64::from(*value) < threshold { *value } else { 255 - *value };
    }
}

/// How often each value of a channel occurs.
fn histogram(image: &Image, channel: usize) -> [usize; 256] {
    let mut counts = [0; 256];
    image.pixels.iter().skip(channel).step_by(image.channels).for_each(|value| counts[usize::from(*value)] += 1);
    counts
}

/// Each channel stretched, so that its least value becomes 0 and its largest 255.
pub(super) fn autocontrast(image: &mut Image) {
    for channel in 0..image.channels {
        let counts = histogram(image, channel);
        let least = counts.iter().position(|n| *n > 0).unwrap_or(0);
        let most = counts.iter().rposition(|n| *n > 0).unwrap_or(0);
        if most > least {
            let scale = 255.0 / (most - least) as f64;
            let offset = -(least as f64) * scale;
            look_up(image, channel, &std::array::from_fn(|value| (value as f64 * scale + offset) as u8));
        }
    }
}

/// The histogram of each channel made even.
pub(super) fn equalize(image: &mut Image) {
    for channel in 0..image.channels {
        let counts = histogram(image, channel);
        let last = counts.iter().rev().find(|n| **n > 0).copied().unwrap_or(0);
        let step = (counts.iter().sum::<usize>() - last) / 255;
        if step > 0 {
            let mut sum = step / 2;
            let table = counts.map(|n| {
                let value = (sum / step).min(255) as u8;
                sum += n;
                value
            });
            look_up(image, channel, &table);
        }
    }
}

/// Factor 0 is the image smoothed, 1 as it is. The border stays as it is.
pub(super) fn adjust_sharpness(image: &mut Image, factor: f64) {
    let ([height, width], channels) = (image.sides, image.channels);
    if height < 3 || width < 3 {
        return;
    }
    let (given, line) = (image.pixels.clone(), width * channels);
    for y in 1..height - 1 {
        for at in y * line + channels..(y + 1) * line - channels {
            let row = |middle: usize| -> u32 {
                [middle - channels, middle, middle + channels].map(|i| u32::from(given[i])).iter().sum()
            };
            // The middle counts 5, and its neighbours 1 each; to the nearest, which is never halfway.
            let sum = row(at - line) + row(at) + row(at + line) + 4 * u32::from(given[at]);
            image.pixels[at] = blend(((2 * sum + 13) / 26) as u8, given[at], factor as f32);
        }
    }
}
