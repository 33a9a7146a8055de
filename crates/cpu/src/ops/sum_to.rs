//! Sums over the axes that a broadcast had stretched.

use super::reduce_columns::{Grid, sums};
use crate::graph::Shape;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{for_chunks, rows_per_chunk};
use crate::run::threads::Parts;
use crate::simd::SimdLevel;

/// [`crate::graph::op::SumTo`].
pub struct SumToKernel {
    level: SimdLevel,
    way: Way,
}

enum Way {
    /// `[rows, columns]` to `[columns]`.
    Columns { width: usize, grid: Grid },
    /// `[outer, rows, columns]` to `[outer, columns]`, a task for several of the outer ones.
    Blocks { rows: usize, width: usize },
    /// Any other pattern: the axes that stay and those that are summed, as (size, stride), and the elements in a row of
    /// the output.
    Any { kept: Vec<(usize, usize)>, summed: Vec<(usize, usize)>, row: usize },
}

impl SumToKernel {
    /// From shape `x` to shape `y`.
    pub fn new(x: &Shape, y: &Shape, level: SimdLevel) -> Self {
        // Neighbouring axes of one fate joined: (size, is summed).
        let mut axes: Vec<(usize, bool)> = Vec::new();
        for (i, &size) in x.dims().iter().enumerate() {
            let summed = if y.rank() == x.rank() { y.dims()[i] != size } else { i + 1 < x.rank() };
            match axes.last_mut() {
                _ if size == 1 => {}
                Some(last) if last.1 == summed => last.0 *= size,
                _ => axes.push((size, summed)),
            }
        }
        let way = match axes[..] {
            [] => Way::Columns { width: 1, grid: Grid::new(1, 1) },
            [(n, false)] => Way::Columns { width: n, grid: Grid::new(1, n) },
            [(n, true)] => Way::Columns { width: 1, grid: Grid::new(n, 1) },
            [(n, true), (c, false)] => Way::Columns { width: c, grid: Grid::new(n, c) },
            [(_, false), (n, true)] => Way::Blocks { rows: n, width: 1 },
            [(_, false), (n, true), (c, false)] => Way::Blocks { rows: n, width: c },
            _ => {
                let mut stride = 1;
                let (mut kept, mut summed, mut row) = (Vec::new(), Vec::new(), 1);
                for (i, &(size, sum)) in axes.iter().enumerate().rev() {
                    if sum {
                        summed.push((size, stride));
                    } else if i + 1 == axes.len() {
                        row = size;
                    } else {
                        kept.push((size, stride));
                    }
                    stride *= size;
                }
                Way::Any { kept, summed, row }
            }
        };
        SumToKernel { level, way }
    }
}

/// Place of number `index` of the axes (innermost first).
fn place(axes: &[(usize, usize)], mut index: usize) -> usize {
    let mut at = 0;
    for (size, stride) in axes {
        at += index % size * stride;
        index /= size;
    }
    at
}

impl NodeKernel for SumToKernel {
    fn scratch_bytes(&self) -> usize {
        match &self.way {
            Way::Columns { width, grid } => Scratch::size::<f64>(grid.rows.count() * width),
            // Sums of one row of the output for each task.
            Way::Blocks { .. } | Way::Any { .. } => 0,
        }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.input::<f32>(0), frame.output::<f32>(0));
        match &self.way {
            Way::Columns { width, grid } => {
                let partial = frame.scratch().take::<f64>(grid.rows.count() * width);
                let parts = Parts::new(partial);
                frame.pool().run(grid.count(), |task, _| {
                    let (rows, block, columns) = grid.block(task);
                    let at = block * width;
                    // SAFETY: each block has its own partial sums.
                    let out = unsafe { parts.part(at + columns.start..at + columns.end) };
                    sums(self.level, x, *width, rows, columns, out);
                });
                for (c, y) in y.iter_mut().enumerate() {
                    *y = partial[c..].iter().step_by(*width).sum::<f64>() as f32;
                }
            }
            Way::Blocks { rows, width } => {
                let block = rows * width;
                for_chunks(frame.pool(), y, rows_per_chunk(block) * width, |start, part| {
                    for (i, out) in part.chunks_mut(*width).enumerate() {
                        let x = &x[(start / width + i) * block..][..block];
                        if *width == 1 {
                            out[0] = x.chunks(64).map(|c| c.iter().sum::<f32>() as f64).sum::<f64>() as f32;
                            continue;
                        }
                        let mut buffer = [0.0f64; 64];
                        for (j, out) in out.chunks_mut(64).enumerate() {
                            let total = &mut buffer[..out.len()];
                            sums(self.level, x, *width, 0..*rows, j * 64..j * 64 + out.len(), total);
                            out.iter_mut().zip(total).for_each(|(o, t)| *o = *t as f32);
                        }
                    }
                });
            }
            Way::Any { kept, summed, row } => {
                let terms: usize = summed.iter().map(|a| a.0).product();
                for_chunks(frame.pool(), y, rows_per_chunk(row * terms) * row, |start, part| {
                    for (i, y) in part.iter_mut().enumerate() {
                        let at = place(kept, (start + i) / row) + (start + i) % row;
                        *y = (0..terms).map(|t| x[at + place(summed, t)] as f64).sum::<f64>() as f32;
                    }
                });
            }
        }
    }
}
