//! The gradient by the weight.
//!
//! A task goes through a piece of the batch, some blocks of tiles, and has a transformed sum of its own,
//! `[element][input][output]`. The sums are added in order and transformed back.

use super::grid::{ELEMENTS, Grid};
use super::transforms::{Input, kernel_adjoint, store_output_grad};
use super::{pooled, tail};
use crate::backend::cpu::gemm::prologue::Source;
use crate::backend::cpu::gemm::sums::AddRows;
use crate::backend::cpu::gemm::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile};
use crate::backend::cpu::gemm::{round_up, workspace_floats};
use crate::backend::cpu::ops::conv::kernel::{PooledWeightKernel, WeightKernel};
use crate::backend::cpu::ops::conv::operands::PixelSource;
use crate::backend::cpu::ops::conv::patches::TASKS;
use crate::backend::cpu::ops::conv::shape::{ConvProblem, Direction};
use crate::backend::cpu::run::threads::{Parts, Pool, chunks};
use crate::backend::cpu::simd::{Kernel, MAX_LANES, Simd};
use std::ops::Range;

/// Floats that the sums of all pieces should have together: 2 MiB, as they are written to memory and read back.
const SUM_FLOATS: usize = 512 << 10;

/// Least pieces, so that there is work for several threads.
const LEAST_PIECES: usize = 4;

/// Most floats of the sums of all pieces: 32 MiB.
const MOST_SUM_FLOATS: usize = 8 << 20;

/// Floats of the sums that a task adds up.
const ADDED: usize = 4 << 10;

/// The gradient by the weight.
pub struct WinogradGradWeight {
    grid: Grid,
    tiles: Tiles,
    threads: usize,
    /// Pieces of the batch, each with its own sum, and blocks in each.
    pieces: usize,
    piece: usize,
    /// Where the rows of a transformed sum start, for the input channels.
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl WinogradGradWeight {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        let grid = Grid::new(problem, Direction::Forward, true, round_up(problem.shape.outputs))?;
        let sum = ELEMENTS * grid.from * round_up(grid.to);
        let piece = grid.blocks().div_ceil((SUM_FLOATS / sum).clamp(LEAST_PIECES, TASKS));
        let pieces = grid.blocks().div_ceil(piece);
        if pieces * sum > MOST_SUM_FLOATS {
            return None;
        }
        Some(WinogradGradWeight {
            tiles: Tiles::new(problem.level),
            threads: problem.threads,
            pieces,
            piece,
            a_rows: (0..grid.from as u32).collect(),
            c_rows: (0..grid.from).map(|c| (c * round_up(grid.to)) as u32).collect(),
            grid,
        })
    }

    /// Floats from one output channel's row to the next in everything transformed.
    fn step(&self) -> usize {
        round_up(self.grid.to)
    }

    fn sum_floats(&self) -> usize {
        ELEMENTS * self.grid.from * self.step()
    }

    fn input_floats(&self) -> usize {
        ELEMENTS * self.grid.element_floats(self.grid.from)
    }

    fn scratch_floats(&self) -> usize {
        self.input_floats() + ELEMENTS * self.grid.element_floats(self.step())
    }

    fn workspace_floats(&self) -> usize {
        let shared = self.pieces * (self.sum_floats() + self.step()) + self.grid.row_floats();
        shared + self.threads * self.scratch_floats()
    }

    /// Adds the sixteen products: `sums [element][input][output] += Σ_tiles input[tile][input] · output[tile][output]`.
    fn multiply(&self, count: usize, input: &[f32], output: &[f32], accumulate: bool, sums: &mut [f32]) {
        let (width, step) = (self.tiles.columns(), self.step());
        let whole = tail::start(self.grid.to, width);
        if whole < self.grid.to {
            let columns = whole..self.grid.to;
            self.tiles.level.run(tail::Outer {
                grid: &self.grid,
                count,
                input,
                output,
                columns,
                step,
                accumulate,
                sums,
            });
        }
        for element in 0..ELEMENTS {
            for n in (0..whole).step_by(width) {
                let c = sums[element * self.grid.from * step + n..].as_mut_ptr();
                for_each_tile(self.grid.from, self.tiles.rows, |start, rows| {
                    let tile = Tile {
                        a: input[element * self.grid.element_floats(self.grid.from)..].as_ptr(),
                        a_rows: &self.a_rows[start..],
                        a_step: self.grid.from,
                        b: output[element * self.grid.element_floats(step) + n..].as_ptr(),
                        b_step: step,
                        b_far: false,
                        runs: ONE_RUN,
                        run_len: count,
                        c,
                        c_rows: &self.c_rows[start..],
                        n: (self.grid.to - n).min(width),
                        accumulate,
                        epilogue: Epilogue::NONE,
                    };
                    // SAFETY: inside the scratch, whose rows are whole vectors, and the task's sums.
                    unsafe { self.tiles.run(rows, &tile) };
                });
            }
        }
    }
}

impl WeightKernel for WinogradGradWeight {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        self.run_pooled(pool, x, PixelSource::Plain(dy.into()), dw, db, workspace);
    }
}

