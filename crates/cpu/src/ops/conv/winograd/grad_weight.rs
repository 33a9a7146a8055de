//! The gradient by the weight.
//!
//! A task goes through a piece of the batch, some blocks of tiles, and has a transformed sum of its own,
//! `[element][output][input]`. The sums are added in order and transformed back. Where a sum is large or there are few tiles, there
//! is only one: all tiles are transformed first, and a task has some rows of an element.

use super::adjoints::{Back, OutputGrad};
use super::grid::{Grid, Held, element_floats, odd_lines};
use super::points::{Four, Points};
use super::transforms::Input;
use super::{pooled, tail};
use crate::gemm::prologue::Source;
use crate::gemm::sums::AddRows;
use crate::gemm::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile};
use crate::gemm::{round_up, workspace_floats};
use crate::ops::conv::kernel::{PooledWeightKernel, WeightKernel};
use crate::ops::conv::operands::PixelSource;
use crate::ops::conv::patches::TASKS;
use crate::ops::conv::shape::ConvProblem;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Chunks, Parts, Pool, chunks};
use std::marker::PhantomData;
use std::ops::Range;

/// Floats that the sums of all pieces should have together: 2 MiB, as they are written to memory and read back.
const SUM_FLOATS: usize = 512 << 10;

/// Least pieces, so that there is work for several threads.
const LEAST_PIECES: usize = 4;

/// Most floats of the sums of all pieces: 16 MiB.
const MOST_SUM_FLOATS: usize = 4 << 20;

/// Most floats of the only sum: 64 MiB. Larger ones are four times the weight, which would be felt in what a step needs.
const MOST_FLOATS: usize = 16 << 20;

/// Floats of the transformed tiles that are held where there is only one sum: 32 MiB.
const HELD: usize = 8 << 20;

