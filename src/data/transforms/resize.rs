//! Resampling as Pillow does it for bytes, to the bit: first along the rows, then along the columns, with weights of 22 bits
//! after the point, and rounded to bytes after each. Where an image becomes smaller, the filter is as much wider (antialiasing).
//! Where it loses more than twice as many rows as columns, the columns come first, as in Pillow since version 13.

use super::image::{Image, Window};
use std::ops::Range;

/// How pixels of one size are made of pixels of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// The pixel that lies there.
    Nearest,
    /// Linear in both directions.
    Bilinear,
    /// Cubic in both directions.
    Bicubic,
}

/// Bits of a weight after the point: with 8 of a pixel and 2 for sums above one, sums fit into 32.
const BITS: u32 = 32 - 8 - 2;

/// What is added before the bits after the point are cut off.
const HALF: i32 = 1 << (BITS - 1);

/// Bytes of a row that are summed up at once.
const BLOCK: usize = 32;

/// Rows that are made shorter or longer at once.
const ROWS: usize = 4;

/// A rectangle of an image, resized to `sides`.
pub(super) fn resize(
    image: &Image,
    window: Window,
    sides: [usize; 2],
    interpolation: Interpolation,
    antialias: bool,
) -> Image {
    let channels = image.channels;
    let pixels = match interpolation {
        _ if window.sides == sides => image.rows(window).flatten().copied().collect(),
        Interpolation::Nearest => nearest(image, window, sides),
        Interpolation::Bilinear | Interpolation::Bicubic if antialias => {
            let all = Window { at: [0, 0], sides };
            return Part::new(window.sides, sides, all, interpolation).resize(image, window);
        }
        _ => between_pixels(image, window, sides, interpolation),
    };
    Image { sides, channels, pixels }
}

/// A rectangle of an image that is resized with antialiasing, and what it is made of.
pub(super) struct Part {
    taps: [Option<Taps>; 2],
    rows_first: bool,
    /// The rectangle of the image that it needs.
    pub needed: Window,
}

impl Part {
    /// The rectangle `part` of an image of `from`, resized to `to`, has the pixels that it has there when all of it is resized.
    pub fn new(from: [usize; 2], to: [usize; 2], part: Window, interpolation: Interpolation) -> Self {
        let mut needed = part;
        let taps = [0, 1].map(|axis| {
            let (input, output) = (from[axis], to[axis]);
            let range = part.at[axis]..part.at[axis] + part.sides[axis];
            (input != output).then(|| {
                let mut taps = Taps::new(input, output, range, interpolation);
                (needed.at[axis], needed.sides[axis]) = taps.trim();
                taps
            })
        });
        let lost = [0, 1].map(|axis| from[axis] as isize - to[axis] as isize);
        Part { taps, rows_first: lost[0] > (2 * lost[1]).max(0), needed }
    }

    /// Makes it of the rectangle that it needs.
    pub fn resize(&self, image: &Image, window: Window) -> Image {
        let sides = [0, 1].map(|axis| self.taps[axis].as_ref().map_or(window.sides[axis], Taps::len));
        Image { sides, channels: image.channels, pixels: resample(image, window, self) }
    }
}

/// The places that Pillow takes: it adds up steps.
fn places(input: usize, output: usize) -> Vec<usize> {
    let step = input as f64 / output as f64;
    let mut at = step * 0.5;
    let mut next = || {
        let place = (at as usize).min(input - 1);
        at += step;
        place
    };
    (0..output).map(|_| next()).collect()
}

fn nearest(image: &Image, window: Window, sides: [usize; 2]) -> Vec<u8> {
    let [rows, columns] = [0, 1].map(|axis| places(window.sides[axis], sides[axis]));
    let (channels, line) = (image.channels, image.sides[1] * image.channels);
    let mut pixels = Vec::with_capacity(sides[0] * sides[1] * channels);
    for row in rows {
        let row = &image.pixels[(window.at[0] + row) * line..][window.at[1] * channels..line];
        for column in &columns {
            pixels.extend_from_slice(&row[column * channels..][..channels]);
        }
    }
    pixels
}

/// What each pixel along one axis of the result is made of: neighbours, and a weight for each.
struct Taps {
    /// The first neighbour and their number.
    ranges: Vec<(usize, usize)>,
    /// The weights, `most` for each pixel.
    weights: Vec<i32>,
    most: usize,
}

