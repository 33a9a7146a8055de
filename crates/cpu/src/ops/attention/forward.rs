//! The forward pass: block of queries by block of queries, over the keys with an online softmax.

use super::bf16::{GROUP, TileForward, is_worthwhile};
use super::head::Head;
use super::rows::{Mask, Scale, ScaleArgs, Weights, WeightsArgs};
use super::{AttentionShape, Layout, Left, Right, Target, table};
use crate::gemm::round_up;
use crate::gemm::tile::{MAX_ROWS, tile_rows, tiles_in};
use crate::graph::op::AttentionOperands;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, TASKS_PER_THREAD};
use crate::simd::SimdLevel;
use crate::simd::bf16::Instructions;
use std::ops::Range;

/// Most tasks that the queries of a head are cut for, where there are not as many heads: each copies the keys and the values.
const TASKS: usize = 16;

/// Queries that go through the keys together: their scores, of a few hundred keys, lie in L1.
const TILES: usize = 2;

/// [`crate::graph::op::Attention`].
pub struct AttentionKernel {
    plan: Plan,
    places: AttentionOperands<usize>,
    how: Instructions,
    /// Floats of scratch memory of a worker.
    floats: usize,
    threads: usize,
    /// Stretches that the queries of a head are cut into.
    stretches: usize,
    blocks: Blocks,
}

/// How queries of a head go through its keys, block by block.
pub(super) struct Blocks {
    y_rows: [u32; MAX_ROWS],
    weights: unsafe fn(WeightsArgs),
    scale: unsafe fn(ScaleArgs),
}

/// How samples of a length are computed.
struct Plan {
    layout: Layout,
    /// Computes the heads, if that is done in bf16.
    tiles: Option<TileForward>,
}

impl Plan {
    fn new(shape: AttentionShape, how: Instructions) -> Self {
        let unit = how.bf16.filter(|_| is_worthwhile(&shape));
        let tiles = unit.map(|unit| TileForward::new(shape, unit, how.level));
        Plan { layout: Layout::new(shape, how.level), tiles }
    }

    fn worker_floats(&self) -> usize {
        match &self.tiles {
            Some(tiles) => tiles.worker_floats(),
            None => Work::floats(&self.layout),
        }
    }
}

