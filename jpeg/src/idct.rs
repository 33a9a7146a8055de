//! The inverse discrete cosine transform of 8×8 coefficients in whole numbers: that of Loeffler, Ligtenberg and Moschytz ("Practical fast
//! 1-D DCT algorithms with 11 multiplications", 1989), with constants of 13 bits after the point, along the columns first. Between the two passes numbers have
//! 2 bits after the point. These are the numbers of libjpeg's "slow" integer transform, so the bits are the same.

use crate::block::Block;
use std::num::Wrapping;

/// Bits of the constants after the point.
const BITS: usize = 13;
/// Bits after the point between the passes.
const BETWEEN: usize = 2;

type Int = Wrapping<i32>;

const fn fixed(value: f64) -> Int {
    Wrapping((value * (1 << BITS) as f64 + 0.5) as i32)
}

/// The transform of eight numbers; the result has 13 bits after the point.
#[inline(always)]
fn transform([x0, x1, x2, x3, x4, x5, x6, x7]: [Int; 8]) -> [Int; 8] {
    // The even ones: a transform of four.
    let both = (x2 + x6) * const { fixed(0.541196100) };
    let a2 = both - x6 * const { fixed(1.847759065) };
    let a3 = both + x2 * const { fixed(0.765366865) };
    let a0 = (x0 + x4) << BITS;
    let a1 = (x0 - x4) << BITS;
    let even = [a0 + a3, a1 + a2, a1 - a2, a0 - a3];
    // The odd ones.
    let all = (x7 + x3 + x5 + x1) * const { fixed(1.175875602) };
    let b17 = (x7 + x1) * const { fixed(0.899976223) };
    let b35 = (x5 + x3) * const { fixed(2.562915447) };
    let b37 = all - (x7 + x3) * const { fixed(1.961570560) };
    let b15 = all - (x5 + x1) * const { fixed(0.390180644) };
    let odd = [
        x1 * const { fixed(1.501321110) } - b17 + b15,
        x3 * const { fixed(3.072711026) } - b35 + b37,
        x5 * const { fixed(2.053119869) } - b35 + b15,
        x7 * const { fixed(0.298631336) } - b17 + b37,
    ];
    [
        even[0] + odd[0],
        even[1] + odd[1],
        even[2] + odd[2],
        even[3] + odd[3],
        even[3] - odd[3],
        even[2] - odd[2],
        even[1] - odd[1],
        even[0] - odd[0],
    ]
}

/// Samples of a block whose coefficients are all zero but for the first.
#[inline(always)]
fn flat(dc: i16) -> u8 {
    let rounded = (Wrapping(i32::from(dc) << BETWEEN) + Wrapping(1 << (BETWEEN + 2))) >> (BETWEEN + 3);
    (rounded.0 + 128).clamp(0, 255) as u8
}

/// Writes the samples of a block to `out`, whose rows are `stride` long. `last` is the number of its last coefficient in the order of the file.
#[inline(always)]
pub(crate) fn idct(block: &Block, last: usize, out: &mut [u8], stride: usize) {
    match last {
        0 => {
            let value = flat(block[0]);
            for row in out.chunks_mut(stride).take(8) {
                row[..8].fill(value);
            }
        }
        // The first ten are in four rows and columns.
        1..=9 => both_passes::<4>(block, out, stride),
        _ => both_passes::<8>(block, out, stride),
    }
}

/// Of a block whose coefficients are zero but for those in the first `N` rows and columns.
#[inline(always)]
fn both_passes<const N: usize>(block: &Block, out: &mut [u8], stride: usize) {
    let mut between = [0i16; 64];
    for column in 0..8 {
        let mut numbers = [Wrapping(0); 8];
        for row in 0..N {
            numbers[row] = Wrapping(i32::from(block[8 * row + column]));
        }
        for (row, number) in transform(numbers).into_iter().enumerate() {
            let rounded = (number + Wrapping(1 << (BITS - BETWEEN - 1))) >> (BITS - BETWEEN);
            between[8 * row + column] = rounded.0 as i16;
        }
    }
    let between = transposed(&between);
    let mut samples = [0u8; 64];
    for row in 0..8 {
        let mut numbers = [Wrapping(0); 8];
        for column in 0..N {
            numbers[column] = Wrapping(i32::from(between[8 * column + row]));
        }
        for (column, number) in transform(numbers).into_iter().enumerate() {
            // What is added makes the middle of the range 0.
            let rounded = (number + Wrapping(1 << (BITS + BETWEEN + 2))) >> (BITS + BETWEEN + 3);
            samples[8 * column + row] = (rounded.0 + 128).clamp(0, 255) as u8;
        }
    }
    let samples = transposed(&samples);
    for (row, samples) in out.chunks_mut(stride).zip(samples.as_chunks::<8>().0) {
        row[..8].copy_from_slice(samples);
    }
}

#[inline(always)]
fn transposed<T: Copy + Default>(square: &[T; 64]) -> [T; 64] {
    let mut result = [T::default(); 64];
    for row in 0..8 {
        for column in 0..8 {
            result[8 * column + row] = square[8 * row + column];
        }
    }
    result
}
