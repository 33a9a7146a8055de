//! Rectangles of random sizes and places.

use super::image::{Image, Window};
use super::uniform;
use crate::random::Stream;

/// As often a rectangle is drawn before one is taken that is sure to fit.
const TRIES: usize = 10;

/// Height and width of a rectangle with a random share of an image's area. `ratio` is what the first side is divided by the
/// second; its logarithm is uniform.
fn draw_sides(draws: &mut Stream, area: f64, scale: [f64; 2], ratio: [f64; 2]) -> [f64; 2] {
    let area = area * uniform(draws, scale);
    let ratio = uniform(draws, ratio.map(f64::ln)).exp();
    [(area * ratio).sqrt(), (area / ratio).sqrt()].map(f64::round_ties_even)
}

/// A place for a rectangle, every one as likely.
fn place(draws: &mut Stream, outer: [usize; 2], inner: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|axis| draws.below((outer[axis] - inner[axis] + 1) as u32) as usize)
}

/// The window of torchvision's `RandomResizedCrop`: of a random area and shape, at a random place. If none of ten fits, the
/// largest in the middle whose shape is allowed.
pub(super) fn resized_crop(draws: &mut Stream, sides: [usize; 2], scale: [f64; 2], ratio: [f64; 2]) -> Window {
    let [height, width] = sides.map(|side| side as f64);
    for _ in 0..TRIES {
        // The ratio is that of width to height.
        let [w, h] = draw_sides(draws, height * width, scale, ratio);
        if 0.0 < w && w <= width && 0.0 < h && h <= height {
            let window = [h as usize, w as usize];
            return Window { at: place(draws, sides, window), sides: window };
        }
    }
    let is = width / height;
    let [h, w] = match is {
        _ if is < ratio[0] => [(width / ratio[0]).round_ties_even(), width],
        _ if is > ratio[1] => [height, (height * ratio[1]).round_ties_even()],
        _ => [height, width],
    };
    // Images of a few pixels may be left without any.
    let window = [(h as usize).clamp(1, sides[0]), (w as usize).clamp(1, sides[1])];
    Window { at: [0, 1].map(|axis| (sides[axis] - window[axis]) / 2), sides: window }
}

/// The rectangle of torchvision's `RandomErasing`, if one of ten fits.
pub(super) fn erased(draws: &mut Stream, sides: [usize; 2], scale: [f64; 2], ratio: [f64; 2]) -> Option<Window> {
    let [height, width] = sides.map(|side| side as f64);
    for _ in 0..TRIES {
        // Here it is that of height to width.
        let [h, w] = draw_sides(draws, height * width, scale, ratio);
        if h < height && w < width {
            let window = [h as usize, w as usize];
            return Some(Window { at: place(draws, sides, window), sides: window });
        }
    }
    None
}

/// Gives every byte of a rectangle one value.
pub(super) fn erase(image: &mut Image, window: Window, value: u8) {
    let ([top, left], [height, width]) = (window.at, window.sides);
    let (line, channels) = (image.sides[1] * image.channels, image.channels);
    for row in image.pixels.chunks_exact_mut(line).skip(top).take(height) {
        row[left * channels..(left + width) * channels].fill(value);
    }
}
