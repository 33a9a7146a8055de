//! Products by rows: a task packs rows of `A` and goes through all panels of `B`.

use super::{Job, TileProduct, floats, panel_start, row_steps};
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, Results};
use crate::gemm::bf16::{PANEL, STEP, TILE, steps, tiles};
use crate::gemm::product::ProductSpec;
use crate::gemm::tile::Rows;
use crate::run::threads::{Chunks, Parts, Pool, TASKS_PER_THREAD, chunks};
use crate::simd::prefetch_far;

/// Most bytes of a task's packed rows: a part of a second-level cache.
const ROWS_BYTES: usize = 768 << 10;

/// The same where there are more than so many bytes of panels, which each task reads from beyond that cache: larger tasks read them less
/// often.
const MANY_PANELS: usize = 1 << 20;
const LARGE_ROWS_BYTES: usize = 1280 << 10;

/// Steps that a panel's rows meet at a time, so that they stay near for all blocks of a task.
const NEAR_STEPS: usize = 64;

/// The layout.
pub struct ByRows {
    steps: usize,
    /// Rows, in pieces for the tasks.
    rows: Chunks,
    /// Rows of a task, a multiple of [`PANEL`].
    grain: usize,
}

impl ByRows {
    /// Lays out `spec`.
    pub fn new(spec: &ProductSpec, threads: usize) -> ByRows {
        let steps = steps(spec.k);
        let large = tiles(spec.n) * steps * TILE * 2 > MANY_PANELS;
        let (bytes, tasks) = if large { (LARGE_ROWS_BYTES, threads) } else { (ROWS_BYTES, TASKS_PER_THREAD * threads) };
        let fitting = (bytes / (row_steps(steps) * 2 * STEP) / PANEL * PANEL).max(PANEL);
        // As much for each thread.
        let tasks = spec.m.div_ceil(fitting).next_multiple_of(threads).max(tasks);
        let grain = spec.m.div_ceil(tasks).next_multiple_of(PANEL).max(PANEL);
        ByRows { steps, rows: chunks(spec.m, grain), grain }
    }

    fn a_step(&self) -> usize {
        row_steps(self.steps) * STEP
    }

    /// Stretches of the sum that are gone through one after the other.
    fn stretches(&self) -> Chunks {
        chunks(self.steps, self.steps.div_ceil(self.steps.div_ceil(NEAR_STEPS).max(1)))
    }

    fn results_floats(&self) -> usize {
        let blocks = if self.stretches().count() > 1 { self.grain / PANEL } else { 1 };
        blocks * BLOCK
    }

    /// Floats of a thread's scratch.
    pub fn scratch_floats(&self) -> usize {
        floats(self.grain * self.a_step()) + self.results_floats()
    }

    /// Computes the product. `packed` has all panels.
    pub fn run(
        &self,
        p: &TileProduct,
        pool: &Pool,
        job: &Job,
        packed: *const u16,
        (scratch, prologues): (&mut [f32], Parts<f32>),
    ) {
        let scratch = Parts::new(scratch);
        let packed = Packed(packed);
        pool.run(self.rows.count(), |task, worker| {
            let floats = self.scratch_floats();
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.part(worker * floats..(worker + 1) * floats) };
            let (results, a) = scratch.split_at_mut(self.results_floats());
            let a = a.as_mut_ptr().cast::<u16>();
            let rows = self.rows.range(task);
            p.pack_rows(job, (rows.clone(), 0..self.steps), (a, self.a_step()), p.of(prologues, worker));
            let blocks = Blocks::new(p.unit, p.level);
            for panel in 0..p.panels() {
                self.panel(p, job, &blocks, (rows.clone(), panel), (a, packed.get(), results.as_mut_ptr()));
            }
        });
    }

    /// Some rows times a panel.
    fn panel(
        &self,
        p: &TileProduct,
        job: &Job,
        blocks: &Blocks,
        (rows, panel): (std::ops::Range<usize>, usize),
        (a, packed, results): (*mut u16, *const u16, *mut f32),
    ) {
        let n = panel * PANEL;
        let columns = (p.spec.n - n).min(PANEL);
        let width = tiles(columns);
        let b = packed.wrapping_add(panel_start(panel, self.steps));
        let next = packed.wrapping_add(panel_start(panel + 1, self.steps));
        let lines = if panel + 1 < p.panels() { self.steps * 2 * TILE * 2 / 64 } else { 0 };
        let stretches = self.stretches();
        let all = rows.len().div_ceil(PANEL);
        for stretch in 0..stretches.count() {
            let range = stretches.range(stretch);
            let (first, last) = (stretch == 0, stretch + 1 == stretches.count());
            for block in 0..all {
                let start = block * PANEL;
                let height = (rows.len() - start).min(PANEL);
                let c = if stretches.count() > 1 { results.wrapping_add(block * BLOCK) } else { results };
                // A part of the next panel beside each block, while the memory has nothing else to do.
                let parts = all * stretches.count();
                let part = stretch * all + block;
                for line in lines * part / parts..lines * (part + 1) / parts {
                    prefetch_far(next.wrapping_add(line * 32).cast());
                }
                let args = Block {
                    a: a.wrapping_add(start * self.a_step() + range.start * STEP),
                    a_step: self.a_step() * 2,
                    runs: &[0],
                    steps: range.len(),
                    b: b.wrapping_add(range.start * width * TILE),
                    c: Results::block(c),
                    accumulate: !first,
                };
                let place = p.place(job, c, rows.start + start..rows.start + start + height, panel);
                if last {
                    p.foresee(&place);
                }
                // SAFETY: the rows and the panel are packed up to whole tiles, and the results are this task's own.
                unsafe {
                    blocks.run([tiles(height), width], &args);
                    if last {
                        p.store(&place);
                    }
                }
            }
        }
        if let Some(finish) = job.operands.finish {
            let first = job.c.as_ptr().wrapping_add(rows.start * p.spec.c + n);
            // SAFETY: these rows of C are this task's own.
            unsafe { finish.run(Rows { first, rows: rows.len(), columns, step: p.spec.c }) };
        }
    }
}

/// A pointer to what all tasks read.
#[derive(Clone, Copy)]
struct Packed(*const u16);

impl Packed {
    fn get(&self) -> *const u16 {
        self.0
    }
}

// SAFETY: it is only read.
unsafe impl Sync for Packed {}
