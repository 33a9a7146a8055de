//! Attention of new positions to kept ones. With one new position there is nothing to do but to read what is kept, so that is read once, row by
//! row, for all heads together. Many new ones, those of a prompt, are products of matrices, as in training (`attention::PromptAttention`).

use super::attention::{Kept, PromptAttention};
use crate::graph::Shape;
use crate::graph::op::{CachedAttention, alibi_slope, attention_scale};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::vectorised;
use crate::run::per_thread::PerThread;
use crate::run::threads::Parts;
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};

/// Kept positions whose scores are computed together: their rows stay in the cache for all new positions of a task.
const BLOCK: usize = 64;

/// Up to so many new positions are computed row by row.
const FEW: usize = 8;

/// [`CachedAttention`].
///
/// A task has the new positions of a sample and a block of kept ones. Of each new position and head it makes
/// a sum of values, the sum of their weights, and the largest score, by which the weights are divided. A second round of tasks joins the blocks, in
/// order. Which sums there are depends on the shapes alone, and the work grows with the positions so far, not with the room for them.
pub struct CachedAttentionKernel {
    sizes: Sizes,
    samples: usize,
    /// New positions of a sample.
    new: usize,
    /// Room for positions.
    kept: usize,
    /// Positions so far before another one are not seen by it.
    window: Option<usize>,
    /// What a position more between takes from the scores of each head.
    slopes: Vec<f32>,
    threads: usize,
    level: SimdLevel,
    /// Computes them, if there are many new ones.
    prompt: Option<PromptAttention>,
}

/// Sizes of heads.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    kv_heads: usize,
    width: usize,
}

impl Sizes {
    /// Floats of a result.
    fn embedding(self) -> usize {
        self.heads * self.width
    }

    /// Floats of a kept key, or value.
    fn row(self) -> usize {
        self.kv_heads * self.width
    }

    /// Where the key of a head begins in a row.
    #[inline(always)]
    fn shared(self, head: usize) -> usize {
        head / (self.heads / self.kv_heads) * self.width
    }
}

/// What a new position has of some blocks: a sum of values for each head, which is not divided by the sum of weights yet, that sum, and the
/// largest score.
struct Sums<'a> {
    y: &'a mut [f32],
    sum: &'a mut [f32],
    top: &'a mut [f32],
}

impl<'a> Sums<'a> {
    fn floats(sizes: Sizes) -> usize {
        sizes.embedding() + 2 * sizes.heads
    }

    fn of(memory: &'a mut [f32], sizes: Sizes) -> Self {
        let (y, rest) = memory.split_at_mut(sizes.embedding());
        let (sum, top) = rest.split_at_mut(sizes.heads);
        Sums { y, sum, top }
    }

    /// Of nothing.
    fn clear(&mut self) {
        self.y.fill(0.0);
        self.sum.fill(0.0);
        self.top.fill(f32::NEG_INFINITY);
    }
}

/// The product of two rows of `n` floats.
#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (n, mut sum) = (a.len(), s.zero());
    let mut i = 0;
    while i + S::LANES <= n {
        sum = s.fma(get(s, a, i, S::LANES), get(s, b, i, S::LANES), sum);
        i += S::LANES;
    }
    if i < n {
        sum = s.fma(get(s, a, i, n - i), get(s, b, i, n - i), sum);
    }
    s.sum(sum)
}

/// `y += Σ weights · rows` for `ROWS` rows of all heads, one behind the other from `at` on.
#[inline(always)]
fn add_rows<S: Simd, const ROWS: usize>(s: S, sizes: Sizes, weights: &[f32], values: &[f32], at: usize, y: &mut [f32]) {
    let (width, row) = (sizes.width, sizes.row());
    for h in 0..sizes.heads {
        let mut of = [s.zero(); ROWS];
        let mut rows = [&values[..0]; ROWS];
        for r in 0..ROWS {
            of[r] = s.splat(weights[h * BLOCK + at + r]);
            rows[r] = &values[(at + r) * row + sizes.shared(h)..][..width];
        }
        let y = &mut y[h * width..(h + 1) * width];
        for c in (0..width).step_by(S::LANES) {
            let n = (width - c).min(S::LANES);
            let mut sum = get(s, y, c, n);
            for r in 0..ROWS {
                sum = s.fma(of[r], get(s, rows[r], c, n), sum);
            }
            put(s, y, c, n, sum);
        }
    }
}

