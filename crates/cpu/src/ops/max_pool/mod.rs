//! Maximum over windows of channels-last images, vectors of channels at a time.

pub mod adaptive;
pub mod pairs;
pub mod position;

use crate::graph::DType;
use crate::graph::op::MaxPool2d;
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, for_chunks2, rows_per_chunk};
use crate::run::threads::{Parts, chunks};
use crate::run::widths::{Float, in_each_width};
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, Simd, SimdLevel};
use position::Position;
use std::ops::Range;

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
    /// Two by two pixels that touch and lie within the image.
    pairs: bool,
}

impl Windows {
    fn new(op: &MaxPool2d, x: [usize; 4], y: [usize; 4]) -> Self {
        let (rows, columns) = (Axis::new(op, 0, x[1], y[1]), Axis::new(op, 1, x[2], y[2]));
        let touch = op.kernel == [2, 2] && op.stride == [2, 2] && op.padding == [0, 0] && op.dilation == [1, 1];
        let pairs = touch && 2 * y[1] <= x[1] && 2 * y[2] <= x[2];
        Windows { rows, columns, width: op.kernel[1], channels: x[3], pairs }
    }

    fn input(&self) -> [usize; 2] {
        [self.rows.inputs.len(), self.columns.inputs.len()]
    }

    fn output(&self) -> [usize; 2] {
        [self.rows.outputs.len(), self.columns.outputs.len()]
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

    fn pairs<X: Float, Y: Float>(&self, frame: &Frame) {
        let (g, level) = (&self.windows, self.level);
        let (input, output) = (g.input(), g.output());
        let (x, y, index) = (frame.input::<X>(0), frame.output::<Y>(0), frame.output::<u8>(1));
        let (channels, line, row) = (g.channels, input[1] * g.channels, output[1] * g.channels);
        let some = rows_per_chunk(4 * row);
        for_chunks2(frame.pool(), (y, some * row), (index, some * row), |task, y, index| {
            for (i, (y, index)) in y.chunks_exact_mut(row).zip(index.chunks_exact_mut(row)).enumerate() {
                let (image, r) = ((task * some + i) / output[0], (task * some + i) % output[0]);
                let (top, bottom) = x[(image * input[0] + 2 * r) * line..][..2 * line].split_at(line);
                level.run(pairs::Forward { top, bottom, y, index, channels, bounds: None });
            }
        });
    }

    fn go<X: Float, Y: Float, P: Position>(&self, frame: &Frame) {
        let g = &self.windows;
        let (input, output) = (g.input(), g.output());
        let (x, y, index) = (frame.input::<X>(0), frame.output::<Y>(0), frame.output::<P>(1));
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
        in_each_width!(frame, X, Y => if self.windows.pairs {
            self.pairs::<X, Y>(frame);
        } else if frame.output_dtype(1) == DType::U8 {
            self.go::<X, Y, u8>(frame);
        } else {
            self.go::<X, Y, i32>(frame);
        });
    }
}

/// One row of the output.
struct Forward<'a, X, Y, P> {
    g: &'a Windows,
    x: &'a [X],
    y: &'a mut [Y],
    index: &'a mut [P],
    row: usize,
}

impl<X: Float, Y: Float, P: Position> Kernel for Forward<'_, X, Y, P> {
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
                let mut at = s.splat((rows.start * g.width + columns.start) as f32);
                let mut from = top * line + left * channels + c;
                for i in rows.clone() {
                    for (k, j) in columns.clone().enumerate() {
                        let v = get(s, x, from + k * g.columns.dilation * channels, n);
                        let here = s.splat((i * g.width + j) as f32);
                        // NaN wins.
                        let wins = s.gt_or_nan(v, best);
                        best = s.select(wins, v, best);
                        at = s.select(wins, here, at);
                    }
                    from += g.rows.dilation * line;
                }
                put(s, y, o * channels + c, n, best);
                P::put(s, &mut index[o * channels + c..][..n], at);
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

    fn pairs(&self, frame: &Frame) {
        let (g, level) = (&self.windows, self.level);
        let (input, output) = (g.input(), g.output());
        let (dy, index, dx) = (frame.input::<f32>(0), frame.input::<u8>(1), frame.output::<f32>(0));
        let (channels, line, row) = (g.channels, input[1] * g.channels, output[1] * g.channels);
        let all = Parts::new(dx);
        let rows = chunks(dy.len() / row, rows_per_chunk(2 * line));
        frame.pool().run(rows.count(), |task, _| {
            for at in rows.range(task) {
                let (image, r) = (at / output[0], at % output[0]);
                let start = (image * input[0] + 2 * r) * line;
                let from = at * row..(at + 1) * row;
                // SAFETY: the pixels under a row of windows belong to it alone.
                let dx = unsafe { all.part(start..start + 2 * line) };
                level.run(pairs::Backward { dy: &dy[from.clone()], index: &index[from], dx, channels });
                if r + 1 == output[0] {
                    // SAFETY: the row that no window reaches, if there is one, goes with the last row of windows.
                    unsafe { all.part(start + 2 * line..(image + 1) * input[0] * line) }.fill(0.0);
                }
            }
        });
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
        if self.windows.pairs {
            self.pairs(frame);
        } else if frame.input_dtype(1) == DType::U8 {
            self.go::<u8>(frame);
        } else {
            self.go::<i32>(frame);
        }
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
    fn run<S: Simd>(self, s: S) {
        let Backward { g, dy, index, dx, row } = self;
        let (channels, line) = (g.channels, g.output()[1] * g.channels);
        for (dx, columns) in dx.chunks_exact_mut(channels).zip(&g.columns.inputs) {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for (i, ti) in &g.rows.inputs[row] {
                    for (j, tj) in columns {
                        let at = i * line + j * channels + c;
                        let here = s.splat((ti * g.width + tj) as f32);
                        let chosen = s.eq(P::get(s, &index[at..at + n]), here);
                        sum = s.add(sum, s.select(chosen, get(s, dy, at, n), s.zero()));
                    }
                }
                put(s, dx, c, n, sum);
            }
        }
    }
}
