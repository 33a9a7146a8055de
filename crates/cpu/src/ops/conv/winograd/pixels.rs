//! The convolution and its gradient by the input.
//!
//! Where there are many tiles, weights are transformed once, and a task has some tiles: it transforms, multiplies and turns them
//! back while they are in the cache. Where weights are larger than the tiles, the tiles are transformed once, and a task has
//! a panel of weights, which it transforms itself, some channels at a time: transformed weights, four times as large, stay in the
//! cache and never go to memory.

use super::grid::{Grid, Held, TilePanel, element_floats};
use super::output::Output;
use super::points::Points;
use super::transforms::Input;
use super::weights::Weights;
use super::{pooled, tail};
use crate::gemm::memory::{MOST_ROWS, Memory, kept_weights};
use crate::gemm::prologue::Source;
use crate::gemm::tile::{Epilogue, EpilogueOperands, ONE_RUN, Tile, Tiles, for_each_tile};
use crate::gemm::workspace_floats;
use crate::graph::op::Activation;
use crate::ops::conv::kernel::{PixelKernel, PooledPixelKernel};
use crate::ops::conv::operands::{PixelDest, PixelDestParts, PixelSource, pooled_bounds};
use crate::ops::conv::shape::{ConvProblem, Direction};
use crate::plan::Kept;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, TASKS_PER_THREAD, chunks};
use std::marker::PhantomData;
use std::ops::Range;

/// The convolution or its gradient by the input.
pub struct Winograd<P> {
    points: PhantomData<P>,
    direction: Direction,
    grid: Grid,
    act: Option<Activation>,
    tiles: Tiles,
    threads: usize,
    /// All tiles are transformed at once, and tasks have panels of weights.
    by_panels: bool,
    /// Channels of a panel that are transformed and multiplied at a time.
    depth: usize,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

/// What a run writes, and what is done to it.
#[derive(Clone, Copy)]
struct Job<'a> {
    operands: EpilogueOperands<'a>,
    dest: PixelDestParts<'a>,
}