vectorised! {
    /// Adds a block of kept `keys` and `values`, at most [`BLOCK`] rows, to the sums of the new position with the queries `q`, which is
    /// `ahead` positions after the first of them; each position takes the head's slope from its scores.
    fn attend<'a, S>(
        s, sizes: Sizes, slopes: &'a [f32], ahead: i64, q: &'a [f32], keys: &'a [f32], values: &'a [f32], scores: &'a mut [f32], sums: &'a mut Sums<'a>,
    ) {
        let (heads, width, row) = (sizes.heads, sizes.width, sizes.row());
        let (rows, scale) = (keys.len() / row, attention_scale(width) as f32);
        for j in 0..rows {
            for h in 0..heads {
                let key = &keys[j * row + sizes.shared(h)..][..width];
                let score = dot(s, &q[h * width..(h + 1) * width], key) * scale;
                scores[h * BLOCK + j] = score - slopes[h] * (ahead - j as i64) as f32;
            }
        }
        for h in 0..heads {
            let scores = &mut scores[h * BLOCK..][..rows];
            let before = sums.top[h];
            let mut most = before;
            for score in scores.iter() {
                most = if *score > most { *score } else { most };
            }
            let mut total = s.zero();
            for i in (0..rows).step_by(S::LANES) {
                let n = (rows - i).min(S::LANES);
                let weight = s.first(s.exp(s.sub(get(s, scores, i, n), s.splat(most))), n);
                total = s.add(total, weight);
                put(s, scores, i, n, weight);
            }
            let factor = if before == f32::NEG_INFINITY { 0.0 } else { s.to_array(s.exp(s.splat(before - most)))[0] };
            let y = &mut sums.y[h * width..(h + 1) * width];
            for c in (0..width).step_by(S::LANES) {
                let n = (width - c).min(S::LANES);
                let of = s.mul(get(s, y, c, n), s.splat(factor));
                put(s, y, c, n, of);
            }
            sums.sum[h] = sums.sum[h] * factor + s.sum(total);
            sums.top[h] = most;
        }
        let mut at = 0;
        while at + 4 <= rows {
            add_rows::<S, 4>(s, sizes, scores, values, at, sums.y);
            at += 4;
        }
        for at in at..rows {
            add_rows::<S, 1>(s, sizes, scores, values, at, sums.y);
        }
    }
}

impl CachedAttentionKernel {
    /// For new positions of the packed shape `qkv`, and kept ones of the shape `keys`.
    pub fn new(op: &CachedAttention, qkv: &Shape, keys: &Shape, level: SimdLevel, threads: usize) -> Self {
        let ([samples, new, packed], kept) = (qkv.dims(), keys.dims()[1]) else {
            unreachable!("the shape rule asks for three dimensions")
        };
        let CachedAttention { heads, kv_heads, window, alibi } = *op;
        let sizes = Sizes { heads, kv_heads, width: packed / (heads + 2 * kv_heads) };
        let of_heads = [heads, kv_heads];
        let all = Kept { samples: *samples, new: *new, room: kept, heads: of_heads, width: sizes.width, window, alibi };
        let prompt = (*new > FEW).then(|| PromptAttention::new(all, level, threads));
        let slopes = (0..heads).map(|h| if alibi { alibi_slope(heads, h) as f32 } else { 0.0 }).collect();
        CachedAttentionKernel { sizes, samples: *samples, new: *new, kept, window, slopes, threads, level, prompt }
    }

    /// Parts that the kept positions are cut into.
    fn spans(&self) -> usize {
        self.kept.div_ceil(BLOCK)
    }

    /// Floats of the scores of all workers, and of all sums.
    fn parts(&self) -> [usize; 2] {
        let sums = self.samples * self.new * self.spans() * Sums::floats(self.sizes);
        [PerThread::size(self.threads, self.sizes.heads * BLOCK), sums]
    }

    /// Floats of a new position in the packed operand.
    fn packed(&self) -> usize {
        self.sizes.embedding() + 2 * self.sizes.row()
    }

