//! Attention of many new positions to kept ones: what a prompt is read with. The forward pass of training, but that keys and values lie elsewhere.

use super::forward::{Blocks, Work, stretches};
use super::head::Head;
use super::rows::Mask;
use super::{AttentionShape, Layout};
use crate::gemm::round_up;
use crate::gemm::tile::tile_rows;
use crate::run::frame::{Frame, Scratch};
use crate::run::per_thread::PerThread;
use crate::run::threads::Parts;
use crate::simd::SimdLevel;

/// Sizes of kept keys and values, and of what is new.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Samples.
    pub samples: usize,
    /// New positions of each.
    pub new: usize,
    /// Positions that there is room for.
    pub room: usize,
    /// Heads, and those of them that have keys and values.
    pub heads: [usize; 2],
    /// Floats of a head.
    pub width: usize,
    /// Positions so far before another one are not seen by it.
    pub window: Option<usize>,
    /// What is far counts less.
    pub alibi: bool,
}

/// [`crate::graph::op::CachedAttention`] of many new positions, whose keys and values are kept already.
pub struct PromptAttention {
    sizes: Kept,
    layout: Layout,
    blocks: Blocks,
    stretches: usize,
    threads: usize,
}

impl PromptAttention {
    /// With the sizes known.
    pub fn new(sizes: Kept, level: SimdLevel, threads: usize) -> Self {
        let Kept { samples, new, room, heads: [heads, _], width, window, alibi } = sizes;
        let (causal, length, query_room, queries) = (true, room, room, room);
        let shape = AttentionShape {
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
            ..AttentionShape::default()
        };
        let layout = Layout::new(shape, level);
        let stretches = stretches(samples * heads, new.div_ceil(layout.tiles.rows), threads);
        PromptAttention { sizes, layout, blocks: Blocks::new(shape, level), stretches, threads }
    }

    /// Floats of a worker: what the forward pass needs, and logarithms, which nothing else reads here.
    fn floats(&self) -> usize {
        Work::floats(&self.layout) + round_up(self.sizes.new)
    }

    /// Bytes of scratch memory.
    pub fn scratch_bytes(&self) -> usize {
        Scratch::size::<f32>(PerThread::size(self.threads, self.floats()))
    }

    /// The results of all new positions of the packed operand `qkv`.
    pub fn run(&self, frame: &Frame<'_>, qkv: &[f32], [keys, values]: [&[f32]; 2], positions: &[i32], y: &mut [f32]) {
        let Kept { samples, new, room, heads: [heads, kv_heads], width, window, .. } = self.sizes;
        let (embedding, row) = (heads * width, kv_heads * width);
        let packed = embedding + 2 * row;
        assert!(qkv.len() == samples * new * packed && y.len() == samples * new * embedding);
        assert!(keys.len() == samples * room * row && values.len() == keys.len() && positions.len() == samples);
        assert!(frame.pool().threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = self.floats();
        let scratch = PerThread::take(&mut frame.scratch(), self.threads, floats);
        let (y, stretches) = (Parts::new(y), self.stretches);
        frame.pool().run(samples * heads * stretches, |task, worker| {
            let (head, stretch) = (task / stretches, task % stretches);
            let (n, h) = (head / heads, head % heads);
            let position = i64::from(positions[n]);
            // New positions before the first one see nothing, and neither do those so far after the last one that a window leaves out all.
            let nothing = (-position).clamp(0, new as i64) as usize;
            let last = window.map_or(i64::MAX, |window| (room + window - 1) as i64 - position);
            let some = last.clamp(nothing as i64, new as i64) as usize;
            let of = (n * new + nothing) * embedding + h * width;
            let results = y.as_ptr().wrapping_add(of);
            if stretch == 0 {
                for i in (0..nothing).chain(some..new) {
                    let at = (n * new + i) * embedding + h * width;
                    // SAFETY: these rows are this task's own.
                    unsafe { y.part(at..at + width) }.fill(f32::NAN);
                }
            }
            let queries = tile_rows(some - nothing, stretches, stretch);
            if queries.is_empty() {
                return;
            }
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.of(worker) };
            let (lse, work) = scratch.split_at_mut(round_up(new));
            let first = n * room * row + h / (heads / kv_heads) * width;
            let at = Head {
                qkv: [
                    qkv[(n * new + nothing) * packed + h * width..].as_ptr(),
                    keys[first..].as_ptr(),
                    values[first..].as_ptr(),
                ],
                steps: [packed, row],
                before: position.max(0) as usize,
                y: results,
                lse: lse.as_mut_ptr(),
                added: self.layout.shape.added(&[], n, h),
                mask: Mask::default(),
            };
            // SAFETY: the lengths have been checked; a head's rows of the results are cut into stretches, each a task's own.
            unsafe { self.blocks.head(&self.layout, &at, queries, &mut Work::of(&self.layout, work)) };
        });
    }
}
