//! Matrix products of any strides on tiles of bf16, over the threads of a pool.
//!
//! Two orders, one of which a product has:
//! - *by rows*: `B` is packed once for all tasks, and a task packs some rows of `A`, which stay in its second-level cache while it
//!   goes through all panels: where there are many rows, or packed panels are kept, and the numbers of a row lie along the sum;
//! - *by a grid*: both are packed for all tasks, for a group of steps at a time, and a task is some rows times some panels times a
//!   piece of the sum. Results of unfinished sums lie in workspace, block by block.
//!
//! How the sum is cut in pieces depends on the shape alone. All else may depend on the number of threads: it changes no sum.

mod grid;
mod rows;

use super::block::BLOCK;
use super::pack::{Packer, PairRows, RoundRows};
use super::store::{Store, Stored};
use super::{PANEL, SIDE, STEP, TILE, last_terms, steps, tiles};
use crate::gemm::memory::Memory;
use crate::gemm::numbers::{Address, Numbers, NumbersMut, Rounded};
use crate::gemm::pack::Copy2d;
use crate::gemm::product::{Operand, ProductSpec};
use crate::gemm::prologue::{Prologue, Source};
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows, is_fused};
use crate::gemm::{LINE, round_up};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, TASKS_PER_THREAD};
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;
use grid::Grid;
use rows::ByRows;
use std::ops::Range;

/// Tasks wanted, where a sum is cut in pieces to make as many.
const TASKS: usize = 16;

/// Least steps of a piece of a sum.
const LEAST_STEPS: usize = 16;

/// Most rows for which packed weights are kept: with more, packing them anew takes some hundredths of the time.
const MOST_ROWS: usize = 8192;

/// Least multiply-adds of a product that is made of tiles, and most rows for which unpacked weights are better read where they lie.
const LEAST_WORK: usize = 1 << 14;
const FEW_ROWS: usize = 8;

/// Whether `unit` makes the product `spec` faster; `keeps`: its packed `B` may be kept from run to run. From the shape alone. For few rows it is what it is for
/// one: a row of such a product, as a text that is written with others, has the bits that it has alone.
pub fn is_worthwhile(spec: &ProductSpec, unit: Bf16Unit, keeps: bool) -> bool {
    let ProductSpec { m, n, k, .. } = *spec;
    let (few_rows, terms) = match unit.is_far_faster() {
        true => (FEW_ROWS, SIDE / 2),
        // Short sums gain by what is rounded in memory. Programs that train have nothing rounded there, and do not keep panels.
        false => (2 * FEW_ROWS, if keeps { SIDE } else { SIDE + SIDE / 2 }),
    };
    let rows = if m > FEW_ROWS { m } else { 1 };
    rows * n * k >= LEAST_WORK && k >= terms && n >= SIDE / 2 && (keeps || m > few_rows)
}

/// A product whose work has been laid out.
pub struct TileProduct {
    spec: ProductSpec,
    unit: Bf16Unit,
    level: SimdLevel,
    threads: usize,
    packer: Packer,
    store: Store,
    /// The operand that goes through a prologue.
    prepared: Option<Operand>,
    /// `B` may be kept from run to run.
    keeps: bool,
    rounded: Rounded,
    order: Order,
}

enum Order {
    ByRows(ByRows),
    Grid(Grid),
}

/// One run.
struct Job<'a> {
    a: Address,
    b: *const f32,
    prologue: Option<Prologue<'a>>,
    epilogue: Epilogue,
    operands: EpilogueOperands<'a>,
    c: Address,
}

// SAFETY: the pointers are to operands that are only read, and that outlive the run.
unsafe impl Sync for Job<'_> {}

/// 16-bit numbers as floats of workspace.
pub const fn floats(numbers: usize) -> usize {
    round_up(numbers.div_ceil(2))
}

/// Where the first number of `panel` lies in panels of so many steps.
pub const fn panel_start(panel: usize, steps: usize) -> usize {
    panel * 2 * steps * TILE
}

impl TileProduct {
    /// Lays out `spec`, with a prologue for one of the operands, the columns of which lie side by side. `keeps`: for a program
    /// that [keeps](TileProduct::kept) the panels of `B`.
    pub fn new(
        spec: ProductSpec,
        (unit, level): (Bf16Unit, SimdLevel),
        threads: usize,
        prepared: Option<Operand>,
        keeps: bool,
    ) -> TileProduct {
        TileProduct::rounded(spec, (unit, level), threads, prepared, keeps, Rounded::default())
    }

