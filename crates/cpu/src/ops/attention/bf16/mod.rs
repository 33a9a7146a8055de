//! Attention whose products are made of numbers rounded to bf16, a head at a time. Scores, weights and sums are in single precision.
//!
//! A head's rows are rounded once, in every layout that a product reads. Then groups of 32 queries go through the keys: their scores lie
//! in the cache of the first level, where they become weights, and are rounded to be a factor of the next product.
//! Layouts are those of [`crate::gemm::bf16`].

mod backward;
mod forward;

pub use backward::TileBackward;
pub use forward::TileForward;

use super::distance::Adjust;
use super::rows::Rows;
use super::{AttentionShape, KEYS, odd_lines};
use crate::gemm::bf16::block::{Block, Blocks, Results};
use crate::gemm::bf16::pack::{Packer, PairRows, RoundRows};
use crate::gemm::bf16::product::{floats, panel_start, row_steps};
use crate::gemm::bf16::{PANEL, SIDE, STEP, TILE, last_terms, steps, tiles};
use crate::gemm::pack::{Copy2d, CopyRows};
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;
use std::ops::Range;

/// Queries that go through the keys together: the rows of a block.
pub const GROUP: usize = PANEL;

/// Least positions and least width of a head for which tiles are faster, measured: with fewer, rounding and padding take longer than
/// products do.
const LEAST: [usize; 2] = [4 * SIDE, SIDE / 2];

/// Whether tiles are faster for heads of this shape.
pub fn is_worthwhile(shape: &AttentionShape) -> bool {
    shape.length.min(shape.queries) >= LEAST[0] && shape.width >= LEAST[1]
}

/// The sizes with what both directions share.
struct Tiled {
    shape: AttentionShape,
    unit: Bf16Unit,
    level: SimdLevel,
    packer: Packer,
    /// Keys of a block, a multiple of the terms of a step if there are several.
    keys: usize,
    /// Floats from row to row of scores.
    scores_step: usize,
    /// Floats from row to row of what is as wide as a head.
    width_step: usize,
    adjust: Adjust,
    copy: unsafe fn(Copy2d),
}

/// Rows of `A`.
#[derive(Clone, Copy)]
struct Left {
    at: *const u16,
    /// Numbers from row to row.
    step: usize,
}

impl Left {
    /// Of `terms` terms each, which begin at `at`.
    fn new(at: *const u16, terms: usize) -> Left {
        Left { at, step: Self::step(terms) }
    }

    fn step(terms: usize) -> usize {
        row_steps(steps(terms)) * STEP
    }

    /// Floats of memory that `rows` rows of `terms` terms need.
    fn floats(rows: usize, terms: usize) -> usize {
        floats(tiles(rows) * SIDE * Self::step(terms))
    }

    /// Matrix this row and this step on.
    fn from(self, row: usize, step: usize) -> Left {
        Left { at: self.at.wrapping_add(row * self.step + step * STEP), ..self }
    }
}

/// Panels of `B`.
#[derive(Clone, Copy)]
struct Right {
    at: *const u16,
    /// Steps of each panel.
    steps: usize,
    /// Terms of the last one.
    last: usize,
    /// Columns of all.
    columns: usize,
}

impl Right {
    fn new(at: *const u16, terms: usize, columns: usize) -> Right {
        Right { at, steps: steps(terms), last: last_terms(terms), columns }
    }

    /// Floats of memory that they need.
    fn floats(terms: usize, columns: usize) -> usize {
        floats(tiles(columns) * steps(terms) * TILE)
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// Columns of a panel.
    fn width(&self, panel: usize) -> usize {
        (self.columns - panel * PANEL).min(PANEL)
    }

    /// Where a step of a panel begins.
    fn step(&self, panel: usize, step: usize) -> *const u16 {
        let at = panel_start(panel, self.steps) + step * tiles(self.width(panel)) * TILE;
        self.at.wrapping_add(at)
    }
}

/// Numbers in memory that lie row by row.
#[derive(Clone, Copy)]
struct Matrix {
    at: *const f32,
    /// Floats from row to row.
    step: usize,
    rows: usize,
    columns: usize,
}

impl Tiled {
    fn new(shape: AttentionShape, unit: Bf16Unit, level: SimdLevel) -> Tiled {
        let keys = shape.keys_of_block();
        Tiled {
            shape,
            unit,
            level,
            packer: Packer::new(unit, level),
            keys,
            scores_step: odd_lines(keys),
            width_step: odd_lines(shape.width),
            adjust: Adjust::new(level),
            copy: level.routine::<CopyRows>(),
        }
    }

    /// Rows as those of `A`. What is missing of the last tile is 0: its results are not read, but what lies there may be no number, which
    /// is slow.
    ///
    /// # Safety
    /// The rows are there, and `to` has room for them.
    unsafe fn left(&self, x: Matrix, to: *mut u16) -> Left {
        let left = Left::new(to, x.columns);
        let padded = steps(x.columns) * STEP;
        let rows = RoundRows {
            from: x.at,
            from_step: x.step,
            rows: x.rows,
            columns: x.columns,
            to,
            to_step: left.step,
            padded,
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.packer.rows(rows);
            for row in x.rows..x.rows.next_multiple_of(SIDE) {
                to.add(row * left.step).write_bytes(0, padded);
            }
        }
        left
    }

