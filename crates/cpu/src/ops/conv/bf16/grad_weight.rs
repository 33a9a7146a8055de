//! The gradient by the weight: of each tap, pixels of `x` as rows times pixels of `dy` as columns, summed over positions.
//!
//! A task takes a block of input channels through the parts of a piece of the batch. It turns a part's pixels round, so that the positions of
//! a channel follow one another; a tap is then a distance along them. Positions that are no pixels of `dy` are zero there.

use super::super::kernel::WeightKernel;
use super::super::patches::PatchPart;
use super::super::shape::ConvProblem;
use super::strips::Strips;
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, RESULTS, Results};
use crate::gemm::bf16::pack::{Packer, PairPlaces};
use crate::gemm::bf16::product::floats;
use crate::gemm::bf16::store::SKIPPED;
use crate::gemm::bf16::{PANEL, SIDE, STEP, TILE, tiles};
use crate::gemm::sums::{AddRows, ColumnSums};
use crate::gemm::{LINE, round_up, workspace_floats};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Chunks, Parts, Pool, chunks};
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;

/// Tasks wanted.
const TASKS: usize = 16;

/// Most numbers of a part, of both operands: half of a second-level cache.
const PART: usize = 512 << 10;

/// Most positions of a part: results are then read and written seldom enough.
const POSITIONS: usize = 2048;

/// Most floats of the results of all pieces.
const RESULT_FLOATS: usize = 2 << 20;

/// Most channels of a block.
const CHANNELS: usize = 128;

/// Fewest channels of the result, and of the source, for which tiles are worth their padding.
const FEWEST: usize = 8;
const FEWEST_INPUTS: usize = 12;

/// The gradient by the weight, without groups.
pub struct Bf16GradWeight {
    strips: Strips,
    places: Vec<u32>,
    taps: Vec<(usize, usize)>,
    unit: Bf16Unit,
    level: SimdLevel,
    packer: Packer,
    threads: usize,
    inputs: usize,
    outputs: usize,
    /// Pixels of the source.
    pixels: usize,
    /// Blocks of channels.
    blocks: Chunks,
    /// The parts, in pieces that are summed apart.
    pieces: Chunks,
    bias: ColumnSums,
}

/// One run.
struct Job<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    results: Parts<'a, f32>,
    scratch: PerThread<'a>,
}

impl Bf16GradWeight {
    /// Lays out the work; `None` if products are not made in bf16, or it is not worth it.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        let unit = problem.bf16.filter(|_| problem.op.groups == 1)?;
        let (inputs, outputs) = (problem.shape.channels, problem.shape.outputs);
        if outputs < FEWEST || inputs < FEWEST_INPUTS {
            return None;
        }
        // From the shape alone: it decides the order of the sum.
        let results = problem.taps() * inputs.next_multiple_of(PANEL) * outputs.next_multiple_of(PANEL);
        let most_pieces = (RESULT_FLOATS / results).clamp(1, TASKS);
        let wanted = TASKS.div_ceil(most_pieces);
        let block = inputs.div_ceil(wanted).next_multiple_of(PANEL).min(CHANNELS);
        let most = (PART / (block + outputs.next_multiple_of(PANEL))).min(POSITIONS);
        let strips = Strips::for_weight(problem, most_pieces, most);
        let parts = strips.parts();
        let [height, width] = problem.output();
        Some(Bf16GradWeight {
            places: strips.classes.first().map_or(Vec::new(), |class| strips.places(class, SKIPPED)),
            taps: strips.tap_positions(),
            unit,
            level: problem.level,
            packer: Packer::new(unit, problem.level),
            threads: problem.threads,
            inputs,
            outputs,
            pixels: problem.shape.input[0] * problem.shape.input[1] * problem.shape.images,
            blocks: chunks(inputs, block),
            pieces: chunks(parts, parts.div_ceil(most_pieces)),
            bias: ColumnSums::new(problem.shape.images * height * width, outputs, problem.level),
            strips,
        })
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Blocks of results of `channels` channels.
    fn results(&self, channels: usize) -> usize {
        self.taps.len() * channels.div_ceil(PANEL) * self.panels()
    }

    /// Steps of the longest part.
    fn most_steps(&self) -> usize {
        self.places.len().div_ceil(STEP)
    }

    /// Numbers from channel to channel: an odd number of cache lines, so that a tile's rows lie in different sets.
    fn x_step(&self) -> usize {
        ((self.strips.phases() * self.strips.phase_positions().max(self.most_steps() * STEP) / STEP) | 1) * STEP
            + STEP * 2
    }

