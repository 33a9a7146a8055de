//! The convolution and its gradient by the input as products of patches and packed weights, one group after the other.

use super::kernel::{PixelKernel, PooledPixelKernel};
use super::operands::{PixelDest, PixelDestParts, PixelSource, pooled_bounds};
use super::patches::{Cut, PatchPart, Patches, tasks_for};
use super::shape::{ConvProblem, Direction};
use crate::gemm::memory::{MOST_ROWS, Memory, kept_weights};
use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::gemm::round_up;
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows, Tile, Tiles, for_each_tile, tile_rows};
use crate::graph::op::Activation;
use crate::ops::max_pool::pairs::Forward;
use crate::plan::Kept;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool};

/// A convolution (or its gradient by the input) of any groups.
pub struct Dense {
    patches: Patches,
    direction: Direction,
    tiles: Tiles,
    threads: usize,
    groups: usize,
    /// Channels of a group, read and written.
    from: usize,
    to: usize,
    /// Positions of the kernel.
    taps: usize,
    act: Option<Activation>,
    /// Where the packed weights of each class start in a panel.
    class_starts: Vec<usize>,
    /// Packed floats of a panel of a group.
    panel_floats: usize,
    /// Blocks of panels; each part of the patches has a task for each.
    blocks: usize,
    /// Floats of a part's output before pooling; 0 without pooling.
    unpooled: usize,
}

/// The operands of a run.
struct Job<'a> {
    source: PixelSource<'a>,
    packed: &'a [f32],
    operands: EpilogueOperands<'a>,
    dest: PixelDestParts<'a>,
    buffers: PerThread<'a>,
}