    /// Writes the new keys and values to their places.
    fn keep(&self, frame: &Frame<'_>, qkv: &[f32], positions: &[i32], kept: [&mut [f32]; 2]) {
        let row = self.sizes.row();
        let kept = kept.map(Parts::new);
        frame.pool().run(self.samples * self.new, |task, _| {
            let (n, i) = (task / self.new, task % self.new);
            let to = usize::try_from(i64::from(positions[n]) + i as i64).ok().filter(|to| *to < self.kept);
            let Some(to) = to else { return };
            let at = (n * self.kept + to) * row;
            let new = &qkv[task * self.packed() + self.sizes.embedding()..][..2 * row];
            for (kept, new) in kept.iter().zip(new.chunks(row)) {
                // SAFETY: a task has a place of its own.
                unsafe { kept.part(at..at + row) }.copy_from_slice(new);
            }
        });
    }
}

impl NodeKernel for CachedAttentionKernel {
    fn scratch_bytes(&self) -> usize {
        match &self.prompt {
            Some(prompt) => prompt.scratch_bytes(),
            None => self.parts().map(Scratch::size::<f32>).iter().sum(),
        }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (sizes, pool) = (self.sizes, frame.pool());
        let (row, embedding, floats) = (sizes.row(), sizes.embedding(), Sums::floats(sizes));
        let (qkv, positions, y) = (frame.input::<f32>(0), frame.input::<i32>(3), frame.output::<f32>(0));
        let [keys, values] = [1, 2].map(|i| frame.update::<f32>(i));
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        self.keep(frame, qkv, positions, [&mut *keys, &mut *values]);
        let (keys, values) = (&*keys, &*values);
        if let Some(prompt) = &self.prompt {
            return prompt.run(frame, qkv, [keys, values], positions, y);
        }
        let mut memory = frame.scratch();
        let [scores, sums] = self.parts().map(|floats| Parts::new(memory.take::<f32>(floats)));
        let (spans, scores) = (self.spans(), PerThread::new(scores, sizes.heads * BLOCK));
        pool.run(self.samples * spans, |task, worker| {
            let (n, span) = (task / spans, task % spans);
            // SAFETY: a worker has its own scores.
            let scores = unsafe { scores.of(worker) };
            // SAFETY: a task has its own positions and blocks.
            let sums_of = |i: usize| unsafe {
                let at = ((n * self.new + i) * spans + span) * floats;
                Sums::of(sums.part(at..at + floats), sizes)
            };
            (0..self.new).for_each(|i| sums_of(i).clear());
            let start = span * BLOCK;
            let window = self.window.map_or(i64::MAX, |window| window as i64);
            for i in 0..self.new {
                let own = i64::from(positions[n]) + i as i64;
                // What it sees of the span.
                let [first, end] = [(own + 1).saturating_sub(window), own + 1]
                    .map(|at| at.clamp(start as i64, (start + BLOCK).min(self.kept) as i64) as usize);
                if first >= end {
                    continue;
                }
                let rows = (n * self.kept + first) * row..(n * self.kept + end) * row;
                let q = &qkv[(n * self.new + i) * self.packed()..][..embedding];
                let (keys, values) = (&keys[rows.clone()], &values[rows]);
                let ahead = own - first as i64;
                attend(self.level, sizes, &self.slopes, ahead, q, keys, values, scores, &mut sums_of(i));
            }
        });
        let y = Parts::new(y);
        pool.run(self.samples * self.new, |task, _| {
            // SAFETY: a task has its own position.
            let y = unsafe { y.part(task * embedding..(task + 1) * embedding) };
            // SAFETY: as above; no other task reads or writes these sums any more.
            let sums_of = |span: usize| unsafe {
                let at = (task * spans + span) * floats;
                Sums::of(sums.part(at..at + floats), sizes)
            };
            for (h, y) in y.chunks_mut(sizes.width).enumerate() {
                let top = (0..spans).map(|span| sums_of(span).top[h]).fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0;
                y.fill(0.0);
                for span in 0..spans {
                    let of = sums_of(span);
                    if of.top[h] == f32::NEG_INFINITY {
                        continue;
                    }
                    let factor = (of.top[h] - top).exp();
                    total += of.sum[h] * factor;
                    y.iter_mut().zip(&of.y[h * sizes.width..]).for_each(|(y, x)| *y += x * factor);
                }
                // NaN where nothing was seen.
                y.iter_mut().for_each(|y| *y /= total);
            }
        });
    }
}
