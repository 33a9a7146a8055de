//! Maximum over windows that tile an image, each of its own size, vectors of channels at a time.

use super::position::Position;
use crate::ops::avg_pool::Windows;
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, for_chunks2, vectorised};
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};

vectorised! {
    /// Row `row` of the output of one image.
    fn forward<'a, S>(s, windows: &'a Windows, x: &'a [f32], y: &'a mut [f32], index: &'a mut [i32], row: usize) {
        let (channels, width) = (windows.channels, windows.input()[1]);
        let rows = &windows.rows.windows[row].inputs;
        for (o, columns) in windows.columns.windows.iter().enumerate() {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let (mut best, mut at) = (s.splat(f32::NEG_INFINITY), s.zero());
                for i in rows.clone() {
                    for j in columns.inputs.clone() {
                        let v = get(s, x, (i * width + j) * channels + c, n);
                        let here = (i - rows.start) * columns.inputs.len() + j - columns.inputs.start;
                        // NaN wins.
                        let wins = s.gt_or_nan(v, best);
                        best = s.select(wins, v, best);
                        at = s.select(wins, s.splat(here as f32), at);
                    }
                }
                put(s, y, o * channels + c, n, best);
                i32::put(s, &mut index[o * channels + c..][..n], at);
            }
        }
    }

    /// Row `row` of the gradient by one image: each pixel gathers from the windows that may have chosen it.
    fn backward<'a, S>(s, windows: &'a Windows, dy: &'a [f32], index: &'a [i32], dx: &'a mut [f32], row: usize) {
        let (channels, width) = (windows.channels, windows.output()[1]);
        for (column, outputs) in windows.columns.outputs.iter().enumerate() {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for i in windows.rows.outputs[row].clone() {
                    let above = row - windows.rows.windows[i].inputs.start;
                    for j in outputs.clone() {
                        let columns = &windows.columns.windows[j].inputs;
                        let here = above * columns.len() + column - columns.start;
                        let at = (i * width + j) * channels + c;
                        let chosen = s.eq(i32::get(s, &index[at..at + n]), s.splat(here as f32));
                        sum = s.add(sum, s.select(chosen, get(s, dy, at, n), s.zero()));
                    }
                }
                put(s, dx, column * channels + c, n, sum);
            }
        }
    }
}

/// [`crate::graph::op::AdaptiveMaxPool2d`].
pub struct AdaptiveMaxPoolKernel {
    windows: Windows,
    level: SimdLevel,
}

impl AdaptiveMaxPoolKernel {
    /// From shape `x` to shape `y`.
    pub fn new(x: [usize; 4], y: [usize; 4], level: SimdLevel) -> Self {
        AdaptiveMaxPoolKernel { windows: Windows::adaptive(x, y), level }
    }
}

impl NodeKernel for AdaptiveMaxPoolKernel {
    fn run(&self, frame: &Frame<'_>) {
        let w = &self.windows;
        let (x, y, index) = (frame.input::<f32>(0), frame.output::<f32>(0), frame.output::<i32>(1));
        let image = w.input()[0] * w.input()[1] * w.channels;
        let row = w.output()[1] * w.channels;
        for_chunks2(frame.pool(), (y, row), (index, row), |line, y, index| {
            let x = &x[line / w.output()[0] * image..][..image];
            forward(self.level, w, x, y, index, line % w.output()[0]);
        });
    }
}

/// [`crate::graph::op::AdaptiveMaxPool2dGrad`].
pub struct AdaptiveMaxPoolGradKernel {
    windows: Windows,
    level: SimdLevel,
}

impl AdaptiveMaxPoolGradKernel {
    /// From shape `dy` to shape `dx`.
    pub fn new(dy: [usize; 4], dx: [usize; 4], level: SimdLevel) -> Self {
        AdaptiveMaxPoolGradKernel { windows: Windows::adaptive(dx, dy), level }
    }
}

impl NodeKernel for AdaptiveMaxPoolGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let w = &self.windows;
        let (dy, index, dx) = (frame.input::<f32>(0), frame.input::<i32>(1), frame.output::<f32>(0));
        let image = w.output()[0] * w.output()[1] * w.channels;
        let row = w.input()[1] * w.channels;
        for_chunks(frame.pool(), dx, row, |start, dx| {
            let line = start / row;
            let part = line / w.input()[0] * image..(line / w.input()[0] + 1) * image;
            backward(self.level, w, &dy[part.clone()], &index[part], dx, line % w.input()[0]);
        });
    }
}
