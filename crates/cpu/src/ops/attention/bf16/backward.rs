//! The backward pass of a head on tiles of bf16.
//!
//! The gradients by keys and values are made transposed, so that their factors of the size of the scores are panels, which are rounded
//! as they lie.

use super::super::head::HeadGrad;
use super::super::rows::{AddBiasArgs, Dots, DotsArgs, Mask, Rows, WeightGrads, WeightGradsArgs};
use super::{AttentionShape, GROUP, Left, Matrix, Right, Tiled};
use crate::gemm::bf16::block::{BLOCK, Blocks, RESULTS, Results};
use crate::gemm::bf16::{PANEL, SIDE, tiles};
use crate::gemm::pack::Copy2d;
use crate::gemm::round_up;
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;
use std::ops::Range;

/// Most weights of a block of queries and keys, which lie in the cache of the second level with their gradients: 256 KiB of each.
const WEIGHTS: usize = 128 * 1024;

/// Computes heads.
pub struct TileBackward {
    tiled: Tiled,
    /// Queries of a block, a multiple of [`GROUP`].
    queries: usize,
    weights: unsafe fn(WeightGradsArgs),
    dots: unsafe fn(DotsArgs),
}

/// Memory and operands of a head.
struct Work {
    blocks: Blocks,
    /// Queries and gradients of the results, as rows and as columns.
    q: [Left; 2],
    dy: [Left; 2],
    /// Keys and values, to make scores and their gradients with.
    k: Right,
    v: Right,
    /// Keys, to make the gradients by the queries with.
    keys: Right,
    delta: *const f32,
    /// Scores of a group, then weights, and their gradients.
    scores: *mut f32,
    grads: *mut f32,
    /// The gradients by the scores of a group, rounded.
    rounded: *mut u16,
    /// Weights, and gradients by the scores, of a block, rounded.
    panels: [*mut u16; 2],
    /// The gradients by queries, keys and values.
    dq: *mut f32,
    dk: *mut f32,
    dv: *mut f32,
}

impl TileBackward {
    /// With the sizes known.
    pub fn new(shape: AttentionShape, unit: Bf16Unit, level: SimdLevel) -> Self {
        let tiled = Tiled::new(shape, unit, level);
        let most = (WEIGHTS / tiled.keys.next_multiple_of(SIDE).max(1)).max(GROUP);
        let queries = shape.queries.div_ceil(shape.queries.div_ceil(most).max(1)).next_multiple_of(GROUP);
        TileBackward {
            tiled,
            queries,
            weights: match shape.dropout {
                Some(_) => level.routine::<WeightGrads<true>>(),
                None => level.routine::<WeightGrads<false>>(),
            },
            dots: level.routine::<Dots>(),
        }
    }

    /// Floats of what [`Work`] has, in its order.
    fn parts(&self) -> [usize; 16] {
        let t = &self.tiled;
        let (queries, length, width) = (t.shape.queries, t.shape.length, t.shape.width);
        let (rows, columns) = (Left::floats(queries, width), Left::floats(width, queries));
        let right = Right::floats(width, length);
        let group = GROUP * t.scores_step;
        let block = Right::floats(self.queries, t.keys);
        let turned = t.keys.div_ceil(PANEL) * width.div_ceil(PANEL) * BLOCK;
        [
            rows,
            columns,
            rows,
            columns,
            right,
            right,
            Right::floats(length, width),
            queries,
            group,
            group,
            Left::floats(GROUP, t.keys),
            block,
            block,
            queries.next_multiple_of(GROUP) * t.width_step,
            turned,
            turned,
        ]
    }

    /// Floats of scratch memory that [`TileBackward::head`] needs.
    pub fn worker_floats(&self) -> usize {
        self.parts().map(round_up).iter().sum()
    }

