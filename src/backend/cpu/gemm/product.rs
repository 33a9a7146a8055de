//! Matrix products of any strides, in cache blocks, over the threads of a pool.
//!
//! Blocks: a panel of `B` of `K_BLOCK` rows and a tile's columns (32 KiB at 512 bits) stays in L1 while the tiles of a
//! block of rows sweep over it; the block of `A` (some 110 KiB, or 270 where that spares copies of `B`) stays in L2 while
//! the task goes through its panels. A task is a block of rows × some panels (× a stretch of the sum).

use super::dots::{Dots, MOST_ROWS};
use super::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use super::sums::AddRows;
use super::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile, is_fused};
use super::{round_up, workspace_floats};
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::cpu::threads::{Parts, Pool, chunks};
use crate::graph::op::Activation;

/// Rows of `B` in a cache block.
const K_BLOCK: usize = 256;

/// Tiles that a block of rows is high.
const TILES_IN_BLOCK: usize = 8;

/// The same where every block of rows copies the panels of `B` that it reads, and reads `A` where it lies.
const TILES_IN_HIGH_BLOCK: usize = 19;

/// Tasks that a product is cut into where it is large enough: enough to keep the threads of a large machine even.
const TASKS: usize = 32;

/// Where the sum is cut for want of other tasks, a piece has at least this many elements.
const SPLIT_GRAIN: usize = 512;

/// What a product is: `C[m, n] = act(Σ_k A[m, k] · B[k, n] + bias[n])`.
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
    /// Number of blocks of rows.
    row_blocks: usize,
    /// Panels in a task.
    panels: usize,
    /// Pieces that the sum is cut into, and the length of each.
    splits: usize,
    split_len: usize,
    /// Few rows, and both operands along the sum: scalar products.
    dots: bool,
    /// `B` is packed as a whole, once; else its columns lie side by side and a task copies what it reads.
    pack_b: bool,
    /// A task copies its block of `A`, see [`CopyA`].
    copy_a: CopyA,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
    copied_rows: Vec<u32>,
}

/// Stride of copied rows of `A`: a cache line more than a power of two.
const COPIED_STEP: usize = K_BLOCK + 16;

/// When a block of `A` is copied before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyA {
    /// It is read where it lies.
    No,
    /// Its rows lie along memory, but so far apart that the cache maps them to the same few sets.
    Rows,
    /// Its columns lie along memory, each on a page of its own.
    Columns,
}

impl CopyA {
    fn of(spec: &ProductSpec) -> CopyA {
        if spec.a[1] == 1 && (spec.a[0] * 4).is_multiple_of(2048) && spec.m > 1 {
            CopyA::Rows
        } else if spec.a[0] == 1 && spec.a[1] * 4 >= 2048 {
            CopyA::Columns
        } else {
            CopyA::No
        }
    }
}

impl Product {
    /// Lays out the blocks of `spec`.
    pub fn new(spec: ProductSpec, level: SimdLevel, threads: usize) -> Product {
        let tiles = Tiles::new(level);
        let (pack_b, copy_a) = (spec.b[1] != 1, CopyA::of(&spec));
        let most = if pack_b || copy_a != CopyA::No { TILES_IN_BLOCK } else { TILES_IN_HIGH_BLOCK };
        let row_blocks = spec.m.div_ceil(most * tiles.rows).max(1);
        let all_panels = spec.n.div_ceil(tiles.columns()).max(1);
        let panels = all_panels.div_ceil(TASKS.div_ceil(row_blocks));
        let tasks = row_blocks * all_panels.div_ceil(panels);
        let dots = spec.m <= MOST_ROWS && spec.a[1] == 1 && spec.b[0] == 1 && spec.b[1] != 1;
        let splits = if dots { 1 } else { (spec.k / SPLIT_GRAIN).min(TASKS / 2 / tasks).max(1) };
        let split_len = spec.k.div_ceil(splits).max(1);
        let splits = spec.k.div_ceil(split_len).max(1);
        let highest = spec.m.div_ceil(row_blocks);
        let rows = |step: usize| (0..highest).map(|r| (r * step) as u32).collect();
        assert!(highest * spec.a[0].max(spec.c) <= u32::MAX as usize, "rows of a product are too long");
        Product {
            tiles,
            threads: threads.max(1),
            row_blocks,
            panels,
            splits,
            split_len,
            dots,
            pack_b,
            copy_a,
            a_rows: rows(spec.a[0]),
            c_rows: rows(if splits > 1 { round_up(spec.n) } else { spec.c }),
            copied_rows: rows(COPIED_STEP),
            spec,
        }
    }