/// Rows of a sum that a task then makes.
const ROWS: usize = 64;

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
    /// There is one sum, of which tasks have rows.
    is_whole: bool,
    /// Where the rows of `dy`'s channels and of a sum start, for output channels.
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl WinogradGradWeight {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        let mut grid = Grid::of_weights(problem)?;
        let sum = Held::floats(Four::ELEMENTS, grid.to, round_up(grid.from));
        let tiles = Tiles::new(problem.level);
        let mut piece = grid.blocks().div_ceil((SUM_FLOATS / sum).clamp(LEAST_PIECES, TASKS));
        let mut pieces = grid.blocks().div_ceil(piece);
        let (is_large, ends) = (pieces * sum > MOST_SUM_FLOATS, tail::start(grid.from, tiles.columns()) < grid.from);
        if is_large && ends || sum > MOST_FLOATS {
            return None;
        }
        let is_whole = is_large || pieces < LEAST_PIECES && !ends;
        if is_whole {
            (pieces, piece) = (1, 1);
            grid.block = (HELD / Four::ELEMENTS / (grid.from + grid.to))
                .clamp(Four::LEAST_TILES, grid.count().max(Four::LEAST_TILES));
        }
        Some(WinogradGradWeight {
            tiles,
            is_whole,
            threads: problem.threads,
            pieces,
            piece,
            a_rows: (0..grid.to as u32).collect(),
            c_rows: (0..grid.to).map(|o| (o * round_up(grid.from)) as u32).collect(),
            grid,
        })
    }

    /// Floats from one output channel's row of a sum to the next.
    fn step(&self) -> usize {
        round_up(self.grid.from)
    }

    fn sum_floats(&self) -> usize {
        Held::floats(Four::ELEMENTS, self.grid.to, self.step())
    }

    /// Floats of the bias's sums of a task.
    fn bias_floats(&self) -> usize {
        round_up(self.grid.to)
    }

    /// Floats from tile to tile of the transformed input and of the transformed `dy`: a column of either, which is what the
    /// products read, is spread over all sets of the cache.
    fn tile_floats(&self) -> [usize; 2] {
        [odd_lines(self.grid.from), odd_lines(self.grid.to)]
    }

    /// Floats of a block's transformed input and `dy`.
    fn block_floats(&self) -> [usize; 2] {
        self.tile_floats().map(|tile| Held::floats(Four::ELEMENTS, self.grid.block, tile))
    }

    /// Floats of the blocks that are held at the same time.
    fn held_floats(&self, block: usize) -> usize {
        if self.is_whole { block } else { PerThread::size(self.threads, block) }
    }

    /// Sums of the bias, which tasks have that transform `dy`.
    fn bias_sums(&self) -> usize {
        if self.is_whole { self.parts().count() } else { self.pieces }
    }

    /// Tiles of a block that a task transforms.
    fn parts(&self) -> Chunks {
        chunks(self.grid.block, self.grid.block.div_ceil(TASKS))
    }

    fn workspace_floats(&self) -> usize {
        let [input, output] = self.block_floats();
        let sums = self.pieces * self.sum_floats() + self.bias_sums() * self.bias_floats();
        sums + self.grid.row_floats() + self.held_floats(input + output)
    }

    /// Transforms tiles of the input and of `dy` to where `first` tiles are before them in a block.
    fn transform(&self, tiles: Range<usize>, of: &Operands, first: usize, bias_sums: &mut [f32]) {
        let (level, grid, [input, output]) = (self.tiles.level, &self.grid, self.tile_floats());
        let [input, output] = [(of.input, input), (of.output, output)].map(|(floats, tile)| Held {
            floats,
            room: grid.block,
            first,
            tile,
        });
        level.run(Input {
            points: PhantomData::<Four>,
            grid,
            tiles: tiles.clone(),
            source: of.x,
            zeros: of.zeros,
            input,
        });
        match of.dy {
            PixelSource::Plain(Source { values: dy, .. }) => {
                level.run(OutputGrad { grid, tiles, dy, output, bias_sums });
            }
            PixelSource::Pooled(source) => {
                level.run(pooled::OutputGrad { grid, tiles, source, output, bias_sums });
            }
        }
    }

    /// Adds the products of an element to these rows of its sum:
    /// `sums [element][output][input] += Σ_tiles output[tile][output] · input[tile][input]`.
    ///
    /// # Safety
    /// Nothing else has these rows.
    unsafe fn multiply(
        &self,
        element: usize,
        rows: Range<usize>,
        count: usize,
        of: &Operands,
        sums: Parts<f32>,
        accumulate: bool,
    ) {
        let (width, step, [b_step, a_step]) = (self.tiles.columns(), self.step(), self.tile_floats());
        let [a_element, b_element] = [a_step, b_step].map(|tile| element_floats(self.grid.block, tile));
        for n in (0..tail::start(self.grid.from, width)).step_by(width) {
            let at = element * element_floats(self.grid.to, step) + rows.start * step + n;
            let c = sums.as_ptr().wrapping_add(at);
            for_each_tile(rows.len(), self.tiles.rows, |start, height| {
                let tile = Tile {
                    a: of.output.as_ptr().wrapping_add(element * a_element + rows.start),
                    a_rows: &self.a_rows[start..],
                    a_step,
                    b: of.input.as_ptr().wrapping_add(element * b_element + n),
                    b_step,
                    b_far: false,
                    runs: ONE_RUN,
                    run_len: count,
                    c,
                    c_rows: &self.c_rows[start..],
                    n: (self.grid.from - n).min(width),
                    accumulate,
                    epilogue: Epilogue::NONE,
                };
                // SAFETY: inside the transformed tiles, whose rows are whole vectors, and the caller's promise.
                unsafe { self.tiles.run(height, &tile) };
            });
        }
    }

    /// The same for the last columns, if they are left to `tail`.
    fn multiply_tail(&self, count: usize, of: &Operands, sums: &mut [f32], accumulate: bool) {
        let whole = tail::start(self.grid.from, self.tiles.columns());
        if whole == self.grid.from {
            return;
        }
        let [input_steps, output_steps] = self.tile_floats().map(|tile| [element_floats(self.grid.block, tile), tile]);
        let [input, output] = [of.input, of.output].map(|held| {
            // SAFETY: nothing writes to it while it is multiplied.
            &*unsafe { held.part(0..held.len()) }
        });
        self.tiles.level.run(tail::Outer {
            rows: self.grid.to,
            count,
            a: (output, output_steps),
            b: (input, input_steps),
            columns: whole..self.grid.from,
            step: [element_floats(self.grid.to, self.step()), self.step()],
            accumulate,
            sums,
        });
    }

    /// The sum of all tiles, to which each task adds a piece of the batch.
    fn sum_pieces(&self, pool: &Pool, of: Operands, sums: &mut [f32], bias_sums: Parts<f32>) {
        let ([input, output], all_sums) = (self.block_floats(), Parts::new(&mut *sums));
        let held = PerThread::new(of.input, input + output);
        pool.run(self.pieces, |piece, worker| {
            // SAFETY: a worker has its own block, and a piece its own sums.
            let (held, sums, bias_sums) = unsafe {
                (
                    held.of(worker),
                    all_sums.part(piece * self.sum_floats()..(piece + 1) * self.sum_floats()),
                    bias_sums.part(piece * self.bias_floats()..(piece + 1) * self.bias_floats()),
                )
            };
            let (input, output) = held.split_at_mut(input);
            let of = Operands { input: Parts::new(input), output: Parts::new(output), ..of };
            let blocks = piece * self.piece..((piece + 1) * self.piece).min(self.grid.blocks());
            for block in blocks.clone() {
                let (tiles, accumulate) = (self.grid.range(block), block > blocks.start);
                let count = tiles.len();
                self.transform(tiles, &of, 0, bias_sums);
                self.multiply_tail(count, &of, sums, accumulate);
                let sums = Parts::new(&mut *sums);
                for element in 0..Four::ELEMENTS {
                    // SAFETY: the task's own sums.
                    unsafe { self.multiply(element, 0..self.grid.to, count, &of, sums, accumulate) };
                }
            }
        });
        let (sum, others) = sums.split_at_mut(self.sum_floats());
        let (parts, totals) = (chunks(self.sum_floats(), ADDED), Parts::new(&mut *sum));
        pool.run(parts.count(), |task, _| {
            let range = parts.range(task);
            let rows = others.chunks(self.sum_floats()).map(|piece| &piece[range.clone()]);
            // SAFETY: a task has its own range.
            self.tiles.level.run(AddRows { rows, sums: unsafe { totals.part(range.clone()) } });
        });
    }

    /// The same, block by block: all tasks transform its tiles, and each then makes some rows of the sum.
    fn sum_whole(&self, pool: &Pool, of: Operands, sum: &mut [f32], bias_sums: Parts<f32>) {
        let (input, sum) = (self.block_floats()[0], Parts::new(sum));
        let held = of.input;
        // SAFETY: the two do not overlap.
        let (input, output) = unsafe { (held.part(0..input), held.part(input..held.len())) };
        let of = Operands { input: Parts::new(input), output: Parts::new(output), ..of };
        let (parts, rows) = (self.parts(), chunks(self.grid.to, ROWS));
        for block in 0..self.grid.blocks() {
            let tiles = self.grid.range(block);
            pool.run(parts.count(), |part, _| {
                let held = parts.range(part);
                let tiles = (tiles.start + held.start).min(tiles.end)..(tiles.start + held.end).min(tiles.end);
                // SAFETY: a part has its own sums.
                let bias_sums = unsafe { bias_sums.part(part * self.bias_floats()..(part + 1) * self.bias_floats()) };
                self.transform(tiles, &of, held.start, bias_sums);
            });
            pool.run(Four::ELEMENTS * rows.count(), |task, _| {
                let (element, rows) = (task / rows.count(), rows.range(task % rows.count()));
                // SAFETY: rows of an element belong to one task.
                unsafe { self.multiply(element, rows, tiles.len(), &of, sum, block > 0) };
            });
        }
    }
}

