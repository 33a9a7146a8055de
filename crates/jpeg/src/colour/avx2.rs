//! Sixteen pixels at once: the same sums in vectors, and the shuffles that put three colours side by side.

use super::{CB_TO_B, CB_TO_G, CR_TO_G, CR_TO_R, to_rgb as plain};
use std::arch::x86_64::*;

/// Pixels that are made at once.
const STEP: usize = 16;

/// For each of the three vectors of a step and each colour, from where its bytes come; a negative number makes a zero.
const PLACES: [[[i8; 16]; 3]; 3] = {
    let mut places = [[[-1; 16]; 3]; 3];
    let mut at = 0;
    while at < 3 * STEP {
        places[at / 16][at % 3][at % 16] = (at / 3) as i8;
        at += 1;
    }
    places
};

/// As [`to_rgb`](super::to_rgb).
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn to_rgb(luma: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let (steps, rest) = out.as_chunks_mut::<{ 3 * STEP }>();
    let done = steps.len() * STEP;
    let middle = _mm256_set1_epi16(128);
    // SAFETY: each is 16 bytes.
    let places = PLACES.map(|colours| colours.map(|places| unsafe { _mm_loadu_si128(places.as_ptr().cast()) }));
    for (((out, y), cb), cr) in steps.iter_mut().zip(words(luma)).zip(words(cb)).zip(words(cr)) {
        // SAFETY: each is 16 bytes.
        let [y, cb, cr] = [y, cb, cr].map(|bytes| unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
        let y = _mm256_cvtepu8_epi16(y);
        let cb = _mm256_sub_epi16(_mm256_cvtepu8_epi16(cb), middle);
        let cr = _mm256_sub_epi16(_mm256_cvtepu8_epi16(cr), middle);
        let r = _mm256_add_epi16(_mm256_add_epi16(y, cr), product(cr, CR_TO_R));
        let b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)), product(cb, CB_TO_B));
        let factors = _mm256_set1_epi32(i32::from(CB_TO_G) & 0xffff | i32::from(CR_TO_G) << 16);
        let half = |pairs| {
            let sum = _mm256_add_epi32(_mm256_madd_epi16(pairs, factors), _mm256_set1_epi32(1 << 15));
            _mm256_srai_epi32::<16>(sum)
        };
        let (low, high) = (_mm256_unpacklo_epi16(cb, cr), _mm256_unpackhi_epi16(cb, cr));
        let g = _mm256_add_epi16(_mm256_sub_epi16(y, cr), _mm256_packs_epi32(half(low), half(high)));
        // Both halves of a vector are packed by themselves.
        let rg = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(r, g));
        let b = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(b, b));
        let (r, g, b) = (_mm256_castsi256_si128(rg), _mm256_extracti128_si256::<1>(rg), _mm256_castsi256_si128(b));
        for (out, places) in out.as_chunks_mut::<16>().0.iter_mut().zip(&places) {
            let rg = _mm_or_si128(_mm_shuffle_epi8(r, places[0]), _mm_shuffle_epi8(g, places[1]));
            let all = _mm_or_si128(rg, _mm_shuffle_epi8(b, places[2]));
            // SAFETY: it is 16 bytes.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), all) };
        }
    }
    plain(&luma[done..], &cb[done..], &cr[done..], rest);
}

/// A row in steps.
#[inline(always)]
fn words(row: &[u8]) -> &[[u8; STEP]] {
    row.as_chunks().0
}

/// As [`product`](super::product).
#[target_feature(enable = "avx2")]
#[inline]
fn product(a: __m256i, factor: i16) -> __m256i {
    let high = _mm256_mulhi_epi16(_mm256_add_epi16(a, a), _mm256_set1_epi16(factor));
    _mm256_srai_epi16::<1>(_mm256_add_epi16(high, _mm256_set1_epi16(1)))
}
