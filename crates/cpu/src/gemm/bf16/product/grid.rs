//! Products by a grid: both operands are packed for all tasks, a group of steps at a time.

use super::{Job, TileProduct, floats, panel_start, row_steps};
use crate::gemm::bf16::block::{BLOCK, Block, Blocks, Results};
use crate::gemm::bf16::{PANEL, SIDE, STEP, TILE, steps, tiles};
use crate::gemm::product::ProductSpec;
use crate::gemm::sums::AddRows;
use crate::gemm::tile::tile_rows;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Chunks, Parts, Pool, TASKS_PER_THREAD, chunks};
use std::ops::Range;

/// Most bytes of packed operands of a group: what last-level caches keep.
const GROUP_BYTES: usize = 4 << 20;

/// Most bytes of a task's packed rows: half of a second-level cache.
const ROWS_BYTES: usize = 768 << 10;

/// Tasks that pack an operand.
const PACKS: usize = 32;

/// The layout.
pub struct Grid {
    m: usize,
    n: usize,
    /// The steps of the sum, in pieces that are summed apart.
    pieces: Chunks,
    /// Steps of the longest piece, and how many of them are packed at a time.
    piece: usize,
    group: usize,
    /// Blocks of rows and of panels; each of one times each of the other is a task.
    row_tasks: usize,
    panel_tasks: usize,
}

impl Grid {
    /// Lays out `spec`, with its sum in `splits` pieces.
    pub fn new(spec: &ProductSpec, threads: usize, splits: usize) -> Grid {
        let all = steps(spec.k);
        let piece = all.div_ceil(splits).max(1);
        let pieces = chunks(all, piece);
        let splits = pieces.count().max(1);
        let step_bytes = splits * (tiles(spec.m) + tiles(spec.n)) * TILE * 2;
        let groups = piece.div_ceil((GROUP_BYTES / step_bytes.max(1)).clamp(1, piece));
        let group = piece.div_ceil(groups);
        let (blocks, panels) = (spec.m.div_ceil(PANEL).max(1), spec.n.div_ceil(PANEL).max(1));
        let wanted = if threads > 1 { (threads * TASKS_PER_THREAD).div_ceil(splits) } else { 1 };
        let fewest = (blocks * PANEL * group * 2 * STEP).div_ceil(ROWS_BYTES).min(blocks);
        let panel_tasks = panels.min(wanted.div_ceil(fewest));
        let row_tasks = blocks.min(fewest.max(wanted.div_ceil(panel_tasks)));
        Grid { m: spec.m, n: spec.n, pieces, piece, group, row_tasks, panel_tasks }
    }

    fn splits(&self) -> usize {
        self.pieces.count().max(1)
    }

    fn groups(&self) -> usize {
        self.piece.div_ceil(self.group)
    }

