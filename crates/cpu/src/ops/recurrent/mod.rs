//! Recurrent layers, whose input has been multiplied by its weights already.
//!
//! A task has some samples, and goes through all of their positions by itself: threads wait for one another once. At each position it multiplies
//! its states by the weight, which has been packed for all tasks and stays in the second-level cache, and goes through the gates of each sample.
//! No result of a sample depends on those beside it, and no sum on how many there are: the bits are the same for any number of threads, and
//! whatever fills a batch.

mod backward;
mod cells;
mod forward;

pub use backward::RecurrentGradKernel;
pub use forward::RecurrentKernel;

use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::gemm::round_up;
use crate::gemm::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile};
use crate::graph::Shape;
use crate::graph::op::{Cell, Recurrent};
use crate::run::frame::Frame;
use crate::run::threads::{Chunks, Parts, Pool, chunks};
use crate::simd::SimdLevel;
use std::ops::Range;

/// Most samples of a task: what a step makes of them stays in the second-level cache beside the weight.
const SAMPLES: usize = 32;

/// Most rows of the weight in a block of the sum: a panel of 32 KiB at 512 bits.
const K_BLOCK: usize = 256;

/// Sizes of a layer, and how its samples are shared out.
struct Layout {
    cell: Cell,
    reverse: bool,
    lengths: bool,
    carries: bool,
    samples: usize,
    length: usize,
    hidden: usize,
    threads: usize,
    level: SimdLevel,
}

impl Layout {
    /// Of the states `[N, L, H]`.
    fn new(op: &Recurrent, states: &Shape, level: SimdLevel, threads: usize) -> Self {
        let [samples, length, hidden] = states.dims().try_into().expect("the shape rule asks for three dimensions");
        let Recurrent { cell, reverse, lengths, carries, .. } = *op;
        Layout { cell, reverse, lengths, carries, samples, length, hidden, threads: threads.max(1), level }
    }

    /// Numbers of all gates.
    fn gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Numbers that the gradient needs of a position, beside its state.
    fn saved(&self) -> usize {
        self.cell.saved() * self.hidden
    }

    /// The samples of each task: every thread has as many tasks.
    fn tasks(&self) -> Chunks {
        let tasks = self.samples.div_ceil(SAMPLES).next_multiple_of(self.threads);
        chunks(self.samples, self.samples.div_ceil(tasks))
    }

    /// Most samples of a task.
    fn rows(&self) -> usize {
        self.tasks().range(0).len()
    }

    /// Positions of each sample, operand `i` of the frame.
    fn positions<'a>(&self, frame: &Frame<'a>, i: usize) -> Positions<'a> {
        Positions { lengths: if self.lengths { frame.input::<i32>(i) } else { &[] }, most: self.length }
    }

    /// What samples go on from, operand `i` of the frame behind the lengths; empty if they begin with zeros.
    fn carried<'a>(&self, frame: &Frame<'a>, i: usize) -> &'a [f32] {
        if self.carries { frame.input::<f32>(i + usize::from(self.lengths)) } else { &[] }
    }

    /// The state and the cell that a sample goes on from, each empty if there is none.
    fn carried_by<'a>(&self, carried: &'a [f32], sample: usize) -> [&'a [f32]; 2] {
        if carried.is_empty() {
            return [&[], &[]];
        }
        let width = self.cell.carried() * self.hidden;
        let (state, cell) = carried[sample * width..(sample + 1) * width].split_at(self.hidden);
        [state, cell]
    }

    /// The position that comes at that step, of as many, from the first one that there is to the last.
    fn position(&self, step: usize, most: usize) -> usize {
        if self.reverse { most - 1 - step } else { step }
    }

    /// The position whose state is that before position `t` of a sample with so many.
    fn before(&self, t: usize, length: usize) -> Option<usize> {
        if self.reverse { Some(t + 1).filter(|t| *t < length) } else { t.checked_sub(1) }
    }

    /// Where the numbers of position `t` of the sample lie, `width` each, in what a task has of a value.
    fn at(&self, sample: usize, t: usize, width: usize) -> Range<usize> {
        let row = sample * self.length + t;
        row * width..(row + 1) * width
    }

    /// Where a task's part of a value lies that has `width` numbers for each position.
    fn part(&self, samples: &Range<usize>, width: usize) -> Range<usize> {
        let of = self.length * width;
        samples.start * of..samples.end * of
    }
}

