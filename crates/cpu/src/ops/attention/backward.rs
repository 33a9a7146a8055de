//! The backward pass: weights are made again from the scores and the logarithms that the forward pass has kept.

use super::bf16::{TileBackward, is_worthwhile};
use super::head::HeadGrad;
use super::rows::{AddBiasArgs, Dots, DotsArgs, Mask, Rows, WeightGrads, WeightGradsArgs};
use super::{AttentionShape, Layout, Left, Right, Target, table};
use crate::gemm::round_up;
use crate::gemm::tile::{MAX_ROWS, for_each_tile, tile_rows};
use crate::graph::op::AttentionGradOperands;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::per_thread::PerThread;
use crate::run::threads::Parts;
use crate::simd::bf16::Instructions;
use std::ops::Range;

/// [`crate::graph::op::AttentionGrad`].
pub struct AttentionGradKernel {
    plan: Plan,
    places: AttentionGradOperands<usize>,
    how: Instructions,
    /// Floats of scratch memory of a worker.
    floats: usize,
    threads: usize,
    /// Rows of the gradients by queries, and by keys and values.
    grad_rows: [[u32; MAX_ROWS]; 2],
    weights: unsafe fn(WeightGradsArgs),
    dots: unsafe fn(DotsArgs),
}

/// How samples of a length are computed.
struct Plan {
    layout: Layout,
    /// Computes the heads, if that is done in bf16.
    tiles: Option<TileBackward>,
}

impl Plan {
    fn new(shape: AttentionShape, how: Instructions) -> Self {
        let unit = how.bf16.filter(|_| is_worthwhile(&shape));
        let tiles = unit.map(|unit| TileBackward::new(shape, unit, how.level));
        Plan { layout: Layout::new(shape, how.level), tiles }
    }

    /// Floats of the parts of [`Work`].
    fn parts(&self) -> [usize; 8] {
        let l = &self.layout;
        let [of_queries, of_keys] = [l.shape.queries, l.shape.length].map(|rows| l.copy_floats(rows));
        let (columns, scores) = (l.columns_floats(), l.scores_floats());
        [of_queries, of_keys, of_queries, columns, columns, l.shape.queries, scores, scores]
    }

    fn worker_floats(&self) -> usize {
        match &self.tiles {
            Some(tiles) => tiles.worker_floats(),
            None => self.parts().map(round_up).iter().sum(),
        }
    }

    fn work<'a>(&self, mut own: &'a mut [f32]) -> Work<'a> {
        let [q, k, dy, k_columns, v_columns, delta, scores, grads] = self.parts().map(|floats| {
            let (part, others) = std::mem::take(&mut own).split_at_mut(round_up(floats));
            own = others;
            part
        });
        Work { q, k, dy, k_columns, v_columns, delta, scores, grads }
    }
}

/// Scratch memory of a worker.
struct Work<'a> {
    /// Rows of the head, side by side.
    q: &'a mut [f32],
    k: &'a mut [f32],
    dy: &'a mut [f32],
    /// Keys and values as columns.
    k_columns: &'a mut [f32],
    v_columns: &'a mut [f32],
    /// Product of each row's result and its gradient.
    delta: &'a mut [f32],
    /// Scores of a block, then weights.
    scores: &'a mut [f32],
    /// Their gradients.
    grads: &'a mut [f32],
}

/// Tasks that the samples are cut for, where all of a stretch have one bias: their gradients by it are added up one after the other.
const TASKS: usize = 64;

impl AttentionGradKernel {
    /// With the sizes known. `threads` is the most that the pool may have.
    pub fn new(shape: AttentionShape, places: AttentionGradOperands<usize>, how: Instructions, threads: usize) -> Self {
        let level = how.level;
        AttentionGradKernel {
            plan: Plan::new(shape, how),
            places,
            how,
            floats: shape.most(|shape| Plan::new(shape, how).worker_floats()),
            threads,
            grad_rows: shape.steps().map(table),
            weights: match shape.dropout {
                Some(_) => level.routine::<WeightGrads<true>>(),
                None => level.routine::<WeightGrads<false>>(),
            },
            dots: level.routine::<Dots>(),
        }
    }

    /// Stretches that the samples with the same bias are cut into.
    fn stretches(&self) -> usize {
        let shape = &self.plan.layout.shape;
        match shape.biases {
            0 => shape.samples,
            biases => TASKS.div_ceil((biases * shape.heads).max(1)).clamp(1, (shape.samples / biases).max(1)),
        }
    }

    /// Floats of the sums of the gradients by the biases in all stretches.
    fn partial_floats(&self) -> usize {
        let shape = &self.plan.layout.shape;
        if shape.biases == 0 { 0 } else { self.stretches() * shape.biases * shape.heads * shape.room * shape.room }
    }

