//! YCbCr to RGB, as JFIF has it, with constants of 16 bits after the point.

/// The constants are split into a whole number and a part below one half, so that 16 bits are enough for both: 1.402 is 1 + 0.402, −0.71414 is −1 + 0.28586, 1.772 is 2 − 0.228.
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
