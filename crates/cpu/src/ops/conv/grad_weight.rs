//! Gradient of a convolution by its weight: outer products of patches and `dy`, summed over pixels.
//!
//! A task goes through some parts of the batch for a block of a group's input channels and leaves a sum of its own,
//! `[tap, channel][output channel]`; the sums are then added in order and turned into the weight's layout.

use super::kernel::{PooledWeightKernel, WeightKernel};
use super::operands::PixelSource;
use super::patches::{BUFFER, Cut, PatchPart, Patches, TASKS};
use super::shape::ConvProblem;
use crate::gemm::pack::{Copy2d, CopyRows};
use crate::gemm::prologue::Source;
use crate::gemm::sums::AddRows;
use crate::gemm::tile::{Epilogue, Run, Tile, Tiles, for_each_tile};
use crate::gemm::{round_up, workspace_floats};
use crate::ops::max_pool::pairs::{AddMaxima, Backward};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, chunks};
use std::ops::Range;

/// Most floats of all tasks' sums together: 32 MiB.
const PARTIAL_FLOATS: usize = 8 << 20;

/// Most floats of a task's sums that stay in the cache: 256 KiB.
const CACHED: usize = 64 << 10;

/// Least pixels of a piece whose sums do not stay in the cache.
const PIECE_PIXELS: usize = 256;

/// Least pixels of a part whose sums do not stay in the cache, as it reads and writes them.
const LEAST_PIXELS: usize = 784;

/// Least channels of a block, if there are as many: shorter rows of patches are slow to copy.
const CHANNEL_BLOCK: usize = 16;

/// The gradient by the weight, any groups.
pub struct DenseGradWeight {
    patches: Patches,
    tiles: Tiles,
    threads: usize,
    groups: usize,
    inputs: usize,
    outputs: usize,
    /// Height and width of `dy`.
    output: [usize; 2],
    taps: usize,
    /// Blocks of input channels, and channels in each.
    blocks: usize,
    block: usize,
    /// Pieces of the batch, each with its own sum, and parts in each.
    pieces: usize,
    piece: usize,
    /// `dy` is packed, as its columns do not fill vectors.
    copy_dy: bool,
    /// Floats of a part's `dy`, as it is before pooling; 0 without pooling.
    spread: usize,
    a_step: usize,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
    runs: Vec<Run>,
}

struct Job<'a> {
    x: &'a [f32],
    dy: PixelSource<'a>,
    sums: Parts<'a, f32>,
    scratch: PerThread<'a>,
    bias_sums: Option<Parts<'a, f32>>,
}

impl DenseGradWeight {
    /// Lays out the work.
    pub fn new(problem: &ConvProblem) -> Self {
        Self::lay_out(problem, false)
    }

    /// Lays out the work where max-pooling lies after the convolution.
    pub fn pooled(problem: &ConvProblem) -> Self {
        Self::lay_out(problem, true)
    }

