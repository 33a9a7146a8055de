//! Offsets for very many buffers: one pass over time, as an allocator would see it.

use super::align;
use super::lifetime::Buffer;
use std::collections::{BTreeMap, BTreeSet};

/// Gives every buffer an offset; returns the offsets and the size of the block, of which `least` bytes are needed at least.
///
/// Time is gone through forwards and backwards: a buffer is put where it begins to live into the smallest gap that it fits
/// in, the largest first of those that begin together, and leaves a gap where it ends. The smaller block wins.
pub fn assign(buffers: &[Buffer], least: usize) -> (Vec<usize>, usize) {
    let end = buffers.iter().map(|b| b.last).max().unwrap_or(0);
    let forwards = sweep(buffers, |b| (b.first, b.last));
    if forwards.1 == least {
        return forwards;
    }
    let backwards = sweep(buffers, |b| (end - b.last, end - b.first));
    if backwards.1 < forwards.1 { backwards } else { forwards }
}

fn sweep(buffers: &[Buffer], life: impl Fn(&Buffer) -> (usize, usize)) -> (Vec<usize>, usize) {
    let of_any_size = |i: &usize| buffers[*i].bytes > 0;
    let mut begins: Vec<usize> = (0..buffers.len()).filter(of_any_size).collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|i| (life(&buffers[*i]).0, std::cmp::Reverse(buffers[*i].bytes), *i));
    ends.sort_by_key(|i| (life(&buffers[*i]).1, *i));
    let mut ends = ends.into_iter().peekable();
    let mut block = Block::default();
    let mut offsets = vec![0; buffers.len()];
    for i in begins {
        let now = life(&buffers[i]).0;
        while let Some(dead) = ends.next_if(|e| life(&buffers[*e]).1 < now) {
            block.free(offsets[dead], align(buffers[dead].bytes));
        }
        offsets[i] = block.take(align(buffers[i].bytes));
    }
    (offsets, block.end)
}

/// A block of memory that grows, with gaps.
#[derive(Default)]
struct Block {
    end: usize,
    /// Start and size of each gap; no two touch.
    gaps: BTreeMap<usize, usize>,
    /// The same, by size.
    by_size: BTreeSet<(usize, usize)>,
}

impl Block {
    /// The smallest gap that is large enough, else the end, with the gap that may lie before it.
    fn take(&mut self, need: usize) -> usize {
        if let Some(&(size, start)) = self.by_size.range((need, 0)..).next() {
            self.remove(start, size);
            if size > need {
                self.add(start + need, size - need);
            }
            return start;
        }
        let start = match self.gaps.last_key_value() {
            Some((&start, &size)) if start + size == self.end => {
                self.remove(start, size);
                start
            }
            _ => self.end,
        };
        self.end = start + need;
        start
    }

    fn free(&mut self, mut start: usize, mut size: usize) {
        if let Some((&before, &length)) = self.gaps.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            (start, size) = (before, size + length);
        }
        if let Some(&length) = self.gaps.get(&(start + size)) {
            self.remove(start + size, length);
            size += length;
        }
        self.add(start, size);
    }

    fn add(&mut self, start: usize, size: usize) {
        self.gaps.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: usize, size: usize) {
        self.gaps.remove(&start);
        self.by_size.remove(&(size, start));
    }
}

#[cfg(test)]
mod tests {
    use super::super::lifetime::{Class, most_alive};
    use super::super::memory::assign as exact;
    use super::*;
    use crate::random::{Purpose, Stream};
    use proptest::prelude::*;

    fn buffer(first: usize, last: usize, bytes: usize) -> Buffer {
        Buffer { first, last, bytes, class: Class::Activation }
    }

    proptest! {
        #[test]
        fn live_buffers_never_overlap(list in prop::collection::vec((0usize..40, 0usize..20, 0usize..5000), 0..80)) {
            let buffers: Vec<Buffer> = list.iter().map(|(first, len, bytes)| buffer(*first, first + len, *bytes)).collect();
            let least = most_alive(&buffers);
            let (offsets, total) = assign(&buffers, least);
            prop_assert!(total >= least);
            for (i, a) in buffers.iter().enumerate().filter(|(_, a)| a.bytes > 0) {
                prop_assert_eq!(offsets[i] % super::super::ALIGN, 0);
                prop_assert!(offsets[i] + a.bytes <= total);
                for (j, b) in buffers.iter().enumerate().skip(i + 1).filter(|(_, b)| b.bytes > 0) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(!together || apart);
                }
            }
        }
    }

    /// Activations that live to the backward pass, and gradients that live from node to node: a training step.
    fn step(layers: usize, bytes: impl Fn(usize) -> usize) -> Vec<Buffer> {
        let end = 2 * layers;
        let forward = (0..layers).map(|i| buffer(i, end - i, bytes(i)));
        let backward = (0..layers).map(|i| buffer(end - i, end - i + 1, bytes(i)));
        let scratch = (0..end).map(|t| buffer(t, t, 64 * (t % 5)));
        forward.chain(backward).chain(scratch).collect()
    }

    #[test]
    fn a_training_step_of_a_hundred_thousand_layers_takes_what_is_alive() {
        // Miri takes seconds for what takes a machine a millisecond.
        let buffers = step(if cfg!(miri) { 200 } else { 100_000 }, |_| 1024);
        let least = most_alive(&buffers);
        let (_, total) = exact(&buffers);
        assert!(total <= least + 1024 * 2, "{total} {least}");
    }

    /// Layers of very different sizes, where the exact search still is possible.
    #[test]
    fn it_is_nearly_as_good_as_all_orders() {
        let mut draw = Stream::new(1, Purpose::Synthetic, 0, 0);
        let layers = if cfg!(miri) { 60 } else { 600 };
        for pattern in 0..4 {
            let sizes: Vec<usize> = (0..layers)
                .map(|i| match pattern {
                    0 => 4096,
                    1 => 64 << (draw.below(6)),
                    2 => 65536 >> (6 * i / layers),
                    _ => 64 * (1 + i % 7),
                })
                .collect();
            let buffers = step(layers, |i| sizes[i]);
            let (few, many) = (exact(&buffers).1, assign(&buffers, 0).1);
            assert!(many as f64 <= 1.05 * few as f64, "pattern {pattern}: {many} for {few}");
        }
    }
}
