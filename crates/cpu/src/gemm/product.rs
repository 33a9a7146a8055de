//! Matrix products of any strides, in cache blocks, over the threads of a pool.
//!
//! Blocks, after Goto & van de Geijn (*Anatomy of High-Performance Matrix Multiplication*, 2008): a panel of `B`, a tile's
//! columns of `K_BLOCK` rows, stays in L1 while the tiles of a block of rows sweep over it; the block of `A` (half a
//! megabyte at 512 bits) stays in L2 while the task goes through its panels. A panel that one task uses is copied, or
//! transposed, right before it is used; what several tasks use is packed once for all of them, some cache blocks of the sum at
//! a time (`shared`). A task is a block of rows × some panels (× a stretch of the sum).
//!
//! How the sum is cut depends on the shape alone. How rows and columns are shared out may depend on the number of threads:
//! every element is the same sum in any tile.

mod job;
mod packing;
mod shared;

use super::dots::{Dots, most_rows};
use super::memory::{MOST_ROWS, Memory, kept_weights};
use super::pack::{CopyColumns, CopyRows, PackTransposed, Panel};
use super::prologue::Source;
use super::sums::AddRows;
use super::tile::{Epilogue, EpilogueOperands, MAX_ROWS, Rows, Tiles, is_fused, tiles_in};
use super::{ALIGN, round_up, workspace_floats};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::frame::KeptMemory;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, TASKS_PER_THREAD, chunks};
use crate::simd::SimdLevel;
use job::Job;
use shared::Shared;

/// Most rows of `B` in a cache block: a panel of 40 KiB at 512 bits.
const K_BLOCK: usize = 320;

/// The rows of a cache block are a multiple of this, except in the last block.
const K_GRAIN: usize = 16;

/// Most tiles in the height of a block of rows.
const TILES_IN_BLOCK: usize = 38;

/// Floats that blocks of rows must save each other to copy for a common copy: what is copied while threads wait for one another twice.
const LEAST_SHARED: usize = 64 << 10;

/// Most floats of kept weights that several threads read: 1 MiB, which a core's second-level cache holds.
const MOST_READ_TWICE: usize = 256 << 10;

/// Least tiles in the height of a block of rows that is cut to make more tasks.
const FEWEST_TILES: usize = 2;

/// Floats of the panels of `B` that a tile's rows of `A` meet one behind the other. `C` is then written in the order in which
/// it lies in memory, which short sums are bound by.
const TOGETHER: usize = 16 * 1024;

/// Longest sum for which that pays: with longer ones a panel at a time stays in the first-level cache.
const SHORT: usize = 128;

/// Most of such panels.
const MOST_TOGETHER: usize = 16;

/// Tasks wanted: where blocks of rows and panels make fewer, the sum is split. Reductions and scalar products have as many.
const TASKS: usize = 32;

/// Least multiply-adds of a task of scalar products: it takes a microsecond, as long as handing it out.
const LEAST_WORK: usize = 16 << 10;

/// Most panels for which columns of `A` are read where they lie.
const COPIED_PANELS: usize = 2;

/// Least elements of a piece of a sum that is split to make more tasks.
const SPLIT_GRAIN: usize = 512;

/// What a product is: `C[m, n] = act(Σ_k A[m, k] · B[k, n] · scale[n] + bias[n])`.
#[derive(Debug, Clone, Copy)]
pub struct ProductSpec {
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Length of the sum.
    pub k: usize,
    /// Floats from row to row and from column to column of `A`.
    pub a: [usize; 2],
    /// Floats from row to row and from column to column of `B`.
    pub b: [usize; 2],
    /// Floats from row to row of `C`, whose columns lie side by side.
    pub c: usize,
    /// Applied last. Not every one is; see [`Product::remaining_act`].
    pub act: Option<Activation>,
}