    fn lay_out(problem: &ConvProblem, pooled: bool) -> Self {
        let (op, shape, taps, output) = (problem.op, &problem.shape, problem.taps(), problem.output());
        let tiles = Tiles::new(problem.level);
        let (inputs, outputs) = (shape.channels / op.groups, shape.outputs / op.groups);
        let weights = op.groups * taps * inputs * round_up(outputs);
        let pixels = output.iter().product::<usize>().max(1);
        // Sums that do not stay in the cache pay off only with enough pixels.
        let worth = if weights > CACHED { (shape.images * pixels).div_ceil(PIECE_PIXELS).max(1) } else { TASKS };
        let most_pieces = (PARTIAL_FLOATS / weights.max(1)).clamp(1, TASKS).min(worth);
        let wanted = TASKS.div_ceil(most_pieces * op.groups);
        let blocks = (1..=wanted).rev().find(|n| inputs.is_multiple_of(*n) && inputs / n >= CHANNEL_BLOCK).unwrap_or(1);
        // Where a task's sums do not stay in the cache, each part should have enough pixels to pay for reading them.
        let padded =
            (shape.input[0] + op.padding[0] + op.padding[1]) * (shape.input[1] + op.padding[2] + op.padding[3]);
        let images = LEAST_PIXELS.div_ceil(pixels).min(shape.images.div_ceil(most_pieces));
        let fits =
            |n: usize| taps * inputs / n * round_up(outputs) <= CACHED || images * padded * (inputs / n) <= BUFFER;
        let blocks = (blocks..=inputs)
            .filter(|n| inputs.is_multiple_of(*n) && inputs / n >= CHANNEL_BLOCK)
            .find(|n| fits(*n))
            .unwrap_or(blocks);
        let block = inputs / blocks;
        let patches =
            Patches::forward(problem, block, block, Cut { pairs: pooled, pixels: images * pixels, ..Cut::PLAIN });
        let piece = patches.parts().div_ceil(most_pieces).max(1);
        let pieces = patches.parts().div_ceil(piece).max(1);
        let class = &patches.classes[0];
        let a_rows = class.offsets.iter().flat_map(|&tap| (0..block as u32).map(move |c| tap + c)).collect();
        let copy_dy = !outputs.is_multiple_of(tiles.lanes);
        // Rows of output pixels, one below the other in `dy`, as far apart in the buffer as its tables say.
        let firsts = class.a_rows.iter().step_by(output[1]);
        let runs = firsts.enumerate().map(|(i, &a)| Run { a, b: (i * output[1]) as u32 }).collect();
        DenseGradWeight {
            tiles,
            threads: problem.threads,
            groups: op.groups,
            inputs,
            outputs,
            output,
            taps,
            blocks,
            block,
            pieces,
            piece,
            copy_dy,
            spread: if pooled { round_up(patches.most_pixels() * shape.outputs) } else { 0 },
            a_step: op.stride[1] * block,
            a_rows,
            c_rows: (0..taps * block).map(|m| (m * round_up(outputs)) as u32).collect(),
            runs,
            patches,
        }
    }

    fn task_floats(&self) -> usize {
        self.taps * self.block * round_up(self.outputs)
    }

    fn tasks(&self) -> usize {
        self.pieces * self.groups * self.blocks
    }

    fn buffer_floats(&self) -> usize {
        round_up(self.patches.buffer_floats())
    }

    fn scratch_floats(&self) -> usize {
        let pixels = self.runs.len() * self.output[1];
        let copied = if self.copy_dy { self.panels() * pixels * self.tiles.columns() } else { 0 };
        self.buffer_floats() + self.spread + copied
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(self.tiles.columns())
    }

    fn bias_step(&self) -> usize {
        round_up(self.groups * self.outputs)
    }

    fn workspace_floats(&self) -> usize {
        self.tasks() * self.task_floats()
            + self.pieces * self.bias_step()
            + PerThread::size(self.threads, self.scratch_floats())
    }

    /// Sums over the parts of a piece for one block of channels.
    fn task(&self, job: &Job, task: usize, worker: usize) {
        let (piece, block) = (task / (self.groups * self.blocks), task % (self.groups * self.blocks));
        let (group, channel) = (block / self.blocks, block % self.blocks * self.block);
        // SAFETY: a worker has its own scratch.
        let scratch = unsafe { job.scratch.of(worker) };
        let (buffer, rest) = scratch.split_at_mut(self.buffer_floats());
        let (spread, columns) = rest.split_at_mut(self.spread);
        // SAFETY: a task has its own sums.
        let sums = unsafe { job.sums.part(task * self.task_floats()..(task + 1) * self.task_floats()) };
        let parts = piece * self.piece..((piece + 1) * self.piece).min(self.patches.parts());
        for index in parts.clone() {
            let part = self.patches.part(index);
            let first = index == parts.start;
            self.patches.fill(
                &part,
                group * self.inputs + channel,
                PixelSource::Plain(job.x.into()),
                buffer,
                self.tiles.level,
            );
            let dy = self.dy_of(job.dy, &part, spread);
            self.add_part(dy, &part, group, first, [buffer, columns], sums);
            if let Some(bias_sums) = job.bias_sums.filter(|_| block == 0) {
                let start = piece * self.bias_step();
                // SAFETY: of the tasks of a piece only that of block 0 comes here.
                let bias_sums = unsafe { bias_sums.part(start..start + self.groups * self.outputs) };
                if first {
                    bias_sums.fill(0.0);
                }
                self.add_bias(job.dy, dy, &part, bias_sums);
            }
        }
    }