impl<P: Points> Winograd<P> {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let tiles = Tiles::new(problem.level);
        let grid = Grid::of_pixels::<P>(problem, direction, tiles.columns())?;
        let rows = |step: usize| (0..grid.block).map(|t| (t * step) as u32).collect();
        Some(Winograd {
            points: PhantomData,
            direction,
            act,
            tiles,
            threads: problem.threads,
            by_panels: grid.has_larger_weights(),
            depth: grid.depth(tiles.columns()),
            a_rows: rows(grid.from),
            c_rows: rows(tiles.columns()),
            grid,
        })
    }

    /// Pixels that are written.
    fn pixels(&self) -> usize {
        self.grid.images * self.grid.dest[0] * self.grid.dest[1]
    }

    fn panels(&self) -> usize {
        self.grid.to.div_ceil(self.tiles.columns())
    }

    /// Floats of the transformed weights of a panel, or of so many channels of it as are multiplied at a time.
    fn panel_floats(&self) -> usize {
        Held::floats(P::ELEMENTS, self.depth, self.tiles.columns())
    }

    /// Whether a panel has so few columns that `tail` multiplies it.
    fn is_tail(&self, panel: usize) -> bool {
        !self.by_panels && panel * self.tiles.columns() >= tail::start(self.grid.to, self.tiles.columns())
    }

    /// Transformed weights that are there before the products begin.
    fn weight_floats(&self) -> usize {
        if self.by_panels { 0 } else { self.panels() * self.panel_floats() }
    }

    /// Tiles whose transformed input is held together.
    fn held(&self) -> usize {
        if self.by_panels { self.grid.count() } else { self.grid.block }
    }

    fn input_floats(&self) -> usize {
        Held::floats(P::ELEMENTS, self.held(), self.grid.from)
    }

    fn output_floats(&self) -> usize {
        Held::floats(P::ELEMENTS, self.grid.block, self.tiles.columns())
    }

    /// Of each thread.
    fn scratch_floats(&self) -> usize {
        self.output_floats() + if self.by_panels { self.panel_floats() } else { self.input_floats() }
    }

    /// Beside the weights.
    fn rest_floats(&self) -> usize {
        let shared = if self.by_panels { self.input_floats() } else { 0 };
        shared + self.grid.row_floats() + PerThread::size(self.threads, self.scratch_floats())
    }

    /// The products: `output [element][tile][column] (+)= input [element][tile][from] · weights [element][from][column]`, for the channels
    /// `from` that the weights have; the first ones begin the sum.
    fn multiply(
        &self,
        held: &[f32],
        count: usize,
        weights: &[f32],
        panel: usize,
        from: Range<usize>,
        output: &mut [f32],
    ) {
        let (width, input) = (self.tiles.columns(), held);
        let element = element_floats(self.held(), self.grid.from);
        let weight_element = element_floats(self.depth, width);
        if self.is_tail(panel) {
            return self.tiles.level.run(tail::Dots {
                grid: &self.grid,
                count,
                input: (input, element),
                weights: (weights, weight_element),
                columns: self.grid.to - panel * width,
                width,
                output,
            });
        }
        for e in 0..P::ELEMENTS {
            let c = output[e * element_floats(self.grid.block, width)..].as_mut_ptr();
            for_each_tile(count, self.tiles.rows, |start, rows| {
                let tile = Tile {
                    a: input[e * element + from.start..].as_ptr(),
                    a_rows: &self.a_rows[start..],
                    a_step: 1,
                    b: weights[e * weight_element..].as_ptr(),
                    b_step: width,
                    b_far: !self.by_panels && self.pixels() <= MOST_ROWS,
                    runs: ONE_RUN,
                    run_len: from.len(),
                    c,
                    c_rows: &self.c_rows[start..],
                    n: (self.grid.to - panel * width).next_multiple_of(self.tiles.lanes).min(width),
                    accumulate: from.start > 0,
                    epilogue: Epilogue::NONE,
                };
                // SAFETY: inside the scratch and the packed weights, whose panels are whole.
                unsafe { self.tiles.run(rows, &tile) };
            });
        }
    }

    /// Transforms tiles of the source to where `first` tiles are before them.
    fn transform(&self, tiles: Range<usize>, source: PixelSource, zeros: &[f32], floats: Parts<f32>, first: usize) {
        let (grid, input) = (&self.grid, Held { floats, room: self.held(), first, tile: self.grid.from });
        match source {
            PixelSource::Plain(Source { values: source, .. }) => {
                self.tiles.level.run(Input { points: self.points, grid, tiles, source, zeros, input });
            }
            PixelSource::Pooled(source) => {
                self.tiles.level.run(pooled::Input { grid, tiles, source, zeros, input });
            }
        }
    }

    /// Transforms some channels of a panel of weights.
    fn pack(&self, w: &[f32], panel: usize, from: Range<usize>, packed: &mut [f32]) {
        let (grid, direction, width, depth) = (&self.grid, self.direction, self.tiles.columns(), self.depth);
        let (points, tail) = (self.points, self.is_tail(panel));
        self.tiles.level.run(Weights { points, grid, direction, w, panel, width, from, depth, tail, packed });
    }

    /// Turns the products of some tiles with a panel of weights into pixels.
    fn write(&self, tiles: Range<usize>, panel: usize, output: &[f32], job: Job) {
        let (level, grid, width) = (self.tiles.level, &self.grid, self.tiles.columns());
        let channel = panel * width;
        let channels = (grid.to - channel).min(width);
        let panel = TilePanel { grid, tiles, channel, channels, width };
        match job.dest {
            PixelDestParts::Plain(dest) => {
                level.run(Output { points: self.points, panel, act: self.act, output, operands: job.operands, dest });
            }
            PixelDestParts::Pooled(y, index) => {
                let EpilogueOperands { scale, bias, .. } = job.operands;
                let bounds = pooled_bounds(self.act);
                level.run(pooled::Output { points: self.points, panel, output, scale, bias, bounds, y, index });
            }
        }
    }

    /// Each task has some tiles.
    fn run_by_tiles(&self, pool: &Pool, source: PixelSource, weights: &[f32], rest: &mut [f32], job: Job) {
        let (zeros, scratch) = rest.split_at_mut(self.grid.row_floats());
        zeros.fill(0.0);
        let (zeros, scratch) = (&*zeros, PerThread::new(Parts::new(scratch), self.scratch_floats()));
        pool.run(self.grid.blocks(), |task, worker| {
            let tiles = self.grid.range(task);
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.of(worker) };
            let (input, output) = scratch.split_at_mut(self.input_floats());
            self.transform(tiles.clone(), source, zeros, Parts::new(&mut *input), 0);
            for (panel, weights) in weights.chunks_exact(self.panel_floats()).enumerate() {
                self.multiply(input, tiles.len(), weights, panel, 0..self.grid.from, output);
                self.write(tiles.clone(), panel, output, job);
            }
        });
    }

    /// Each task has a panel of weights, or some tiles of one where there are few panels.
    fn run_by_panels(&self, pool: &Pool, source: PixelSource, w: &[f32], rest: &mut [f32], job: Job) {
        let (zeros, rest) = rest.split_at_mut(self.grid.row_floats());
        zeros.fill(0.0);
        let (input, scratch) = rest.split_at_mut(self.input_floats());
        let (zeros, scratch) = (&*zeros, PerThread::new(Parts::new(scratch), self.scratch_floats()));
        let all = Parts::new(&mut *input);
        pool.run(self.grid.count(), |tile, _| self.transform(tile..tile + 1, source, zeros, all, tile));
        let input = &*input;
        let pieces = (TASKS_PER_THREAD * pool.threads()).div_ceil(self.panels()).min(self.grid.count());
        let pieces = chunks(self.grid.count(), self.grid.count().div_ceil(pieces));
        pool.run(self.panels() * pieces.count(), |task, worker| {
            let (panel, piece) = (task / pieces.count(), pieces.range(task % pieces.count()));
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.of(worker) };
            let (weights, output) = scratch.split_at_mut(self.panel_floats());
            let channels = chunks(self.grid.from, self.depth);
            for first in piece.clone().step_by(self.grid.block) {
                let tiles = first..piece.end.min(first + self.grid.block);
                for from in (0..channels.count()).map(|i| channels.range(i)) {
                    // All channels at once are there already for the tiles after the first ones.
                    if channels.count() > 1 || first == piece.start {
                        self.pack(w, panel, from.clone(), weights);
                    }
                    self.multiply(&input[first * self.grid.from..], tiles.len(), weights, panel, from, output);
                }
                self.write(tiles, panel, output, job);
            }
        });
    }
}

