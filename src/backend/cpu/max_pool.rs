//! Maximum over windows of channels-last images, vectors of channels at a time.

use super::frame::{Element, Frame, NodeKernel};
use super::lanes::{get, put};
use super::parallel::{for_chunks, for_chunks2};
use super::simd::{Kernel, MAX_LANES, Simd, SimdLevel};
use crate::graph::DType;
use crate::graph::op::MaxPool2d;
use std::ops::Range;

/// A type that holds a position within a window.
trait Position: Element {
    fn store(position: f32) -> Self;
    fn load(self) -> f32;
}

impl Position for u8 {
    #[inline(always)]
    fn store(position: f32) -> Self {
        // SAFETY: positions are whole numbers from 0 to 255: the rules give larger windows `i32`.
        unsafe { position.to_int_unchecked::<i32>() as u8 }
    }
    #[inline(always)]
    fn load(self) -> f32 {
        self as f32
    }
}

impl Position for i32 {
    #[inline(always)]
    fn store(position: f32) -> Self {
        // SAFETY: positions are whole numbers far below 2³¹.
        unsafe { position.to_int_unchecked::<i32>() }
    }
    #[inline(always)]
    fn load(self) -> f32 {
        self as f32
    }
}

/// Sizes of a pooling. Positions in windows of up to 2²⁴ pixels are exact as floats, which is how vectors hold them.
#[derive(Debug, Clone)]
struct Geometry {
    pool: MaxPool2d,
    /// Height and width before pooling.
    input: [usize; 2],
    /// Height and width after it.
    output: [usize; 2],
    channels: usize,
}

impl Geometry {
    /// The taps (0 to kernel) along `axis` with which the window of output `o` lies inside the image.
    fn taps(&self, axis: usize, o: usize) -> Range<usize> {
        let MaxPool2d { kernel, stride, padding, dilation, .. } = &self.pool;
        let (start, step) = (o * stride[axis], dilation[axis]);
        let first = padding[axis].saturating_sub(start).div_ceil(step);
        let end = (self.input[axis] + padding[axis]).saturating_sub(start).div_ceil(step).min(kernel[axis]);
        first..end.max(first)
    }

    /// Where tap `t` of the window of output `o` reads.
    fn source(&self, axis: usize, o: usize, t: usize) -> usize {
        o * self.pool.stride[axis] + t * self.pool.dilation[axis] - self.pool.padding[axis]
    }

    /// Outputs along `axis` whose windows reach over input `i` (whether or not a tap falls on it).
    fn outputs(&self, axis: usize, i: usize) -> Range<usize> {
        let MaxPool2d { kernel, stride, padding, dilation, .. } = &self.pool;
        let (at, reach) = (i + padding[axis], (kernel[axis] - 1) * dilation[axis]);
        at.saturating_sub(reach).div_ceil(stride[axis])..(at / stride[axis] + 1).min(self.output[axis])
    }

    /// The tap with which the window of output `o` reads input `i`.
    fn tap(&self, axis: usize, o: usize, i: usize) -> Option<usize> {
        let d = (i + self.pool.padding[axis]).checked_sub(o * self.pool.stride[axis])?;
        let step = self.pool.dilation[axis];
        (d % step == 0 && d / step < self.pool.kernel[axis]).then_some(d / step)
    }
}

/// [`MaxPool2d`].
pub struct MaxPoolKernel {
    geometry: Geometry,
    level: SimdLevel,
}

impl MaxPoolKernel {
    /// From shape `x` to shape `y`.
    pub fn new(op: &MaxPool2d, x: [usize; 4], y: [usize; 4], level: SimdLevel) -> Self {
        let (input, output, channels) = ([x[1], x[2]], [y[1], y[2]], x[3]);
        MaxPoolKernel { geometry: Geometry { pool: op.clone(), input, output, channels }, level }
    }

    fn go<P: Position>(&self, frame: &Frame) {
        let g = &self.geometry;
        let (x, y, index) = (frame.input::<f32>(0), frame.output::<f32>(0), frame.output::<P>(1));
        let image = g.input[0] * g.input[1] * g.channels;
        let row = g.output[1] * g.channels;
        for_chunks2(frame.pool(), (y, row), (index, row), |task, y, index| {
            let x = &x[task / g.output[0] * image..][..image];
            self.level.run(Forward { g, x, y, index, row: task % g.output[0] });
        });
    }
}

