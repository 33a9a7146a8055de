//! The product of states with the weight at a position: rows of a task, with a weight that all tasks share.

use super::SAMPLES;
use crate::gemm::bf16::block::{Block, Blocks, Results};
use crate::gemm::bf16::pack::{Packer, PairRows, RoundRows};
use crate::gemm::bf16::product::{floats, is_worthwhile, panel_start, row_steps};
use crate::gemm::bf16::{PANEL, SIDE, STEP, TILE, last_terms, steps, tiles};
use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::gemm::product::ProductSpec;
use crate::gemm::round_up;
use crate::gemm::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile};
use crate::run::threads::{Parts, Pool, chunks};
use crate::simd::SimdLevel;
use crate::simd::bf16::{Bf16Unit, Instructions};

/// Most rows of the weight in a block of the sum: a panel of 32 KiB at 512 bits.
const K_BLOCK: usize = 256;

/// Floats from row to row of a table whose rows have `width` floats: whole cache lines, an odd number of them, so that rows lie in different sets
/// of the cache.
pub(super) fn odd_lines(width: usize) -> usize {
    let step = round_up(width);
    if (step / 16).is_multiple_of(2) { step + 16 } else { step }
}

/// The product of a task's rows with a weight that has been packed.
pub(super) struct StepProduct {
    /// Most rows.
    rows: usize,
    /// Length of the sums, and columns.
    k: usize,
    n: usize,
    form: Form,
}

/// What its factors are.
enum Form {
    /// In single precision.
    Single { tiles: Box<Tiles>, a_rows: Vec<u32>, c_rows: Vec<u32> },
    /// Rounded to bf16.
    Bf16 { unit: Bf16Unit, level: SimdLevel, packer: Packer },
}

impl StepProduct {
    /// Of at most `rows` rows of `k` numbers, for a task of a batch of `samples`, and `n` columns; rows lie [`odd_lines`] apart.
    pub(super) fn new(samples: usize, rows: usize, [k, n]: [usize; 2], how: Instructions) -> Self {
        // From the batch, not from the task's rows: those depend on the number of threads.
        let spec = ProductSpec { m: samples.min(SAMPLES), n, k, a: [k, 1], b: [n, 1], c: n, act: None };
        let table = |width: usize| (0..rows).map(|row| (row * odd_lines(width)) as u32).collect();
        let form = match how.bf16.filter(|unit| is_worthwhile(&spec, *unit, false)) {
            Some(unit) => Form::Bf16 { unit, level: how.level, packer: Packer::new(unit, how.level) },
            None => Form::Single { tiles: Box::new(Tiles::new(how.level)), a_rows: table(k), c_rows: table(n) },
        };
        StepProduct { rows, k, n, form }
    }

    /// Floats of the packed weight.
    pub(super) fn packed_floats(&self) -> usize {
        match &self.form {
            Form::Single { tiles, .. } => self.n.div_ceil(tiles.columns()) * tiles.columns() * self.k,
            Form::Bf16 { .. } => floats(tiles(self.n) * steps(self.k) * TILE),
        }
    }

    /// Floats of a task's rows, of their products, and of what [`Steps`] needs beside them.
    pub(super) fn task_floats(&self) -> [usize; 3] {
        let (rows, rounded) = match &self.form {
            Form::Single { .. } => (self.rows, 0),
            // Whole tiles are written.
            Form::Bf16 { .. } => {
                let rows = self.rows.next_multiple_of(SIDE);
                (rows, floats(rows * row_steps(steps(self.k)) * STEP))
            }
        };
        [self.rows * odd_lines(self.k), rows * odd_lines(self.n), rounded]
    }

    /// Packs a weight whose rows or columns, as `transposed` says, are those of the product.
    pub(super) fn pack(&self, pool: &Pool, w: &[f32], transposed: bool, packed: &mut [f32]) {
        assert!(w.len() == self.k * self.n && packed.len() == self.packed_floats());
        let packed = Parts::new(packed);
        match &self.form {
            Form::Single { tiles, .. } => {
                let width = tiles.columns();
                pool.run(self.n.div_ceil(width), |panel, _| {
                    let len = self.k * width;
                    // SAFETY: a panel belongs to one task.
                    let to = unsafe { packed.part(panel * len..(panel + 1) * len) }.as_mut_ptr();
                    self.pack_single(tiles, (w, transposed), panel * width, to);
                });
            }
            Form::Bf16 { packer, .. } => pool.run(self.n.div_ceil(PANEL), |panel, _| {
                let (from, steps) = (panel_start(panel, steps(self.k)) / 2, steps(self.k));
                let columns = (self.n - panel * PANEL).min(PANEL);
                let len = tiles(columns) * steps * TILE;
                // SAFETY: a panel belongs to one task.
                let to = unsafe { packed.part(from..from + len / 2) }.as_mut_ptr().cast::<u16>();
                for step in 0..steps {
                    let (k, n) = (step * STEP, panel * PANEL);
                    let (at, from_step) = if transposed { (n * self.k + k, self.k) } else { (k * self.n + n, self.n) };
                    let to = to.wrapping_add(step * tiles(columns) * TILE);
                    let from = w.as_ptr().wrapping_add(at);
                    let pairs = PairRows { from, from_step, terms: (self.k - k).min(STEP), columns, to };
                    // SAFETY: the step is inside the weight, and `to` has room for it.
                    unsafe { if transposed { packer.turned_pairs(pairs) } else { packer.pairs(pairs) } };
                }
            }),
        }
    }

