//! The convolution and its gradient by the input: strips of pixels times packed weights.

use super::super::kernel::PixelKernel;
use super::super::shape::{ConvProblem, Direction};
use super::strips::Strips;
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, Results};
use crate::gemm::bf16::pack::{Packer, PairRows};
use crate::gemm::bf16::product::floats;
use crate::gemm::bf16::store::{SKIPPED, Store, Stored};
use crate::gemm::bf16::{PANEL, STEP, TILE, tiles};
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Address, Numbers, NumbersMut, Rounded};
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows, tile_rows};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, TASKS_PER_THREAD};
use crate::simd::bf16::Bf16Unit;
use crate::simd::{SimdLevel, prefetch_far};
use std::ops::Range;

/// Most pixels of a batch for which packed weights are kept.
const MOST_PIXELS: usize = 8192;

/// Most bytes of packed weights that stay in a second-level cache beside all else.
const MOST_NEAR: usize = 1 << 20;

/// Fewest channels of the result, and fewest terms of a sum, for which tiles are worth their padding.
const FEWEST: usize = 8;

/// A convolution without groups, or its gradient by the input.
pub struct Bf16Pixels {
    strips: Strips,
    places: Vec<Vec<u32>>,
    direction: Direction,
    unit: Bf16Unit,
    level: SimdLevel,
    packer: Packer,
    store: Store,
    threads: usize,
    /// Channels read and written.
    from: usize,
    to: usize,
    taps: usize,
    act: Option<Activation>,
    rounded: Rounded,
    /// The step of a panel at which each class begins, and the steps of all.
    class_steps: Vec<usize>,
    panel_steps: usize,
    /// Patches are gathered: a stretch of the sum is a whole patch.
    gathers: bool,
    /// Blocks of panels; each part has a task for each.
    blocks: usize,
    /// A block of positions meets all panels one after the other, as they stay in a second-level cache and nothing else is read again.
    near: bool,
}

impl Bf16Pixels {
    /// Whether it is worth it where products are made in bf16.
    pub fn takes(problem: &ConvProblem, direction: Direction) -> bool {
        let (from, to) = Self::channels(problem, direction);
        problem.op.groups == 1 && to >= FEWEST && from * problem.taps() >= FEWEST
    }

    /// Channels read and written.
    fn channels(problem: &ConvProblem, direction: Direction) -> (usize, usize) {
        let shape = &problem.shape;
        match direction {
            Direction::Forward => (shape.channels, shape.outputs),
            Direction::Backward => (shape.outputs, shape.channels),
        }
    }

