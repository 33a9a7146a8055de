//! One run of a product, task by task.

use super::shared::Shared;
use super::{CopyA, MOST_TOGETHER, Operand, Product, copied_step};
use crate::gemm::LINE;
use crate::gemm::pack::{Columns, Copy2d, Panel};
use crate::gemm::prologue::Prologue;
use crate::gemm::tile::{Epilogue, Finish, ONE_RUN, Rows, Tile, tile_rows, tiles_in};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, chunks};
use crate::simd::prefetch_far;
use std::ops::Range;

/// One run of a product.
pub(super) struct Job<'a> {
    pub product: &'a Product,
    pub a: *const f32,
    pub b: *const f32,
    /// All panels of `B`, where they are kept: `[panel][row][column]`.
    pub packed: Option<*const f32>,
    pub c: Parts<'a, f32>,
    pub scratch: PerThread<'a>,
    /// What is packed for all tasks, where, and which of the groups of cache blocks it is for.
    pub shared: Shared,
    pub packs: Parts<'a, f32>,
    pub group: usize,
    pub epilogue: Epilogue,
    pub finish: Option<&'a dyn Finish>,
    /// Of the operand that the product was made for.
    pub prologue: Option<Prologue<'a>>,
    pub copy: unsafe fn(Copy2d),
    pub columns: unsafe fn(Columns),
    pub transpose: unsafe fn(Panel),
}

// SAFETY: the pointers are to operands that are only read, and that outlive the run.
unsafe impl Sync for Job<'_> {}

/// Rows of the result and a stretch of the sum.
pub(super) struct Block {
    rows: Range<usize>,
    k: Range<usize>,
    /// The number of the block of rows, of the piece of the sum, and of the stretch in that.
    pub row_block: usize,
    pub split: usize,
    pub stretch: usize,
    /// Nothing has been summed yet.
    first: bool,
    /// Nothing is left to sum.
    last: bool,
}

/// A panel of `B` where the tiles read it, and the columns of `C` that it makes.
#[derive(Clone, Copy)]
struct PlacedPanel {
    b: *const f32,
    b_step: usize,
    n: usize,
    columns: usize,
}

impl Default for PlacedPanel {
    fn default() -> Self {
        PlacedPanel { b: std::ptr::null(), b_step: 0, n: 0, columns: 0 }
    }
}

/// Cache lines of rows that lie apart.
#[derive(Clone, Copy)]
struct Lines {
    first: *const f32,
    rows: usize,
    /// Lines of a row.
    of_row: usize,
    /// Floats from row to row.
    step: usize,
}

impl Lines {
    const NONE: Lines = Lines { first: std::ptr::null(), rows: 0, of_row: 0, step: 0 };

    /// Of `rows` rows of `len` floats each.
    fn new(first: *const f32, [rows, len]: [usize; 2], step: usize) -> Lines {
        Lines { first, rows, of_row: len.div_ceil(LINE), step }
    }

    fn count(&self) -> usize {
        self.rows * self.of_row
    }

    /// Some of them, in their order.
    fn prefetch(&self, lines: Range<usize>) {
        let mut start = lines.start;
        while start < lines.end {
            let (row, line) = (start / self.of_row, start % self.of_row);
            let end = lines.end.min(start + self.of_row - line);
            let first = self.first.wrapping_add(row * self.step + line * LINE);
            (0..end - start).for_each(|line| prefetch_far(first.wrapping_add(line * LINE)));
            start = end;
        }
    }
}

impl Product {
    /// A piece of the sum.
    pub(super) fn sum(&self, split: usize) -> Range<usize> {
        split * self.split_len..((split + 1) * self.split_len).min(self.spec.k)
    }
}

