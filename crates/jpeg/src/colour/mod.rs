//! YCbCr to RGB, as JFIF has it, with constants of 16 bits after the point.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;

/// The constants are split into a whole number and a part below one half, so that 16 bits are enough for both:
/// 1.402 is 1 + 0.402, −0.71414 is −1 + 0.28586, 1.772 is 2 − 0.228.
const fn fixed(value: f64) -> i16 {
    (value * 65536.0 + if value < 0.0 { -0.5 } else { 0.5 }) as i16
}

const CR_TO_R: i16 = fixed(0.402);
const CB_TO_G: i16 = fixed(-0.34414);
const CR_TO_G: i16 = fixed(0.28586);
const CB_TO_B: i16 = fixed(-0.228);

/// Half of the product with 16 bits after the point, rounded.
#[inline(always)]
fn product(a: i16, b: i16) -> i16 {
    // Twice the product without its last 16 bits, and then half of that: the same as adding a half and cutting it off.
    let high = ((i32::from(2 * a) * i32::from(b)) >> 16) as i16;
    (high + 1) >> 1
}

/// Writes a row of RGB.
#[inline(always)]
pub(crate) fn to_rgb(luma: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let pixels = out.as_chunks_mut::<3>().0;
    for (((pixel, y), cb), cr) in pixels.iter_mut().zip(luma).zip(cb).zip(cr) {
        let (y, cb, cr) = (i16::from(*y), i16::from(*cb) - 128, i16::from(*cr) - 128);
        let green = (i32::from(cb) * i32::from(CB_TO_G) + i32::from(cr) * i32::from(CR_TO_G) + 32768) >> 16;
        let r = y + cr + product(cr, CR_TO_R);
        let g = y - cr + green as i16;
        let b = y + 2 * cb + product(cb, CB_TO_B);
        *pixel = [r, g, b].map(|value| value.clamp(0, 255) as u8);
    }
}

/// Writes a row of RGB of grey samples.
#[inline(always)]
pub(crate) fn grey_to_rgb(luma: &[u8], out: &mut [u8]) {
    for (pixel, y) in out.as_chunks_mut::<3>().0.iter_mut().zip(luma) {
        *pixel = [*y; 3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All colours with some of the luma: the formula with 16 bits after the point.
    #[test]
    fn colours_are_those_of_the_formula() {
        let fixed = |value: f64| (value * 65536.0 + 0.5) as i32;
        let (mut found, mut plain) = ([0; 3 * 256], [0; 3 * 256]);
        let byte = |value: i32| value.clamp(0, 255) as u8;
        let blues: [u8; 256] = std::array::from_fn(|at| at as u8);
        for red in 0..=255u8 {
            let luma = std::array::from_fn::<u8, 256, _>(|at| (at as u8).wrapping_mul(37).wrapping_add(red));
            to_rgb(&luma, &blues, &[red; 256], &mut plain);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2. Not all pixels, so that some are left for the plain loop.
                unsafe { avx2::to_rgb(&luma[..250], &blues[..250], &[red; 250], &mut found[..750]) };
                assert_eq!(found[..750], plain[..750]);
            }
            for (at, pixel) in plain.as_chunks::<3>().0.iter().enumerate() {
                let (y, cb, cr) = (i32::from(luma[at]), at as i32 - 128, i32::from(red) - 128);
                let r = y + ((fixed(1.402) * cr + 32768) >> 16);
                let g = y + ((-fixed(0.34414) * cb - fixed(0.71414) * cr + 32768) >> 16);
                let b = y + ((fixed(1.772) * cb + 32768) >> 16);
                assert_eq!(*pixel, [r, g, b].map(byte), "{y} {cb} {cr}");
            }
        }
    }
}