    /// Lays out the work; `None` if products are not made in bf16, or it is not worth it.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let unit = problem.bf16.filter(|_| Self::takes(problem, direction))?;
        let (from, to) = Self::channels(problem, direction);
        let strips = Strips::new(problem, direction);
        let gathers = strips.gathers;
        let mut panel_steps = 0;
        let class_steps = strips
            .classes
            .iter()
            .map(|class| {
                panel_steps += class.runs.len() * strips.run_steps;
                panel_steps - class.runs.len() * strips.run_steps
            })
            .collect();
        let wanted = if problem.threads > 1 { problem.threads * TASKS_PER_THREAD } else { 1 };
        Some(Bf16Pixels {
            places: strips.classes.iter().map(|class| strips.places(class, SKIPPED)).collect(),
            direction,
            unit,
            level: problem.level,
            packer: Packer::new(unit, problem.level),
            store: Store::new(problem.level, problem.rounded),
            threads: problem.threads,
            from,
            to,
            taps: problem.taps(),
            act,
            rounded: problem.rounded,
            class_steps,
            panel_steps,
            gathers,
            blocks: (wanted / strips.parts().max(1)).clamp(1, to.div_ceil(PANEL)),
            near: panel_steps == strips.run_steps && 2 * tiles(to) * panel_steps * TILE <= MOST_NEAR,
            strips,
        })
    }

    fn panels(&self) -> usize {
        self.to.div_ceil(PANEL)
    }

    fn packed_floats(&self) -> usize {
        floats(tiles(self.to) * self.panel_steps * TILE)
    }

    fn lines_floats(&self) -> usize {
        floats(2 * self.strips.line_floats())
    }

    fn scratch_floats(&self) -> usize {
        BLOCK + floats(self.strips.numbers()) + self.lines_floats()
    }

    /// Packs the weights `[O, KH, KW, I]`: panel by panel, the classes' stretches of the sum.
    fn pack(&self, pool: &Pool, w: &[f32], packed: &mut [f32]) {
        let packed = Parts::new(packed);
        let inputs = if self.direction == Direction::Forward { self.from } else { self.to };
        // Floats between neighbouring output channels.
        let step = self.taps * inputs;
        pool.run(self.panels(), |panel, _| {
            let n = panel * PANEL;
            let columns = (self.to - n).min(PANEL);
            let mut to = packed.as_ptr().cast::<u16>().wrapping_add(n / PANEL * 2 * self.panel_steps * TILE);
            let mut stretch = |first: usize, length: usize| {
                for k in (0..self.strips.run_steps).map(|step| step * STEP) {
                    let pairs = |from: usize| PairRows {
                        from: w.as_ptr().wrapping_add(from),
                        from_step: step,
                        terms: length.saturating_sub(k).min(STEP),
                        columns,
                        to,
                    };
                    // SAFETY: the weights have these elements, and a panel, which has room for them, belongs to one task.
                    unsafe {
                        match self.direction {
                            Direction::Forward => self.packer.turned_pairs(pairs(n * step + first + k)),
                            Direction::Backward => self.packer.pairs(pairs(k * step + first + n)),
                        }
                    }
                    to = to.wrapping_add(tiles(columns) * TILE);
                }
            };
            if self.gathers {
                return stretch(0, step);
            }
            for tap in self.strips.classes.iter().flat_map(|class| &class.taps) {
                stretch(tap * inputs, self.from);
            }
        });
    }

    fn task(&self, source: Numbers, packed: *const u16, operands: EpilogueOperands, dest: Address, at: TaskMemory) {
        let TaskMemory { task, scratch } = at;
        let (part, block) = (self.strips.part(task / self.blocks), task % self.blocks);
        let (results, rest) = scratch.split_at_mut(BLOCK);
        let (buffer, lines) = rest.split_at_mut(floats(self.strips.numbers()));
        let (buffer, lines) = (as_numbers(buffer), as_numbers(lines));
        self.strips.fill(&part, source, buffer, lines, &self.packer);
        let blocks = Blocks::new(self.unit, self.level);
        let panels = tile_rows(self.panels(), self.blocks, block);
        let work = Work { operands, dest, buffer: buffer.as_ptr(), packed, results: results.as_mut_ptr() };
        for (i, class) in self.strips.classes.iter().enumerate() {
            let positions = self.strips.positions(class, &part);
            let base = self.strips.dest_base(class, &part);
            if self.near {
                for first in positions.clone().step_by(PANEL) {
                    for panel in panels.clone() {
                        self.foresee((i, base), &positions, (first, panel - panels.start, panels.len()), &work);
                        self.block(i, base, (first, &positions), panel, &work, &blocks);
                    }
                    self.finish((i, base), first..(first + PANEL).min(positions.end), panels.clone(), &work);
                }
            } else {
                for panel in panels.clone() {
                    for first in positions.clone().step_by(PANEL) {
                        self.block(i, base, (first, &positions), panel, &work, &blocks);
                    }
                    self.finish((i, base), positions.clone(), panel..panel + 1, &work);
                }
            }
        }
    }

    /// Does to the results of some positions and panels what comes after them, while they are in a cache, unless each block did. Only a forward
    /// convolution has something after it, and its pixels lie one after the other.
    fn finish(&self, (i, base): (usize, isize), positions: Range<usize>, panels: Range<usize>, work: &Work) {
        let Some(finish) = work.operands.finish.filter(|_| !self.store.finishes()) else { return };
        let mut places = self.places[i][positions].iter().filter(|place| **place != SKIPPED);
        let Some(place) = places.next() else { return };
        let (rows, columns) = (1 + places.count(), panels.start * PANEL..(panels.end * PANEL).min(self.to));
        let first = work.dest.offset(base).at(*place as usize + columns.start).floats();
        // SAFETY: the results of these positions belong to this task.
        unsafe { finish.run(Rows { first, rows, columns: columns.len(), step: self.to }) };
    }

    /// Asks for a share of what the block after position `first` will read and write: whole pixels, one after the other.
    fn foresee(
        &self,
        (i, base): (usize, isize),
        positions: &Range<usize>,
        (first, share, shares): (usize, usize, usize),
        work: &Work,
    ) {
        let next = tile_rows(PANEL, shares, share);
        let residual = work.operands.rounded_residual.map(|x| Numbers::Rounded(x).address());
        let residual = residual.or(work.operands.residual.map(|x| Numbers::Single(x).address()));
        for at in next.map(|row| first + PANEL + row).filter(|at| *at < positions.end) {
            let place = self.places[i][at];
            if place == SKIPPED {
                continue;
            }
            for of in [Some(work.dest), residual].into_iter().flatten() {
                let (from, bytes) = (of.offset(base + place as isize).byte(), self.to * of.size());
                (0..bytes).step_by(64).for_each(|at| prefetch_far(from.wrapping_add(at).cast()));
            }
        }
    }

    /// Some positions of class number `i` times a panel.
    fn block(
        &self,
        i: usize,
        base: isize,
        (first, positions): (usize, &Range<usize>),
        panel: usize,
        work: &Work,
        blocks: &Blocks,
    ) {
        let (class, n) = (&self.strips.classes[i], panel * PANEL);
        let (rows, columns) = ((positions.end - first).min(PANEL), (self.to - n).min(PANEL));
        let at = (panel * 2 * self.panel_steps + self.class_steps[i] * tiles(columns)) * TILE;
        let args = Block {
            a: work.buffer.wrapping_add(first * self.strips.width()),
            a_step: 2 * self.strips.width(),
            runs: &class.runs,
            steps: self.strips.run_steps,
            last: self.strips.run_last,
            b: work.packed.wrapping_add(at),
            c: Results::block(work.results),
            accumulate: false,
        };
        let stored = Stored {
            tiles: work.results,
            rows,
            n: columns,
            c: work.dest,
            first: base + n.cast_signed(),
            places: &self.places[i][first..first + rows],
            step: 0,
            epilogue: Epilogue::of(self.act).with(work.operands, n, std::ptr::null()),
            stays: false,
        };
        // SAFETY: positions lie inside the strip, also those up to a whole tile; the places lead to pixels that belong to this part.
        unsafe {
            if !self.near {
                self.store.foresee(&stored);
            }
            blocks.run([rows, tiles(columns)], &args);
            self.store.store(&stored, work.operands.finish);
        }
    }
}

