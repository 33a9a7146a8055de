//! Loops over every byte of a data set or of a state. They are in this package because debug builds optimise it: tests read whole data sets.

/// Planes of one image, one after the other (red, green, blue), as pixels of three bytes, after what `to` has.
///
/// # Panics
/// The planes are not of one size.
pub fn interleave(planes: &[u8], to: &mut Vec<u8>) {
    assert!(planes.len().is_multiple_of(3), "three planes of one size");
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(red.len());
    let at = to.len();
    to.resize(at + planes.len(), 0);
    for (pixel, ((r, g), b)) in to[at..].as_chunks_mut().0.iter_mut().zip(red.iter().zip(green).zip(blue)) {
        *pixel = [*r, *g, *b];
    }
}

/// The [`luma`] of each pixel, `to` times. A pixel has `from` bytes: one, which is grey as it is, or first red, green and blue.
pub fn grey(pixels: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(pixels.len() / from * to);
    for pixel in pixels.chunks_exact(from) {
        let shade = if from == 1 { pixel[0] } else { luma([pixel[0], pixel[1], pixel[2]]) };
        all.resize(all.len() + to, shade);
    }
    all
}

/// The luma of ITU-R 601 of red, green and blue, with weights of 16 bits after the point.
pub fn luma(pixel: [u8; 3]) -> u8 {
    let [r, g, b] = pixel.map(u32::from);
    ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8
}

/// True if `bytes`, which are floats, hold neither a NaN nor an infinity.
pub fn are_finite(bytes: &[u8]) -> bool {
    floats(bytes).all(f32::is_finite)
}

/// True if one of `bytes`, which are floats, is a NaN.
pub fn have_nan(bytes: &[u8]) -> bool {
    floats(bytes).any(f32::is_nan)
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_become_pixels() {
        let mut to = vec![9];
        interleave(&[1, 2, 3, 4, 5, 6], &mut to);
        assert_eq!(to, [9, 1, 3, 5, 2, 4, 6]);
        interleave(&[], &mut to);
        assert_eq!(to.len(), 7);
    }

    #[test]
    fn colours_become_shades() {
        // 0.299 of red, 0.587 of green, 0.114 of blue.
        assert_eq!(grey(&[255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255], 3, 1), [76, 150, 29, 255]);
        assert_eq!(grey(&[10, 20, 30, 99], 4, 2), [18, 18]);
        assert_eq!(grey(&[7, 8], 1, 3), [7, 7, 7, 8, 8, 8]);
    }

    #[test]
    fn every_float_is_looked_at() {
        let bytes = |floats: &[f32]| floats.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
        assert!(are_finite(&bytes(&[])) && are_finite(&bytes(&[1.0, -0.0, f32::MAX])));
        for (bad, is_nan) in [(f32::NAN, true), (f32::INFINITY, false), (f32::NEG_INFINITY, false)] {
            for at in 0..3 {
                let mut all = [1.0; 3];
                all[at] = bad;
                assert!(!are_finite(&bytes(&all)) && have_nan(&bytes(&all)) == is_nan);
            }
        }
    }
}