    /// A head.
    ///
    /// # Safety
    /// The operands are there, and no other task touches these rows of the result.
    pub unsafe fn head(&self, head: &HeadGrad, mut scratch: &mut [f32]) {
        let (t, shape) = (&self.tiled, &self.tiled.shape);
        let ([queries, length], width) = ([shape.queries, shape.length], shape.width);
        let [query_step, key_step] = head.steps;
        let parts = self.parts().map(|floats| {
            let (part, rest) = std::mem::take(&mut scratch).split_at_mut(round_up(floats));
            scratch = rest;
            part.as_mut_ptr()
        });
        let [q, q_columns, dy, dy_columns, k, v, keys, delta, scores, grads, rounded, weights, by_scores, dq, dk, dv] =
            parts;
        let all = |at: *const f32| Matrix { at, step: key_step, rows: length, columns: width };
        let of_queries = Matrix { at: head.qkv[0], step: query_step, rows: queries, columns: width };
        let of_dy = Matrix { at: head.dy, step: shape.embedding(), ..of_queries };
        // SAFETY: the caller's promise; the scratch memory has been measured for it.
        let work = unsafe {
            let of = [head.y, head.dy];
            (self.dots)(DotsArgs { of, step: shape.embedding(), rows: queries, width, to: delta });
            Work {
                blocks: Blocks::new(t.unit, t.level),
                q: [t.left(of_queries, q.cast()), t.left_of_columns(of_queries, q_columns.cast())],
                dy: [t.left(of_dy, dy.cast()), t.left_of_columns(of_dy, dy_columns.cast())],
                k: t.right_of_rows(all(head.qkv[1]), k.cast()),
                v: t.right_of_rows(all(head.qkv[2]), v.cast()),
                keys: t.right(all(head.qkv[1]), keys.cast()),
                delta,
                scores,
                grads,
                rounded: rounded.cast(),
                panels: [weights.cast(), by_scores.cast()],
                dq,
                dk,
                dv,
            }
        };
        for start in (0..length).step_by(t.keys) {
            let keys = start..(start + t.keys).min(length);
            let seeing = shape.queries_of(keys.clone());
            for first in (seeing.start / GROUP * GROUP..seeing.end).step_by(self.queries) {
                let queries = first..(first + self.queries).min(queries);
                // SAFETY: as above.
                unsafe { self.block(head, &work, queries, keys.clone()) };
            }
            for (from, to) in [(dk, head.dqkv[1]), (dv, head.dqkv[2])] {
                // SAFETY: as above.
                unsafe { self.store_turned(from, keys.len(), to.wrapping_add(start * key_step), key_step) };
            }
        }
        let (from_step, to_step, rows) = (t.width_step, query_step, queries);
        let to = head.dqkv[0];
        // SAFETY: as above.
        unsafe { (t.copy)(Copy2d { from: dq, from_step, to, to_step, rows, columns: width, padded: width }) };
    }

    /// What a block of queries and keys adds to the gradients.
    ///
    /// # Safety
    /// As [`TileBackward::head`].
    unsafe fn block(&self, head: &HeadGrad, work: &Work, queries: Range<usize>, keys: Range<usize>) {
        let (t, shape) = (&self.tiled, &self.tiled.shape);
        let [weights, by_scores] = work.panels.map(|at| Right::new(at, self.queries, keys.len()));
        for first in queries.clone().step_by(GROUP) {
            let group = first..(first + GROUP).min(queries.end);
            // SAFETY: the caller's promise.
            unsafe { self.group(head, work, group, keys.clone(), ([weights, by_scores], queries.start)) };
        }
        let (all, wide) = (Tiled::steps_of(&queries), shape.width.div_ceil(PANEL));
        for panel in 0..weights.panels() {
            let first = keys.start + panel * PANEL;
            let seeing = shape.queries_of(first..(first + PANEL).min(keys.end));
            let range = (seeing.start / GROUP).max(all.start)..seeing.end.div_ceil(GROUP).min(all.end);
            if range.is_empty() {
                continue;
            }
            let accumulate = queries.start > seeing.start;
            for w in 0..wide {
                let rows = (shape.width - w * PANEL).min(PANEL);
                for (left, right, to) in [(work.q[1], by_scores, work.dk), (work.dy[1], weights, work.dv)] {
                    let place = |panel: usize| Results::block(to.wrapping_add((panel * wide + w) * BLOCK));
                    let left = left.from(w * PANEL, range.start);
                    let steps = range.start - all.start..range.end - all.start;
                    // SAFETY: as above.
                    unsafe {
                        t.product(&work.blocks, (rows, left), (right, panel..panel + 1, steps), place, accumulate);
                    }
                }
            }
        }
    }

