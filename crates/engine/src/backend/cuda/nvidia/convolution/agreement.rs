//! Whether a plan agrees with our own kernels: random operands, and the tolerance for results.

use crate::backend::gpu::launch::{Convolution, Direction};
use crate::backend::gpu::target::Form;
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

/// How far two results of a convolution of numbers below 1 may be apart: by `absolute + relative · |result|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Whatever the result is.
    pub absolute: f64,
    /// Of the result.
    pub relative: f64,
}

impl Tolerance {
    /// Both add up the same products in another order. With rounding to nearest each of the `terms` additions errs by 2⁻²⁴
    /// of the sum so far, which is below `terms`' square root; tensor cores cut off where they add, and err by some times as
    /// much. What is cut off has the sign of the sum, so that errors of long sums add up and do not cancel: 16 terms at a time
    /// lose up to 2⁻²² of the sum so far. TF32 rounds each factor to 11 bits, to nearest or not. What is stored in 16 bits is
    /// rounded once more, twice if bias and activation follow apart.
    pub fn new(c: &Convolution, form: Form) -> Tolerance {
        let [kh, kw] = c.kernel;
        let terms = match c.direction {
            Direction::Forward => kh * kw * c.inputs / c.groups,
            Direction::Input => kh * kw * c.outputs / c.groups,
            Direction::Weight => c.images * c.output[0] * c.output[1],
        } as f64;
        let rounded = if c.dtype == DType::F32 && c.tf32 { terms.sqrt() / 256.0 } else { 0.0 };
        let steepness = c.act.map_or(1.0, |act| f64::from(act.facts().steepness));
        // Single-precision operands have tensor cores only as TF32, which is rounded by more.
        let cut = if c.dtype == DType::F32 { 0.0 } else { terms * terms.sqrt() / (1u32 << 26) as f64 };
        let stored = if form == Form::Narrow { c.dtype } else { c.result };
        let neighbours = match stored {
            DType::BF16 => 1.0 / 128.0,
            DType::F16 => 1.0 / 1024.0,
            _ => 0.0,
        };
        let apart = form != Form::Fused && (c.bias || c.act.is_some());
        let twice = if apart { neighbours * 4.0 * steepness } else { 0.0 };
        let absolute = ((terms / (1u32 << 21) as f64).max(cut) + rounded) * steepness + twice;
        Tolerance { absolute, relative: if apart { 2.0 * neighbours } else { neighbours } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first element of `b` that is further from `a` than the tolerance.
    fn difference(t: Tolerance, a: &[f32], b: &[f32]) -> Option<usize> {
        let same = |a: f32, b: f32| f64::from((a - b).abs()) <= t.absolute + t.relative * f64::from(a.abs());
        a.iter().zip(b).position(|(a, b)| !same(*a, *b))
    }

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
            let strict = Tolerance::new(&c, Form::Plain);
            assert_eq!(difference(strict, &forwards, &backwards), None, "{terms} terms");
            assert!(difference(strict, &forwards, &rounded).is_some(), "{terms} terms");
            let loose = Tolerance::new(&Convolution { tf32: true, ..c.clone() }, Form::Plain);
            assert_eq!(difference(loose, &forwards, &rounded), None, "{terms} terms");
            // A product that is missing, and what is no number.
            let short = element(&|x, w| x.iter().zip(w).skip(1).fold(0.0, |sum, (x, w)| sum + tf32(*x) * tf32(*w)));
            assert!(difference(loose, &forwards, &short).is_some(), "{terms} terms");
            let nothing = vec![f32::NAN; forwards.len()];
            assert_eq!(difference(loose, &forwards, &nothing), Some(0));
        }
    }

    /// Tensor cores cut off what does not fit: the sum of a weight's gradient over the pixels of a batch.
    #[test]
    fn long_sums_may_be_cut_off_and_may_not_be_rounded_to_16_bits() {
        let terms = 64 * 56 * 56;
        let c = Convolution {
            direction: Direction::Weight,
            images: 64,
            output: [56, 56],
            dtype: DType::BF16,
            result: DType::F32,
            bias: false,
            act: None,
            ..Convolution::example()
        };
        let of = |key| decoded(DType::BF16, &numbers(DType::BF16, key, terms, 1.0));
        // Of 16 products each, exact, on top of the sum so far, in 24 bits.
        let sum = |x: &[f32], w: &[f32], add: &dyn Fn(f64) -> f64| {
            let products = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).collect::<Vec<_>>();
            products.chunks(16).fold(0.0, |sum, chunk| add(sum + chunk.iter().sum::<f64>()))
        };
        let cut = |x: f64| f64::from_bits(x.to_bits() & !((1 << 29) - 1));
        // A sum that grows all the way, as those of a gradient do.
        let (x, w) = (of(1), of(2));
        let w: Vec<f32> = x.iter().zip(w).map(|(x, w)| w + x / 64.0).collect();
        let [exact, cut] = [sum(&x, &w, &|x| x), sum(&x, &w, &cut)];
        assert!((exact - cut).abs() > terms as f64 / f64::from(1u32 << 21), "{exact} {cut}");
        let tolerance = Tolerance::new(&c, Form::Plain);
        assert_eq!(difference(tolerance, &[exact as f32], &[cut as f32]), None);
        // Partial sums of 16 bits, and a thousandth that is missing.
        let half = sum(&x, &w, &|x| bf16::from_f64(x).to_f64());
        assert!(difference(tolerance, &[exact as f32], &[half as f32]).is_some(), "{exact} {half}");
        // The result in 16 bits is what one form gives, and no other.
        let rounded = bf16::from_f64(exact).to_f32();
        assert_eq!(difference(Tolerance::new(&c, Form::Narrow), &[exact as f32], &[rounded]), None);
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