impl Dense {
    /// Lays out the work.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Self {
        Self::lay_out(problem, direction, act, false)
    }

    /// Lays out the work of a convolution with max-pooling after it, and `act` after that.
    pub fn pooled(problem: &ConvProblem, act: Option<Activation>) -> Self {
        Self::lay_out(problem, Direction::Forward, act, true)
    }

    fn lay_out(problem: &ConvProblem, direction: Direction, act: Option<Activation>, pooled: bool) -> Self {
        let (shape, groups) = (&problem.shape, problem.op.groups);
        let (inputs, outputs) = (shape.channels / groups, shape.outputs / groups);
        let (from, to) = match direction {
            Direction::Forward => (inputs, outputs),
            Direction::Backward => (outputs, inputs),
        };
        let tiles = Tiles::new(problem.level);
        // Where there are few pixels the tasks share them and have panels of their own: weights are read once.
        let panels = if pooled || groups > 1 { 1 } else { to.div_ceil(tiles.columns()) };
        let tasks = tasks_for(problem.threads);
        let cut = Cut { pairs: pooled, parts: tasks.div_ceil(panels), ..Cut::PLAIN };
        let patches = match direction {
            Direction::Forward => Patches::forward(problem, from, from, cut),
            Direction::Backward => Patches::backward(problem, from, from, cut),
        };
        let blocks = tasks.div_ceil(patches.parts().max(1)).min(panels);
        let mut panel_floats = 0;
        let class_starts = patches
            .classes
            .iter()
            .map(|class| {
                panel_floats += class.taps.len() * from * tiles.columns();
                panel_floats - class.taps.len() * from * tiles.columns()
            })
            .collect();
        Dense {
            direction,
            tiles,
            threads: problem.threads,
            groups,
            from,
            to,
            taps: problem.taps(),
            act,
            class_starts,
            panel_floats,
            blocks,
            unpooled: if pooled { round_up(patches.most_pixels() * shape.outputs) } else { 0 },
            patches,
        }
    }

    fn panels(&self) -> usize {
        self.to.div_ceil(self.tiles.columns())
    }

    fn packed_floats(&self) -> usize {
        self.groups * self.panels() * self.panel_floats
    }

    fn buffer_floats(&self) -> usize {
        round_up(self.patches.buffer_floats()) + self.unpooled
    }

    fn workspace_floats(&self) -> usize {
        self.packed_floats() + PerThread::size(self.threads, self.buffer_floats())
    }

    /// Packs the weights: `[group][panel][class][tap, channel read][channel written]`.
    fn pack(&self, pool: &Pool, w: &[f32], packed: &mut [f32]) {
        let width = self.tiles.columns();
        let packed = Parts::new(packed);
        let copy = self.tiles.level.routine::<CopyRows>();
        let transpose = self.tiles.level.routine::<PackTransposed>();
        // Floats between neighbouring output channels of `w [O, KH, KW, I / groups]`.
        let (inputs, outputs) = match self.direction {
            Direction::Forward => (self.from, self.to),
            Direction::Backward => (self.to, self.from),
        };
        let step = self.taps * inputs;
        pool.run(self.groups * self.panels(), |task, _| {
            let (group, panel) = (task / self.panels(), task % self.panels());
            // SAFETY: a panel belongs to one task.
            let to = unsafe { packed.part(task * self.panel_floats..(task + 1) * self.panel_floats) };
            let columns = (self.to - panel * width).min(width);
            let w = &w[group * outputs * step..(group + 1) * outputs * step];
            let taps = self.patches.classes.iter().flat_map(|class| &class.taps);
            for (&tap, to) in taps.zip(to.chunks_exact_mut(self.from * width)) {
                let to = to.as_mut_ptr();
                match self.direction {
                    Direction::Forward => {
                        let from = w[panel * width * step + tap * inputs..].as_ptr();
                        let panel = Panel { from, strides: [1, step], rows: inputs, columns, to, width };
                        // SAFETY: the group has these weights, and `to` has room for this tap's.
                        unsafe { transpose(panel) };
                    }
                    Direction::Backward => {
                        let from = w[tap * inputs + panel * width..].as_ptr();
                        let rows = self.from;
                        let c = Copy2d { from, from_step: step, to, to_step: width, rows, columns, padded: width };
                        // SAFETY: as above.
                        unsafe { copy(c) };
                    }
                }
            }
        });
    }

    fn task(&self, job: &Job, task: usize, worker: usize) {
        let (part, block) = (task / self.blocks, task % self.blocks);
        let width = self.tiles.columns();
        let part = self.patches.part(part);
        // SAFETY: a worker has its own buffer.
        let buffer = unsafe { job.buffers.of(worker) };
        let (buffer, unpooled) = buffer.split_at_mut(buffer.len() - self.unpooled);
        // The base may lie before the destination; the offsets in the table lead back inside.
        let dest = match job.dest {
            PixelDestParts::Plain(dest) => dest.as_ptr(),
            PixelDestParts::Pooled(..) => unpooled.as_mut_ptr(),
        };
        let act = self.act.filter(|_| self.unpooled == 0);
        for group in 0..self.groups {
            self.patches.fill(&part, group * self.from, job.source, buffer, self.tiles.level);
            for (class, class_start) in self.patches.classes.iter().zip(&self.class_starts) {
                let pixels = self.patches.pixels(class, &part);
                let base = if self.unpooled > 0 { 0 } else { self.patches.dest_base(class, &part) };
                for panel in tile_rows(self.panels(), self.blocks, block) {
                    let channel = group * self.to + panel * width;
                    let packed = &job.packed[(group * self.panels() + panel) * self.panel_floats + class_start..];
                    let runs = &class.runs;
                    let tile = Tile {
                        a: buffer.as_ptr(),
                        a_rows: &class.a_rows[pixels.clone()],
                        a_step: 1,
                        b: packed.as_ptr(),
                        b_step: width,
                        b_far: self.patches.all_pixels() <= MOST_ROWS,
                        runs,
                        run_len: class.run_len,
                        c: dest.wrapping_offset(base).wrapping_add(channel),
                        c_rows: &class.c_rows[pixels.clone()],
                        n: (self.to - panel * width).min(width),
                        accumulate: false,
                        epilogue: Epilogue::of(act).with(job.operands, channel, dest),
                    };
                    for_each_tile(pixels.len(), self.tiles.rows, |start, rows| {
                        let tile = Tile { a_rows: &tile.a_rows[start..], c_rows: &tile.c_rows[start..], ..tile };
                        // SAFETY: the tables lie inside the buffer and the destination, whose lengths the kernel has
                        // checked; pixels belong to one part.
                        unsafe { self.tiles.run(rows, &tile) };
                    });
                    if let Some(finish) = job.operands.finish.filter(|_| !pixels.is_empty()) {
                        // Pixels of a part lie one after the other: an activation is only after a forward convolution.
                        let (first, step) = (tile.c.wrapping_add(tile.c_rows[0] as usize), self.groups * self.to);
                        // SAFETY: as above.
                        unsafe { finish.run(Rows { first, rows: pixels.len(), columns: tile.n, step }) };
                    }
                }
            }
        }
        if let PixelDestParts::Pooled(y, index) = job.dest {
            self.pool(&part, unpooled, y, index);
        }
    }

    /// Pools a part's pixels.
    fn pool(&self, part: &PatchPart, unpooled: &[f32], y: Parts<f32>, index: Parts<u8>) {
        let ([height, width], channels) = (self.patches.dest(), self.groups * self.to);
        let (line, row) = (width * channels, width / 2 * channels);
        let bounds = pooled_bounds(self.act);
        for (i, image) in part.images.clone().enumerate() {
            for r in part.rows.start / 2..part.rows.end / 2 {
                let from = (i * height + 2 * r - part.rows.start) * line;
                let (top, bottom) = unpooled[from..from + 2 * line].split_at(line);
                let at = (image * (height / 2) + r) * row;
                // SAFETY: strips are of whole windows, so that a row of them belongs to one part.
                let (y, index) = unsafe { (y.part(at..at + row), index.part(at..at + row)) };
                self.tiles.level.run(Forward { top, bottom, y, index, channels, bounds });
            }
        }
    }
}

impl PixelKernel for Dense {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        let packed = self.packed_floats();
        kept_weights(self.patches.all_pixels(), packed, self.workspace_floats() - packed)
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

impl PooledPixelKernel for Dense {
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
        let packed = self.packed_floats();
        let (packed, buffers, to_pack) = memory.split(packed, self.workspace_floats() - packed);
        if to_pack {
            self.pack(pool, w, packed);
        }
        let buffers = PerThread::new(Parts::new(buffers), self.buffer_floats());
        let job = Job { source, packed, operands, dest: dest.parts(), buffers };
        pool.run(self.patches.parts() * self.blocks, |task, worker| self.task(&job, task, worker));
    }
}
