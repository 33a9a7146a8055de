//! Products by rows: a task goes through rows of `A` and all panels of `B`.

use super::{Job, TileProduct, floats, panel_start, row_steps};
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, Results};
use crate::gemm::bf16::{PANEL, STEP, TILE, steps, tiles};
use crate::gemm::numbers::Address;
use crate::gemm::product::ProductSpec;
use crate::gemm::tile::tile_rows;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Chunks, Parts, Pool, TASKS_PER_THREAD, chunks};
use crate::simd::bf16::Bf16Unit;
use crate::simd::prefetch_far;
use std::ops::Range;

/// Most bytes of a task's packed rows: a part of a second-level cache.
const ROWS_BYTES: usize = 768 << 10;

/// The same where there are more than so many bytes of panels, which each task reads from beyond that cache: larger tasks read them less
/// often.
const MANY_PANELS: usize = 1 << 20;
const LARGE_ROWS_BYTES: usize = 1280 << 10;

/// Tasks of a thread where each packs its rows again, if it must: so many that threads end together.
const SMALL_TASKS_PER_THREAD: usize = 12;

/// Steps that a panel's rows meet at a time, so that they stay near for all blocks of a task.
const NEAR_STEPS: usize = 64;

/// Rows so many bytes apart lie in one set of a first-level cache.
const SAME_SET: usize = 4096;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The layout.
pub struct ByRows {
    steps: usize,
    /// Rows, in pieces for the tasks.
    rows: Chunks,
    /// Rows of a task, a multiple of [`PANEL`].
    grain: usize,
    /// So many groups of panels, each of which stays in a second-level cache: 32 rows meet all of its panels one after the other. Results are then
    /// written, and residuals read, in the order in which they lie in memory. `None`: all rows of a task meet one panel after the other.
    groups: Option<usize>,
    /// Rows of `A` are tiles' rows where they lie.
    direct: bool,
}

/// Rows of `A` as tiles read them: the first number, and bytes from row to row.
#[derive(Clone, Copy)]
struct PackedRows {
    first: *const u16,
    step: usize,
}

impl ByRows {
    /// Lays out `spec`; `once`: nothing but the result of each row comes of it; `rounded`: so is `A`.
    pub fn new(spec: &ProductSpec, unit: Bf16Unit, threads: usize, once: bool, rounded: bool) -> ByRows {
        let steps = steps(spec.k);
        let panel_bytes = tiles(spec.n) * steps * TILE * 2;
        let large = panel_bytes > MANY_PANELS;
        let (bytes, tasks) = if large { (LARGE_ROWS_BYTES, threads) } else { (ROWS_BYTES, TASKS_PER_THREAD * threads) };
        let one_set = (2 * spec.a[0]).is_multiple_of(SAME_SET);
        let direct = rounded && (spec.k.is_multiple_of(STEP) || unit.leaves_out_terms()) && !one_set;
        if once {
            // Of few rows, groups of panels make up for what is missing.
            let wanted = if threads > 1 { SMALL_TASKS_PER_THREAD * threads } else { 1 };
            let grain = (spec.m / wanted / PANEL * PANEL).max(PANEL);
            let rows = chunks(spec.m, grain);
            let groups = panel_bytes.div_ceil(MANY_PANELS).max(wanted.div_ceil(rows.count().max(1)));
            return ByRows { steps, rows, grain, groups: Some(groups.min(spec.n.div_ceil(PANEL)).max(1)), direct };
        }
        let fitting = (bytes / (row_steps(steps) * 2 * STEP) / PANEL * PANEL).max(PANEL);
        // As much for each thread.
        let tasks = spec.m.div_ceil(fitting).next_multiple_of(threads).max(tasks);
        let grain = spec.m.div_ceil(tasks).next_multiple_of(PANEL).max(PANEL);
        ByRows { steps, rows: chunks(spec.m, grain), grain, groups: None, direct }
    }

    fn a_step(&self) -> usize {
        row_steps(self.steps) * STEP
    }

    /// Stretches of the sum that are gone through one after the other.
    fn stretches(&self) -> Chunks {
        chunks(self.steps, self.steps.div_ceil(self.steps.div_ceil(NEAR_STEPS).max(1)))
    }

    fn results_floats(&self) -> usize {
        let blocks = if self.groups.is_none() && self.stretches().count() > 1 { self.grain / PANEL } else { 1 };
        blocks * BLOCK
    }

    /// Floats of a thread's scratch.
    pub fn scratch_floats(&self) -> usize {
        let rows = if self.groups.is_some() { PANEL } else { self.grain };
        floats(rows * self.a_step()) + self.results_floats()
    }

    /// Computes the product. `packed` has all panels.
    pub fn run(
        &self,
        p: &TileProduct,
        pool: &Pool,
        job: &Job,
        packed: *const u16,
        (scratch, prologues): (&mut [f32], PerThread),
    ) {
        let scratch = PerThread::new(Parts::new(scratch), self.scratch_floats());
        let packed = Packed(packed);
        let groups = self.groups.unwrap_or(1);
        pool.run(groups * self.rows.count(), |task, worker| {
            // SAFETY: a worker has its own scratch.
            let (scratch, prologue) = unsafe { (scratch.of(worker), prologues.of(worker)) };
            let (results, a) = scratch.split_at_mut(self.results_floats());
            let (results, a) = (results.as_mut_ptr(), a.as_mut_ptr().cast::<u16>());
            // Threads begin with groups of their own.
            let (group, rows) = (task / self.rows.count(), self.rows.range(task % self.rows.count()));
            let blocks = Blocks::new(p.unit, p.level);
            if self.groups.is_none() {
                let a = self.rows_of(p, job, rows.clone(), a, prologue);
                for panel in 0..p.panels() {
                    self.panel(p, job, &blocks, (rows.clone(), panel), (a, packed.get(), results));
                }
                return;
            }
            for start in rows.clone().step_by(PANEL) {
                let rows = start..(start + PANEL).min(rows.end);
                let a = self.rows_of(p, job, rows.clone(), a, prologue);
                let panels = tile_rows(p.panels(), groups, group);
                self.panels(p, job, &blocks, (rows, panels), (a, packed.get(), results));
            }
        });
    }