/// What the blocks of a task read and write.
struct Work<'a> {
    operands: EpilogueOperands<'a>,
    dest: Address,
    buffer: *const u16,
    packed: *const u16,
    results: *mut f32,
}

/// What a task works with.
struct TaskMemory<'a> {
    task: usize,
    scratch: &'a mut [f32],
}

/// Workspace as 16-bit numbers.
fn as_numbers(floats: &mut [f32]) -> &mut [u16] {
    // SAFETY: any bytes are such numbers, of which there are two in a float.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), 2 * floats.len()) }
}

impl PixelKernel for Bf16Pixels {
    fn workspace_bytes(&self) -> usize {
        4 * (self.packed_floats() + PerThread::size(self.threads, self.scratch_floats()))
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        let (packed, rest) = (self.packed_floats(), PerThread::size(self.threads, self.scratch_floats()));
        let keeps = self.strips.all_pixels() <= MOST_PIXELS && packed > 0;
        keeps.then_some(Kept { operand: 1, bytes: 4 * packed, workspace: 4 * rest })
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
        self.run_numbers(pool, source.into(), w, operands, dest.into(), memory);
    }

    fn run_numbers(
        &self,
        pool: &Pool,
        source: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        mut dest: NumbersMut,
        memory: Memory,
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        assert_eq!(Rounded::of(&source, &operands, &dest), self.rounded, "made for operands of other types");
        let floats = self.scratch_floats();
        let (packed, scratch, to_pack) = memory.split(self.packed_floats(), PerThread::size(self.threads, floats));
        if to_pack {
            self.pack(pool, w, packed);
        }
        let packed = &*packed;
        let (scratch, dest) = (PerThread::new(Parts::new(scratch), floats), dest.address());
        pool.run(self.strips.parts() * self.blocks, |task, worker| {
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.of(worker) };
            self.task(source, packed.as_ptr().cast(), operands, dest, TaskMemory { task, scratch });
        });
    }
}
