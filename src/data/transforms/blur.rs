//! Gaussian blur, as torchvision's: the image goes on mirrored at its border.

use super::image::Image;

/// The weights of a kernel, which sum up to one. What torchvision takes for σ is that of a Gaussian over √2 as many pixels.
fn kernel(size: usize, sigma: f64) -> Vec<f32> {
    let sigma = (sigma as f32).max(f32::MIN_POSITIVE);
    let end = ((size - 1) as f64 / (2.0 * 2f64.sqrt())) as f32;
    let step = if size > 1 { 2.0 * end / (size - 1) as f32 } else { 0.0 };
    let at = |i: usize| if i < size / 2 { step * i as f32 - end } else { end - step * (size - 1 - i) as f32 };
    let powers: Vec<f32> = (0..size).map(|i| -(at(i) / sigma).powi(2)).collect();
    // The largest is 0, in the middle.
    let weights: Vec<f32> = powers.iter().map(|power| power.exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// The place in `0..len` that a place beyond it mirrors; the border itself is there once.
fn mirrored(at: isize, len: usize) -> usize {
    let period = (2 * (len - 1)).max(1) as isize;
    let at = at.rem_euclid(period) as usize;
    if at < len { at } else { period as usize - at }
}

/// The image blurred with a kernel of `size` × `size`, which is odd.
pub(super) fn gaussian_blur(image: &Image, size: usize, sigma: f64) -> Image {
    let ([height, width], channels) = (image.sides, image.channels);
    let (kernel, half) = (kernel(size, sigma), (size / 2) as isize);
    let line = width * channels;
    let mut along_rows = vec![0.0f32; image.pixels.len()];
    for (source, out) in image.pixels.chunks_exact(line).zip(along_rows.chunks_exact_mut(line)) {
        for (k, weight) in kernel.iter().enumerate() {
            let shift = k as isize - half;
            for (x, out) in out.chunks_exact_mut(channels).enumerate() {
                let from = mirrored(x as isize + shift, width) * channels;
                for (out, value) in out.iter_mut().zip(&source[from..from + channels]) {
                    *out += f32::from(*value) * weight;
                }
            }
        }
    }
    let mut sums = vec![0.0f32; line];
    let mut pixels = Vec::with_capacity(image.pixels.len());
    for y in 0..height {
        sums.fill(0.0);
        for (k, weight) in kernel.iter().enumerate() {
            let from = mirrored(y as isize + k as isize - half, height);
            for (sum, value) in sums.iter_mut().zip(&along_rows[from * line..][..line]) {
                *sum += value * weight;
            }
        }
        pixels.extend(sums.iter().map(|sum| sum.round_ties_even() as u8));
    }
    Image { sides: image.sides, channels, pixels }
}
