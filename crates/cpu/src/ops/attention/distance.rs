//! What is done to scores before they become weights: a bias, and what comes of the distance of two positions, windows and ALiBi.

use super::rows::{AddBias, AddBiasArgs, Rows};
use super::{AttentionShape, KEYS};
use crate::simd::{MAX_LANES, Routine, Simd, SimdLevel};
use std::ops::Range;

/// Keys of a block are a multiple of it where there are several blocks: of a panel of keys, of a step of a sum over keys, and of the columns whose draws are
/// made together.
const ALIGNED: usize = 128;

/// The score of a key before the window, −2¹⁰⁰. A query may see no key of the first block that its neighbours see some of: all of its scores are this one
/// then, whose product with the scale is exact, so that differences are 0 and its weights 1. A key that is seen makes a factor of 0 for all that.
const HIDDEN: f32 = f32::from_bits(0xf180_0000);

impl AttentionShape {
    /// The first key that a query sees.
    fn first_key(&self, query: usize) -> usize {
        self.window.map_or(0, |window| (query + 1).saturating_sub(window))
    }

    /// Where the block of keys begins in which the first key is that a query sees. Blocks begin at the same keys for all queries, so that it makes no difference
    /// which queries go through them together.
    pub fn begin(&self, query: usize) -> usize {
        match self.window {
            Some(_) => self.first_key(query) / self.keys_of_block().max(1) * self.keys_of_block(),
            None => 0,
        }
    }

    /// Where the keys end that the queries before `end` see.
    pub fn end(&self, end: usize) -> usize {
        match (self.causal, self.window) {
            (true, _) => end.min(self.length),
            (false, Some(window)) if end > 0 => (end - 1).saturating_add(window).min(self.length),
            _ => self.length,
        }
    }

    /// The queries that see one of these keys.
    pub fn queries_of(&self, keys: Range<usize>) -> Range<usize> {
        let first = match (self.causal, self.window) {
            (true, _) => keys.start,
            (false, Some(window)) => (keys.start + 1).saturating_sub(window),
            (false, None) => 0,
        };
        let end = self.window.map_or(usize::MAX, |window| keys.end.saturating_sub(1).saturating_add(window));
        first..end.min(self.queries)
    }

    /// Whether a query sees none of the keys before `end`, nor any query after it.
    pub fn is_past(&self, query: usize, end: usize) -> bool {
        self.first_key(query) >= end
    }

    /// Keys of a block: a narrow window has narrow ones.
    pub fn keys_of_block(&self) -> usize {
        let window = self.window.map_or(KEYS, |window| window.min(KEYS).next_multiple_of(ALIGNED));
        self.length.min(window)
    }

    /// Scores of the queries `queries` and keys `keys`, the first of which is at `scores`, with `step` floats from row to row.
    pub fn rows(&self, scores: *mut f32, step: usize, queries: Range<usize>, keys: Range<usize>) -> Rows {
        let ahead = queries.start as isize - keys.start as isize;
        let seen = match (self.causal, self.window) {
            (true, _) => ahead + 1,
            (false, Some(window)) => ahead.saturating_add_unsigned(window),
            (false, None) => keys.len() as isize,
        };
        Rows {
            scores,
            step,
            rows: queries.len(),
            seen,
            more: usize::from(self.causal || self.window.is_some()),
            keys: keys.len(),
            padded: keys.len(),
            scale: self.scale(),
        }
    }
}

/// What is added to the scores of a head.
#[derive(Debug, Clone, Copy)]
pub struct Added {
    /// A number for each query and key; null if there are none.
    pub bias: *const f32,
    /// What a position more between them takes away.
    pub slope: f32,
}

/// Adds to scores, and hides what a window leaves out.
#[derive(Clone, Copy)]
pub struct Adjust {
    pub add: unsafe fn(AddBiasArgs),
    slope: unsafe fn(AddSlopeArgs),
}

impl Adjust {
    pub fn new(level: SimdLevel) -> Self {
        Adjust { add: level.routine::<AddBias>(), slope: level.routine::<AddSlope>() }
    }

    /// Adds to the scores of the queries from `query` on and the keys from `key` on, which are multiplied by the scale later. Those of keys before
    /// the window become [`HIDDEN`].
    ///
    /// # Safety
    /// All of it is there.
    pub unsafe fn run(&self, shape: &AttentionShape, scores: Rows, added: Added, query: usize, key: usize) {
        let by = 1.0 / scores.scale;
        // SAFETY: the caller's promise.
        unsafe {
            if !added.bias.is_null() {
                let bias = added.bias.wrapping_add(query * shape.room + key);
                (self.add)(AddBiasArgs { rows: scores, bias, step: shape.room, by });
            }
            if added.slope != 0.0 {
                let first = query as isize - key as isize;
                (self.slope)(AddSlopeArgs { rows: scores, first, slope: added.slope * by });
            }
            if shape.window.is_some() {
                for row in 0..scores.rows {
                    let hidden = shape.first_key(query + row).saturating_sub(key).min(scores.keys);
                    let row = scores.scores.wrapping_add(row * scores.step);
                    std::slice::from_raw_parts_mut(row, hidden).fill(HIDDEN);
                }
            }
        }
    }
}

/// Arguments of [`AddSlope`].
#[derive(Clone, Copy)]
pub struct AddSlopeArgs {
    /// What is added to: `keys` floats of each row.
    rows: Rows,
    /// How far after the first key the first query is.
    first: isize,
    /// What a position more between query and key takes away.
    slope: f32,
}

/// The numbers of lanes.
const LANES: [f32; MAX_LANES] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Subtracts from rows of scores what is the more the farther the key is from the query.
struct AddSlope;

impl Routine for AddSlope {
    type Args = AddSlopeArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, a: AddSlopeArgs) {
        let slope = s.splat(-a.slope);
        for r in 0..a.rows.rows {
            // SAFETY: the caller passes rows that are valid.
            unsafe {
                let (x, lanes) = (a.rows.scores.add(r * a.rows.step), s.load(LANES.as_ptr()));
                for i in (0..a.rows.keys).step_by(S::LANES) {
                    let ahead = (a.first + r as isize - i as isize) as f32;
                    let (distance, n) = (s.abs(s.sub(s.splat(ahead), lanes)), (a.rows.keys - i).min(S::LANES));
                    let y = s.fma(distance, slope, s.load_part(x.add(i), n));
                    s.store_part(x.add(i), y, n);
                }
            }
        }
    }
}