/// A product whose blocks have been laid out.
pub struct Product {
    spec: ProductSpec,
    tiles: Tiles,
    threads: usize,
    /// Blocks of rows, and rows of the highest.
    row_blocks: usize,
    highest: usize,
    /// Blocks of panels.
    panel_blocks: usize,
    /// Pieces that the sum is cut into, and the length of each.
    splits: usize,
    split_len: usize,
    /// Rows of `B` in a cache block.
    k_block: usize,
    /// Panels that the tiles of a block go through side by side.
    together: usize,
    /// What is packed once for all tasks.
    shared: Shared,
    /// Few rows, and both operands along the sum: scalar products.
    dots: bool,
    /// The operand that goes through a prologue.
    prepared: Option<Operand>,
    copy_a: CopyA,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

/// Stride of copied rows of `A`, of `k_block` elements: an odd number of cache lines, so that a tile's rows lie in different
/// sets.
const fn copied_step(k_block: usize) -> usize {
    ((k_block / K_GRAIN) | 1) * K_GRAIN
}

/// An operand of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The rows of the result.
    A,
    /// Its columns.
    B,
}

/// How a tile finds its rows of `A`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyA {
    /// It reads them where they lie.
    No,
    /// They lie along memory, but so far apart that the cache maps them to the same few sets, or they go through a prologue:
    /// each tile's are copied.
    Rows,
    /// Its columns lie along memory, and a tile takes a part of a cache line of each: each tile's are copied side by side,
    /// where enough panels meet them or they are as far apart as that. A tile as high as a line reads them where they lie, which
    /// takes less than the copy.
    Columns,
}

impl CopyA {
    fn of(spec: &ProductSpec, tiles: &Tiles, prepared: bool) -> CopyA {
        let same_sets = |step: usize| (step * 4).is_multiple_of(2048);
        let is_met = spec.n > COPIED_PANELS * tiles.columns();
        if prepared || spec.a[1] == 1 && same_sets(spec.a[0]) && spec.m > 1 {
            CopyA::Rows
        } else if spec.a[0] == 1 && (is_met || same_sets(spec.a[1])) && spec.k > 1 && tiles.rows < MAX_ROWS {
            CopyA::Columns
        } else {
            CopyA::No
        }
    }
}

impl Product {
    /// Lays out the blocks of `spec`.
    pub fn new(spec: ProductSpec, level: SimdLevel, threads: usize) -> Product {
        Product::prepared(spec, level, threads, None)
    }

    /// The same with a prologue for one of the operands, the columns of which lie side by side.
    pub fn prepared(spec: ProductSpec, level: SimdLevel, threads: usize, prepared: Option<Operand>) -> Product {
        Product::lay_out(spec, level, threads, prepared, false)
    }

    /// The same for a program that [keeps](Product::kept) the panels of `B`, if they can be kept.
    pub fn keeping(spec: ProductSpec, level: SimdLevel, threads: usize) -> Product {
        Product::lay_out(spec, level, threads, None, true)
    }