    /// The panel that begins with column `first`.
    fn pack_single(&self, tiles: &Tiles, (w, transposed): (&[f32], bool), first: usize, to: *mut f32) {
        let (width, level) = (tiles.columns(), tiles.level);
        let columns = (self.n - first).min(width);
        // SAFETY: the panel is inside the weight, and `to` has room for it.
        unsafe {
            if transposed {
                let (from, strides) = (w.as_ptr().add(first * self.k), [1, self.k]);
                level.routine::<PackTransposed>()(Panel { from, strides, rows: self.k, columns, to, width });
            } else {
                let (from, from_step) = (w.as_ptr().add(first), self.n);
                let copy = Copy2d { from, from_step, to, to_step: width, rows: self.k, columns, padded: width };
                level.routine::<CopyRows>()(copy);
            }
        }
    }

    /// Gets ready for the steps of a task on this thread. `space` has as many floats as [`StepProduct::task_floats`] says, all 0.
    pub(super) fn begin<'a>(&'a self, packed: &'a [f32], space: &'a mut [f32]) -> Steps<'a> {
        assert!(packed.len() == self.packed_floats() && space.len() == self.task_floats()[2]);
        let blocks = match &self.form {
            Form::Single { .. } => None,
            Form::Bf16 { unit, level, .. } => Some(Blocks::new(*unit, *level)),
        };
        Steps { product: self, packed, space, blocks }
    }
}

/// Products of a task, one position after the other.
pub(super) struct Steps<'a> {
    product: &'a StepProduct,
    packed: &'a [f32],
    /// The rows, rounded; those that fill the last tile are 0.
    space: &'a mut [f32],
    blocks: Option<Blocks>,
}

impl Steps<'_> {
    /// `c = a · packed`, of the first `rows` rows; rows that fill a last tile of `c` are written, too.
    pub(super) fn run(&mut self, rows: usize, a: &[f32], c: &mut [f32]) {
        let product = self.product;
        let [a_floats, c_floats, _] = product.task_floats();
        assert!(rows <= product.rows && a.len() >= a_floats && c.len() >= c_floats);
        match (&product.form, &self.blocks) {
            (Form::Single { tiles, a_rows, c_rows }, _) => self.single(tiles, [a_rows, c_rows], rows, a, c),
            (Form::Bf16 { packer, .. }, Some(blocks)) => {
                let space = self.space.as_mut_ptr().cast();
                // SAFETY: the rows are inside `a`, and the space has room for them.
                unsafe { product.bf16(blocks, packer, (rows, a), self.packed.as_ptr().cast(), (space, c)) };
            }
            (Form::Bf16 { .. }, None) => unreachable!("`begin` makes them"),
        }
    }

    fn single(&self, tiles: &Tiles, [a_rows, c_rows]: [&[u32]; 2], rows: usize, a: &[f32], c: &mut [f32]) {
        let StepProduct { k, n, .. } = *self.product;
        let (width, blocks) = (tiles.columns(), chunks(k, K_BLOCK));
        for panel in 0..n.div_ceil(width) {
            let first = panel * width;
            for block in 0..blocks.count() {
                let of = blocks.range(block);
                for_each_tile(rows, tiles.rows, |start, rows| {
                    let tile = Tile {
                        a: a.as_ptr().wrapping_add(of.start),
                        a_rows: &a_rows[start..],
                        a_step: 1,
                        b: self.packed[(panel * k + of.start) * width..].as_ptr(),
                        b_step: width,
                        b_far: false,
                        runs: ONE_RUN,
                        run_len: of.len(),
                        c: c.as_mut_ptr().wrapping_add(first),
                        c_rows: &c_rows[start..],
                        n: (n - first).min(width),
                        accumulate: block > 0,
                        epilogue: Epilogue::NONE,
                    };
                    // SAFETY: the rows and the panel's columns are inside what has been checked, and no other task writes to `c`.
                    unsafe { tiles.run(rows, &tile) };
                });
            }
        }
    }
}

impl StepProduct {
    /// # Safety
    /// The rows are inside `a`, `packed` is all of the weight, and `space` and `c` have room for whole tiles.
    unsafe fn bf16(
        &self,
        blocks: &Blocks,
        packer: &Packer,
        (rows, a): (usize, &[f32]),
        packed: *const u16,
        (space, c): (*mut u16, &mut [f32]),
    ) {
        let (steps, c_step) = (steps(self.k), odd_lines(self.n));
        let to_step = row_steps(steps) * STEP;
        let rounded = RoundRows {
            from: a.as_ptr(),
            from_step: odd_lines(self.k),
            rows,
            columns: self.k,
            to: space,
            to_step,
            padded: steps * STEP,
        };
        // SAFETY: the caller's promise.
        unsafe { packer.rows(rounded) };
        for panel in 0..self.n.div_ceil(PANEL) {
            let first = panel * PANEL;
            for row in (0..rows).step_by(PANEL) {
                let shape = [(rows - row).min(PANEL), tiles((self.n - first).min(PANEL))];
                let block = Block {
                    a: space.wrapping_add(row * to_step),
                    a_step: 2 * to_step,
                    runs: &[0],
                    steps,
                    last: last_terms(self.k),
                    b: packed.wrapping_add(panel_start(panel, steps)),
                    c: Results::matrix(c.as_mut_ptr().wrapping_add(row * c_step + first), c_step),
                    accumulate: false,
                };
                // SAFETY: as above.
                unsafe { blocks.run(shape, &block) };
            }
        }
    }
}