    /// The activation that is not applied here: the caller's to apply to `C`. All but bounds stay apart, and those
    /// too where the sum is cut in pieces.
    pub fn remaining_act(&self) -> Option<Activation> {
        if self.fused_act().is_some() { None } else { self.spec.act }
    }

    fn fused_act(&self) -> Option<Activation> {
        self.spec.act.filter(|&act| is_fused(act) && self.splits == 1)
    }

    fn all_panels(&self) -> usize {
        self.spec.n.div_ceil(self.tiles.columns())
    }

    fn packed_floats(&self) -> usize {
        if self.pack_b { self.all_panels() * self.spec.k * self.tiles.columns() } else { 0 }
    }

    fn partial_floats(&self) -> usize {
        if self.splits > 1 { self.spec.m * round_up(self.spec.n) } else { 0 }
    }

    fn scratch_floats(&self) -> usize {
        let b = if self.pack_b { 0 } else { K_BLOCK * self.tiles.columns() };
        b + match self.copy_a {
            CopyA::No => 0,
            CopyA::Rows => round_up(self.copied_rows.len() * COPIED_STEP),
            CopyA::Columns => K_BLOCK * round_up(self.a_rows.len()),
        }
    }

    fn workspace_floats(&self) -> usize {
        if self.dots {
            return 0;
        }
        self.packed_floats() + self.splits * self.partial_floats() + self.threads * self.scratch_floats()
    }

    /// Workspace that [`Product::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    /// Computes the product. `a`, `b` and `c` begin at element (0, 0); `workspace` at a multiple of 64 bytes.
    ///
    /// # Panics
    /// A slice is too short, or the pool has more threads than the product was made for.
    pub fn run(&self, pool: &Pool, a: &[f32], b: &[f32], bias: Option<&[f32]>, c: &mut [f32], workspace: &mut [u8]) {
        let spec = &self.spec;
        if spec.m == 0 || spec.n == 0 {
            return;
        }
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        if spec.k > 0 {
            assert!(a.len() > (spec.m - 1) * spec.a[0] + (spec.k - 1) * spec.a[1], "A is too short");
            assert!(b.len() > (spec.k - 1) * spec.b[0] + (spec.n - 1) * spec.b[1], "B is too short");
        }
        assert!(c.len() >= (spec.m - 1) * spec.c + spec.n, "C is too short");
        assert!(bias.is_none_or(|bias| bias.len() >= spec.n), "the bias is too short");
        if self.dots {
            return self.dots(pool, a, b, bias, Parts::new(c));
        }
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (packed, rest) = floats.split_at_mut(self.packed_floats());
        let (partial, scratch) = rest.split_at_mut(self.splits * self.partial_floats());
        if self.pack_b {
            self.pack(pool, b, packed);
        }
        let epilogue =
            Epilogue { bias: bias.map_or(std::ptr::null(), <[f32]>::as_ptr), ..Epilogue::of(self.fused_act()) };
        let target = if self.splits > 1 { Parts::new(&mut *partial) } else { Parts::new(&mut *c) };
        let job = Job {
            product: self,
            a: a.as_ptr(),
            b: if self.pack_b { packed.as_ptr() } else { b.as_ptr() },
            c: target,
            scratch: Parts::new(scratch),
            epilogue: if self.splits > 1 { Epilogue::NONE } else { epilogue },
        };
        let panel_blocks = self.all_panels().div_ceil(self.panels);
        pool.run(self.row_blocks * panel_blocks * self.splits, |task, worker| job.task(task, worker));
        if self.splits > 1 {
            self.reduce(pool, partial, bias, Parts::new(c));
        }
    }