impl Block {
    /// Of a block of rows and a piece of the sum, one stretch.
    pub fn new(p: &Product, (row_block, split): (usize, usize), stretch: usize) -> Block {
        let sum = p.sum(split);
        let stretches = chunks(sum.len(), p.k_block);
        let range = stretches.range(stretch);
        Block {
            rows: tile_rows(p.spec.m, p.row_blocks, row_block),
            k: sum.start + range.start..sum.start + range.end,
            row_block,
            split,
            stretch,
            first: stretch == 0,
            last: stretch + 1 >= stretches.count(),
        }
    }
}

impl Job<'_> {
    /// Task number `task` of the run.
    pub fn task(&self, task: usize, worker: usize) {
        let p = self.product;
        let blocks = p.row_blocks * p.panel_blocks;
        let (split, rest) = (task / blocks, task % blocks);
        // What two tasks in a row share is still in L2 for the second: the wider of the two operands' blocks.
        let (row_block, panel_block) = if p.highest * p.panel_blocks > p.all_panels() * p.tiles.columns() {
            (rest / p.panel_blocks, rest % p.panel_blocks)
        } else {
            (rest % p.row_blocks, rest / p.row_blocks)
        };
        let panels = tile_rows(p.all_panels(), p.panel_blocks, panel_block);
        // SAFETY: a worker has its own scratch.
        let scratch = unsafe { self.scratch.of(worker) };
        let (scratch_b, scratch_a) = scratch.split_at_mut(p.scratch_b_floats());
        // An empty sum has a result as well.
        let count = chunks(p.sum(split).len(), p.k_block).count().max(1);
        for stretch in self.stretches(count) {
            let block = Block::new(p, (row_block, split), stretch);
            let copied = match self.shared_a(&block) {
                Some(at) => self.packs.as_ptr().wrapping_add(at).cast_const(),
                None => {
                    self.copy_a(&block, scratch_a);
                    scratch_a.as_ptr()
                }
            };
            for first in panels.clone().step_by(p.together) {
                self.panels(&block, first..(first + p.together).min(panels.end), scratch_b, copied);
            }
        }
    }

    /// The cache blocks of a piece of the sum that are packed now, by their numbers.
    fn stretches(&self, count: usize) -> Range<usize> {
        if !self.shared.any() {
            return 0..count;
        }
        let first = self.group * self.shared.stretches;
        first.min(count)..(first + self.shared.stretches).min(count)
    }

    /// Where the shared copy of a block of `A` lies: its first float; `None` if there is none.
    pub fn shared_a(&self, block: &Block) -> Option<usize> {
        let (p, Shared { a, stretches, .. }) = (self.product, self.shared);
        let stretch = block.stretch - self.group * stretches;
        let at = (block.split * stretches + stretch) * p.row_blocks + block.row_block;
        a.then(|| at * p.block_a_floats())
    }

    /// Where the rows of a shared panel of `B` lie that a block meets: the first float; `None` if there is none. The panels of a cache block
    /// follow one another, in the order in which they are read.
    pub fn shared_b(&self, block: &Block, panel: usize) -> Option<usize> {
        let (p, Shared { a, b, stretches }) = (self.product, self.shared);
        let copied = if a { p.splits * stretches * p.shared_a_floats() } else { 0 };
        let stretch = block.stretch - self.group * stretches;
        let at = (block.split * stretches + stretch) * p.all_panels() + panel;
        b.then(|| copied + at * p.panel_floats())
    }

    /// A block of rows times some panels, added to what `C` holds unless the sum starts here. `copied`: the copy of the rows, if
    /// there is one.
    fn panels(&self, block: &Block, panels: Range<usize>, scratch_b: &mut [f32], copied: *const f32) {
        let p = self.product;
        let mut placed = [PlacedPanel::default(); MOST_TOGETHER];
        let placed = &mut placed[..panels.len()];
        let next = self.lines(block, panels.end);
        for (i, (place, panel)) in placed.iter_mut().zip(panels).enumerate() {
            let scratch = i * p.panel_floats()..(i + 1) * p.panel_floats();
            *place = self.place(block, panel, scratch_b.get_mut(scratch).unwrap_or_default());
        }
        let count = tiles_in(block.rows.len(), p.tiles.rows);
        for i in 0..count {
            let rows = tile_rows(block.rows.len(), count, i);
            // A part of it beside each tile, while the memory has nothing else to do.
            next.prefetch(tile_rows(next.count(), count, i));
            for panel in &*placed {
                self.tile(block, panel, rows.clone(), copied.wrapping_add(i * p.copied_floats()));
            }
        }
        if let Some(finish) = self.finish.filter(|_| block.last) {
            for &PlacedPanel { n, columns, .. } in &*placed {
                let rows = Rows { first: self.block_c(block, n), rows: block.rows.len(), columns, step: p.spec.c };
                // SAFETY: the block of C is this task's own.
                unsafe { finish.run(rows) };
            }
        }
    }

    /// Where the panel lies that the tiles after these meet, or what it is copied from: nothing if there is none, or it is prefetched by the tiles.
    fn lines(&self, block: &Block, panel: usize) -> Lines {
        let (p, spec) = (self.product, &self.product.spec);
        let (n, width, k) = (panel * p.tiles.columns(), p.tiles.columns(), &block.k);
        if panel >= p.all_panels() || self.packed.is_some() {
            return Lines::NONE;
        }
        if let Some(at) = self.shared_b(block, panel) {
            return Lines::new(self.packs.as_ptr().wrapping_add(at), [1, k.len() * width], 0);
        }
        let (from, columns) = (self.b.wrapping_add(k.start * spec.b[0] + n * spec.b[1]), (spec.n - n).min(width));
        match spec.b {
            [1, step] if step != 1 => Lines::new(from, [columns, k.len()], step),
            // Rows are prefetched by the copy, and hardware foresees how they follow one another.
            _ => Lines::NONE,
        }
    }

    /// Where a panel of `B` is found: it is copied, if need be.
    fn place(&self, block: &Block, panel: usize, scratch: &mut [f32]) -> PlacedPanel {
        let p = self.product;
        let (spec, width) = (&p.spec, p.tiles.columns());
        let n = panel * width;
        let columns = (spec.n - n).min(width);
        let count = tiles_in(block.rows.len(), p.tiles.rows);
        let (b, b_step) = if let Some(packed) = self.packed {
            (packed.wrapping_add((panel * spec.k + block.k.start) * width), width)
        } else if let Some(at) = self.shared_b(block, panel) {
            (self.packs.as_ptr().wrapping_add(at).cast_const(), width)
        } else if spec.b[1] != 1 || columns < width || count > 2 || p.prepared == Some(Operand::B) {
            self.copy_panel(block, panel, scratch);
            (scratch.as_ptr(), width)
        } else {
            // Addresses may lie outside an operand that has no elements; they are then not read.
            (self.b.wrapping_add(block.k.start * spec.b[0] + n), spec.b[0])
        };
        PlacedPanel { b, b_step, n, columns }
    }

    /// Copies the rows of a panel of `B` that a block meets.
    ///
    /// # Panics
    /// There is no room for them.
    pub(super) fn copy_panel(&self, block: &Block, panel: usize, to: &mut [f32]) {
        let (p, k) = (self.product, &block.k);
        let (spec, width) = (&p.spec, p.tiles.columns());
        let n = panel * width;
        let (rows, columns) = (k.len(), (spec.n - n).min(width));
        let to = to[..rows * width].as_mut_ptr();
        // The address may lie outside an operand that has no elements; it is then not read.
        let from = self.b.wrapping_add(k.start * spec.b[0] + n * spec.b[1]);
        // SAFETY: the panel is inside B, and there is room for it.
        unsafe {
            if spec.b[1] == 1 {
                let padded = columns.next_multiple_of(p.tiles.lanes);
                let rows = Copy2d { from, from_step: spec.b[0], to, to_step: width, rows, columns, padded };
                self.copy_rows(Operand::B, rows, n);
            } else {
                (self.transpose)(Panel { from, strides: spec.b, rows, columns, to, width });
            }
        }
    }

    /// A tile: `rows` of the block, times a panel. `copied`: the tile's copy of `A`, if there is one.
    fn tile(&self, block: &Block, panel: &PlacedPanel, rows: Range<usize>, copied: *const f32) {
        let p = self.product;
        let &PlacedPanel { b, b_step, n, columns } = panel;
        let (a, table, a_step) = match p.copy_a {
            CopyA::No => (self.block_a(block), rows.start, p.spec.a[1]),
            CopyA::Rows => (copied, 0, 1),
            CopyA::Columns => (copied, 0, p.copied_columns_step()),
        };
        let tile = Tile {
            a,
            a_rows: &p.a_rows[table..],
            a_step,
            b,
            b_step,
            b_far: self.packed.is_some(),
            runs: ONE_RUN,
            run_len: block.k.len(),
            c: self.block_c(block, n),
            c_rows: &p.c_rows[rows.start..],
            n: columns,
            accumulate: !block.first,
            epilogue: if block.last { self.epilogue.from_column(n) } else { Epilogue::NONE },
        };
        // SAFETY: inside the operands, whose lengths `run` has checked; the tile of C is this task's own.
        unsafe { p.tiles.run(rows.len(), &tile) };
    }

    /// Element (0, `n`) of a block of `C`.
    fn block_c(&self, block: &Block, n: usize) -> *mut f32 {
        let p = self.product;
        let c_step = p.c_rows.get(1).map_or(0, |&step| step as usize);
        self.c.as_ptr().wrapping_add(block.split * p.partial_floats() + block.rows.start * c_step + n)
    }

    /// Copies rows of an operand from column `first` on, by way of the prologue if it has one.
    ///
    /// # Safety
    /// The rows are valid in full length, and the source and the target do not overlap.
    unsafe fn copy_rows(&self, operand: Operand, rows: Copy2d, first: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.prologue.filter(|_| self.product.prepared == Some(operand)) {
                Some(prologue) => prologue.copy(rows, first),
                None => (self.copy)(rows),
            }
        }
    }

    /// Copies a block of `A` to where its tiles find it, if need be.
    pub(super) fn copy_a(&self, block: &Block, scratch: &mut [f32]) {
        let p = self.product;
        let spec = &p.spec;
        let (from, tile, tiles) = (self.block_a(block), p.copied_floats(), tiles_in(block.rows.len(), p.tiles.rows));
        let (len, rows) = (block.k.len(), block.rows.len());
        let to = scratch[..tiles * tile].as_mut_ptr();
        match p.copy_a {
            CopyA::No => {}
            CopyA::Rows => {
                for i in 0..tiles {
                    let rows = tile_rows(rows, tiles, i);
                    let (from, to) = (from.wrapping_add(rows.start * spec.a[0]), to.wrapping_add(i * tile));
                    let (from_step, to_step, rows) = (spec.a[0], copied_step(p.k_block), rows.len());
                    let rows = Copy2d { from, from_step, to, to_step, rows, columns: len, padded: len };
                    // SAFETY: the rows are inside A, and the scratch has room for them.
                    unsafe { self.copy_rows(Operand::A, rows, block.k.start) };
                }
            }
            CopyA::Columns => {
                let to_step = p.copied_columns_step();
                // SAFETY: the block is inside A, and the scratch has room for it.
                unsafe { (self.columns)(Columns { from, from_step: spec.a[1], len, rows, tiles, to, to_step, tile }) };
            }
        }
    }

    /// Element (0, 0) of a block of `A`.
    fn block_a(&self, block: &Block) -> *const f32 {
        let spec = &self.product.spec;
        self.a.wrapping_add(block.rows.start * spec.a[0] + block.k.start * spec.a[1])
    }
}
