//! Bytes or floats to normalised floats.

use super::frame::{Element, Frame, NodeKernel};
use super::parallel::for_chunks;
use super::simd::{Kernel, Simd, SimdLevel};
use crate::graph::{DType, op};

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
    fn float(self) -> f32;
}

impl Sample for u8 {
    #[inline(always)]
    fn float(self) -> f32 {
        self as f32
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn float(self) -> f32 {
        self
    }
}

struct Rows<'a, T> {
    x: &'a [T],
    y: &'a mut [f32],
    kernel: &'a NormalizeKernel,
}

impl<T: Sample> Kernel for Rows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // Plain loops: the compiler makes vectors of them, with the conversion of bytes, which `Simd` does not have.
        let NormalizeKernel { scale, mean, std, .. } = self.kernel;
        for (x, y) in self.x.chunks(mean.len()).zip(self.y.chunks_mut(mean.len())) {
            for (((x, y), m), d) in x.iter().zip(y).zip(mean).zip(std) {
                *y = (x.float() * scale - m) / d;
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

    fn go<T: Sample>(&self, frame: &Frame) {
        let (x, y) = (frame.input::<T>(0), frame.output::<f32>(0));
        let period = self.mean.len();
        for_chunks(frame.pool(), y, period * (super::parallel::CHUNK / period).max(1), |start, part| {
            let x = &x[start..start + part.len()];
            self.level.run(Rows { x, y: part, kernel: self });
        });
    }
}

impl NodeKernel for NormalizeKernel {
    fn run(&self, frame: &Frame<'_>) {
        if frame.input_dtype(0) == DType::U8 { self.go::<u8>(frame) } else { self.go::<f32>(frame) }
    }
}