impl Taps {
    /// Of these pixels of the result.
    fn new(input: usize, output: usize, pixels: Range<usize>, interpolation: Interpolation) -> Self {
        let cubic = interpolation == Interpolation::Bicubic;
        let scale = input as f64 / output as f64;
        let wider = scale.max(1.0);
        let support = if cubic { 2.0 } else { 1.0 } * wider;
        let most = support.ceil() as usize * 2 + 1;
        let count = pixels.len();
        let mut taps = Taps { ranges: Vec::with_capacity(count), weights: vec![0; count * most], most };
        let mut exact = vec![0.0; most];
        for (x, weights) in pixels.zip(taps.weights.chunks_exact_mut(most)) {
            let centre = (x as f64 + 0.5) * scale;
            // A negative number becomes 0.
            let first = (centre - support + 0.5) as usize;
            let count = ((centre + support + 0.5) as usize).min(input) - first;
            let exact = &mut exact[..count];
            for (i, weight) in exact.iter_mut().enumerate() {
                let distance = ((i + first) as f64 - centre + 0.5) * (1.0 / wider);
                *weight = if cubic { cubic_filter(distance, -0.5) } else { linear_filter(distance) };
            }
            let sum: f64 = exact.iter().sum();
            for (weight, exact) in weights.iter_mut().zip(exact) {
                *weight = (*exact / sum * f64::from(1 << BITS)).round() as i32;
            }
            taps.ranges.push((first, count));
        }
        taps
    }

    fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Counts neighbours from the first one of all. Returns that, and how many there are.
    fn trim(&mut self) -> (usize, usize) {
        let from = self.ranges.iter().map(|(first, _)| *first).min().unwrap_or(0);
        let to = self.ranges.iter().map(|(first, count)| first + count).max().unwrap_or(0);
        self.ranges.iter_mut().for_each(|(first, _)| *first -= from);
        (from, to - from)
    }

    /// The first neighbour of a pixel, and the weights of it and of those that follow.
    #[inline(always)]
    fn of(&self, x: usize) -> (usize, &[i32]) {
        let (first, count) = self.ranges[x];
        (first, &self.weights[x * self.most..][..count])
    }
}

fn linear_filter(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// Cubic convolution (Keys 1981); `a` is its slope at 1.
fn cubic_filter(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

/// A sum as a byte.
#[inline(always)]
fn byte(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

/// Both passes, of which one may not be needed.
fn resample(image: &Image, window: Window, part: &Part) -> Vec<u8> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(image, window, part) };
    }
    both_passes(image, window, part)
}

/// The same code, compiled for vectors of eight numbers: plain x86-64 cannot multiply four at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(image: &Image, window: Window, part: &Part) -> Vec<u8> {
    both_passes(image, window, part)
}

#[inline(always)]
fn both_passes(image: &Image, window: Window, part: &Part) -> Vec<u8> {
    let [rows, columns] = &part.taps;
    let passes = match part.rows_first {
        true => [(rows, true), (columns, false)],
        false => [(columns, false), (rows, true)],
    };
    let mut made: Option<Image> = None;
    for (taps, along_them) in passes {
        let Some(taps) = taps else { continue };
        let (image, window) = match &made {
            Some(made) => (made, made.whole()),
            None => (image, window),
        };
        let channels = image.channels;
        let (sides, pixels) = match (along_them, channels) {
            (true, _) => ([taps.len(), window.sides[1]], along_columns(image, window, taps)),
            (_, 1) => ([window.sides[0], taps.len()], along_rows::<1, 1>(image, window, taps)),
            // One lane more than there are channels makes a vector of four.
            (_, 3) => ([window.sides[0], taps.len()], along_rows::<3, 4>(image, window, taps)),
            (_, 4) => ([window.sides[0], taps.len()], along_rows::<4, 4>(image, window, taps)),
            _ => ([window.sides[0], taps.len()], along_rows_of_any(image, window, taps)),
        };
        made = Some(Image { sides, channels, pixels });
    }
    made.map_or_else(|| image.rows(window).flatten().copied().collect(), |made| made.pixels)
}