    /// Weights and gradients of a group's scores: to the panels of the block, and into the gradients by its queries. The block begins at
    /// query `begin`.
    ///
    /// # Safety
    /// As [`TileBackward::head`].
    unsafe fn group(
        &self,
        head: &HeadGrad,
        work: &Work,
        group: Range<usize>,
        keys: Range<usize>,
        (panels, begin): ([Right; 2], usize),
    ) {
        let (t, shape) = (&self.tiled, &self.tiled.shape);
        let (first, rows, scores, grads) = (group.start, group.len(), work.scores, work.grads);
        let end = shape.end(group.end).min(keys.end);
        if end <= keys.start || shape.is_past(group.start, keys.end) {
            return;
        }
        let part = keys.start..end;
        // SAFETY: the caller's promise.
        unsafe {
            t.scores(&work.blocks, (rows, work.q[0].from(first, 0)), work.k, part.clone(), scores);
            t.scores(&work.blocks, (rows, work.dy[0].from(first, 0)), work.v, part.clone(), grads);
            let seen = t.rows(scores, group.clone(), part.clone());
            t.adjust.run(shape, seen, head.added, first, keys.start);
            // Panels are rounded whole.
            let seen = Rows { padded: part.len().next_multiple_of(PANEL).min(keys.len()), ..seen };
            let (lse, delta) = (head.lse.wrapping_add(first), work.delta.wrapping_add(first));
            let mask = Mask { row: head.mask.row + first, column: keys.start, ..head.mask };
            (self.weights)(WeightGradsArgs { rows: seen, grads, lse, delta, mask });
            if !head.dbias.is_null() {
                // The gradients are those by q · k.
                let to = head.dbias.wrapping_add(first * shape.room + keys.start);
                let rows = Rows { scores: to, step: shape.room, ..seen };
                (t.adjust.add)(AddBiasArgs { rows, bias: grads, step: t.scores_step, by: 1.0 / seen.scale });
            }
            let of = Matrix { at: grads, step: t.scores_step, rows, columns: part.len() };
            let rounded = t.left(of, work.rounded);
            let place = |panel: usize| {
                Results::matrix(work.dq.wrapping_add(first * t.width_step + panel * PANEL), t.width_step)
            };
            let right = (work.keys, 0..work.keys.panels(), Tiled::steps_of(&part));
            // Whether no block before has keys that the group sees.
            let is_first = shape.is_past(first, keys.start) || keys.start == 0;
            t.product(&work.blocks, (rows, rounded), right, place, !is_first);
            for (at, to) in [scores.cast_const(), grads].into_iter().zip(panels) {
                let of = Matrix { at, ..of };
                t.right_step(of, to, 0..part.len().div_ceil(PANEL), (first - begin) / GROUP);
            }
        }
    }

    /// Stores the gradients of `keys` positions, which lie transposed, to rows that are `step` floats apart.
    ///
    /// # Safety
    /// All of it is there.
    unsafe fn store_turned(&self, from: *const f32, keys: usize, to: *mut f32, step: usize) {
        let width = self.tiled.shape.width;
        let wide = width.div_ceil(PANEL);
        let mut square = [0.0f32; RESULTS];
        for (key, w) in (0..tiles(keys)).flat_map(|key| (0..tiles(width)).map(move |w| (key, w))) {
            let block = from.wrapping_add((key / 2 * wide + w / 2) * BLOCK);
            let tile = block.wrapping_add((w % 2 * 2 + key % 2) * RESULTS);
            let to = to.wrapping_add(key * SIDE * step + w * SIDE);
            let (rows, columns) = ((keys - key * SIDE).min(SIDE), (width - w * SIDE).min(SIDE));
            // SAFETY: the caller's promise; parts of tiles go by way of the square.
            unsafe {
                if rows == SIDE && columns == SIDE {
                    self.tiled.packer.turned_results(tile, to, step);
                    continue;
                }
                self.tiled.packer.turned_results(tile, square.as_mut_ptr(), SIDE);
                for row in 0..rows {
                    to.wrapping_add(row * step).copy_from(square[row * SIDE..].as_ptr(), columns);
                }
            }
        }
    }
}