    /// The part's rows of `dy`, which follow one another; those of pooled pixels are spread over their windows in `spread`.
    fn dy_of<'a>(&self, dy: PixelSource<'a>, part: &PatchPart, spread: &'a mut [f32]) -> &'a [f32] {
        let channels = self.groups * self.outputs;
        let row = self.output[1] * channels;
        let grad = match dy {
            PixelSource::Plain(Source { values: dy, .. }) => {
                let start = (part.images.start * self.output[0] + part.rows.start) * row;
                return &dy[start..start + part.images.len() * part.rows.len() * row];
            }
            PixelSource::Pooled(grad) => grad,
        };
        let spread = &mut spread[..part.images.len() * part.rows.len() * row];
        for (image, dx) in part.images.clone().zip(spread.chunks_exact_mut(part.rows.len() * row)) {
            let (windows, line) = self.windows(image, part);
            let grads =
                grad.dy[windows.clone()].chunks_exact(line.max(1)).zip(grad.index[windows].chunks_exact(line.max(1)));
            let mut pairs = dx.chunks_exact_mut(2 * row);
            for ((dy, index), dx) in grads.zip(pairs.by_ref()) {
                self.tiles.level.run(Backward { dy, index, dx, channels });
            }
            pairs.for_each(|dx| dx.fill(0.0));
            // A last row that no window reaches.
            let rest = dx.len() / (2 * row) * 2 * row;
            dx[rest..].fill(0.0);
        }
        spread
    }

    /// The elements of the windows of one image in a part, and how many make a row. Parts are of whole windows.
    fn windows(&self, image: usize, part: &PatchPart) -> (Range<usize>, usize) {
        let [height, width] = self.output.map(|side| side / 2);
        let line = width * self.groups * self.outputs;
        let row = |r: usize| (image * height + (r / 2).min(height)) * line;
        (row(part.rows.start)..row(part.rows.end), line)
    }

    /// Adds the part's `dy` to the bias's sums.
    fn add_bias(&self, source: PixelSource, dy: &[f32], part: &PatchPart, sums: &mut [f32]) {
        let (level, channels) = (self.tiles.level, self.groups * self.outputs);
        match source {
            PixelSource::Plain(_) => level.run(AddRows { rows: dy.chunks(channels), sums }),
            // There are fewer windows than pixels.
            PixelSource::Pooled(grad) => {
                for image in part.images.clone() {
                    let (windows, _) = self.windows(image, part);
                    level.run(AddMaxima { dy: &grad.dy[windows], sums });
                }
            }
        }
    }