impl PooledWeightKernel for WinogradGradWeight {
    fn run_pooled(
        &self,
        pool: &Pool,
        x: &[f32],
        dy: PixelSource,
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (sums, rest) = floats.split_at_mut(self.pieces * self.sum_floats());
        let (bias_sums, rest) = rest.split_at_mut(self.pieces * self.step());
        let (zeros, scratch) = rest.split_at_mut(self.grid.row_floats());
        zeros.fill(0.0);
        let (zeros, scratch) = (&*zeros, Parts::new(scratch));
        let (all_sums, all_bias_sums) = (Parts::new(&mut *sums), Parts::new(&mut *bias_sums));
        let level = self.tiles.level;
        pool.run(self.pieces, |piece, worker| {
            // SAFETY: a worker has its own scratch, and a piece its own sums.
            let (scratch, sums, bias_sums) = unsafe {
                (
                    scratch.part(worker * self.scratch_floats()..(worker + 1) * self.scratch_floats()),
                    all_sums.part(piece * self.sum_floats()..(piece + 1) * self.sum_floats()),
                    all_bias_sums.part(piece * self.step()..(piece + 1) * self.step()),
                )
            };
            bias_sums.fill(0.0);
            let (input, output) = scratch.split_at_mut(self.input_floats());
            let blocks = piece * self.piece..((piece + 1) * self.piece).min(self.grid.blocks());
            for block in blocks.clone() {
                let tiles = self.grid.range(block);
                let count = tiles.len();
                level.run(Input { grid: &self.grid, tiles: tiles.clone(), source: x, zeros, input });
                match dy {
                    PixelSource::Plain(Source { values: dy, .. }) => {
                        level.run(OutputGrad { grid: &self.grid, tiles, dy, output, bias_sums });
                    }
                    PixelSource::Pooled(source) => {
                        level.run(pooled::OutputGrad { grid: &self.grid, tiles, source, output, bias_sums });
                    }
                }
                self.multiply(count, input, output, block > blocks.start, sums);
            }
        });
        let (sum, others) = sums.split_at_mut(self.sum_floats());
        let (parts, totals) = (chunks(self.sum_floats(), ADDED), Parts::new(&mut *sum));
        pool.run(parts.count(), |task, _| {
            let range = parts.range(task);
            let rows = others.chunks(self.sum_floats()).map(|piece| &piece[range.clone()]);
            // SAFETY: a task has its own range.
            level.run(AddRows { rows, sums: unsafe { totals.part(range.clone()) } });
        });
        let sum = &*sum;
        let dw = Parts::new(dw);
        let columns = chunks(self.grid.to, MAX_LANES);
        pool.run(columns.count(), |task, _| {
            let range = columns.range(task);
            let row = 9 * self.grid.from;
            // SAFETY: output channels belong to one task.
            let dw = unsafe { dw.part(range.start * row..range.end * row) };
            level.run(Back { kernel: self, sum, columns: range, dw });
        });
        if let Some(db) = db {
            db.fill(0.0);
            level.run(AddRows { rows: bias_sums.chunks(self.step()), sums: db });
        }
    }
}

/// Transforms `dy` to `[element][tile][output]` with zeros beyond the last channel, and adds its pixels to the bias's sums.
struct OutputGrad<'a> {
    grid: &'a Grid,
    tiles: Range<usize>,
    dy: &'a [f32],
    output: &'a mut [f32],
    bias_sums: &'a mut [f32],
}

impl Kernel for OutputGrad<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.grid;
        let ([height, width], step) = (k.dest, round_up(k.to));
        let element = k.element_floats(step);
        let mut positions = k.positions(self.tiles.start);
        for t in 0..self.tiles.len() {
            let [image, row, column] = positions.step();
            let mut c = 0;
            while c < step {
                let left = k.to.saturating_sub(c);
                // SAFETY: pixels inside the image have `to` channels; the transformed tile and the sums are padded to
                // whole vectors.
                unsafe {
                    let mut pixels = [s.zero(); 4];
                    for i in 0..4 {
                        let (y, x) = (2 * row + i / 2, 2 * column + i % 2);
                        if y < height && x < width && left > 0 {
                            let from = self.dy.as_ptr().add(((image * height + y) * width + x) * k.to + c);
                            pixels[i] = if left >= S::LANES { s.load(from) } else { s.load_part(from, left) };
                        }
                    }
                    let sum = self.bias_sums.as_mut_ptr().add(c);
                    let total = s.add(s.add(pixels[0], pixels[1]), s.add(pixels[2], pixels[3]));
                    s.store(sum, s.add(s.load(sum), total));
                    store_output_grad(s, pixels, self.output.as_mut_ptr().add(t * step + c), element);
                }
                c += S::LANES;
            }
        }
    }
}

/// Transforms the sum back to `dw [O, 3, 3, I]` for some output channels.
struct Back<'a> {
    kernel: &'a WinogradGradWeight,
    sum: &'a [f32],
    columns: Range<usize>,
    dw: &'a mut [f32],
}

impl Kernel for Back<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (step, from) = (self.kernel.step(), self.kernel.grid.from);
        for first in self.columns.clone().step_by(S::LANES) {
            for c in 0..from {
                let mut half = [[s.zero(); 4]; 3];
                for j in 0..4 {
                    let mut column = [s.zero(); 4];
                    for i in 0..4 {
                        let at = ((i * 4 + j) * from + c) * step + first;
                        // SAFETY: rows of the sum are padded to whole vectors.
                        column[i] = unsafe { s.load(self.sum[at..at + S::LANES].as_ptr()) };
                    }
                    let column = kernel_adjoint(s, column);
                    for i in 0..3 {
                        half[i][j] = column[i];
                    }
                }
                for i in 0..3 {
                    for (j, x) in kernel_adjoint(s, half[i]).into_iter().enumerate() {
                        let lanes = s.to_array(x);
                        for (n, &x) in (first..self.columns.end).zip(&lanes[..S::LANES]) {
                            self.dw[((n - self.columns.start) * 9 + i * 3 + j) * from + c] = x;
                        }
                    }
                }
            }
        }
    }
}
