//! Scaled dot-product attention, forward and backward, in blocks of scores that stay in the cache.
//!
//! A task is a head of a sample; forward also a stretch of its queries, where heads are few. It copies the head's rows of
//! `qkv`, which lie far apart, side by side into its scratch memory, and the keys (backward also the values) once more as
//! columns; then it goes through blocks of queries × keys: scores by the register tile, weights in place (`rows`), products
//! with the weights by the register tile again. Scores of a block are at most `BLOCK` floats, whatever the length.
//!
//! With numbers rounded to bf16, products are made by tiles of another kind (`bf16`), and nothing else changes.
//!
//! What is summed in which order depends on the shapes alone: results are the same for any number of threads.

mod backward;
mod bf16;
mod cached;
mod distance;
mod forward;
mod head;
mod rows;

pub use backward::AttentionGradKernel;
pub use cached::{Kept, PromptAttention};
pub use forward::AttentionKernel;

use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::gemm::round_up;
use crate::gemm::tile::{Epilogue, MAX_ROWS, ONE_RUN, Tile, Tiles};
use crate::graph::Shape;
use crate::graph::op::{Attention, AttentionDropout, alibi_slope, attention_scale};
use crate::random::dropout_threshold;
use crate::run::frame::Frame;
use crate::simd::SimdLevel;
use distance::{Added, Adjust};
use rows::{Mask, Rows};
use std::ops::Range;

/// Most scores of a block: 128 KiB.
const BLOCK: usize = 32 * 1024;

/// Most keys of a block.
const KEYS: usize = 512;

/// Floats from row to row of a table whose rows have `width` floats: whole cache lines, an odd number of them, so that
/// neighbours in a column lie in different sets of the cache.
fn odd_lines(width: usize) -> usize {
    let step = round_up(width);
    if (step / 16).is_multiple_of(2) { step + 16 } else { step }
}

/// Where the rows of a tile start that lie `step` floats apart.
fn table(step: usize) -> [u32; MAX_ROWS] {
    let step = u32::try_from(step).expect("a row has fewer than 2³² floats");
    std::array::from_fn(|r| r as u32 * step)
}

/// Sizes of an attention, and what it leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionShape {
    samples: usize,
    heads: usize,
    /// Queries that there is room for, and those of a sample.
    query_room: usize,
    queries: usize,
    /// Keys that there is room for, and those of a sample, which are fewer if it has a length of its own.
    room: usize,
    length: usize,
    /// Floats of a head.
    width: usize,
    causal: bool,
    window: Option<usize>,
    alibi: bool,
    /// Keys are of another sequence than queries.
    between: bool,
    /// Biases of the scores, of which the samples have one in turn; 0 if there is none.
    biases: usize,
    /// Samples have lengths of their own.
    lengths: bool,
    dropout: Option<AttentionDropout>,
}

impl AttentionShape {
    /// Of the operand with the queries and that with the keys and values, `[N, L, 3E]` or `[N, L, E]` and `[N, L, 2E]`, and of the bias of the scores,
    /// if there is one.
    pub fn new(op: &Attention, queries: &Shape, keys: &Shape, bias: Option<&Shape>) -> Self {
        let [samples, query_room, packed] =
            queries.dims().try_into().expect("the shape rule asks for three dimensions");
        let Attention { heads, causal, lengths, dropout, between, window, alibi, .. } = *op;
        let (biases, room) = (bias.map_or(0, |bias| bias.dims()[0]), keys.dims()[1]);
        let (length, queries, width) = (room, query_room, packed / if between { 1 } else { 3 } / heads);
        let of = AttentionShape {
            samples,
            heads,
            query_room,
            queries,
            room,
            length,
            width,
            causal,
            window,
            alibi,
            between,
            biases,
            lengths,
            dropout,
        };
        of.of_length(room)
    }

    /// Of a sample of that length. Without a key no query has a result.
    fn of_length(self, length: usize) -> Self {
        let queries = if self.between && length > 0 { self.query_room } else { length };
        AttentionShape { queries, length, ..self }
    }

    /// The most that `floats` gives for a sample of any length.
    fn most(self, floats: impl Fn(AttentionShape) -> usize) -> usize {
        let least = if self.lengths { 1 } else { self.room };
        (least..=self.room).map(|length| floats(self.of_length(length))).max().unwrap_or(0)
    }

