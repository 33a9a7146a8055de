//! Helpers of the kernels' tests: drawn operands, and the error that single precision may make.

use crate::run::threads::Pool;
use crate::simd::SimdLevel;

/// `n` floats in −1..1, drawn from `seed`.
pub fn draw(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
        })
        .collect()
}

/// A sum in double precision, with the sum of the absolute values and the number of its terms.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    value: f64,
    size: f64,
    terms: usize,
}

impl Sum {
    /// Adds `a · b`.
    pub fn add(&mut self, a: f32, b: f32) {
        self.value += a as f64 * b as f64;
        self.size += (a as f64 * b as f64).abs();
        self.terms += 1;
    }

    /// The value of the sum, changed by `f`, which does not stretch distances.
    pub fn map(mut self, f: impl Fn(f64) -> f64) -> Self {
        self.value = f(self.value);
        self
    }

    /// `got` is this sum up to rounding: each of `n` additions errs by half an ulp of a partial sum, with signs that
    /// are as good as random, so the bound is a small multiple of `√n`.
    pub fn assert_near(&self, got: f32, what: &str) {
        self.assert_within(1.0, got, what);
    }

    /// As [`Sum::assert_near`], with `error` times the bound.
    pub fn assert_within(&self, error: f64, got: f32, what: &str) {
        let bound = error * self.size * (2.0 + (self.terms as f64).sqrt()) * f32::EPSILON as f64 + 1e-30;
        let off = (got as f64 - self.value).abs();
        assert!(off <= bound, "{what}: {got}, not {} (error {off:.3e}, bound {bound:.3e})", self.value);
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read as bytes")] [u8; 64]);

/// Workspace filled with a pattern (as floats: NaN), so that a kernel that reads what it has not written is found out.
pub struct Workspace(Vec<Line>);

impl Workspace {
    /// `bytes` bytes, rounded up.
    pub fn new(bytes: usize) -> Self {
        Workspace(vec![Line([0xff; 64]); bytes.div_ceil(64)])
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: lines are plain bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 64) }
    }
}

/// Calls `f` for every level of this machine with pools of 1, 2 and 5 threads, and asserts that the bits of what it
/// returns do not depend on their number. Returns the result of each level.
pub fn on_every_level(mut f: impl FnMut(SimdLevel, &Pool) -> Vec<f32>) -> Vec<(SimdLevel, Vec<f32>)> {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let pools = [1, 2, 5].map(|threads| Pool::new(threads).expect("threads can be started"));
    SimdLevel::supported()
        .map(|level| {
            let first = f(level, &pools[0]);
            for pool in &pools[1..] {
                let other = f(level, pool);
                assert_eq!(bits(&first), bits(&other), "{level}: the bits depend on the number of threads");
            }
            (level, first)
        })
        .collect()
}