/// What is read, and where its tiles go.
#[derive(Clone, Copy)]
struct Operands<'a> {
    x: &'a [f32],
    dy: PixelSource<'a>,
    /// A row outside the image.
    zeros: &'a [f32],
    input: Parts<'a, f32>,
    output: Parts<'a, f32>,
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
        let (bias_sums, rest) = rest.split_at_mut(self.bias_sums() * self.bias_floats());
        let (zeros, held) = rest.split_at_mut(self.grid.row_floats());
        zeros.fill(0.0);
        bias_sums.fill(0.0);
        let held = Parts::new(held);
        let (of, by_task) = (Operands { x, dy, zeros, input: held, output: held }, Parts::new(&mut *bias_sums));
        if self.is_whole {
            self.sum_whole(pool, of, sums, by_task);
        } else {
            self.sum_pieces(pool, of, sums, by_task);
        }
        let (level, grid, sum) = (self.tiles.level, &self.grid, (&sums[..self.sum_floats()], self.step()));
        let (dw, row) = (Parts::new(dw), 9 * grid.from);
        let outputs = chunks(grid.to, grid.to.div_ceil(TASKS));
        pool.run(outputs.count(), |task, _| {
            let outputs = outputs.range(task);
            // SAFETY: output channels belong to one task.
            let dw = unsafe { dw.part(outputs.start * row..outputs.end * row) };
            level.run(Back { grid, sum, outputs, dw });
        });
        if let Some(db) = db {
            db.fill(0.0);
            level.run(AddRows { rows: bias_sums.chunks(self.bias_floats()), sums: db });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::reference::{Workspace, draw, on_every_level};
    use crate::graph::op::Conv2d;
    use crate::ops::conv::ConvShape;

    #[test]
    fn blocks_of_the_only_sum_add_up() {
        let op = Conv2d { stride: [1; 2], padding: [1; 4], dilation: [1; 2], groups: 1, bias: true };
        let shape = ConvShape { images: 3, input: [9, 8], channels: 40, kernel: [3, 3], outputs: 75 };
        let (x, dy) = (draw(shape.x_len(), 1), draw(shape.y_len(&op), 2));
        let weights = shape.w_len(&op);
        on_every_level(|level, pool| {
            let run = |block: Option<usize>| {
                let problem = ConvProblem::new(&op, shape, level, pool.threads());
                let mut kernel = WinogradGradWeight::new(&problem).expect("a problem for it");
                assert!(kernel.is_whole, "{level}");
                kernel.grid.block = block.unwrap_or(kernel.grid.block);
                let mut dw = vec![f32::NAN; weights + shape.outputs];
                let (w, b) = dw.split_at_mut(weights);
                kernel.run(pool, &x, &dy, w, Some(b), Workspace::new(kernel.workspace_bytes()).bytes());
                dw
            };
            let whole = run(None);
            let scale = whole.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            // 18 tiles: whole blocks, one that ends early, and blocks of which some tasks have no tile.
            for block in [9, 7, 16] {
                for (i, (got, want)) in run(Some(block)).into_iter().zip(&whole).enumerate() {
                    assert!((got - want).abs() <= 1e-5 * scale, "{level}, blocks of {block}: {got} for {want} at {i}");
                }
            }
            whole
        });
    }
}