    fn lay_out(spec: ProductSpec, level: SimdLevel, threads: usize, prepared: Option<Operand>, keeps: bool) -> Product {
        let tiles = Tiles::new(level);
        let threads = threads.max(1);
        let dots = spec.m <= most_rows(spec.k) && spec.a[1] == 1 && spec.b[0] == 1 && spec.b[1] != 1;
        let dots = dots && prepared.is_none();
        let side_by_side = prepared.is_none_or(|o| (if o == Operand::A { spec.a } else { spec.b })[1] == 1);
        assert!(side_by_side, "the columns of an operand with a prologue lie side by side");
        let (tiles_high, panels) = (tiles_in(spec.m, tiles.rows).max(1), spec.n.div_ceil(tiles.columns()).max(1));
        // From the shape alone: this decides the order of the sum.
        let tasks = tiles_high.div_ceil(8) * panels;
        let splits = if dots { 1 } else { (spec.k / SPLIT_GRAIN).min(TASKS / 2 / tasks).max(1) };
        let split_len = spec.k.div_ceil(splits).max(1);
        let splits = spec.k.div_ceil(split_len).max(1);
        let k_block = split_len.div_ceil(split_len.div_ceil(K_BLOCK)).next_multiple_of(K_GRAIN);
        // Blocks of rows: as many as bring the last task to its end soonest, where copying a panel for one block counts as a tile. Of
        // several numbers that do, one for each thread: it then reads and writes the rows that it has had in the product before.
        let shares = |blocks: usize| blocks > 1 && spec.n * spec.k * (blocks - 1) >= LEAST_SHARED;
        let is_kept = keeps && spec.m <= MOST_ROWS && spec.b[1] != 1 && spec.n * spec.k <= MOST_READ_TWICE;
        let ends = |blocks: &usize| {
            let copied = usize::from(!shares(*blocks) && !is_kept);
            let ends = (blocks * panels * splits).div_ceil(threads) * (tiles_high.div_ceil(*blocks) + copied);
            (ends, if is_kept { threads.abs_diff(*blocks) } else { 0 })
        };
        let fewest = tiles_high.div_ceil(TILES_IN_BLOCK);
        let row_blocks = (fewest..=fewest.max(tiles_high / FEWEST_TILES)).min_by_key(ends).unwrap_or(fewest);
        // Tables hold offsets of 32 bits.
        let step = spec.a[0].max(spec.c).max(copied_step(k_block)).max(1);
        let row_blocks = row_blocks.max(spec.m.div_ceil(u32::MAX as usize / step + 1)).max(1);
        let wanted = if threads > 1 { threads * TASKS_PER_THREAD } else { 1 };
        let panel_blocks = panels.min(wanted.div_ceil(row_blocks));
        let highest = spec.m.div_ceil(row_blocks);
        let rows = |step: usize| (0..highest).map(|r| (r * step) as u32).collect();
        let together = if k_block > SHORT { 1 } else { TOGETHER / (k_block * tiles.columns()) };
        let together = together.clamp(1, MOST_TOGETHER).min(panels.div_ceil(panel_blocks));
        let copy_a = CopyA::of(&spec, &tiles, prepared == Some(Operand::A));
        let a_step = match copy_a {
            CopyA::No => spec.a[0],
            CopyA::Rows => copied_step(k_block),
            CopyA::Columns => 1,
        };
        let mut product = Product {
            tiles,
            threads,
            row_blocks,
            highest,
            panel_blocks,
            splits,
            split_len,
            k_block,
            together,
            dots,
            prepared,
            copy_a,
            a_rows: rows(a_step),
            c_rows: rows(if splits > 1 { round_up(spec.n) } else { spec.c }),
            shared: Shared::default(),
            spec,
        };
        product.shared = Shared::of(&product, shares(row_blocks));
        product
    }

    /// The activation that it was made for.
    pub fn act(&self) -> Option<Activation> {
        self.spec.act
    }

    /// The activation that is left to [`EpilogueOperands::finish`]: every activation that is not fused, and all of them where
    /// the sum is split.
    pub fn remaining_act(&self) -> Option<Activation> {
        if self.fused_act().is_some() { None } else { self.spec.act }
    }

    fn fused_act(&self) -> Option<Activation> {
        self.spec.act.filter(|&act| is_fused(act) && self.splits == 1)
    }

    fn all_panels(&self) -> usize {
        self.spec.n.div_ceil(self.tiles.columns())
    }

    fn partial_floats(&self) -> usize {
        if self.splits > 1 { self.spec.m * round_up(self.spec.n) } else { 0 }
    }

    /// Floats between the columns of a tile's copy of `A`.
    fn copied_columns_step(&self) -> usize {
        self.tiles.rows.next_multiple_of(self.tiles.lanes)
    }

    /// Floats of a tile's copy of `A`.
    fn copied_floats(&self) -> usize {
        match self.copy_a {
            CopyA::No => 0,
            CopyA::Rows => self.tiles.rows * copied_step(self.k_block),
            // A cache line more, so that the tiles of a column lie in different sets.
            CopyA::Columns => self.k_block * self.copied_columns_step() + ALIGN / 4,
        }
    }

    /// Floats of a panel of `B` in a cache block.
    fn panel_floats(&self) -> usize {
        self.k_block * self.tiles.columns()
    }

    /// Floats of the copy of a block of rows, in a cache block.
    fn block_a_floats(&self) -> usize {
        round_up(tiles_in(self.highest, self.tiles.rows) * self.copied_floats())
    }