    /// A head.
    ///
    /// # Safety
    /// The operands are there, and no other task touches these rows of the result.
    unsafe fn head(&self, l: &Layout, head: &HeadGrad, work: &mut Work) {
        let shape = &l.shape;
        let ([queries, keys], [query_step, key_step]) = ([shape.queries, shape.length], head.steps);
        // SAFETY: the caller's promise; the scratch memory has been measured for it.
        let columns = unsafe {
            l.copy_rows(head.qkv[0], query_step, queries, work.q);
            l.copy_rows(head.qkv[1], key_step, keys, work.k);
            l.copy_rows(head.dy, shape.embedding(), queries, work.dy);
            let (step, width, to) = (shape.embedding(), shape.width, work.delta.as_mut_ptr());
            (self.dots)(DotsArgs { of: [head.y, head.dy], step, rows: queries, width, to });
            [
                l.copy_columns(head.qkv[1], key_step, keys, work.k_columns),
                l.copy_columns(head.qkv[2], key_step, keys, work.v_columns),
            ]
        };
        if l.several() {
            for (row, part) in (0..keys).flat_map(|row| [(row, head.dqkv[1]), (row, head.dqkv[2])]) {
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts_mut(part.wrapping_add(row * key_step), shape.width) }.fill(0.0);
            }
        }
        for first in (0..queries).step_by(l.queries) {
            let queries = first..(first + l.queries).min(queries);
            let (begin, last) = (shape.begin(first), shape.end(queries.end));
            for start in (begin..last).step_by(l.keys) {
                let keys = start..(start + l.keys).min(last);
                // SAFETY: as above.
                unsafe { self.block(l, head, queries.clone(), (keys, begin), columns, work) };
            }
        }
    }

    /// What a block of queries and keys adds to the gradients. The first block of these queries begins at key `begin`.
    ///
    /// # Safety
    /// As [`AttentionGradKernel::head`].
    unsafe fn block(
        &self,
        l: &Layout,
        head: &HeadGrad,
        queries: Range<usize>,
        (keys, begin): (Range<usize>, usize),
        columns: [Right; 2],
        work: &mut Work,
    ) {
        let shape = &l.shape;
        let columns = columns.map(|c| Right { at: c.at.wrapping_add(keys.start * shape.width), ..c });
        let target = |which: usize, row: usize, accumulate: bool| {
            let of = which.min(1);
            let at = head.dqkv[which].wrapping_add(row * head.steps[of]);
            Target { at, rows: &self.grad_rows[of], columns: shape.width, accumulate }
        };
        for_each_tile(queries.len(), l.tiles.rows, |at, rows| {
            let tile = queries.start + at..queries.start + at + rows;
            let end = shape.end(tile.end).min(keys.end);
            if end <= keys.start || shape.is_past(tile.start, keys.end) {
                return;
            }
            // Whether no block before has keys that it sees.
            let is_first = shape.is_past(tile.start, keys.start) || keys.start == begin;
            let [scores, grads] = [&mut *work.scores, &mut *work.grads].map(|x| x[at * l.scores_step..].as_mut_ptr());
            for (from, columns, to) in [(&*work.q, columns[0], scores), (&*work.dy, columns[1], grads)] {
                let rows_of = Left { at: from[tile.start * l.copy_step..].as_ptr(), rows: &l.copy_rows, step: 1 };
                let to = Target { at: to, rows: &l.scores_rows, columns: end - keys.start, accumulate: false };
                // SAFETY: the caller's promise.
                unsafe { l.product(rows, rows_of, columns, shape.width, to) };
            }
            let seen = l.rows(scores, tile.clone(), keys.start..end);
            // SAFETY: the caller's promise.
            unsafe { l.adjust.run(shape, seen, head.added, tile.start, keys.start) };
            // The products by keys read as far as the tile of keys that begins in the last column.
            let seen = Rows { padded: (seen.keys + l.tiles.rows).min(keys.len()), ..seen };
            let (lse, delta) = (head.lse.wrapping_add(tile.start), work.delta[tile.start..].as_ptr());
            let grads_of = Left { at: grads, rows: &l.scores_rows, step: 1 };
            let k = l.copied(work.k[keys.start * l.copy_step..].as_ptr());
            let mask = Mask { row: head.mask.row + tile.start, column: keys.start, ..head.mask };
            // SAFETY: as above.
            unsafe {
                (self.weights)(WeightGradsArgs { rows: seen, grads, lse, delta, mask });
                if !head.dbias.is_null() {
                    // The gradients are those by q · k.
                    let (to, by) = (head.dbias.wrapping_add(tile.start * shape.room + keys.start), 1.0 / seen.scale);
                    let rows = Rows { scores: to, step: shape.room, ..seen };
                    (l.adjust.add)(AddBiasArgs { rows, bias: grads, step: l.scores_step, by });
                }
                l.product(rows, grads_of, k, end - keys.start, target(0, tile.start, !is_first));
            }
        });
        for_each_tile(keys.len(), l.tiles.rows, |at, rows| {
            let key = keys.start + at;
            // The queries of the block that see one of these keys.
            let seeing = shape.queries_of(key..key + rows);
            let (first, last) = (queries.start.max(seeing.start), queries.end.min(seeing.end));
            if first >= last {
                return;
            }
            let from = (first - queries.start) * l.scores_step + at;
            for (which, table, right) in [(1, &*work.grads, &*work.q), (2, &*work.scores, &*work.dy)] {
                let left = Left { at: table[from..].as_ptr(), rows: &l.column_rows, step: l.scores_step };
                let right = l.copied(right[first * l.copy_step..].as_ptr());
                // SAFETY: as above.
                unsafe { l.product(rows, left, right, last - first, target(which, key, l.several())) };
            }
        });
    }
}