/// How many positions samples have.
#[derive(Clone, Copy)]
struct Positions<'a> {
    lengths: &'a [i32],
    most: usize,
}

impl Positions<'_> {
    fn of(self, sample: usize) -> usize {
        self.lengths.get(sample).map_or(self.most, |length| usize::try_from(*length).unwrap_or(0).min(self.most))
    }

    /// The most of some samples.
    fn most(self, samples: Range<usize>) -> usize {
        samples.map(|sample| self.of(sample)).max().unwrap_or(0)
    }
}

/// Floats from row to row of a table whose rows have `width` floats: whole cache lines, an odd number of them, so that rows lie in different sets
/// of the cache.
fn odd_lines(width: usize) -> usize {
    let step = round_up(width);
    if (step / 16).is_multiple_of(2) { step + 16 } else { step }
}

/// The product of a task's rows with a weight that has been packed.
struct StepProduct {
    tiles: Tiles,
    /// Length of the sums, and columns.
    k: usize,
    n: usize,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl StepProduct {
    /// Of at most `rows` rows of `k` numbers, and `n` columns; rows lie [`odd_lines`] apart.
    fn new(rows: usize, k: usize, n: usize, level: SimdLevel) -> Self {
        let table = |width: usize| (0..rows).map(|row| (row * odd_lines(width)) as u32).collect();
        StepProduct { tiles: Tiles::new(level), k, n, a_rows: table(k), c_rows: table(n) }
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(self.tiles.columns())
    }

    /// Floats of the packed weight.
    fn packed_floats(&self) -> usize {
        self.panels() * self.tiles.columns() * self.k
    }

    /// Packs a weight whose rows or columns, as `transposed` says, are those of the product.
    fn pack(&self, pool: &Pool, w: &[f32], transposed: bool, packed: &mut [f32]) {
        let (width, level) = (self.tiles.columns(), self.tiles.level);
        assert!(w.len() == self.k * self.n && packed.len() == self.packed_floats());
        let packed = Parts::new(packed);
        pool.run(self.panels(), |panel, _| {
            let (first, len) = (panel * width, self.k * width);
            // SAFETY: a panel belongs to one task.
            let to = unsafe { packed.part(panel * len..(panel + 1) * len) }.as_mut_ptr();
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
        });
    }

    /// `c = a · packed + bias`, of the first `rows` rows.
    fn run(&self, rows: usize, a: &[f32], packed: &[f32], bias: Option<&[f32]>, c: &mut [f32]) {
        let (width, blocks) = (self.tiles.columns(), chunks(self.k, K_BLOCK));
        assert!(rows <= self.a_rows.len() && packed.len() == self.packed_floats());
        assert!(a.len() >= rows * odd_lines(self.k) && c.len() >= rows * odd_lines(self.n));
        assert!(bias.is_none_or(|bias| bias.len() == self.n));
        for panel in 0..self.panels() {
            let first = panel * width;
            for block in 0..blocks.count() {
                let of = blocks.range(block);
                let mut epilogue = Epilogue::NONE;
                if let Some(bias) = bias.filter(|_| block + 1 == blocks.count()) {
                    epilogue.bias = bias[first..].as_ptr();
                }
                for_each_tile(rows, self.tiles.rows, |start, rows| {
                    let tile = Tile {
                        a: a.as_ptr().wrapping_add(of.start),
                        a_rows: &self.a_rows[start..],
                        a_step: 1,
                        b: packed[(panel * self.k + of.start) * width..].as_ptr(),
                        b_step: width,
                        b_far: false,
                        runs: ONE_RUN,
                        run_len: of.len(),
                        c: c.as_mut_ptr().wrapping_add(first),
                        c_rows: &self.c_rows[start..],
                        n: (self.n - first).min(width),
                        accumulate: block > 0,
                        epilogue,
                    };
                    // SAFETY: the rows, the panel's columns and the bias are inside what has been checked, and no other task writes to `c`.
                    unsafe { self.tiles.run(rows, &tile) };
                });
            }
        }
    }
}