    /// Floats of a task's own panels.
    fn scratch_b_floats(&self) -> usize {
        if self.shared.b { 0 } else { self.together * self.panel_floats() }
    }

    /// Floats of a thread's scratch.
    fn scratch_floats(&self) -> usize {
        self.scratch_b_floats() + if self.shared.a { 0 } else { self.block_a_floats() }
    }

    /// Floats of workspace without those that are shared.
    fn own_floats(&self) -> usize {
        if self.dots {
            return 0;
        }
        self.splits * self.partial_floats() + PerThread::size(self.threads, self.scratch_floats())
    }

    fn workspace_floats(&self) -> usize {
        round_up(self.own_floats()) + self.shared.floats(self)
    }

    /// Workspace that [`Product::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    /// Floats of all panels of `B`.
    fn packed_floats(&self) -> usize {
        self.all_panels() * self.tiles.columns() * self.spec.k
    }

    /// The panels of `B`, operand 1, if copying them is a part of each run.
    pub fn kept(&self) -> Option<Kept> {
        let copied = !self.dots && self.spec.b[1] != 1 && !self.shared.a;
        kept_weights(self.spec.m, self.packed_floats(), round_up(self.own_floats())).filter(|_| copied)
    }

    /// Computes the product. `a`, `b` and `c` begin at element (0, 0).
    ///
    /// # Panics
    /// A slice is too short, a prologue is there that the product was not made for or the other way round, or the pool has
    /// more threads than the product was made for.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        a: Source,
        b: Source,
        operands: impl Into<EpilogueOperands<'a>>,
        c: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        let (spec, operands, Memory { workspace, kept }) = (&self.spec, operands.into(), memory.into());
        if spec.m == 0 || spec.n == 0 {
            return;
        }
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let prologues = [(Operand::A, a.prologue), (Operand::B, b.prologue)];
        let expected = prologues.iter().all(|(o, prologue)| prologue.is_some() == (self.prepared == Some(*o)));
        assert!(expected, "made for another prologue");
        let prologue = a.prologue.or(b.prologue);
        let (a, b) = (a.values, b.values);
        if spec.k > 0 {
            assert!(a.len() > (spec.m - 1) * spec.a[0] + (spec.k - 1) * spec.a[1], "A is too short");
            assert!(b.len() > (spec.k - 1) * spec.b[0] + (spec.n - 1) * spec.b[1], "B is too short");
        }
        assert!(c.len() >= (spec.m - 1) * spec.c + spec.n, "C is too short");
        assert!(operands.has(spec.n, (spec.m - 1) * spec.c + spec.n), "an operand of the epilogue is too short");
        if self.dots {
            return self.dots(pool, a, b, operands, Parts::new(c));
        }
        let packed = kept.map(|KeptMemory { bytes, ready }| {
            let packed = workspace_floats(bytes, self.packed_floats());
            if !ready {
                self.pack(pool, b, packed);
            }
            packed.as_ptr()
        });
        // What is kept need not be shared.
        let shared = if packed.is_none() { self.shared } else { Shared::default() };
        let own = self.own_floats();
        let floats = workspace_floats(workspace, round_up(own) + shared.floats(self));
        let (floats, packs) = floats.split_at_mut(round_up(own));
        let (partial, scratch) = floats[..own].split_at_mut(self.splits * self.partial_floats());
        let epilogue = Epilogue::of(self.fused_act()).with(operands, 0, c.as_ptr());
        let target = if self.splits > 1 { Parts::new(&mut *partial) } else { Parts::new(&mut *c) };
        let level = self.tiles.level;
        let mut job = Job {
            product: self,
            a: a.as_ptr(),
            b: b.as_ptr(),
            packed,
            c: target,
            scratch: PerThread::new(Parts::new(scratch), self.scratch_floats()),
            shared,
            packs: Parts::new(packs),
            group: 0,
            epilogue: if self.splits > 1 { Epilogue::NONE } else { epilogue },
            finish: operands.finish.filter(|_| self.splits == 1),
            prologue,
            copy: level.routine::<CopyRows>(),
            columns: level.routine::<CopyColumns>(),
            transpose: level.routine::<PackTransposed>(),
        };
        for group in 0..shared.groups(self) {
            job.group = group;
            pool.run(job.packs(), |task, _| job.pack(task));
            pool.run(self.row_blocks * self.panel_blocks * self.splits, |task, worker| job.task(task, worker));
        }
        if self.splits > 1 {
            self.reduce(pool, partial, operands, Parts::new(c));
        }
    }

    /// Packs all panels of `B`.
    fn pack(&self, pool: &Pool, b: &[f32], packed: &mut [f32]) {
        let (spec, width) = (&self.spec, self.tiles.columns());
        let transpose = self.tiles.level.routine::<PackTransposed>();
        let packed = Parts::new(packed);
        pool.run(self.all_panels(), |panel, _| {
            let (n, len) = (panel * width, spec.k * width);
            // SAFETY: a panel belongs to one task.
            let to = unsafe { packed.part(panel * len..(panel + 1) * len) }.as_mut_ptr();
            let (from, columns) = (b.as_ptr().wrapping_add(n * spec.b[1]), (spec.n - n).min(width));
            // SAFETY: the panel is inside B, and `to` has room for it.
            unsafe { transpose(Panel { from, strides: spec.b, rows: spec.k, columns, to, width }) };
        });
    }

    fn dots(&self, pool: &Pool, a: &[f32], b: &[f32], operands: EpilogueOperands, c: Parts<f32>) {
        let spec = &self.spec;
        let worth = LEAST_WORK / (spec.m * spec.k).max(1);
        let columns = chunks(spec.n, spec.n.div_ceil(TASKS).max(worth).next_multiple_of(4));
        let Epilogue { low, high, .. } = Epilogue::of(self.fused_act());
        pool.run(columns.count(), |task, _| {
            self.tiles.level.run(Dots {
                a: (a, spec.a[0]),
                b: (b, spec.b[1]),
                rows: spec.m,
                k: spec.k,
                columns: columns.range(task),
                operands,
                bounds: [low, high],
                c: (c.as_ptr(), spec.c),
            });
            if let Some(finish) = operands.finish {
                let columns = columns.range(task);
                let (first, columns) = (c.as_ptr().wrapping_add(columns.start), columns.len());
                // SAFETY: these columns of C are this task's own.
                unsafe { finish.run(Rows { first, rows: spec.m, columns, step: spec.c }) };
            }
        });
    }

    /// Adds up the pieces of the sum, in their order.
    fn reduce(&self, pool: &Pool, partial: &[f32], operands: EpilogueOperands, c: Parts<f32>) {
        let (spec, step) = (&self.spec, round_up(self.spec.n));
        let blocks = chunks(spec.m, spec.m.div_ceil(TASKS));
        pool.run(blocks.count(), |task, _| {
            for m in blocks.range(task) {
                // SAFETY: a row belongs to one task.
                let row = unsafe { c.part(m * spec.c..m * spec.c + spec.n) };
                let rows = partial[m * step..].chunks(self.partial_floats()).take(self.splits);
                match (operands.scale, operands.bias) {
                    (None, Some(bias)) => row.copy_from_slice(&bias[..spec.n]),
                    _ => row.fill(0.0),
                }
                self.tiles.level.run(AddRows { rows, sums: row });
                if let Some(scale) = operands.scale {
                    let bias = operands.bias.unwrap_or(&[]).iter().chain(std::iter::repeat(&0.0));
                    row.iter_mut().zip(scale).zip(bias).for_each(|((x, scale), bias)| *x = *x * scale + bias);
                }
                if let Some(residual) = operands.residual {
                    row.iter_mut().zip(&residual[m * spec.c..]).for_each(|(x, residual)| *x += residual);
                }
                if let Some(relu_mask) = operands.relu_mask {
                    let values = &relu_mask[m * spec.c..];
                    row.iter_mut().zip(values).for_each(|(x, y)| *x = if *y <= 0.0 { 0.0 } else { *x });
                }
                if let Some(finish) = operands.finish {
                    // SAFETY: as above.
                    unsafe { finish.run(Rows { first: row.as_mut_ptr(), rows: 1, columns: spec.n, step: spec.c }) };
                }
            }
        });
    }
}