    /// Floats from query to query, and from key to key and value to value.
    fn steps(&self) -> [usize; 2] {
        (if self.between { [1, 2] } else { [3, 3] }).map(|parts| parts * self.embedding())
    }

    /// Where a head's first query, key and value are in the operands.
    fn starts(&self, sample: usize, head: usize) -> [usize; 3] {
        let ([queries, keys], at) = (self.steps(), head * self.width);
        let key = sample * self.room * keys + if self.between { 0 } else { self.embedding() } + at;
        [sample * self.query_room * queries + at, key, key + self.embedding()]
    }

    /// The operands with queries and with keys and values, which may be one.
    fn sources<'a>(&self, frame: &Frame<'a>, q: usize, kv: Option<usize>) -> [&'a [f32]; 2] {
        let sources = [q, kv.unwrap_or(q)].map(|i| frame.input::<f32>(i));
        let [queries, keys] = self.steps();
        let floats = [self.samples * self.query_room * queries, self.samples * self.room * keys];
        assert!(sources.map(<[f32]>::len) == floats, "operands are of their shapes");
        sources
    }

    /// The lengths of all samples; none, if samples have no such.
    fn lengths<'a>(&self, frame: &Frame<'a>, place: Option<usize>) -> &'a [i32] {
        place.map_or(&[], |i| frame.input(i))
    }

    /// The length of a sample, of all `lengths`.
    fn length_of(&self, lengths: &[i32], sample: usize) -> usize {
        lengths.get(sample).map_or(self.room, |length| usize::try_from(*length).unwrap_or(0).min(self.room))
    }

    /// What is added to the scores of a head of a sample, of all biases that there are.
    fn added(&self, all: &[f32], sample: usize, head: usize) -> Added {
        let square = self.room * self.room;
        let bias = match self.biases {
            0 => std::ptr::null(),
            biases => all[(sample % biases * self.heads + head) * square..][..square].as_ptr(),
        };
        let slope = if self.alibi { alibi_slope(self.heads, head) as f32 } else { 0.0 };
        Added { bias, slope }
    }

    /// Which weights of all heads are left out, by the random key, if there is dropout.
    fn mask(&self, frame: &Frame<'_>, key: Option<usize>) -> Mask {
        let Some((AttentionDropout { p, stream }, i)) = self.dropout.zip(key) else { return Mask::default() };
        let random = frame.input::<u32>(i).try_into().expect("the key has four words");
        let (threshold, scale) = (dropout_threshold(p), 1.0 / (1.0 - p));
        Mask { random, stream, threshold, scale, length: self.room, row: 0, column: 0 }
    }

    /// Floats of a position's result.
    fn embedding(&self) -> usize {
        self.heads * self.width
    }

    fn scale(&self) -> f32 {
        attention_scale(self.width) as f32
    }
}

/// A right-hand side in the layout that a tile reads.
#[derive(Clone, Copy)]
struct Right {
    /// Row 0 of the first panel of columns.
    at: *const f32,
    /// Floats from panel to panel.
    panel: usize,
    /// Floats from row to row.
    step: usize,
}

/// A left-hand side: rows of a tile by a table.
#[derive(Clone, Copy)]
struct Left<'a> {
    at: *const f32,
    rows: &'a [u32; MAX_ROWS],
    /// Floats from one term of the sum to the next.
    step: usize,
}

/// A result.
#[derive(Clone, Copy)]
struct Target<'a> {
    at: *mut f32,
    rows: &'a [u32; MAX_ROWS],
    /// Number of columns.
    columns: usize,
    /// Adds to what is there.
    accumulate: bool,
}

/// The sizes with what all blocks share: tiles, layouts of the copies, tables.
struct Layout {
    shape: AttentionShape,
    tiles: Tiles,
    /// Queries and keys of a block.
    queries: usize,
    keys: usize,
    /// Floats from row to row of a block of scores.
    scores_step: usize,
    /// Floats from row to row of a copy of a head's rows.
    copy_step: usize,
    scores_rows: [u32; MAX_ROWS],
    copy_rows: [u32; MAX_ROWS],
    /// 0, 1, 2, …: rows that are the columns of a table.
    column_rows: [u32; MAX_ROWS],
    copy: unsafe fn(Copy2d),
    transpose: unsafe fn(Panel),
    adjust: Adjust,
}