    /// Columns as rows of `A`: the sum goes over the rows.
    ///
    /// # Safety
    /// As [`Tiled::left`].
    unsafe fn left_of_columns(&self, x: Matrix, to: *mut u16) -> Left {
        let left = Left::new(to, x.rows);
        let rows = RoundRows {
            from: x.at,
            from_step: x.step,
            rows: x.columns,
            columns: x.rows,
            to,
            to_step: left.step,
            padded: steps(x.rows) * STEP,
        };
        // SAFETY: the caller's promise.
        unsafe { self.packer.turned_rows(rows) };
        left
    }

    /// Rows as terms of `B`, whose columns are theirs.
    ///
    /// # Safety
    /// As [`Tiled::left`].
    unsafe fn right(&self, x: Matrix, to: *mut u16) -> Right {
        let right = Right::new(to, x.rows, x.columns);
        for first in (0..x.rows).step_by(STEP) {
            let rows = Matrix { at: x.at.wrapping_add(first * x.step), rows: (x.rows - first).min(STEP), ..x };
            // SAFETY: the caller's promise.
            unsafe { self.right_step(rows, right, 0..right.panels(), first / STEP) };
        }
        right
    }

    /// A step of `panels` of `to`, from rows of at most so many terms.
    ///
    /// # Safety
    /// As [`Tiled::left`].
    unsafe fn right_step(&self, x: Matrix, to: Right, panels: Range<usize>, step: usize) {
        for panel in panels {
            let pairs = PairRows {
                from: x.at.wrapping_add(panel * PANEL),
                from_step: x.step,
                terms: x.rows,
                columns: to.width(panel),
                to: to.step(panel, step).cast_mut(),
            };
            // SAFETY: the caller's promise.
            unsafe { self.packer.pairs(pairs) };
        }
    }

    /// Rows as columns of `B`: the sum goes over their columns.
    ///
    /// # Safety
    /// As [`Tiled::left`].
    unsafe fn right_of_rows(&self, x: Matrix, to: *mut u16) -> Right {
        let right = Right::new(to, x.columns, x.rows);
        for panel in 0..right.panels() {
            for first in (0..x.columns).step_by(STEP) {
                let pairs = PairRows {
                    from: x.at.wrapping_add(panel * PANEL * x.step + first),
                    from_step: x.step,
                    terms: (x.columns - first).min(STEP),
                    columns: right.width(panel),
                    to: right.step(panel, first / STEP).cast_mut(),
                };
                // SAFETY: the caller's promise.
                unsafe { self.packer.turned_pairs(pairs) };
            }
        }
        right
    }

    /// At most [`GROUP`] rows of `a` times `panels` of `b`, the sum being of the steps `range` of `b`; of `a` it begins with the first.
    /// `c` gives the place of the results of a panel.
    ///
    /// # Safety
    /// All that is reached is there, and no other task touches the results.
    unsafe fn product(
        &self,
        blocks: &Blocks,
        (rows, a): (usize, Left),
        (b, panels, range): (Right, Range<usize>, Range<usize>),
        c: impl Fn(usize) -> Results,
        accumulate: bool,
    ) {
        for panel in panels {
            let block = Block {
                a: a.at,
                a_step: 2 * a.step,
                runs: &[0],
                steps: range.len(),
                last: if range.end == b.steps { b.last } else { STEP },
                b: b.step(panel, range.start),
                c: c(panel),
                accumulate,
            };
            // SAFETY: the caller's promise.
            unsafe { blocks.run([rows, tiles(b.width(panel))], &block) };
        }
    }

    /// The scores of a group of queries, whose rows of `a` are given, with the keys of a block up to `end`.
    ///
    /// # Safety
    /// As [`Tiled::product`].
    unsafe fn scores(&self, blocks: &Blocks, a: (usize, Left), b: Right, keys: Range<usize>, to: *mut f32) {
        let (first, panels) = (keys.start / PANEL, keys.start / PANEL..keys.end.div_ceil(PANEL));
        let place = |panel: usize| Results::matrix(to.wrapping_add((panel - first) * PANEL), self.scores_step);
        // SAFETY: the caller's promise.
        unsafe { self.product(blocks, a, (b, panels, 0..b.steps), place, false) };
    }

    /// Rows of scores of the queries `queries` and the keys `keys`, the first being at `scores`.
    fn rows(&self, scores: *mut f32, queries: Range<usize>, keys: Range<usize>) -> Rows {
        self.shape.rows(scores, self.scores_step, queries, keys)
    }

    /// The steps of a sum over positions that has these.
    fn steps_of(positions: &Range<usize>) -> Range<usize> {
        positions.start / STEP..positions.end.div_ceil(STEP)
    }
}

const _: () = assert!(GROUP == STEP && KEYS.is_multiple_of(STEP), "a group is a step of a sum over queries");