    fn blocks(&self) -> usize {
        self.m.div_ceil(PANEL)
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Numbers from row to row of packed rows.
    fn a_step(&self) -> usize {
        row_steps(self.group) * STEP
    }

    /// Numbers of the packed rows, and of the packed panels, of a piece.
    fn a_numbers(&self) -> usize {
        self.m.next_multiple_of(SIDE) * self.a_step()
    }

    fn b_numbers(&self) -> usize {
        tiles(self.n) * self.group * TILE
    }

    /// Results lie in workspace until their sums are complete.
    fn collects(&self) -> bool {
        self.splits() > 1 || self.groups() > 1
    }

    fn results_floats(&self, threads: usize) -> usize {
        let blocks = if self.collects() { self.splits() * self.blocks() * self.panels() } else { 0 };
        blocks * BLOCK + PerThread::size(threads, BLOCK)
    }

    /// Floats of workspace; `kept`: the panels lie elsewhere.
    pub fn floats(&self, threads: usize, kept: bool) -> usize {
        let b = if kept { 0 } else { self.splits() * floats(self.b_numbers()) };
        self.results_floats(threads) + self.splits() * floats(self.a_numbers()) + b
    }

    /// The steps of group number `group` of a piece.
    fn range(&self, split: usize, group: usize) -> Range<usize> {
        let piece = self.pieces.range(split);
        let start = (piece.start + group * self.group).min(piece.end);
        start..(start + self.group).min(piece.end)
    }

    /// Computes the product. `packed` has all panels, if they are kept.
    pub fn run(
        &self,
        p: &TileProduct,
        pool: &Pool,
        job: &Job,
        packed: Option<*const u16>,
        (own, prologues): (&mut [f32], PerThread),
    ) {
        let (results, own) = own.split_at_mut(self.results_floats(p.threads));
        let (results, blocks) = results.split_at_mut(results.len() - PerThread::size(p.threads, BLOCK));
        let blocks = PerThread::new(Parts::new(blocks), BLOCK);
        let (a, b) = own.split_at_mut(self.splits() * floats(self.a_numbers()));
        let (results, a, b) = (Parts::new(results), Parts::new(a), Parts::new(b));
        let numbers = |of: Parts<f32>, split: usize, numbers: usize| -> *mut u16 {
            of.as_ptr().wrapping_add(split * floats(numbers)).cast()
        };
        let kept = Panels(packed);
        let row_packs = chunks(tiles(self.m), tiles(self.m).div_ceil(PACKS));
        let panel_packs = chunks(self.panels(), self.panels().div_ceil(PACKS));
        let packs = row_packs.count() + if packed.is_none() { panel_packs.count() } else { 0 };
        for group in 0..self.groups() {
            pool.run(self.splits() * packs, |task, worker| {
                let (split, task) = (task / packs, task % packs);
                // SAFETY: a worker has its own.
                let (range, scratch) = (self.range(split, group), unsafe { prologues.of(worker) });
                if task < row_packs.count() {
                    let tiles = row_packs.range(task);
                    let rows = tiles.start * SIDE..(tiles.end * SIDE).min(self.m);
                    let to = numbers(a, split, self.a_numbers()).wrapping_add(rows.start * self.a_step());
                    return p.pack_rows(job, (rows, range), (to, self.a_step()), scratch);
                }
                let panels = panel_packs.range(task - row_packs.count());
                let to = numbers(b, split, self.b_numbers());
                p.pack_panels(job, (panels, range), (to, self.group), scratch);
            });
            let per_split = self.row_tasks * self.panel_tasks;
            pool.run(self.splits() * per_split, |task, worker| {
                let (split, task) = (task / per_split, task % per_split);
                let range = self.range(split, group);
                let a = numbers(a, split, self.a_numbers());
                let b = match kept.get() {
                    Some(all) => (all, p.all_steps(), range.start),
                    None => (numbers(b, split, self.b_numbers()).cast_const(), self.group, 0),
                };
                // SAFETY: a worker has its own.
                let own = unsafe { blocks.of(worker) };
                self.task(p, job, (split, group, task), (a, b), (results, own));
            });
        }
        if self.splits() > 1 {
            self.reduce(p, pool, job, results);
        }
    }

    /// Some blocks of rows times some panels, for a group of steps.
    fn task(
        &self,
        p: &TileProduct,
        job: &Job,
        (split, group, task): (usize, usize, usize),
        (a, (b, b_steps, b_first)): (*mut u16, (*const u16, usize, usize)),
        (results, own): (Parts<f32>, &mut [f32]),
    ) {
        let range = self.range(split, group);
        let blocks_of = tile_rows(self.blocks(), self.row_tasks, task % self.row_tasks);
        let blocks = Blocks::new(p.unit, p.level);
        let (first, last) = (group == 0, group + 1 == self.groups() && self.splits() == 1);
        for panel in tile_rows(self.panels(), self.panel_tasks, task / self.row_tasks) {
            let n = panel * PANEL;
            let columns = (self.n - n).min(PANEL);
            let width = tiles(columns);
            for block in blocks_of.clone() {
                let start = block * PANEL;
                let height = (self.m - start).min(PANEL);
                let place = (split * self.blocks() + block) * self.panels() + panel;
                let c = if self.collects() { results.as_ptr().wrapping_add(place * BLOCK) } else { own.as_mut_ptr() };
                let args = Block {
                    a: a.wrapping_add(start * self.a_step()),
                    a_step: self.a_step() * 2,
                    runs: &[0],
                    steps: range.len(),
                    last: p.last_terms(&range),
                    b: b.wrapping_add(panel_start(panel, b_steps) + b_first * width * TILE),
                    c: Results::block(c),
                    accumulate: !first,
                };
                let place = p.place(job, c, start..start + height, panel);
                if last {
                    p.store.foresee(&place);
                }
                // SAFETY: rows and panels are packed up to whole tiles, and the results are this task's own.
                unsafe {
                    blocks.run([height, width], &args);
                    if last {
                        p.store.store(&place, job.operands.finish);
                    }
                }
            }
            if last {
                let rows = blocks_of.start * PANEL..(blocks_of.end * PANEL).min(self.m);
                // SAFETY: these rows of C are this task's own.
                unsafe { p.finish(job, rows, panel) };
            }
        }
    }

    /// Adds up the pieces of the sum, in their order.
    fn reduce(&self, p: &TileProduct, pool: &Pool, job: &Job, results: Parts<f32>) {
        let all = self.blocks() * self.panels();
        pool.run(all, |task, _| {
            let (block, panel) = (task / self.panels(), task % self.panels());
            // SAFETY: a block belongs to one task, with its sums of all pieces; the other tasks are over.
            unsafe {
                let sums = results.part(task * BLOCK..(task + 1) * BLOCK);
                let others = (1..self.splits()).map(|split| {
                    let start = (split * all + task) * BLOCK;
                    &*results.part(start..start + BLOCK)
                });
                p.level.run(AddRows { rows: others, sums });
                let rows = block * PANEL..((block + 1) * PANEL).min(self.m);
                p.store.store(&p.place(job, sums.as_mut_ptr(), rows.clone(), panel), job.operands.finish);
                p.finish(job, rows, panel);
            }
        });
    }
}

/// A pointer to what all tasks read.
#[derive(Clone, Copy)]
struct Panels(Option<*const u16>);

impl Panels {
    fn get(&self) -> Option<*const u16> {
        self.0
    }
}

// SAFETY: it is only read.
unsafe impl Sync for Panels {}