    /// The same for an `A`, a residual or a `C` that is rounded in memory; the numbers of such an `A` lie along the sum.
    pub fn rounded(
        spec: ProductSpec,
        (unit, level): (Bf16Unit, SimdLevel),
        threads: usize,
        prepared: Option<Operand>,
        keeps: bool,
        rounded: Rounded,
    ) -> TileProduct {
        assert!(
            !rounded.source || spec.a[1] == 1 && prepared != Some(Operand::A),
            "rounded rows are taken as they are"
        );
        let threads = threads.max(1);
        // From the shape alone: this decides the order of the sum.
        let blocks = spec.m.div_ceil(PANEL).max(1) * spec.n.div_ceil(PANEL).max(1);
        let splits = (TASKS / blocks).min(steps(spec.k) / LEAST_STEPS).max(1);
        let many = spec.m.div_ceil(PANEL) >= TASKS_PER_THREAD * threads;
        // With kept panels, a task takes some panels where rows are few, and packs the rows itself, if it must.
        let by_rows = many || keeps && prepared.is_none();
        let order = if spec.a[1] == 1 && by_rows && splits == 1 {
            Order::ByRows(ByRows::new(&spec, unit, threads, keeps, rounded.source))
        } else {
            Order::Grid(Grid::new(&spec, threads, splits))
        };
        TileProduct {
            spec,
            unit,
            level,
            threads,
            packer: Packer::new(unit, level),
            store: Store::new(level, rounded),
            prepared,
            keeps,
            rounded,
            order,
        }
    }

    /// The activation that it was made for.
    pub fn act(&self) -> Option<Activation> {
        self.spec.act
    }

    /// The activation that is left to [`EpilogueOperands::finish`].
    pub fn remaining_act(&self) -> Option<Activation> {
        self.spec.act.filter(|&act| !is_fused(act))
    }

    fn all_steps(&self) -> usize {
        steps(self.spec.k)
    }

    /// Terms of the last of some steps.
    fn last_terms(&self, range: &Range<usize>) -> usize {
        if range.end == self.all_steps() { last_terms(self.spec.k) } else { STEP }
    }

    fn panels(&self) -> usize {
        self.spec.n.div_ceil(PANEL)
    }

    /// Floats of all panels of `B`.
    fn packed_floats(&self) -> usize {
        floats(tiles(self.spec.n) * steps(self.spec.k) * TILE)
    }

    /// Floats of workspace beside the panels of `B` that may be kept.
    fn own_floats(&self, kept: bool) -> usize {
        let prologue = PerThread::size(self.threads, self.prologue_floats());
        prologue
            + match &self.order {
                Order::ByRows(rows) => PerThread::size(self.threads, rows.scratch_floats()),
                Order::Grid(grid) => grid.floats(self.threads, kept),
            }
    }

    /// Floats of a thread's rows on their way through the prologue.
    fn prologue_floats(&self) -> usize {
        match self.prepared {
            None => 0,
            Some(Operand::A) => round_up(self.spec.k),
            Some(Operand::B) => STEP * PANEL,
        }
    }

    /// Whether all panels of `B` are packed before anything else.
    fn packs_all(&self) -> bool {
        matches!(self.order, Order::ByRows(_))
    }

