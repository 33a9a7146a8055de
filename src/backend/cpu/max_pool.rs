//! Maximum over windows of channels-last images, vectors of channels at a time.

use super::frame::{Element, Frame, NodeKernel};
use super::lanes::{get, put};
use super::parallel::{for_chunks, for_chunks2};
use super::simd::{Kernel, Simd, SimdLevel};
use crate::graph::DType;
use crate::graph::op::MaxPool2d;
use std::ops::Range;

/// A type that holds a position within a window.
trait Position: Element + PartialEq {
    fn new(position: usize) -> Self;
    fn from_float(position: f32) -> Self;
}

impl Position for u8 {
    #[inline(always)]
    fn new(position: usize) -> Self {
        // The rules give windows of more than 256 pixels `i32`.
        position as u8
    }
    #[inline(always)]
    fn from_float(position: f32) -> Self {
        // SAFETY: positions are whole numbers far below 2³¹.
        unsafe { position.to_int_unchecked::<i32>() as u8 }
    }
}

impl Position for i32 {
    #[inline(always)]
    fn new(position: usize) -> Self {
        position as i32
    }
    #[inline(always)]
    fn from_float(position: f32) -> Self {
        // SAFETY: positions are whole numbers far below 2³¹.
        unsafe { position.to_int_unchecked::<i32>() }
    }
}

/// Where the windows lie along one axis.
#[derive(Debug, Clone)]
struct Axis {
    /// For each output, the taps of its window that fall on inputs, and the input that the first of them falls on.
    outputs: Vec<(Range<usize>, usize)>,
    /// For each input, the outputs whose windows tap it, with the tap.
    inputs: Vec<Vec<(usize, usize)>>,
    dilation: usize,
}

impl Axis {
    fn new(op: &MaxPool2d, axis: usize, input: usize, output: usize) -> Self {
        let (kernel, stride, padding) = (op.kernel[axis], op.stride[axis], op.padding[axis]);
        let dilation = op.dilation[axis];
        let mut inputs = vec![Vec::new(); input];
        let window = |o: usize| {
            // Counted from the first padding.
            let at = |tap: usize| o * stride + tap * dilation;
            let inside = |tap: &usize| (padding..padding + input).contains(&at(*tap));
            let first = (0..kernel).find(inside).unwrap_or(0);
            let taps = first..first + (first..kernel).take_while(inside).count();
            for tap in taps.clone() {
                inputs[at(tap) - padding].push((o, tap));
            }
            (taps, at(first).saturating_sub(padding))
        };
        let outputs = (0..output).map(window).collect();
        Axis { outputs, inputs, dilation }
    }
}

/// The windows over an image.
#[derive(Debug, Clone)]
struct Windows {
    rows: Axis,
    columns: Axis,
    /// Columns of a window.
    width: usize,
    channels: usize,
}

impl Windows {
    fn new(op: &MaxPool2d, x: [usize; 4], y: [usize; 4]) -> Self {
        let (rows, columns) = (Axis::new(op, 0, x[1], y[1]), Axis::new(op, 1, x[2], y[2]));
        Windows { rows, columns, width: op.kernel[1], channels: x[3] }
    }

    fn input(&self) -> [usize; 2] {
        [self.rows.inputs.len(), self.columns.inputs.len()]
    }

    fn output(&self) -> [usize; 2] {
        [self.rows.outputs.len(), self.columns.outputs.len()]
    }
}

/// Writes the positions of `n ≤ LANES` channels.
#[inline(always)]
fn put_positions<S: Simd, P: Position>(s: S, index: &mut [P], n: usize, at: S::V) {
    let lanes = s.to_array(at);
    if n == S::LANES {
        // A loop of constant length, which becomes a few instructions.
        for (p, l) in index[..S::LANES].iter_mut().zip(&lanes[..S::LANES]) {
            *p = P::from_float(*l);
        }
    } else {
        for (p, l) in index[..n].iter_mut().zip(&lanes) {
            *p = P::from_float(*l);
        }
    }
}

/// [`MaxPool2d`].
pub struct MaxPoolKernel {
    windows: Windows,
    level: SimdLevel,
}