/// Every row made of another length, some rows at a time: they share the weights.
#[inline(always)]
fn along_rows<const C: usize, const LANES: usize>(image: &Image, window: Window, taps: &Taps) -> Vec<u8> {
    let line = taps.len() * C;
    let mut out = vec![0; window.sides[0] * line];
    // The last pixel is read with its spare lane.
    let width = window.sides[1] * C + LANES - C;
    let mut together = vec![0; ROWS * width];
    let mut sources = image.rows(window);
    for out in out.chunks_mut(ROWS * line) {
        for (row, source) in together.chunks_exact_mut(width).zip(&mut sources) {
            row[..source.len()].copy_from_slice(source);
        }
        for x in 0..taps.len() {
            let (first, weights) = taps.of(x);
            let mut sums = [[HALF; LANES]; ROWS];
            let mut at = first * C;
            for weight in weights {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let lanes = &together[row * width + at..][..LANES];
                    for (sum, lane) in sums.iter_mut().zip(lanes) {
                        *sum += i32::from(*lane) * weight;
                    }
                }
                at += C;
            }
            for (out, sums) in out.chunks_exact_mut(line).zip(sums) {
                for (byte_out, sum) in out[x * C..][..C].iter_mut().zip(sums) {
                    *byte_out = byte(sum);
                }
            }
        }
    }
    out
}

/// The same for any number of channels.
fn along_rows_of_any(image: &Image, window: Window, taps: &Taps) -> Vec<u8> {
    let channels = image.channels;
    let mut out = Vec::with_capacity(window.sides[0] * taps.len() * channels);
    for row in image.rows(window) {
        for x in 0..taps.len() {
            let (first, weights) = taps.of(x);
            for c in 0..channels {
                let pixels = row[first * channels + c..].iter().step_by(channels);
                let products = pixels.zip(weights).map(|(pixel, weight)| i32::from(*pixel) * weight);
                out.push(byte(HALF + products.sum::<i32>()));
            }
        }
    }
    out
}

/// Every column made of another length.
#[inline(always)]
fn along_columns(image: &Image, window: Window, taps: &Taps) -> Vec<u8> {
    let (line, width) = (image.sides[1] * image.channels, window.sides[1] * image.channels);
    let source = &image.pixels[window.at[0] * line + window.at[1] * image.channels..];
    let mut out = vec![0; taps.len() * width];
    for (y, out) in out.chunks_exact_mut(width).enumerate() {
        let (first, weights) = taps.of(y);
        let mut blocks = out.chunks_exact_mut(BLOCK);
        let mut x = 0;
        for block in &mut blocks {
            let mut sums = [HALF; BLOCK];
            let mut at = first * line + x;
            for weight in weights {
                for (sum, pixel) in sums.iter_mut().zip(&source[at..at + BLOCK]) {
                    *sum += i32::from(*pixel) * weight;
                }
                at += line;
            }
            for (byte_out, sum) in block.iter_mut().zip(sums) {
                *byte_out = byte(sum);
            }
            x += BLOCK;
        }
        for (i, byte_out) in blocks.into_remainder().iter_mut().enumerate() {
            let pixels = source[first * line + x + i..].iter().step_by(line);
            let products = pixels.zip(weights).map(|(pixel, weight)| i32::from(*pixel) * weight);
            *byte_out = byte(HALF + products.sum::<i32>());
        }
    }
    out
}

/// As PyTorch's `interpolate` without antialiasing: every pixel of the result lies between a few pixels of the image, and beyond
/// the border there is the pixel at the border.
fn between_pixels(image: &Image, window: Window, sides: [usize; 2], interpolation: Interpolation) -> Vec<u8> {
    let cubic = interpolation == Interpolation::Bicubic;
    let around: std::ops::Range<isize> = if cubic { -1..3 } else { 0..2 };
    // The neighbours of each pixel along an axis, with their weights.
    let [rows, columns] = [0, 1].map(|axis| {
        let (input, scale) = (window.sides[axis], window.sides[axis] as f64 / sides[axis] as f64);
        let neighbours = |x: usize| {
            let centre = (x as f64 + 0.5) * scale - 0.5;
            let neighbour = |i: isize| {
                let at = centre.floor() as isize + i;
                let distance = at as f64 - centre;
                let weight = if cubic { cubic_filter(distance, -0.75) } else { linear_filter(distance) };
                (window.at[axis] + at.clamp(0, input as isize - 1) as usize, weight as f32)
            };
            around.clone().map(neighbour).collect::<Vec<_>>()
        };
        (0..sides[axis]).map(neighbours).collect::<Vec<_>>()
    });
    let (channels, line) = (image.channels, image.sides[1] * image.channels);
    let mut pixels = Vec::with_capacity(sides[0] * sides[1] * channels);
    for rows in &rows {
        for columns in &columns {
            for channel in 0..channels {
                let mut sum = 0.0;
                for (y, by_row) in rows {
                    let row = &image.pixels[y * line..][..line];
                    let along: f32 = columns.iter().map(|(x, by)| f32::from(row[x * channels + channel]) * by).sum();
                    sum += along * by_row;
                }
                pixels.push(sum.round_ties_even() as u8);
            }
        }
    }
    pixels
}