/// Scratch memory of a worker.
pub(super) struct Work<'a> {
    /// Queries of a group.
    q: &'a mut [f32],
    /// Keys as columns.
    k: &'a mut [f32],
    v: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<'a> Work<'a> {
    fn parts(l: &Layout) -> [usize; 4] {
        let rows = l.tiles.rows * TILES;
        [rows * l.copy_step, l.columns_floats(), l.copy_floats(l.shape.length), rows * l.scores_step]
    }

    /// Floats of it.
    pub(super) fn floats(l: &Layout) -> usize {
        Work::parts(l).map(round_up).iter().sum()
    }

    /// In memory of so many.
    pub(super) fn of(l: &Layout, mut rest: &'a mut [f32]) -> Work<'a> {
        let [q, k, v, scores] = Work::parts(l).map(|floats| {
            let (part, others) = std::mem::take(&mut rest).split_at_mut(round_up(floats));
            rest = others;
            part
        });
        Work { q, k, v, scores }
    }
}

/// Stretches that the queries of each of so many heads are cut into, where they come in so many groups.
pub(super) fn stretches(heads: usize, groups: usize, threads: usize) -> usize {
    let tasks = TASKS.min(TASKS_PER_THREAD * threads);
    tasks.div_ceil(heads.max(1)).min(groups).max(1)
}

impl AttentionKernel {
    /// With the sizes known. `threads` is the most that the pool may have.
    pub fn new(shape: AttentionShape, places: AttentionOperands<usize>, how: Instructions, threads: usize) -> Self {
        let (level, plan) = (how.level, Plan::new(shape, how));
        let groups = shape.queries.div_ceil(if plan.tiles.is_some() { GROUP } else { plan.layout.tiles.rows * TILES });
        let stretches = stretches(shape.samples * shape.heads, groups, threads);
        AttentionKernel {
            plan,
            places,
            how,
            floats: shape.most(|shape| Plan::new(shape, how).worker_floats()),
            threads,
            stretches,
            blocks: Blocks::new(shape, level),
        }
    }
}

impl Blocks {
    pub(super) fn new(shape: AttentionShape, level: SimdLevel) -> Self {
        Blocks {
            y_rows: table(shape.embedding()),
            weights: match shape.dropout {
                Some(_) => level.routine::<Weights<true>>(),
                None => level.routine::<Weights<false>>(),
            },
            scale: level.routine::<Scale>(),
        }
    }

    /// Some queries of a head.
    ///
    /// # Safety
    /// The operands are there, and no other task touches these rows of the results.
    pub(super) unsafe fn head(&self, l: &Layout, head: &Head, queries: Range<usize>, work: &mut Work) {
        let shape = &l.shape;
        let [step, kept_step] = head.steps;
        // The keys that the queries see, the first of which has some before it.
        let seen_by = |end: usize| shape.end(head.before + end);
        let (base, seen) = (shape.begin(head.before + queries.start), seen_by(queries.end));
        // SAFETY: the caller's promise; the scratch memory has been measured for it.
        let keys = unsafe {
            let [k, v] = [1, 2].map(|which| head.qkv[which].wrapping_add(base * kept_step));
            l.copy_rows(v, kept_step, seen - base, work.v);
            l.copy_columns(k, kept_step, seen - base, work.k)
        };
        let tiles = tiles_in(queries.len(), l.tiles.rows);
        for first in (0..tiles).step_by(TILES) {
            let tile = |i: usize| {
                let rows = tile_rows(queries.len(), tiles, i);
                queries.start + rows.start..queries.start + rows.end
            };
            let group = tile(first).start..tile((first + TILES).min(tiles) - 1).end;
            // SAFETY: as above.
            unsafe {
                l.copy_rows(head.qkv[0].wrapping_add(group.start * step), step, group.len(), work.q);
                let mut tops = [0.0; TILES * MAX_ROWS];
                let mut sums = [0.0; TILES * MAX_ROWS];
                let mut factors = [0.0f32; TILES * MAX_ROWS];
                let (begin, last) = (shape.begin(head.before + group.start), seen_by(group.end));
                for start in (begin..last).step_by(l.keys) {
                    for i in first..(first + TILES).min(tiles) {
                        let rows = tile(i);
                        let end = seen_by(rows.end).min(start + l.keys);
                        if end <= start {
                            continue;
                        }
                        let at = rows.start - group.start;
                        let q = Left { at: work.q[at * l.copy_step..].as_ptr(), rows: &l.copy_rows, step: 1 };
                        let keys = Right { at: keys.at.wrapping_add((start - base) * shape.width), ..keys };
                        let scores = work.scores[at * l.scores_step..].as_mut_ptr();
                        let to = Target { at: scores, rows: &l.scores_rows, columns: end - start, accumulate: false };
                        l.product(rows.len(), q, keys, shape.width, to);
                        let first = head.before + rows.start;
                        let scores = l.rows(scores, first..first + rows.len(), start..end);
                        l.adjust.run(shape, scores, head.added, first, start);
                        let (top, sum) = (tops[at..].as_mut_ptr(), sums[at..].as_mut_ptr());
                        let factor = if start == begin { std::ptr::null_mut() } else { factors[at..].as_mut_ptr() };
                        let mask = Mask { row: head.mask.row + rows.start, column: start, ..head.mask };
                        (self.weights)(WeightsArgs { rows: scores, top, sum, factor, mask });
                        let y = head.y.wrapping_add(rows.start * shape.embedding());
                        if start > begin {
                            self.scale_rows(shape, y, rows.len(), factor);
                        }
                        let weights = Left { at: scores.scores, rows: &l.scores_rows, step: 1 };
                        let values = l.copied(work.v[(start - base) * l.copy_step..].as_ptr());
                        let to = Target { at: y, rows: &self.y_rows, columns: shape.width, accumulate: start > begin };
                        l.product(rows.len(), weights, values, end - start, to);
                    }
                }
                for r in 0..group.len() {
                    *head.lse.add(group.start + r) = tops[r] * shape.scale() + sums[r].ln();
                    factors[r] = 1.0 / sums[r];
                }
                let y = head.y.wrapping_add(group.start * shape.embedding());
                self.scale_rows(shape, y, group.len(), factors.as_ptr());
            }
        }
    }

    /// # Safety
    /// As [`Blocks::head`].
    unsafe fn scale_rows(&self, shape: &AttentionShape, y: *mut f32, rows: usize, by: *const f32) {
        // SAFETY: the caller's promise.
        unsafe { (self.scale)(ScaleArgs { y, step: shape.embedding(), rows, width: shape.width, by }) };
    }
}

impl NodeKernel for AttentionKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f32>(PerThread::size(self.threads, self.floats))
    }

    fn run(&self, frame: &Frame<'_>) {
        let shape = &self.plan.layout.shape;
        let (e, l) = (shape.embedding(), shape.query_room);
        let AttentionOperands { q, kv, bias, lengths, key } = self.places;
        let ([q, kv], y, lse) = (shape.sources(frame, q, kv), frame.output::<f32>(0), frame.output::<f32>(1));
        assert!(y.len() == shape.samples * l * e && lse.len() == shape.samples * l * shape.heads);
        assert!(frame.pool().threads() <= self.threads, "made for fewer threads than the pool has");
        let scratch = PerThread::take(&mut frame.scratch(), self.threads, self.floats);
        let (y, lse) = (Parts::new(y), Parts::new(lse));
        let stretches = if l == 0 { 0 } else { self.stretches };
        let all = bias.map_or(&[][..], |i| frame.input::<f32>(i));
        let lengths = shape.lengths(frame, lengths);
        let mask = shape.mask(frame, key);
        frame.pool().run(shape.samples * shape.heads * stretches, |task, worker| {
            let (head, stretch) = (task / stretches, task % stretches);
            let (sample, h) = (head / shape.heads, head % shape.heads);
            // SAFETY: a worker has its own scratch.
            let rest = unsafe { scratch.of(worker) };
            let [of_q, of_k, of_v] = shape.starts(sample, h);
            let length = shape.length_of(lengths, sample);
            let own = shape.of_length(length);
            let at = Head {
                qkv: [q.as_ptr().wrapping_add(of_q), kv.as_ptr().wrapping_add(of_k), kv.as_ptr().wrapping_add(of_v)],
                steps: shape.steps(),
                before: 0,
                y: y.as_ptr().wrapping_add(sample * l * e + h * shape.width),
                lse: lse.as_ptr().wrapping_add(head * l),
                added: shape.added(all, sample, h),
                mask: Mask { row: head * l, ..mask },
            };
            if stretch == 0 {
                // SAFETY: the lengths have been checked; the rows that have no result are this task's own.
                unsafe { at.clear(own.queries..l, [e, shape.width]) };
            }
            let shorter = (length < shape.room).then(|| Plan::new(own, self.how));
            let plan = shorter.as_ref().unwrap_or(&self.plan);
            let each = if plan.tiles.is_some() { GROUP } else { 1 };
            let groups = tile_rows(own.queries.div_ceil(each), stretches, stretch);
            if groups.is_empty() {
                return;
            }
            let queries = groups.start * each..(groups.end * each).min(own.queries);
            if let Some(tiles) = &plan.tiles {
                // SAFETY: the lengths have been checked; a head's groups of rows are cut into stretches, each a task's own.
                return unsafe { tiles.head(&at, queries, rest) };
            }
            // SAFETY: the lengths have been checked; a head's rows of the results are cut into stretches, each a task's own.
            unsafe { self.blocks.head(&plan.layout, &at, queries, &mut Work::of(&plan.layout, rest)) };
        });
    }
}
