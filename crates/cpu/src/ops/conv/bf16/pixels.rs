//! The convolution and its gradient by the input: strips of pixels times packed weights.

use super::super::kernel::PixelKernel;
use super::super::patches::PatchPart;
use super::super::shape::{ConvProblem, Direction};
use super::strips::{Class, Strips};
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, Results};
use crate::gemm::bf16::pack::{Packer, PairRows};
use crate::gemm::bf16::product::floats;
use crate::gemm::bf16::store::{ForeseeBlock, SKIPPED, StoreBlock, Stored};
use crate::gemm::bf16::{PANEL, STEP, TILE, tiles};
use crate::gemm::memory::Memory;
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows, tile_rows};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::threads::{Parts, Pool, TASKS_PER_THREAD};
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;

/// Most pixels of a batch for which packed weights are kept.
const MOST_PIXELS: usize = 8192;

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
    store: unsafe fn(*const Stored<'static>),
    foresee: unsafe fn(*const Stored<'static>),
    threads: usize,
    /// Channels read and written.
    from: usize,
    to: usize,
    taps: usize,
    act: Option<Activation>,
    /// The step of a panel at which each class begins, and the steps of all.
    class_steps: Vec<usize>,
    panel_steps: usize,
    /// Patches are gathered: a stretch of the sum is a whole patch.
    gathers: bool,
    /// Blocks of panels; each part has a task for each.
    blocks: usize,
}

impl Bf16Pixels {
    /// Lays out the work; `None` if products are not made in bf16, or it is not worth it.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let unit = problem.bf16.filter(|_| problem.op.groups == 1)?;
        let shape = &problem.shape;
        let (from, to) = match direction {
            Direction::Forward => (shape.channels, shape.outputs),
            Direction::Backward => (shape.outputs, shape.channels),
        };
        if to < FEWEST || from * problem.taps() < FEWEST {
            return None;
        }
        let strips = Strips::new(problem, direction);
        let gathers = strips.gathers();
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
            packer: Packer::new(problem.level),
            store: problem.level.routine::<StoreBlock>(),
            foresee: problem.level.routine::<ForeseeBlock>(),
            threads: problem.threads,
            from,
            to,
            taps: problem.taps(),
            act,
            class_steps,
            panel_steps,
            gathers,
            blocks: (wanted / strips.parts().max(1)).clamp(1, to.div_ceil(PANEL)),
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

    fn task(&self, source: &[f32], packed: *const u16, operands: EpilogueOperands, dest: Parts<f32>, at: TaskMemory) {
        let TaskMemory { task, scratch } = at;
        let (part, block) = (self.strips.part(task / self.blocks), task % self.blocks);
        let (results, rest) = scratch.split_at_mut(BLOCK);
        let (buffer, lines) = rest.split_at_mut(floats(self.strips.numbers()));
        let (buffer, lines) = (as_numbers(buffer), as_numbers(lines));
        self.strips.fill(&part, source, buffer, lines, &self.packer);
        let blocks = Blocks::new(self.unit, self.level);
        for (i, class) in self.strips.classes.iter().enumerate() {
            for panel in tile_rows(self.panels(), self.blocks, block) {
                self.panel((i, class, &part), (buffer.as_ptr(), packed), (panel, operands), dest, (&blocks, results));
            }
        }
    }

    /// A part's pixels of a class times a panel.
    fn panel(
        &self,
        (i, class, part): (usize, &Class, &PatchPart),
        (buffer, packed): (*const u16, *const u16),
        (panel, operands): (usize, EpilogueOperands),
        dest: Parts<f32>,
        (blocks, results): (&Blocks, &mut [f32]),
    ) {
        let positions = self.strips.positions(class, part);
        let n = panel * PANEL;
        let columns = (self.to - n).min(PANEL);
        let base = dest.as_ptr().wrapping_offset(self.strips.dest_base(class, part)).wrapping_add(n);
        let epilogue = Epilogue::of(self.act).with(operands, n, dest.as_ptr());
        let b = packed.wrapping_add((panel * 2 * self.panel_steps + self.class_steps[i] * tiles(columns)) * TILE);
        for first in positions.clone().step_by(PANEL) {
            let rows = (positions.end - first).min(PANEL);
            let args = Block {
                a: buffer.wrapping_add(first * self.strips.width()),
                a_step: 2 * self.strips.width(),
                runs: &class.runs,
                steps: self.strips.run_steps,
                b,
                c: Results::block(results.as_mut_ptr()),
                accumulate: false,
            };
            let stored = Stored {
                tiles: results.as_ptr(),
                rows,
                n: columns,
                c: base,
                places: &self.places[i][first..first + rows],
                step: 0,
                epilogue,
            };
            // SAFETY: positions lie inside the strip, also those up to a whole tile; the places lead to pixels that belong to this part.
            unsafe {
                (self.foresee)(std::ptr::from_ref(&stored).cast());
                blocks.run([tiles(rows), tiles(columns)], &args);
                (self.store)(std::ptr::from_ref(&stored).cast());
            }
        }
        if let Some(finish) = operands.finish.filter(|_| !positions.is_empty()) {
            // Pixels of a part lie one after the other: only a forward convolution has something behind it.
            let rows = part.images.len() * part.rows.len() * self.strips.dest_width();
            let first = base.wrapping_add(self.places[i][positions.start] as usize);
            // SAFETY: as above.
            unsafe { finish.run(Rows { first, rows, columns, step: self.to }) };
        }
    }
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
        4 * (self.packed_floats() + self.threads * self.scratch_floats())
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        let (packed, rest) = (self.packed_floats(), self.threads * self.scratch_floats());
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
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = self.scratch_floats();
        let (packed, scratch, to_pack) = memory.split(self.packed_floats(), self.threads * floats);
        if to_pack {
            self.pack(pool, w, packed);
        }
        let packed = &*packed;
        let (scratch, dest) = (Parts::new(scratch), Parts::new(dest));
        pool.run(self.strips.parts() * self.blocks, |task, worker| {
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.part(worker * floats..(worker + 1) * floats) };
            self.task(source, packed.as_ptr().cast(), operands, dest, TaskMemory { task, scratch });
        });
    }
}