    fn add_part(
        &self,
        dy: &[f32],
        part: &PatchPart,
        group: usize,
        first: bool,
        scratch: [&mut [f32]; 2],
        sums: &mut [f32],
    ) {
        let [buffer, columns] = scratch;
        let (width, dy_step) = (self.tiles.columns(), self.groups * self.outputs);
        let rows = part.images.len() * part.rows.len();
        let pixels = rows * self.output[1];
        let dy = &dy[group * self.outputs..];
        let copy = self.tiles.level.routine::<CopyRows>();
        for panel in 0..self.panels() {
            let n = (self.outputs - panel * width).min(width);
            let (mut b, mut b_step) = (dy[panel * width..].as_ptr(), dy_step);
            if self.copy_dy {
                let to = columns[panel * pixels * width..][..pixels * width].as_mut_ptr();
                let c =
                    Copy2d { from: b, from_step: b_step, to, to_step: width, rows: pixels, columns: n, padded: width };
                // SAFETY: the part has these pixels, and the scratch room for them.
                unsafe { copy(c) };
                (b, b_step) = (to.cast_const(), width);
            }
            let c = sums[panel * width..].as_mut_ptr();
            for_each_tile(self.a_rows.len(), self.tiles.rows, |start, height| {
                let tile = Tile {
                    a: buffer.as_ptr(),
                    a_rows: &self.a_rows[start..],
                    a_step: self.a_step,
                    b,
                    b_step,
                    b_far: false,
                    runs: &self.runs[..rows],
                    run_len: self.output[1],
                    c,
                    c_rows: &self.c_rows[start..],
                    n,
                    accumulate: !first,
                    epilogue: Epilogue::NONE,
                };
                // SAFETY: patches lie inside the buffer, whole vectors inside `dy` or its copy, and the sums are the
                // task's own.
                unsafe { self.tiles.run(height, &tile) };
            });
        }
    }

    /// Adds the sums of all pieces, in order, and lays them out as `dw`.
    fn reduce(&self, pool: &Pool, sums: &[f32], dw: &mut [f32]) {
        const COLUMNS: usize = 16;
        let (row, step) = (self.taps * self.inputs, round_up(self.outputs));
        let columns = chunks(self.outputs, COLUMNS);
        let per_piece = self.groups * self.blocks * self.task_floats();
        let dw = Parts::new(dw);
        pool.run(self.groups * columns.count(), |task, _| {
            let (group, range) = (task / columns.count(), columns.range(task % columns.count()));
            let first = (group * self.outputs + range.start) * row;
            // SAFETY: output channels belong to one task.
            let dw = unsafe { dw.part(first..first + range.len() * row) };
            for block in 0..self.blocks {
                for m in 0..self.taps * self.block {
                    let at = (group * self.blocks + block) * self.task_floats() + m * step + range.start;
                    // Rows are padded to whole cache lines, so there are always as many columns.
                    let mut total = [0.0f32; COLUMNS];
                    for piece in sums.chunks_exact(per_piece) {
                        for (total, x) in total.iter_mut().zip(&piece[at..at + COLUMNS]) {
                            *total += x;
                        }
                    }
                    let (tap, c) = (m / self.block, m % self.block);
                    let to = tap * self.inputs + block * self.block + c;
                    for (o, total) in total.into_iter().enumerate().take(range.len()) {
                        dw[o * row + to] = total;
                    }
                }
            }
        });
    }
}

impl WeightKernel for DenseGradWeight {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        self.run_pooled(pool, x, PixelSource::Plain(dy.into()), dw, db, workspace);
    }
}

impl PooledWeightKernel for DenseGradWeight {
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
        if self.patches.parts() == 0 {
            dw.fill(0.0);
            return db.into_iter().for_each(|db| db.fill(0.0));
        }
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (sums, rest) = floats.split_at_mut(self.tasks() * self.task_floats());
        let (bias_sums, scratch) = rest.split_at_mut(self.pieces * self.bias_step());
        let job = Job {
            x,
            dy,
            sums: Parts::new(&mut *sums),
            scratch: PerThread::new(Parts::new(scratch), self.scratch_floats()),
            bias_sums: db.is_some().then(|| Parts::new(&mut *bias_sums)),
        };
        pool.run(self.tasks(), |task, worker| self.task(&job, task, worker));
        self.reduce(pool, sums, dw);
        if let Some(db) = db {
            db.fill(0.0);
            self.tiles.level.run(AddRows { rows: bias_sums.chunks(self.bias_step()), sums: db });
        }
    }
}