impl<P: Points> PixelKernel for Winograd<P> {
    fn workspace_bytes(&self) -> usize {
        (self.weight_floats() + self.rest_floats()) * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn kept(&self) -> Option<Kept> {
        kept_weights(self.pixels(), self.weight_floats(), self.rest_floats())
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        self.run_pooled(pool, PixelSource::Plain(source.into()), w, operands, PixelDest::Plain(dest), memory);
    }
}

impl<P: Points> PooledPixelKernel for Winograd<P> {
    /// A pooled source needs a padding of 1 above and to the left of what is read.
    fn run_pooled(
        &self,
        pool: &Pool,
        source: PixelSource,
        w: &[f32],
        operands: EpilogueOperands,
        dest: PixelDest,
        memory: Memory,
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let job = Job { operands, dest: dest.parts() };
        if self.by_panels {
            return self.run_by_panels(pool, source, w, workspace_floats(memory.workspace, self.rest_floats()), job);
        }
        let (weights, rest, to_pack) = memory.split(self.weight_floats(), self.rest_floats());
        if to_pack {
            let (panel_floats, packed) = (self.panel_floats(), Parts::new(&mut *weights));
            pool.run(self.panels(), |panel, _| {
                // SAFETY: a panel belongs to one task.
                let packed = unsafe { packed.part(panel * panel_floats..(panel + 1) * panel_floats) };
                self.pack(w, panel, 0..self.grid.from, packed);
            });
        }
        self.run_by_tiles(pool, source, weights, rest, job);
    }
}