impl Layout {
    fn new(shape: AttentionShape, level: SimdLevel) -> Self {
        let tiles = Tiles::new(level);
        // The longest length that is one block in both directions is that of most models: nothing is then added up in
        // memory. Blocks of one direction are of nearly one size.
        let keys = shape.keys_of_block();
        let scores_step = odd_lines(keys);
        let count = shape.queries.div_ceil((BLOCK / scores_step).max(tiles.rows));
        let queries = shape.queries.div_ceil(count.max(1)).next_multiple_of(tiles.rows);
        let copy_step = odd_lines(shape.width);
        Layout {
            shape,
            tiles,
            queries,
            keys,
            scores_step,
            copy_step,
            scores_rows: table(scores_step),
            copy_rows: table(copy_step),
            column_rows: table(1),
            copy: level.routine::<CopyRows>(),
            transpose: level.routine::<PackTransposed>(),
            adjust: Adjust::new(level),
        }
    }

    /// Floats of a block of scores.
    fn scores_floats(&self) -> usize {
        self.queries * self.scores_step
    }

    /// Blocks of queries are several, so that the gradients by keys and values are added up in memory.
    fn several(&self) -> bool {
        self.queries < self.shape.queries
    }

    /// Floats of a copy of so many rows of a head.
    fn copy_floats(&self, rows: usize) -> usize {
        rows * self.copy_step
    }

    /// Floats of a head's keys, or values, as columns.
    fn columns_floats(&self) -> usize {
        self.shape.length.next_multiple_of(self.tiles.columns()) * self.shape.width
    }

    /// Copies `rows` rows of a head that lie `step` floats apart.
    ///
    /// # Safety
    /// They are there, and `to` has room for them.
    unsafe fn copy_rows(&self, from: *const f32, step: usize, rows: usize, to: &mut [f32]) {
        assert!(to.len() >= rows * self.copy_step);
        let (columns, padded) = (self.shape.width, self.shape.width.next_multiple_of(self.tiles.lanes));
        let copy =
            Copy2d { from, from_step: step, to: to.as_mut_ptr(), to_step: self.copy_step, rows, columns, padded };
        // SAFETY: the caller's promise.
        unsafe { (self.copy)(copy) };
    }

    /// Copies the rows of a head that lie `step` floats apart as columns: in panels of the tile's columns, `width` rows each.
    ///
    /// # Safety
    /// They are there.
    unsafe fn copy_columns(&self, from: *const f32, step: usize, count: usize, to: &mut [f32]) -> Right {
        let (width, rows) = (self.tiles.columns(), self.shape.width);
        let panels = Right { at: to.as_ptr(), panel: width * rows, step: width };
        for (at, to) in (0..count).step_by(width).zip(to.chunks_mut(panels.panel)) {
            assert!(to.len() >= panels.panel);
            let (from, columns) = (from.wrapping_add(at * step), (count - at).min(width));
            // SAFETY: the caller's promise; the panel has room.
            unsafe { (self.transpose)(Panel { from, strides: [1, step], rows, columns, to: to.as_mut_ptr(), width }) };
        }
        panels
    }

    /// A copy of a head's rows as a right-hand side, whose row 0 is at `at`.
    fn copied(&self, at: *const f32) -> Right {
        Right { at, panel: self.tiles.columns(), step: self.copy_step }
    }

    /// The queries `queries` and keys `keys` of the whole head, whose first score is at `scores`.
    fn rows(&self, scores: *mut f32, queries: Range<usize>, keys: Range<usize>) -> Rows {
        self.shape.rows(scores, self.scores_step, queries, keys)
    }

    /// `rows` rows of `a` times `b`, the sum being of `terms` terms.
    ///
    /// # Safety
    /// All that is reached is there, and no other task reads or writes the result.
    unsafe fn product(&self, rows: usize, a: Left, b: Right, terms: usize, c: Target) {
        let width = self.tiles.columns();
        for (panel, at) in (0..c.columns).step_by(width).enumerate() {
            let tile = Tile {
                a: a.at,
                a_rows: a.rows,
                a_step: a.step,
                b: b.at.wrapping_add(panel * b.panel),
                b_step: b.step,
                b_far: false,
                runs: ONE_RUN,
                run_len: terms,
                c: c.at.wrapping_add(at),
                c_rows: c.rows,
                n: (c.columns - at).min(width),
                accumulate: c.accumulate,
                epilogue: Epilogue::NONE,
            };
            // SAFETY: the caller's promise.
            unsafe { self.tiles.run(rows, &tile) };
        }
    }
}