    fn x_numbers(&self) -> usize {
        self.blocks.range(0).len().next_multiple_of(SIDE) * self.x_step()
    }

    fn dy_numbers(&self) -> usize {
        tiles(self.outputs) * self.most_steps() * TILE
    }

    /// Floats of the table of pixels.
    fn table_floats(&self) -> usize {
        round_up(2 * self.strips.phase_positions())
    }

    fn scratch_floats(&self) -> usize {
        floats(self.x_numbers()) + floats(self.dy_numbers()) + self.table_floats()
    }

    fn piece_floats(&self) -> usize {
        self.results(self.inputs.next_multiple_of(PANEL)) * BLOCK
    }

    fn sums_floats(&self) -> usize {
        self.pieces.count() * self.piece_floats()
    }

    fn task(&self, job: &Job, task: usize, worker: usize) {
        let (piece, block) = (task / self.blocks.count(), task % self.blocks.count());
        let channels = self.blocks.range(block);
        // SAFETY: a worker has its own scratch.
        let scratch = unsafe { job.scratch.of(worker) };
        let (x, rest) = scratch.split_at_mut(floats(self.x_numbers()));
        let (dy, table) = rest.split_at_mut(floats(self.dy_numbers()));
        let (x, dy) = (x.as_mut_ptr().cast::<u16>(), dy.as_mut_ptr().cast::<u16>());
        // SAFETY: 8 bytes of workspace for each entry, which starts as any of them.
        let table = unsafe {
            let (first, len) = (table.as_mut_ptr().cast::<Option<u32>>(), self.strips.phase_positions());
            (0..len).for_each(|i| first.add(i).write(None));
            std::slice::from_raw_parts_mut(first, len)
        };
        let blocks = Blocks::new(self.unit, self.level);
        // Blocks of channels are whole panels, but for the last.
        let start = self.results(channels.start) * BLOCK + piece * self.piece_floats();
        let parts = self.pieces.range(piece);
        for index in parts.clone() {
            let part = self.strips.part(index);
            let positions = self.strips.classes.first().map_or(0..0, |class| self.strips.positions(class, &part));
            let steps = positions.end.div_ceil(STEP);
            self.turn_x(job.x, &part, (channels.start, channels.len()), x, table);
            self.pack_dy(job.dy, &part, steps, dy);
            let mut at = start;
            for &(_, position) in &self.taps {
                for row in (0..channels.len()).step_by(PANEL) {
                    for panel in 0..self.panels() {
                        let columns = (self.outputs - panel * PANEL).min(PANEL);
                        let rows = (channels.len() - row).min(PANEL);
                        let args = Block {
                            a: x.wrapping_add(row * self.x_step()),
                            a_step: 2 * self.x_step(),
                            runs: &[2 * position as u32],
                            steps,
                            last: STEP,
                            b: dy.wrapping_add(panel * 2 * self.most_steps() * TILE),
                            c: Results::block(job.results.as_ptr().wrapping_add(at)),
                            accumulate: index > parts.start,
                        };
                        // SAFETY: both operands are packed up to whole tiles, and the results are this task's own.
                        unsafe { blocks.run([rows, tiles(columns)], &args) };
                        at += BLOCK;
                    }
                }
            }
        }
    }

    /// The part's pixels of some channels: of each channel all positions, phase by phase.
    fn turn_x(
        &self,
        x: &[f32],
        part: &PatchPart,
        (first, len): (usize, usize),
        to: *mut u16,
        table: &mut [Option<u32>],
    ) {
        assert!(x.len() >= self.pixels * self.inputs, "x is too short");
        for phase in 0..self.strips.phases() {
            self.strips.source_pixels(part, phase, table);
            for (step, pixels) in table.chunks_exact(STEP).enumerate() {
                let at = phase * table.len() + step * STEP;
                for channel in (0..len).step_by(SIDE) {
                    let place = |i: usize| {
                        let pixel = |p: u32| x.as_ptr().wrapping_add(p as usize * self.inputs + first + channel);
                        pixels[i].map_or(std::ptr::null(), pixel)
                    };
                    let places = PairPlaces {
                        from: &std::array::from_fn(place),
                        columns: (len - channel).min(SIDE),
                        to: to.wrapping_add(channel * self.x_step() + at),
                    };
                    // SAFETY: pixels are those of x, and there is room for whole tiles.
                    unsafe { self.packer.turned_places(places, self.x_step()) };
                }
            }
        }
    }

