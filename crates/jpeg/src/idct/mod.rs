//! The inverse discrete cosine transform of 8×8 coefficients in whole numbers: that of Loeffler, Ligtenberg and Moschytz ("Practical fast
//! 1-D DCT algorithms with 11 multiplications", 1989), with constants of 13 bits after the point, along the columns first. Between the two
//! passes numbers have 2 bits after the point and 16 in all. These are the numbers of libjpeg's "slow" integer transform, so the bits are the same.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;

use crate::block::Block;
use std::num::Wrapping;

/// Bits of the constants after the point.
const BITS: usize = 13;
/// Bits after the point between the passes.
const BETWEEN: usize = 2;

/// Bits that the first pass rounds away.
const FIRST: usize = BITS - BETWEEN;
/// Bits that the second one rounds away: those after the point, and 3 for the length of both transforms.
const SECOND: usize = BITS + BETWEEN + 3;

/// What is added before so many bits are cut off.
const fn half(bits: usize) -> i32 {
    1 << (bits - 1)
}

const fn fixed(value: f64) -> i32 {
    (value * (1 << BITS) as f64 + 0.5) as i32
}

const C0_298: i32 = fixed(0.298631336);
const C0_390: i32 = fixed(0.390180644);
const C0_541: i32 = fixed(0.541196100);
const C0_765: i32 = fixed(0.765366865);
const C0_899: i32 = fixed(0.899976223);
const C1_175: i32 = fixed(1.175875602);
const C1_501: i32 = fixed(1.501321110);
const C1_847: i32 = fixed(1.847759065);
const C1_961: i32 = fixed(1.961570560);
const C2_053: i32 = fixed(2.053119869);
const C2_562: i32 = fixed(2.562915447);
const C3_072: i32 = fixed(3.072711026);

/// The transform of eight numbers, with 13 more bits after the point.
#[inline(always)]
fn transform(x: [i16; 8]) -> [Wrapping<i32>; 8] {
    let [x0, x1, x2, x3, x4, x5, x6, x7] = x.map(|x| Wrapping(i32::from(x)));
    // The even ones: a transform of four.
    let both = (x2 + x6) * Wrapping(C0_541);
    let a2 = both - x6 * Wrapping(C1_847);
    let a3 = both + x2 * Wrapping(C0_765);
    let a0 = (x0 + x4) << BITS;
    let a1 = (x0 - x4) << BITS;
    let even = [a0 + a3, a1 + a2, a1 - a2, a0 - a3];
    // The odd ones.
    let all = (x7 + x3 + x5 + x1) * Wrapping(C1_175);
    let b17 = (x7 + x1) * Wrapping(C0_899);
    let b35 = (x5 + x3) * Wrapping(C2_562);
    let b37 = all - (x7 + x3) * Wrapping(C1_961);
    let b15 = all - (x5 + x1) * Wrapping(C0_390);
    let odd = [
        x1 * Wrapping(C1_501) - b17 + b15,
        x3 * Wrapping(C3_072) - b35 + b37,
        x5 * Wrapping(C2_053) - b35 + b15,
        x7 * Wrapping(C0_298) - b17 + b37,
    ];
    std::array::from_fn(|i| if i < 4 { even[i] + odd[i] } else { even[7 - i] - odd[7 - i] })
}

/// Writes the samples of a block to `out`, whose rows are `stride` long. If `flat`, all coefficients are zero but for the first.
#[inline(always)]
pub(crate) fn idct(block: &Block, flat: bool, out: &mut [u8], stride: usize) {
    if flat {
        return fill(block[0], out, stride);
    }
    let mut between = [0i16; 64];
    for column in 0..8 {
        let numbers = std::array::from_fn(|row| block[8 * row + column]);
        for (row, number) in transform(numbers).into_iter().enumerate() {
            let rounded = (number + Wrapping(half(FIRST))) >> FIRST;
            between[8 * row + column] = rounded.0.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        }
    }
    for (row, numbers) in between.as_chunks::<8>().0.iter().enumerate() {
        for (out, number) in out[row * stride..][..8].iter_mut().zip(transform(*numbers)) {
            let rounded = (number + Wrapping(half(SECOND))) >> SECOND;
            // What is added makes the middle of the range 0.
            *out = (rounded.0 + 128).clamp(0, 255) as u8;
        }
    }
}

/// The same for a block without AC coefficients: both passes make all samples the same.
#[inline(always)]
fn fill(dc: i16, out: &mut [u8], stride: usize) {
    let value = ((i32::from(dc) << BETWEEN) + half(BETWEEN + 3)) >> (BETWEEN + 3);
    let value = (value + 128).clamp(0, 255) as u8;
    for row in out.chunks_mut(stride).take(8) {
        row[..8].fill(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of small or of any numbers, of which most are zero or none.
    fn block(seed: u64) -> Block {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let number = (state >> 20) as i16;
            let number = if seed.is_multiple_of(3) { number } else { number % 900 };
            if seed.is_multiple_of(2) && !state.is_multiple_of(4) { 0 } else { number }
        })
    }

    fn samples(block: &Block, flat: bool) -> Vec<u8> {
        let mut out = vec![0; 7 * 11 + 8];
        idct(block, flat, &mut out, 11);
        out
    }

    #[test]
    fn the_transform_is_that_of_the_cosines() {
        for seed in [1, 2, 4, 5] {
            let block = block(seed).map(|number| number / 8);
            let found = samples(&block, false);
            for (y, x) in (0..64).map(|at| (at / 8, at % 8)) {
                let cosine = |at: usize, of: usize| {
                    let scale = if of == 0 { 0.125f64.sqrt() } else { 0.5 };
                    scale * ((2 * at + 1) as f64 * of as f64 * std::f64::consts::PI / 16.0).cos()
                };
                let sum: f64 = (0..64).map(|i| f64::from(block[i]) * cosine(y, i / 8) * cosine(x, i % 8)).sum();
                let exact = (sum + 128.0).clamp(0.0, 255.0);
                // A half for the last rounding, and a little for the one in between.
                assert!((f64::from(found[11 * y + x]) - exact).abs() < 0.7, "{exact} at {y}, {x}");
            }
        }
    }

    #[test]
    fn a_block_of_one_value_is_what_both_passes_make_of_it() {
        for dc in -3000..3000 {
            let mut block: Block = [0; 64];
            block[0] = dc;
            assert_eq!(samples(&block, true), samples(&block, false), "{dc}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vectors_make_the_same_bits() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for seed in 0..2000 {
            let block = block(seed);
            let mut out = vec![0; 7 * 11 + 8];
            // SAFETY: the processor has AVX2.
            unsafe { avx2::idct(&block, false, &mut out, 11) };
            assert_eq!(out, samples(&block, false), "{block:?}");
        }
    }
}
