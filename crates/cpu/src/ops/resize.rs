//! Channels-last images of another size, vectors of channels at a time.

use crate::graph::op::{Resize2d, Taps, readers};
use crate::run::frame::{Frame, NodeKernel};
use crate::run::parallel::{for_chunks, vectorised};
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};
use std::ops::Range;

/// One axis.
#[derive(Debug, Clone)]
struct Axis {
    /// What each output is made of.
    taps: Vec<Taps>,
    /// For each input, the outputs that may read it.
    readers: Vec<Range<usize>>,
}

impl Axis {
    fn new(op: &Resize2d, axis: usize, input: usize) -> Self {
        let taps = op.taps(axis, input);
        let readers = readers(&taps, input).into_iter().map(|r| r.map_or(0..0, |r| *r.start()..r.end() + 1)).collect();
        Axis { taps, readers }
    }
}

/// The pixels of both images.
#[derive(Debug, Clone)]
struct Grid {
    rows: Axis,
    columns: Axis,
    channels: usize,
}

impl Grid {
    /// From an image of shape `x`.
    fn new(op: &Resize2d, x: [usize; 4]) -> Self {
        Grid { rows: Axis::new(op, 0, x[1]), columns: Axis::new(op, 1, x[2]), channels: x[3] }
    }

    fn input(&self) -> [usize; 2] {
        [self.rows.readers.len(), self.columns.readers.len()]
    }

    fn output(&self) -> [usize; 2] {
        [self.rows.taps.len(), self.columns.taps.len()]
    }
}

vectorised! {
    /// Row `row` of the output of one image.
    fn forward<'a, S>(s, grid: &'a Grid, x: &'a [f32], y: &'a mut [f32], row: usize) {
        let (channels, width) = (grid.channels, grid.input()[1]);
        let rows = &grid.rows.taps[row];
        for (o, columns) in grid.columns.taps.iter().enumerate() {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for i in (0..2).filter(|i| rows.weight[*i] != 0.0) {
                    for j in (0..2).filter(|j| columns.weight[*j] != 0.0) {
                        let v = get(s, x, (rows.at[i] * width + columns.at[j]) * channels + c, n);
                        sum = s.add(sum, s.mul(v, s.splat(rows.weight[i] * columns.weight[j])));
                    }
                }
                put(s, y, o * channels + c, n, sum);
            }
        }
    }

    /// Row `row` of the gradient by one image: each pixel gathers from those that it is a part of.
    fn backward<'a, S>(s, grid: &'a Grid, dy: &'a [f32], dx: &'a mut [f32], row: usize) {
        let (channels, width) = (grid.channels, grid.output()[1]);
        for (column, readers) in grid.columns.readers.iter().enumerate() {
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                let mut sum = s.zero();
                for i in grid.rows.readers[row].clone() {
                    let height = grid.rows.taps[i].weight_of(row);
                    for j in readers.clone() {
                        let weight = height * grid.columns.taps[j].weight_of(column);
                        if weight != 0.0 {
                            let g = get(s, dy, (i * width + j) * channels + c, n);
                            sum = s.add(sum, s.mul(g, s.splat(weight)));
                        }
                    }
                }
                put(s, dx, column * channels + c, n, sum);
            }
        }
    }
}

/// [`Resize2d`].
pub struct ResizeKernel {
    grid: Grid,
    level: SimdLevel,
}

impl ResizeKernel {
    /// From shape `x`.
    pub fn new(op: &Resize2d, x: [usize; 4], level: SimdLevel) -> Self {
        ResizeKernel { grid: Grid::new(op, x), level }
    }
}

impl NodeKernel for ResizeKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.input::<f32>(0), frame.output::<f32>(0));
        let g = &self.grid;
        let image = g.input()[0] * g.input()[1] * g.channels;
        let row = g.output()[1] * g.channels;
        for_chunks(frame.pool(), y, row, |start, y| {
            let line = start / row;
            let x = &x[line / g.output()[0] * image..][..image];
            forward(self.level, g, x, y, line % g.output()[0]);
        });
    }
}

/// [`crate::graph::op::Resize2dGrad`].
pub struct ResizeGradKernel {
    grid: Grid,
    level: SimdLevel,
}

impl ResizeGradKernel {
    /// To shape `dx`.
    pub fn new(op: &Resize2d, dx: [usize; 4], level: SimdLevel) -> Self {
        ResizeGradKernel { grid: Grid::new(op, dx), level }
    }
}

impl NodeKernel for ResizeGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (dy, dx) = (frame.input::<f32>(0), frame.output::<f32>(0));
        let g = &self.grid;
        let image = g.output()[0] * g.output()[1] * g.channels;
        let row = g.input()[1] * g.channels;
        for_chunks(frame.pool(), dx, row, |start, dx| {
            let line = start / row;
            let dy = &dy[line / g.input()[0] * image..][..image];
            backward(self.level, g, dy, dx, line % g.input()[0]);
        });
    }
}
