//! Bytes or floats to normalised floats.

use crate::graph::{DType, op};
use crate::run::frame::{Element, Frame, NodeKernel};
use crate::run::parallel::for_chunks;
use crate::run::widths::Float;
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, MAX_LANES, Simd, SimdLevel};
use half::bf16;

/// [`op::Normalize`].
pub struct NormalizeKernel {
    scale: f32,
    /// Means of as many elements as make a whole number of pixels.
    mean: Vec<f32>,
    std: Vec<f32>,
    level: SimdLevel,
}

/// Elements of a period, at least.
const PERIOD: usize = 256;

/// A number that a float is made of.
trait Sample: Element {
    /// The first `n` of `LANES` numbers as floats.
    ///
    /// # Safety
    /// `n ≤ LANES` and `p` is valid for reading as many.
    unsafe fn load<S: Simd>(s: S, p: *const Self, n: usize) -> S::V;
}

impl Sample for u8 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, n: usize) -> S::V {
        let mut bytes = [0; MAX_LANES];
        // SAFETY: the caller's promise; the array is as long as the widest vector.
        unsafe {
            if n == S::LANES {
                return s.load_bytes(p);
            }
            p.copy_to_nonoverlapping(bytes.as_mut_ptr(), n);
            s.load_bytes(bytes.as_ptr())
        }
    }
}

impl Sample for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { if n == S::LANES { s.load(p) } else { s.load_part(p, n) } }
    }
}

struct Rows<'a, T, Y> {
    x: &'a [T],
    y: &'a mut [Y],
    kernel: &'a NormalizeKernel,
}

impl<T: Sample, Y: Float> Kernel for Rows<'_, T, Y> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NormalizeKernel { scale, mean, std, .. } = self.kernel;
        let scale = s.splat(*scale);
        for (x, y) in self.x.chunks(mean.len()).zip(self.y.chunks_mut(mean.len())) {
            for i in (0..y.len()).step_by(S::LANES) {
                let n = (y.len() - i).min(S::LANES);
                // SAFETY: `n` numbers are left.
                let x = unsafe { T::load(s, x[i..i + n].as_ptr(), n) };
                let x = s.sub(s.mul(x, scale), get(s, mean, i, n));
                put(s, y, i, n, s.div(x, get(s, std, i, n)));
            }
        }
    }
}

impl NormalizeKernel {
    /// For `channels` channels.
    pub fn new(op: &op::Normalize, channels: usize, level: SimdLevel) -> Self {
        let period = channels.max(1) * PERIOD.div_ceil(channels.max(1));
        let repeat = |list: &[f32]| list.iter().copied().cycle().take(period).collect::<Vec<_>>();
        NormalizeKernel { scale: op.scale, mean: repeat(&op.mean), std: repeat(&op.std), level }
    }

    fn go<T: Sample, Y: Float>(&self, frame: &Frame) {
        let (x, y) = (frame.input::<T>(0), frame.output::<Y>(0));
        let period = self.mean.len();
        for_chunks(frame.pool(), y, period * (crate::run::parallel::CHUNK / period).max(1), |start, part| {
            let x = &x[start..start + part.len()];
            self.level.run(Rows { x, y: part, kernel: self });
        });
    }
}

impl NodeKernel for NormalizeKernel {
    fn run(&self, frame: &Frame<'_>) {
        match (frame.input_dtype(0), frame.output_dtype(0)) {
            (DType::U8, DType::BF16) => self.go::<u8, bf16>(frame),
            (DType::U8, _) => self.go::<u8, f32>(frame),
            (_, DType::BF16) => self.go::<f32, bf16>(frame),
            _ => self.go::<f32, f32>(frame),
        }
    }
}