impl NodeKernel for MaxPoolKernel {
    fn run(&self, frame: &Frame<'_>) {
        if frame.output_dtype(1) == DType::U8 { self.go::<u8>(frame) } else { self.go::<i32>(frame) }
    }
}

/// One row of the output.
struct Forward<'a, P> {
    g: &'a Geometry,
    x: &'a [f32],
    y: &'a mut [f32],
    index: &'a mut [P],
    row: usize,
}

impl<P: Position> Kernel for Forward<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Forward { g, x, y, index, row } = self;
        let (channels, width) = (g.channels, g.pool.kernel[1]);
        let rows = g.taps(0, row);
        for o in 0..g.output[1] {
            let columns = g.taps(1, o);
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut best = s.splat(f32::NEG_INFINITY);
                let mut at = s.splat((rows.start * width + columns.start) as f32);
                for i in rows.clone() {
                    let line = g.source(0, row, i) * g.input[1];
                    for j in columns.clone() {
                        let v = get(s, x, (line + g.source(1, o, j)) * channels + c, n);
                        let here = s.splat((i * width + j) as f32);
                        let (larger, number) = (s.gt(v, best), s.eq(v, v));
                        // NaN compares as neither, and wins.
                        best = s.select(number, s.select(larger, v, best), v);
                        at = s.select(number, s.select(larger, here, at), here);
                    }
                }
                put(s, y, o * channels + c, n, best);
                let lanes = s.to_array(at);
                for (p, v) in index[o * channels + c..][..n].iter_mut().zip(lanes) {
                    *p = P::store(v);
                }
            }
        }
    }
}

/// [`crate::graph::op::MaxPool2dGrad`].
pub struct MaxPoolGradKernel {
    geometry: Geometry,
    level: SimdLevel,
}

impl MaxPoolGradKernel {
    /// From shape `dy` to shape `dx`.
    pub fn new(op: &MaxPool2d, dy: [usize; 4], dx: [usize; 4], level: SimdLevel) -> Self {
        let (input, output, channels) = ([dx[1], dx[2]], [dy[1], dy[2]], dx[3]);
        MaxPoolGradKernel { geometry: Geometry { pool: op.clone(), input, output, channels }, level }
    }

    fn go<P: Position>(&self, frame: &Frame) {
        let g = &self.geometry;
        let (dy, index, dx) = (frame.input::<f32>(0), frame.input::<P>(1), frame.output::<f32>(0));
        let image = g.output[0] * g.output[1] * g.channels;
        let row = g.input[1] * g.channels;
        for_chunks(frame.pool(), dx, row, |start, dx| {
            let line = start / row;
            let r = line / g.input[0] * image..(line / g.input[0] + 1) * image;
            let (dy, index) = (&dy[r.clone()], &index[r]);
            self.level.run(Backward { g, dy, index, dx, row: line % g.input[0] });
        });
    }
}

impl NodeKernel for MaxPoolGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        if frame.input_dtype(1) == DType::U8 { self.go::<u8>(frame) } else { self.go::<i32>(frame) }
    }
}

/// One row of the input's gradient: each pixel gathers from the windows that may have chosen it.
struct Backward<'a, P> {
    g: &'a Geometry,
    dy: &'a [f32],
    index: &'a [P],
    dx: &'a mut [f32],
    row: usize,
}

impl<P: Position> Kernel for Backward<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Backward { g, dy, index, dx, row } = self;
        let channels = g.channels;
        for w in 0..g.input[1] {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for i in g.outputs(0, row) {
                    let Some(ti) = g.tap(0, i, row) else { continue };
                    for j in g.outputs(1, w) {
                        let Some(tj) = g.tap(1, j, w) else { continue };
                        let at = (i * g.output[1] + j) * channels + c;
                        let mut lanes = [0.0f32; MAX_LANES];
                        for (l, p) in lanes.iter_mut().zip(&index[at..at + n]) {
                            *l = p.load();
                        }
                        // SAFETY: the array is as long as the widest vector.
                        let chosen = unsafe { s.load(lanes.as_ptr()) };
                        let hit = s.eq(chosen, s.splat((ti * g.pool.kernel[1] + tj) as f32));
                        sum = s.add(sum, s.select(hit, get(s, dy, at, n), s.zero()));
                    }
                }
                put(s, dx, w * channels + c, n, sum);
            }
        }
    }
}
