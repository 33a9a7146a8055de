//! Means over windows of channels-last images: average pooling and its adaptive form.

use crate::graph::op::AvgPool2d;
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, vectorised};
use crate::run::widths::{Float, in_each_width};
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, Simd, SimdLevel};
use std::ops::Range;

/// What an output takes in along one axis.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Inputs.
    pub inputs: Range<usize>,
    /// Factor of the divisor.
    count: usize,
}

/// The windows along one axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub windows: Vec<Window>,
    /// For each input, the outputs that take it in.
    pub outputs: Vec<Range<usize>>,
}

impl Axis {
    fn new(input: usize, windows: Vec<Window>) -> Self {
        let covers = |i: usize| {
            // Starts and ends never decrease, so the windows over an input follow each other.
            let first = windows.iter().position(|w| w.inputs.contains(&i)).unwrap_or(0);
            first..first + windows[first..].iter().take_while(|w| w.inputs.contains(&i)).count()
        };
        let outputs = (0..input).map(covers).collect();
        Axis { windows, outputs }
    }

    fn average(op: &AvgPool2d, axis: usize, input: usize, output: usize) -> Self {
        let (kernel, stride, padding) = (op.kernel[axis], op.stride[axis], op.padding[axis]);
        let window = |o: usize| {
            // Counted from the first padding.
            let (start, end) = (o * stride, (o * stride + kernel).min(input + 2 * padding));
            let inputs = start.max(padding) - padding..(end.max(padding) - padding).min(input);
            Window { count: if op.count_include_pad { end - start } else { inputs.len() }, inputs }
        };
        Axis::new(input, (0..output).map(window).collect())
    }

    fn adaptive(input: usize, output: usize) -> Self {
        let window = |o: usize| {
            let inputs = o * input / output..((o + 1) * input).div_ceil(output);
            Window { count: inputs.len(), inputs }
        };
        Axis::new(input, (0..output).map(window).collect())
    }
}

/// The windows over an image.
#[derive(Debug, Clone)]
pub struct Windows {
    pub(super) rows: Axis,
    pub(super) columns: Axis,
    pub(super) channels: usize,
}

impl Windows {
    /// Average pooling from shape `x` to shape `y`.
    pub fn average(op: &AvgPool2d, x: [usize; 4], y: [usize; 4]) -> Self {
        Windows { rows: Axis::average(op, 0, x[1], y[1]), columns: Axis::average(op, 1, x[2], y[2]), channels: x[3] }
    }

    /// Adaptive pooling from shape `x` to shape `y`.
    pub fn adaptive(x: [usize; 4], y: [usize; 4]) -> Self {
        Windows { rows: Axis::adaptive(x[1], y[1]), columns: Axis::adaptive(x[2], y[2]), channels: x[3] }
    }

    /// Height and width of the input.
    pub fn input(&self) -> [usize; 2] {
        [self.rows.outputs.len(), self.columns.outputs.len()]
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        [self.rows.windows.len(), self.columns.windows.len()]
    }
}

/// Row `row` of the output of one image.
struct Forward<'a, X, Y> {
    windows: &'a Windows,
    x: &'a [X],
    y: &'a mut [Y],
    row: usize,
}

impl<X: Float, Y: Float> Kernel for Forward<'_, X, Y> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Forward { windows, x, y, row } = self;
        let (channels, width) = (windows.channels, windows.input()[1]);
        let rows = &windows.rows.windows[row];
        for (o, columns) in windows.columns.windows.iter().enumerate() {
            let count = s.splat((rows.count * columns.count) as f32);
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut total = s.zero();
                for h in rows.inputs.clone() {
                    // Line by line, so that large windows keep their precision.
                    let mut line = s.zero();
                    for w in columns.inputs.clone() {
                        line = s.add(line, get(s, x, (h * width + w) * channels + c, n));
                    }
                    total = s.add(total, line);
                }
                put(s, y, o * channels + c, n, s.div(total, count));
            }
        }
    }
}

vectorised! {
    /// Row `row` of the gradient by one image.
    fn backward<'a, S>(s, windows: &'a Windows, dy: &'a [f32], dx: &'a mut [f32], row: usize) {
        let (channels, width) = (windows.channels, windows.output()[1]);
        let of_pixel = &windows.columns.outputs;
        for (w, columns) in of_pixel.iter().enumerate() {
            // A global mean gives all pixels the same: division is slower than memory.
            if w > 0 && of_pixel[w - 1] == *columns {
                dx.copy_within((w - 1) * channels..w * channels, w * channels);
                continue;
            }
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for i in windows.rows.outputs[row].clone() {
                    for j in columns.clone() {
                        let count = windows.rows.windows[i].count * windows.columns.windows[j].count;
                        let g = get(s, dy, (i * width + j) * channels + c, n);
                        sum = s.add(sum, s.div(g, s.splat(count as f32)));
                    }
                }
                put(s, dx, w * channels + c, n, sum);
            }
        }
    }
}

/// [`AvgPool2d`] and [`crate::graph::op::AdaptiveAvgPool2d`].
pub struct MeanPoolKernel {
    /// The windows.
    pub windows: Windows,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MeanPoolKernel {
    fn run(&self, frame: &Frame<'_>) {
        in_each_width!(frame, X, Y => self.go::<X, Y>(frame));
    }
}

impl MeanPoolKernel {
    fn go<X: Float, Y: Float>(&self, frame: &Frame) {
        let (x, y) = (frame.input::<X>(0), frame.output::<Y>(0));
        let windows = &self.windows;
        let image = windows.input()[0] * windows.input()[1] * windows.channels;
        let row = windows.output()[1] * windows.channels;
        for_chunks(frame.pool(), y, row, |start, y| {
            let line = start / row;
            let x = &x[line / windows.output()[0] * image..][..image];
            self.level.run(Forward { windows, x, y, row: line % windows.output()[0] });
        });
    }
}

/// Their gradients.
pub struct MeanPoolGradKernel {
    /// The windows.
    pub windows: Windows,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MeanPoolGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (dy, dx) = (frame.input::<f32>(0), frame.output::<f32>(0));
        let w = &self.windows;
        let image = w.output()[0] * w.output()[1] * w.channels;
        let row = w.input()[1] * w.channels;
        for_chunks(frame.pool(), dx, row, |start, dx| {
            let line = start / row;
            let dy = &dy[line / w.input()[0] * image..][..image];
            backward(self.level, w, dy, dx, line % w.input()[0]);
        });
    }
}