    fn dots(&self, pool: &Pool, a: &[f32], b: &[f32], bias: Option<&[f32]>, c: Parts<f32>) {
        let spec = &self.spec;
        let columns = chunks(spec.n, spec.n.div_ceil(TASKS).next_multiple_of(4));
        let Epilogue { low, high, .. } = Epilogue::of(self.fused_act());
        pool.run(columns.count(), |task, _| {
            self.tiles.level.run(Dots {
                a: (a, spec.a[0]),
                b: (b, spec.b[1]),
                rows: spec.m,
                k: spec.k,
                columns: columns.range(task),
                bias,
                bounds: [low, high],
                c: (c.as_ptr(), spec.c),
            });
        });
    }

    /// Packs `B` to `[panel][k][columns]`.
    fn pack(&self, pool: &Pool, b: &[f32], packed: &mut [f32]) {
        let (spec, width) = (&self.spec, self.tiles.columns());
        let pack = self.tiles.level.routine::<PackTransposed>();
        let stretches = chunks(spec.k, K_BLOCK);
        let packed = Parts::new(packed);
        pool.run(self.all_panels() * stretches.count(), |task, _| {
            let (panel, k) = (task / stretches.count(), stretches.range(task % stretches.count()));
            let n = panel * width;
            // SAFETY: a stretch of a panel belongs to one task.
            let to = unsafe { packed.part((panel * spec.k + k.start) * width..(panel * spec.k + k.end) * width) };
            let from = b[k.start * spec.b[0] + n * spec.b[1]..].as_ptr();
            let (rows, columns, to) = (k.len(), (spec.n - n).min(width), to.as_mut_ptr());
            // SAFETY: `b` and `to` have these elements.
            unsafe { pack(Panel { from, strides: spec.b, rows, columns, to, width }) };
        });
    }

    /// Adds up the pieces of the sum, in their order.
    fn reduce(&self, pool: &Pool, partial: &[f32], bias: Option<&[f32]>, c: Parts<f32>) {
        let (spec, step) = (&self.spec, round_up(self.spec.n));
        let blocks = chunks(spec.m, spec.m.div_ceil(TASKS));
        pool.run(blocks.count(), |task, _| {
            for m in blocks.range(task) {
                // SAFETY: a row belongs to one task.
                let row = unsafe { c.part(m * spec.c..m * spec.c + spec.n) };
                let rows = partial[m * step..].chunks(self.partial_floats()).take(self.splits);
                match bias {
                    Some(bias) => row.copy_from_slice(&bias[..spec.n]),
                    None => row.fill(0.0),
                }
                self.tiles.level.run(AddRows { rows, sums: row });
            }
        });
    }
}

/// One run of a product.
struct Job<'a> {
    product: &'a Product,
    a: *const f32,
    b: *const f32,
    c: Parts<'a, f32>,
    scratch: Parts<'a, f32>,
    epilogue: Epilogue,
}

