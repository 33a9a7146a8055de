//! Whether a plan agrees with our own kernels: random operands, and the tolerance for results.

use crate::backend::cuda::launch::{Convolution, Direction};
use crate::graph::DType;
use crate::random::philox;
use half::{bf16, f16};

/// Numbers in [-1, 1), times `scale`, as elements of type `dtype`.
pub fn numbers(dtype: DType, key: u32, count: usize, scale: f32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count.next_multiple_of(4) * dtype.bytes());
    for at in 0..count.div_ceil(4) {
        for bits in philox([at as u32, 0, 0, 0], [key, 0]) {
            let x = ((bits >> 8) as f32 / (1u32 << 23) as f32 - 1.0) * scale;
            match dtype {
                DType::BF16 => bytes.extend(bf16::from_f32(x).to_ne_bytes()),
                DType::F16 => bytes.extend(f16::from_f32(x).to_ne_bytes()),
                _ => bytes.extend(x.to_ne_bytes()),
            }
        }
    }
    bytes.truncate(count * dtype.bytes());
    bytes
}

/// Elements of type `dtype` as 32-bit floats.
pub fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::BF16 => bytes.as_chunks().0.iter().map(|b| bf16::from_ne_bytes(*b).to_f32()).collect(),
        DType::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_ne_bytes(*b).to_f32()).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect(),
    }
}

/// How far two results of a convolution of numbers below 1 may be apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    absolute: f64,
    relative: f64,
}

impl Tolerance {
    /// Both add up the same products in another order. With rounding to nearest each of the `terms` additions errs by 2⁻²⁴
    /// of the sum so far, which is below `terms`' square root; tensor cores cut off where they add, and err by some times as
    /// much. TF32 rounds each factor to 11 bits, to nearest or not. What is stored in 16 bits is rounded once more, twice
    /// if bias and activation follow apart.
    pub fn new(c: &Convolution, fused: bool) -> Tolerance {
        let [kh, kw] = c.kernel;
        let terms = match c.direction {
            Direction::Forward => kh * kw * c.inputs / c.groups,
            Direction::Input => kh * kw * c.outputs / c.groups,
            Direction::Weight => c.images * c.output[0] * c.output[1],
        } as f64;
        let rounded = if c.dtype == DType::F32 && c.tf32 { terms.sqrt() / 256.0 } else { 0.0 };
        let steepness = c.act.map_or(1.0, |act| f64::from(act.facts().steepness));
        let neighbours = match c.result {
            DType::BF16 => 1.0 / 128.0,
            DType::F16 => 1.0 / 1024.0,
            _ => 0.0,
        };
        let apart = !fused && (c.bias || c.act.is_some());
        let twice = if apart { neighbours * 4.0 * steepness } else { 0.0 };
        let absolute = (terms / (1u32 << 21) as f64 + rounded) * steepness + twice;
        Tolerance { absolute, relative: if apart { 2.0 * neighbours } else { neighbours } }
    }

    /// The first element of `b` that is not what `a` has, with both.
    pub fn difference(&self, a: &[f32], b: &[f32]) -> Option<(usize, f32, f32)> {
        let same = |a: f32, b: f32| {
            let (a, b) = (f64::from(a), f64::from(b));
            // False for a NaN.
            (a - b).abs() <= self.absolute + self.relative * a.abs()
        };
        a.iter().zip(b).enumerate().find(|(_, (a, b))| !same(**a, **b)).map(|(at, (a, b))| (at, *a, *b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest number with 13 fewer bits, as tensor cores see 32 bits.
    fn tf32(x: f32) -> f32 {
        f32::from_bits((x.to_bits() + 0xfff + (x.to_bits() >> 13 & 1)) & !0x1fff)
    }

    #[test]
    fn another_order_is_within_the_tolerance_and_unnoted_rounding_is_not() {
        for (channels, kernel) in [(1, [3, 3]), (8, [3, 3]), (64, [3, 3]), (512, [3, 3]), (256, [1, 1])] {
            let c = Convolution { inputs: channels, groups: 1, kernel, dtype: DType::F32, ..Convolution::example() };
            let c = Convolution { result: DType::F32, bias: false, act: None, ..c };
            let terms = channels * kernel[0] * kernel[1];
            // So many elements of a result, each a sum of its own products.
            let of = |key| decoded(DType::F32, &numbers(DType::F32, key, 500 * terms, 1.0));
            let (x, w) = (of(1), of(2));
            let element = |sum: &dyn Fn(&[f32], &[f32]) -> f32| -> Vec<f32> {
                x.chunks(terms).zip(w.chunks(terms)).map(|(x, w)| sum(x, w)).collect()
            };
            let forwards = element(&|x, w| x.iter().zip(w).fold(0.0, |sum, (x, w)| sum + x * w));
            let backwards = element(&|x, w| x.iter().zip(w).rev().fold(0.0, |sum, (x, w)| sum + x * w));
            let rounded = element(&|x, w| x.iter().zip(w).fold(0.0, |sum, (x, w)| sum + tf32(*x) * tf32(*w)));
            let strict = Tolerance::new(&c, false);
            assert_eq!(strict.difference(&forwards, &backwards), None, "{terms} terms");
            assert!(strict.difference(&forwards, &rounded).is_some(), "{terms} terms");
            let loose = Tolerance::new(&Convolution { tf32: true, ..c.clone() }, false);
            assert_eq!(loose.difference(&forwards, &rounded), None, "{terms} terms");
            // A product that is missing, and what is no number.
            let short = element(&|x, w| x.iter().zip(w).skip(1).fold(0.0, |sum, (x, w)| sum + tf32(*x) * tf32(*w)));
            assert!(loose.difference(&forwards, &short).is_some(), "{terms} terms");
            let nothing = vec![f32::NAN; forwards.len()];
            assert!(loose.difference(&forwards, &nothing).is_some_and(|(at, ..)| at == 0));
        }
    }

    #[test]
    fn numbers_of_16_bits_are_looked_at_as_they_are() {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let of = |key, count| decoded(dtype, &numbers(dtype, key, count, 1.0));
            let some = of(0, 1001);
            assert!(some.len() == 1001 && some.iter().all(|x| (-1.0..=1.0).contains(x)), "{dtype}");
            assert!(some.iter().any(|x| *x < -0.9) && some.iter().any(|x| *x > 0.9), "{dtype}");
            assert_eq!((of(0, 1000), of(1, 1001) == some), (some[..1000].to_vec(), false), "{dtype}");
        }
    }
}