impl MaxPoolKernel {
    /// From shape `x` to shape `y`.
    pub fn new(op: &MaxPool2d, x: [usize; 4], y: [usize; 4], level: SimdLevel) -> Self {
        MaxPoolKernel { windows: Windows::new(op, x, y), level }
    }

    fn go<P: Position>(&self, frame: &Frame) {
        let g = &self.windows;
        let (input, output) = (g.input(), g.output());
        let (x, y, index) = (frame.input::<f32>(0), frame.output::<f32>(0), frame.output::<P>(1));
        let image = input[0] * input[1] * g.channels;
        let row = output[1] * g.channels;
        for_chunks2(frame.pool(), (y, row), (index, row), |task, y, index| {
            let x = &x[task / output[0] * image..][..image];
            self.level.run(Forward { g, x, y, index, row: task % output[0] });
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
    g: &'a Windows,
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
        let (channels, line) = (g.channels, g.input()[1] * g.channels);
        let (rows, top) = &g.rows.outputs[row];
        for (o, (columns, left)) in g.columns.outputs.iter().enumerate() {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut best = s.splat(f32::NEG_INFINITY);
                // Positions are floats here: in windows of up to 2²⁴ pixels they are exact.
                let mut at = s.splat((rows.start * g.width + columns.start) as f32);
                let mut from = top * line + left * channels + c;
                for i in rows.clone() {
                    for (k, j) in columns.clone().enumerate() {
                        let v = get(s, x, from + k * g.columns.dilation * channels, n);
                        let here = s.splat((i * g.width + j) as f32);
                        let (larger, number) = (s.gt(v, best), s.eq(v, v));
                        // NaN compares as neither, and wins.
                        best = s.select(number, s.select(larger, v, best), v);
                        at = s.select(number, s.select(larger, here, at), here);
                    }
                    from += g.rows.dilation * line;
                }
                put(s, y, o * channels + c, n, best);
                put_positions(s, &mut index[o * channels + c..], n, at);
            }
        }
    }
}

/// [`crate::graph::op::MaxPool2dGrad`].
pub struct MaxPoolGradKernel {
    windows: Windows,
    level: SimdLevel,
}

impl MaxPoolGradKernel {
    /// From shape `dy` to shape `dx`.
    pub fn new(op: &MaxPool2d, dy: [usize; 4], dx: [usize; 4], level: SimdLevel) -> Self {
        MaxPoolGradKernel { windows: Windows::new(op, dx, dy), level }
    }

    fn go<P: Position>(&self, frame: &Frame) {
        let g = &self.windows;
        let (input, output) = (g.input(), g.output());
        let (dy, index, dx) = (frame.input::<f32>(0), frame.input::<P>(1), frame.output::<f32>(0));
        let image = output[0] * output[1] * g.channels;
        let row = input[1] * g.channels;
        for_chunks(frame.pool(), dx, row, |start, dx| {
            let line = start / row;
            let r = line / input[0] * image..(line / input[0] + 1) * image;
            let (dy, index) = (&dy[r.clone()], &index[r]);
            self.level.run(Backward { g, dy, index, dx, row: line % input[0] });
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
    g: &'a Windows,
    dy: &'a [f32],
    index: &'a [P],
    dx: &'a mut [f32],
    row: usize,
}

impl<P: Position> Kernel for Backward<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // Floats with bytes: plain loops over the channels, which the compiler turns into vectors.
        let Backward { g, dy, index, dx, row } = self;
        let (channels, line) = (g.channels, g.output()[1] * g.channels);
        for (dx, columns) in dx.chunks_exact_mut(channels).zip(&g.columns.inputs) {
            dx.fill(0.0);
            for (i, ti) in &g.rows.inputs[row] {
                for (j, tj) in columns {
                    let at = i * line + j * channels..i * line + (j + 1) * channels;
                    let here = P::new(ti * g.width + tj);
                    for ((dx, dy), index) in dx.iter_mut().zip(&dy[at.clone()]).zip(&index[at]) {
                        *dx += if *index == here { *dy } else { 0.0 };
                    }
                }
            }
        }
    }
}