    /// Rows of `A`, packed to `to` if they must be.
    fn rows_of(&self, p: &TileProduct, job: &Job, rows: Range<usize>, to: *mut u16, scratch: &mut [f32]) -> PackedRows {
        // Rows that there are not would be read beyond the last one.
        if let (true, Some(a)) = (self.direct && rows.len().is_multiple_of(p.unit.rows()), job.a.rounded()) {
            return PackedRows { first: a.wrapping_add(rows.start * p.spec.a[0]).cast(), step: 2 * p.spec.a[0] };
        }
        p.pack_rows(job, (rows, 0..self.steps), (to, self.a_step()), scratch);
        PackedRows { first: to, step: 2 * self.a_step() }
    }

    /// At most [`PANEL`] rows times some panels.
    fn panels(
        &self,
        p: &TileProduct,
        job: &Job,
        blocks: &Blocks,
        (rows, panels): (Range<usize>, Range<usize>),
        (a, packed, results): (PackedRows, *const u16, *mut f32),
    ) {
        let next = Next::of(p, job, rows.end..(rows.end + PANEL).min(p.spec.m), panels.clone());
        for panel in panels.clone() {
            next.foresee(panel - panels.start, panels.len());
            let args = Block {
                a: a.first,
                a_step: a.step,
                runs: &[0],
                steps: self.steps,
                last: p.last_terms(&(0..self.steps)),
                b: packed.wrapping_add(panel_start(panel, self.steps)),
                c: Results::block(results),
                accumulate: false,
            };
            let place = p.place(job, results, rows.clone(), panel);
            // SAFETY: the rows and the panel are there up to whole tiles, and the results are this task's own.
            unsafe {
                blocks.run([rows.len(), tiles(place.n)], &args);
                p.store.store(&place, job.operands.finish);
                p.finish(job, rows.clone(), panel);
            }
        }
    }

    /// Some rows times a panel.
    fn panel(
        &self,
        p: &TileProduct,
        job: &Job,
        blocks: &Blocks,
        (rows, panel): (Range<usize>, usize),
        (a, packed, results): (PackedRows, *const u16, *mut f32),
    ) {
        let width = tiles((p.spec.n - panel * PANEL).min(PANEL));
        let b = packed.wrapping_add(panel_start(panel, self.steps));
        let next = packed.wrapping_add(panel_start(panel + 1, self.steps));
        let lines = if panel + 1 < p.panels() { self.steps * 2 * TILE * 2 / LINE } else { 0 };
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
                    a: a.first.wrapping_byte_add(start * a.step).wrapping_add(range.start * STEP),
                    a_step: a.step,
                    runs: &[0],
                    steps: range.len(),
                    last: p.last_terms(&range),
                    b: b.wrapping_add(range.start * width * TILE),
                    c: Results::block(c),
                    accumulate: !first,
                };
                let place = p.place(job, c, rows.start + start..rows.start + start + height, panel);
                if last {
                    p.store.foresee(&place);
                }
                // SAFETY: the rows and the panel are packed up to whole tiles, and the results are this task's own.
                unsafe {
                    blocks.run([height, width], &args);
                    if last {
                        p.store.store(&place, job.operands.finish);
                    }
                }
            }
        }
        // SAFETY: these rows of C are this task's own.
        unsafe { p.finish(job, rows, panel) };
    }
}

/// What the rows after those at work will read and write: as the numbers of a row lie one after the other, machines fetch them fast.
struct Next {
    rows: usize,
    /// The first row's first number, and numbers of a row and from row to row.
    of: [(Address, usize, usize); 3],
}

impl Next {
    fn of(p: &TileProduct, job: &Job, rows: Range<usize>, panels: Range<usize>) -> Next {
        let spec = &p.spec;
        let columns = panels.start * PANEL..(panels.end * PANEL).min(spec.n);
        let residual = Address::new(job.epilogue.residual.cast_mut().cast(), p.rounded.summand);
        let of_result = |first: Address| match first.byte().is_null() {
            true => (first, 0, 0),
            false => (first.at(rows.start * spec.c + columns.start), columns.len(), spec.c),
        };
        let a = (job.a.at(rows.start * spec.a[0]), if spec.a[1] == 1 { spec.k } else { 0 }, spec.a[0]);
        Next { rows: rows.len(), of: [a, of_result(job.c), of_result(residual)] }
    }

    /// Asks for share `i` of so many.
    fn foresee(&self, i: usize, shares: usize) {
        for row in tile_rows(self.rows, shares, i) {
            for &(first, len, step) in &self.of {
                let (from, bytes) = (first.at(row * step).byte(), len * first.size());
                (0..bytes).step_by(LINE).for_each(|at| prefetch_far(from.wrapping_add(at).cast()));
            }
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
