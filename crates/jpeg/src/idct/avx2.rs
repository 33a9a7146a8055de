//! The transform in vectors: two coefficients are multiplied by two constants and added at once, in eight columns (rows). Sums are the same as
//! those of the fewest multiplications, since they have no rounding; what is beyond 32 bits wraps in both.

use super::{
    BITS, C0_298, C0_390, C0_541, C0_765, C0_899, C1_175, C1_501, C1_847, C1_961, C2_053, C2_562, C3_072, FIRST,
    SECOND, fill, half,
};
use crate::block::Block;
use std::arch::x86_64::*;

/// As [`idct`](super::idct).
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn idct(block: &Block, flat: bool, out: &mut [u8], stride: usize) {
    if flat {
        return fill(block[0], out, stride);
    }
    let mut rows = [_mm_setzero_si128(); 8];
    for (row, numbers) in rows.iter_mut().zip(block.as_chunks::<8>().0) {
        // SAFETY: they are 16 bytes.
        *row = unsafe { _mm_loadu_si128(numbers.as_ptr().cast()) };
    }
    let rows = pass::<{ FIRST as i32 }>(rows);
    let columns = pass::<{ SECOND as i32 }>(transposed(rows));
    let middle = _mm_set1_epi16(128);
    let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
    let bytes = |a, b| _mm_packus_epi16(_mm_adds_epi16(a, middle), _mm_adds_epi16(b, middle));
    let (c04, c15, c26, c37) = (bytes(c0, c4), bytes(c1, c5), bytes(c2, c6), bytes(c3, c7));
    // Bytes of the columns in turn, then of four columns, then whole rows.
    let (c02, c46) = (_mm_unpacklo_epi8(c04, c26), _mm_unpackhi_epi8(c04, c26));
    let (c13, c57) = (_mm_unpacklo_epi8(c15, c37), _mm_unpackhi_epi8(c15, c37));
    let (left_top, left_bottom) = (_mm_unpacklo_epi8(c02, c13), _mm_unpackhi_epi8(c02, c13));
    let (right_top, right_bottom) = (_mm_unpacklo_epi8(c46, c57), _mm_unpackhi_epi8(c46, c57));
    let pairs = [
        _mm_unpacklo_epi32(left_top, right_top),
        _mm_unpackhi_epi32(left_top, right_top),
        _mm_unpacklo_epi32(left_bottom, right_bottom),
        _mm_unpackhi_epi32(left_bottom, right_bottom),
    ];
    for (i, pair) in pairs.into_iter().enumerate() {
        out[2 * i * stride..][..8].copy_from_slice(&_mm_cvtsi128_si64(pair).to_ne_bytes());
        out[(2 * i + 1) * stride..][..8].copy_from_slice(&_mm_extract_epi64::<1>(pair).to_ne_bytes());
    }
}

/// Two factors for each pair.
#[target_feature(enable = "avx2")]
#[inline]
fn factors(first: i32, second: i32) -> __m256i {
    _mm256_set1_epi32(first & 0xffff | second << 16)
}

/// Two vectors of eight as eight pairs.
#[target_feature(enable = "avx2")]
#[inline]
fn pairs(a: __m128i, b: __m128i) -> __m256i {
    _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b))
}

/// The transform of eight vectors, rounded, as 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const SHIFT: i32>([x0, x1, x2, x3, x4, x5, x6, x7]: [__m128i; 8]) -> [__m128i; 8] {
    let (x04, x26, x13, x57) = (pairs(x0, x4), pairs(x2, x6), pairs(x1, x3), pairs(x5, x7));
    let times = |pairs, first, second| _mm256_madd_epi16(pairs, factors(first, second));
    let rounding = _mm256_set1_epi32(half(SHIFT as usize));
    let one = 1 << BITS;
    let a0 = _mm256_add_epi32(times(x04, one, one), rounding);
    let a1 = _mm256_add_epi32(times(x04, one, -one), rounding);
    let a2 = times(x26, C0_541, C0_541 - C1_847);
    let a3 = times(x26, C0_541 + C0_765, C0_541);
    let even = [_mm256_add_epi32(a0, a3), _mm256_add_epi32(a1, a2), _mm256_sub_epi32(a1, a2), _mm256_sub_epi32(a0, a3)];
    let (k39, k89, k196, k256) = (C1_175 - C0_390, C1_175 - C0_899, C1_175 - C1_961, C1_175 - C2_562);
    let sum = |a, b, c, d| _mm256_add_epi32(times(x13, a, b), times(x57, c, d));
    let odd = [
        sum(k39 + C1_501 - C0_899, C1_175, k39, k89),
        sum(C1_175, k196 + C3_072 - C2_562, k256, k196),
        sum(k39, k256, k39 + C2_053 - C2_562, C1_175),
        sum(k89, k196, C1_175, k196 + C0_298 - C0_899),
    ];
    let mut result = [_mm_setzero_si128(); 8];
    for i in 0..4 {
        let first = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[i], odd[i]));
        let last = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[i], odd[i]));
        let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(first, last));
        result[i] = _mm256_castsi256_si128(both);
        result[7 - i] = _mm256_extracti128_si256::<1>(both);
    }
    result
}

/// Rows as columns.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(r: [__m128i; 8]) -> [__m128i; 8] {
    let pairs = |a, b| (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
    let ((a0, a1), (b0, b1)) = (pairs(r[0], r[1]), pairs(r[2], r[3]));
    let ((c0, c1), (d0, d1)) = (pairs(r[4], r[5]), pairs(r[6], r[7]));
    let fours = |a, b| (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    let ((e0, e1), (e2, e3)) = (fours(a0, b0), fours(a1, b1));
    let ((f0, f1), (f2, f3)) = (fours(c0, d0), fours(c1, d1));
    let (low, high) = (|a, b| _mm_unpacklo_epi64(a, b), |a, b| _mm_unpackhi_epi64(a, b));
    [low(e0, f0), high(e0, f0), low(e1, f1), high(e1, f1), low(e2, f2), high(e2, f2), low(e3, f3), high(e3, f3)]
}