    /// Workspace that [`TileProduct::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        4 * (self.own_floats(false) + if self.packs_all() { self.packed_floats() } else { 0 })
    }

    /// The panels of `B`, operand 1.
    pub fn kept(&self) -> Option<Kept> {
        let keeps = self.keeps && self.spec.m <= MOST_ROWS && self.packed_floats() > 0;
        keeps.then(|| Kept { operand: 1, bytes: 4 * self.packed_floats(), workspace: 4 * self.own_floats(true) })
    }

    /// Computes the product, as [`crate::gemm::product::Product::run`].
    ///
    /// # Panics
    /// As that.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        a: Source,
        b: Source,
        operands: impl Into<EpilogueOperands<'a>>,
        c: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        let prologues = [(Operand::A, a.prologue), (Operand::B, b.prologue)];
        let expected = prologues.iter().all(|(o, prologue)| prologue.is_some() == (self.prepared == Some(*o)));
        assert!(expected, "made for another prologue");
        let prologue = a.prologue.or(b.prologue);
        self.compute(pool, (a.values.into(), b.values, prologue), operands.into(), c.into(), memory.into());
    }

    /// The same of operands that may be rounded in memory, as it was made for.
    ///
    /// # Panics
    /// As that.
    pub fn run_numbers(
        &self,
        pool: &Pool,
        a: Numbers,
        b: &[f32],
        operands: EpilogueOperands,
        c: NumbersMut,
        memory: Memory,
    ) {
        assert!(self.prepared.is_none(), "made for a prologue");
        self.compute(pool, (a, b, None), operands, c, memory);
    }

    fn compute(
        &self,
        pool: &Pool,
        (a, b, prologue): (Numbers, &[f32], Option<Prologue>),
        operands: EpilogueOperands,
        mut c: NumbersMut,
        memory: Memory,
    ) {
        let spec = &self.spec;
        if spec.m == 0 || spec.n == 0 {
            return;
        }
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        assert_eq!(Rounded::of(&a, &operands, &c), self.rounded, "made for operands of other types");
        if spec.k > 0 {
            assert!(a.len() > (spec.m - 1) * spec.a[0] + (spec.k - 1) * spec.a[1], "A is too short");
            assert!(b.len() > (spec.k - 1) * spec.b[0] + (spec.n - 1) * spec.b[1], "B is too short");
        }
        assert!(c.len() >= (spec.m - 1) * spec.c + spec.n, "C is too short");
        assert!(operands.has(spec.n, (spec.m - 1) * spec.c + spec.n), "an operand of the epilogue is too short");
        let epilogue = Epilogue::of(spec.act).with(operands, 0, std::ptr::null());
        let job = Job { a: a.address(), b: b.as_ptr(), prologue, epilogue, operands, c: c.address() };
        let all = self.packs_all() || memory.kept.is_some();
        let own = self.own_floats(memory.kept.is_some());
        let (packed, own, to_pack) = memory.split(if all { self.packed_floats() } else { 0 }, own);
        let (prologues, own) = own.split_at_mut(PerThread::size(self.threads, self.prologue_floats()));
        let prologues = PerThread::new(Parts::new(prologues), self.prologue_floats());
        if all && to_pack {
            let grain = self.panels().div_ceil(2 * TASKS);
            let packed = Parts::new(&mut *packed);
            pool.run(self.panels().div_ceil(grain), |task, worker| {
                let panels = task * grain..((task + 1) * grain).min(self.panels());
                let to = packed.as_ptr().cast();
                // SAFETY: a worker has its own memory.
                let own = unsafe { prologues.of(worker) };
                self.pack_panels(&job, (panels, 0..steps(spec.k)), (to, steps(spec.k)), own);
            });
        }
        let packed = all.then(|| packed.as_ptr().cast::<u16>());
        match &self.order {
            Order::ByRows(rows) => rows.run(self, pool, &job, packed.unwrap_or(std::ptr::null()), (own, prologues)),
            Order::Grid(grid) => grid.run(self, pool, &job, packed, (own, prologues)),
        }
    }

    /// Packs steps of panels of `B` to `to`, whose panels have `to_steps` steps, of which the first is the first of these.
    fn pack_panels(
        &self,
        job: &Job,
        (panels, range): (Range<usize>, Range<usize>),
        (to, to_steps): (*mut u16, usize),
        scratch: &mut [f32],
    ) {
        let spec = &self.spec;
        for step in range.clone() {
            let k = step * STEP;
            let terms = spec.k.saturating_sub(k).min(STEP);
            for panel in panels.clone() {
                let n = panel * PANEL;
                let columns = (spec.n - n).min(PANEL);
                let at = panel_start(panel, to_steps) + (step - range.start) * tiles(columns) * TILE;
                let mut pairs = PairRows {
                    from: job.b.wrapping_add(k * spec.b[0] + n * spec.b[1]),
                    from_step: spec.b[0],
                    terms,
                    columns,
                    to: to.wrapping_add(at),
                };
                // SAFETY: the panel is inside `B`, and the caller has room for it, which belongs to this task.
                unsafe {
                    if let Some(prologue) = job.prologue.filter(|_| self.prepared == Some(Operand::B)) {
                        let (from, to) = (pairs.from, scratch.as_mut_ptr());
                        let (from_step, to_step) = (spec.b[0], PANEL);
                        let rows = Copy2d { from, from_step, to, to_step, rows: terms, columns, padded: columns };
                        prologue.copy(rows, n);
                        (pairs.from, pairs.from_step) = (to.cast_const(), PANEL);
                    }
                    if spec.b[1] == 1 {
                        self.packer.pairs(pairs);
                    } else {
                        assert!(spec.b[0] == 1, "the numbers of an operand lie side by side in one direction");
                        self.packer.turned_pairs(PairRows { from_step: spec.b[1], ..pairs });
                    }
                }
            }
        }
    }

    /// Packs steps of rows of `A` to `to`, whose rows are `to_step` numbers apart; rows up to a whole tile are valid to write.
    fn pack_rows(
        &self,
        job: &Job,
        (rows, range): (Range<usize>, Range<usize>),
        (to, to_step): (*mut u16, usize),
        scratch: &mut [f32],
    ) {
        let spec = &self.spec;
        let k = range.start * STEP;
        let from = job.a.at(rows.start * spec.a[0] + k * spec.a[1]);
        let packed = RoundRows {
            from: std::ptr::null(),
            from_step: spec.a[0],
            rows: rows.len(),
            columns: (range.end * STEP).min(spec.k).saturating_sub(k),
            to,
            to_step,
            padded: range.len() * STEP,
        };
        // SAFETY: the rows are inside `A`, and the caller has room for them, which belongs to this task.
        unsafe {
            if spec.a[1] != 1 {
                assert!(spec.a[0] == 1, "the numbers of an operand lie side by side in one direction");
                return self.packer.turned_rows(RoundRows { from: from.floats(), from_step: spec.a[1], ..packed });
            }
            match job.prologue.filter(|_| self.prepared == Some(Operand::A)) {
                Some(prologue) => {
                    for row in 0..rows.len() {
                        let (from, to) = (from.floats().wrapping_add(row * spec.a[0]), scratch.as_mut_ptr());
                        let columns = packed.columns;
                        let copy = Copy2d { from, from_step: 0, to, to_step: 0, rows: 1, columns, padded: columns };
                        prologue.copy(copy, k);
                        let to = packed.to.wrapping_add(row * to_step);
                        self.packer.rows(RoundRows { from: scratch.as_ptr(), rows: 1, to, ..packed });
                    }
                }
                None => self.packer.rows_of(from, packed),
            }
            // Rows of a tile that there are not: their results are not stored, but what lies there may be no number, which is slow.
            for row in rows.len()..rows.len().next_multiple_of(self.unit.rows()) {
                to.wrapping_add(row * to_step).write_bytes(0, packed.padded);
            }
        }
    }

    /// The place of a block: rows from `rows.start` on and the columns of `panel`.
    fn place(&self, job: &Job, tiles: *mut f32, rows: Range<usize>, panel: usize) -> Stored<'static> {
        let (spec, n) = (&self.spec, panel * PANEL);
        Stored {
            tiles,
            rows: rows.len(),
            n: (spec.n - n).min(PANEL),
            c: job.c,
            first: (rows.start * spec.c + n).cast_signed(),
            places: &[],
            step: spec.c,
            epilogue: job.epilogue.from_column(n),
            stays: false,
        }
    }

    /// Has `finish` change rows of finished results, if it was not given to [`Store::store`].
    ///
    /// # Safety
    /// They are the caller's own.
    unsafe fn finish(&self, job: &Job, rows: Range<usize>, panel: usize) {
        let Some(finish) = job.operands.finish.filter(|_| !self.store.finishes() && !rows.is_empty()) else { return };
        let (spec, n) = (&self.spec, panel * PANEL);
        let first = job.c.at(rows.start * spec.c + n).floats();
        // SAFETY: the caller's promise.
        unsafe { finish.run(Rows { first, rows: rows.len(), columns: (spec.n - n).min(PANEL), step: spec.c }) };
    }
}

/// Rows of packed `A` are so many steps apart: an odd number of cache lines, so that a tile's rows lie in different sets.
pub const fn row_steps(steps: usize) -> usize {
    steps | 1
}

const _: () = assert!(BLOCK.is_multiple_of(LINE) && STEP * 2 == LINE * 4);