impl NodeKernel for AttentionGradKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f32>(PerThread::size(self.threads, self.floats)) + Scratch::size::<f32>(self.partial_floats())
    }

    fn run(&self, frame: &Frame<'_>) {
        let shape = &self.plan.layout.shape;
        let (e, l, biases) = (shape.embedding(), shape.query_room, shape.biases);
        let AttentionGradOperands { dy, q, kv, y, lse, bias, lengths, key } = self.places;
        let ([dy, y, lse], [q, kv]) = ([dy, y, lse].map(|i| frame.input::<f32>(i)), shape.sources(frame, q, kv));
        let positions = shape.samples * l;
        assert!(dy.len() == positions * e && y.len() == dy.len() && lse.len() == positions * shape.heads);
        let dq = Parts::new(frame.output::<f32>(0));
        // Of one sequence both are the same.
        let apart = shape.between.then(|| Parts::new(frame.output::<f32>(1)));
        assert!(frame.pool().threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = self.floats;
        let mut memory = frame.scratch();
        let scratch = PerThread::take(&mut memory, self.threads, floats);
        let partial = Parts::new(memory.take::<f32>(self.partial_floats()));
        // Without a bias each sample is a stretch by itself.
        let stretches = if l + shape.room == 0 { 0 } else { self.stretches() };
        let (turns, square) = (biases.max(1), shape.room * shape.room);
        let all = bias.map_or(&[][..], |i| frame.input::<f32>(i));
        let lengths = shape.lengths(frame, lengths);
        let mask = shape.mask(frame, key);
        frame.pool().run(stretches * turns * shape.heads, |task, worker| {
            let (of, h) = (task / shape.heads, task % shape.heads);
            let (stretch, turn) = (of / turns, of % turns);
            // SAFETY: a worker has its own scratch.
            let own = unsafe { scratch.of(worker) };
            let dbias = match biases {
                0 => std::ptr::null_mut(),
                _ => {
                    // SAFETY: a task has its own sums.
                    let sums = unsafe { partial.part(task * square..(task + 1) * square) };
                    sums.fill(0.0);
                    sums.as_mut_ptr()
                }
            };
            for i in tile_rows(shape.samples / turns, stretches, stretch) {
                let sample = i * turns + turn;
                let row = sample * l * e + h * shape.width;
                let rows = (sample * shape.heads + h) * l;
                let [of_q, of_k, of_v] = shape.starts(sample, h);
                let dkv = apart.as_ref().unwrap_or(&dq).as_ptr();
                let head = HeadGrad {
                    qkv: [
                        q.as_ptr().wrapping_add(of_q),
                        kv.as_ptr().wrapping_add(of_k),
                        kv.as_ptr().wrapping_add(of_v),
                    ],
                    steps: shape.steps(),
                    y: y.as_ptr().wrapping_add(row),
                    dy: dy.as_ptr().wrapping_add(row),
                    lse: lse.as_ptr().wrapping_add(rows),
                    dqkv: [dq.as_ptr().wrapping_add(of_q), dkv.wrapping_add(of_k), dkv.wrapping_add(of_v)],
                    added: shape.added(all, sample, h),
                    dbias,
                    mask: Mask { row: rows, ..mask },
                };
                let length = shape.length_of(lengths, sample);
                let shorter = shape.of_length(length);
                let nothing = shorter.queries == 0;
                // SAFETY: the lengths have been checked; a head's rows of the result are this task's own.
                unsafe { head.clear(shorter.queries..l, if nothing { 0 } else { length }..shape.room, shape.width) };
                if nothing {
                    continue;
                }
                let shorter = (length < shape.room).then(|| Plan::new(shorter, self.how));
                let plan = shorter.as_ref().unwrap_or(&self.plan);
                match &plan.tiles {
                    // SAFETY: as above.
                    Some(tiles) => unsafe { tiles.head(&head, own) },
                    // SAFETY: as above.
                    None => unsafe { self.head(&plan.layout, &head, &mut plan.work(own)) },
                }
            }
        });
        if biases > 0 && stretches > 0 {
            let sums = Parts::new(frame.output::<f32>(1));
            let step = biases * shape.heads * square;
            frame.pool().run(biases * shape.heads, |task, _| {
                let at = task * square..(task + 1) * square;
                // SAFETY: a task has its own part of the result. No task writes the partial sums any more.
                let (to, first) = unsafe { (sums.part(at.clone()), partial.part(at.clone())) };
                to.copy_from_slice(first);
                for stretch in 1..stretches {
                    // SAFETY: as above.
                    let part = unsafe { partial.part(at.start + stretch * step..at.end + stretch * step) };
                    to.iter_mut().zip(part.iter()).for_each(|(to, x)| *to += *x);
                }
            });
        }
    }
}