// SAFETY: the pointers are to operands that are only read, and that outlive the run.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    fn task(&self, task: usize, worker: usize) {
        let p = self.product;
        let panel_blocks = p.all_panels().div_ceil(p.panels);
        let (split, rest) = (task / (p.row_blocks * panel_blocks), task % (p.row_blocks * panel_blocks));
        // What two tasks in a row share is still in L2 for the second: the wider of the two operands' blocks.
        let (row_block, panel_block) = if p.a_rows.len() > p.panels * p.tiles.columns() {
            (rest / panel_blocks, rest % panel_blocks)
        } else {
            (rest % p.row_blocks, rest / p.row_blocks)
        };
        let rows = p.spec.m * row_block / p.row_blocks..p.spec.m * (row_block + 1) / p.row_blocks;
        let panels = panel_block * p.panels..((panel_block + 1) * p.panels).min(p.all_panels());
        let sum = split * p.split_len..((split + 1) * p.split_len).min(p.spec.k);
        // SAFETY: a worker has its own scratch.
        let scratch = unsafe { self.scratch.part(worker * p.scratch_floats()..(worker + 1) * p.scratch_floats()) };
        let (scratch_b, scratch_a) = scratch.split_at_mut(if p.pack_b { 0 } else { K_BLOCK * p.tiles.columns() });
        let mut k = sum.start;
        loop {
            let k_end = (k + K_BLOCK).min(sum.end);
            self.block(
                split,
                rows.clone(),
                panels.clone(),
                sum.start,
                k..k_end,
                k_end == sum.end,
                [scratch_a, scratch_b],
            );
            k = k_end;
            if k >= sum.end {
                break;
            }
        }
    }

    /// A block of rows times some panels over a stretch of the sum, added to what `C` holds unless the sum starts here.
    #[allow(clippy::too_many_arguments, reason = "the coordinates of a block")]
    fn block(
        &self,
        split: usize,
        rows: std::ops::Range<usize>,
        panels: std::ops::Range<usize>,
        sum_start: usize,
        k: std::ops::Range<usize>,
        last: bool,
        scratch: [&mut [f32]; 2],
    ) {
        let p = self.product;
        let (spec, width) = (&p.spec, p.tiles.columns());
        let copy = p.tiles.level.routine::<CopyRows>();
        let [scratch_a, scratch_b] = scratch;
        // Addresses may lie outside an operand that has no elements; they are then not read.
        let mut a = self.a.wrapping_add(rows.start * spec.a[0] + k.start * spec.a[1]);
        let mut a_rows = &p.a_rows[..];
        let (mut a_step, to) = (spec.a[1], scratch_a.as_mut_ptr());
        let copied = match p.copy_a {
            CopyA::No => None,
            CopyA::Rows => Some((spec.a[0], COPIED_STEP, rows.len(), k.len())),
            CopyA::Columns => Some((spec.a[1], round_up(p.a_rows.len()), k.len(), rows.len())),
        };
        if let Some((from_step, to_step, lines, columns)) = copied {
            // SAFETY: the block is inside A, and the scratch has room for it.
            unsafe { copy(Copy2d { from: a, from_step, to, to_step, rows: lines, columns, padded: columns }) };
            a = to;
            if p.copy_a == CopyA::Rows {
                a_rows = &p.copied_rows;
            } else {
                a_step = to_step;
            }
        }
        for panel in panels {
            let columns = (spec.n - panel * width).min(width);
            let (mut b, mut b_step);
            if p.pack_b {
                (b, b_step) = (self.b.wrapping_add((panel * spec.k + k.start) * width), width);
            } else {
                (b, b_step) = (self.b.wrapping_add(k.start * spec.b[0] + panel * width), spec.b[0]);
                if columns < width || rows.len() > 2 * p.tiles.rows {
                    let (from, to) = (b, scratch_b.as_mut_ptr());
                    let c =
                        Copy2d { from, from_step: b_step, to, to_step: width, rows: k.len(), columns, padded: width };
                    // SAFETY: the rows are inside B, and the scratch has room for them.
                    unsafe { copy(c) };
                    (b, b_step) = (scratch_b.as_ptr(), width);
                }
            }
            let n = panel * width;
            let c_step = p.c_rows.get(1).map_or(0, |&step| step as usize);
            let c = self.c.as_ptr().wrapping_add(split * p.partial_floats() + rows.start * c_step + n);
            let epilogue = match last {
                true if self.epilogue.bias.is_null() => self.epilogue,
                true => Epilogue { bias: self.epilogue.bias.wrapping_add(n), ..self.epilogue },
                false => Epilogue::NONE,
            };
            for_each_tile(rows.len(), p.tiles.rows, |start, height| {
                let tile = Tile {
                    a,
                    a_rows: &a_rows[start..],
                    a_step,
                    b,
                    b_step,
                    runs: ONE_RUN,
                    run_len: k.len(),
                    c,
                    c_rows: &p.c_rows[start..],
                    n: columns,
                    accumulate: k.start > sum_start,
                    epilogue,
                };
                // SAFETY: inside the operands, whose lengths `run` has checked; the tile of C is this task's own.
                unsafe { p.tiles.run(height, &tile) };
            });
        }
    }
}