    /// The part's positions of `dy`, panel by panel.
    fn pack_dy(&self, dy: &[f32], part: &PatchPart, steps: usize, to: *mut u16) {
        let Some(class) = self.strips.classes.first() else { return };
        let base = self.strips.dest_base(class, part) as usize;
        let positions = self.strips.positions(class, part);
        for step in 0..steps {
            let place = |i: usize| {
                let position = step * STEP + i;
                match self.places.get(position).filter(|_| positions.contains(&position)) {
                    Some(&place) if place != SKIPPED => &raw const dy[base + place as usize],
                    _ => std::ptr::null(),
                }
            };
            let from: [*const f32; STEP] = std::array::from_fn(place);
            for panel in 0..self.panels() {
                let columns = (self.outputs - panel * PANEL).min(PANEL);
                let at = (panel * 2 * self.most_steps() + step * tiles(columns)) * TILE;
                let from = from.map(|p| if p.is_null() { p } else { p.wrapping_add(panel * PANEL) });
                // SAFETY: rows of dy, and there is room for whole tiles.
                unsafe { self.packer.placed_pairs(PairPlaces { from: &from, columns, to: to.wrapping_add(at) }) };
            }
        }
    }

    /// Adds the sums of all pieces, in order, and lays them out as `dw`.
    fn reduce(&self, pool: &Pool, results: Parts<f32>, dw: &mut [f32]) {
        #[repr(align(64))]
        struct Tile([f32; RESULTS]);
        let row = self.taps.len() * self.inputs;
        let dw = Parts::new(dw);
        let in_piece = self.results(self.inputs);
        let per_block = self.results(self.blocks.range(0).len());
        pool.run(in_piece, |task, _| {
            // SAFETY: a block of results belongs to one task, in all pieces; the tasks that wrote it are over.
            let sums = unsafe { results.part(task * BLOCK..(task + 1) * BLOCK) };
            let others = (1..self.pieces.count()).map(|piece| {
                let start = piece * self.piece_floats() + task * BLOCK;
                // SAFETY: as above.
                unsafe { &*results.part(start..start + BLOCK) }
            });
            self.level.run(AddRows { rows: others, sums });
            let (block, at) = (task / per_block, task % per_block);
            let channels = self.blocks.range(block);
            let rows = channels.len().div_ceil(PANEL);
            let (tap, at) = (self.taps[at / (rows * self.panels())].0, at % (rows * self.panels()));
            let (first, panel) = (channels.start + at / self.panels() * PANEL, at % self.panels());
            for tile in 0..4 {
                let (c, o) = (first + tile / 2 * SIDE, panel * PANEL + tile % 2 * SIDE);
                if c >= channels.end || o >= self.outputs {
                    continue;
                }
                let (height, width) = ((self.outputs - o).min(SIDE), (channels.end - c).min(SIDE));
                let from = sums[tile * RESULTS..].as_ptr();
                let to = dw.as_ptr().wrapping_add(o * row + tap * self.inputs + c);
                // SAFETY: these weights are those of this block alone.
                unsafe {
                    if (height, width) == (SIDE, SIDE) {
                        self.packer.turned_results(from, to, row);
                    } else {
                        let mut turned = Tile([0.0; RESULTS]);
                        self.packer.turned_results(from, turned.0.as_mut_ptr(), SIDE);
                        for (i, line) in turned.0.chunks_exact(SIDE).take(height).enumerate() {
                            std::ptr::copy_nonoverlapping(line.as_ptr(), to.wrapping_add(i * row), width);
                        }
                    }
                }
            }
        });
    }
}

impl WeightKernel for Bf16GradWeight {
    fn workspace_bytes(&self) -> usize {
        let floats = self.sums_floats() + PerThread::size(self.threads, self.scratch_floats());
        (4 * floats).max(self.bias.workspace_bytes())
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        if let Some(db) = db {
            self.bias.run(pool, dy, db, workspace);
        }
        if self.strips.parts() == 0 {
            return dw.fill(0.0);
        }
        let all =
            workspace_floats(workspace, self.sums_floats() + PerThread::size(self.threads, self.scratch_floats()));
        let (results, scratch) = all.split_at_mut(self.sums_floats());
        let results = Parts::new(results);
        let job = Job { x, dy, results, scratch: PerThread::new(Parts::new(scratch), self.scratch_floats()) };
        let tasks = self.pieces.count() * self.blocks.count();
        pool.run(tasks, |task, worker| self.task(&job, task, worker));
        self.reduce(pool, results, dw);
    }
}

const _: () = assert!(LINE * 4 == 2 * STEP && size_of::<Option<u32>>() == 8);
