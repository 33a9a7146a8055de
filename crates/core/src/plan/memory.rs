//! Offsets for buffers: two that live at the same time never overlap.

use super::align;
use super::lifetime::{Buffer, most_alive};
use super::sweep;

/// Up to this many buffers all orders are tried, in a time that grows with the square of their number.
const FEW: usize = 4096;

/// Gives every buffer an offset; returns the offsets and the size of the block.
///
/// Greedy (Pisarchyk & Lee, "Efficient memory management for deep neural net inference", 2020): one buffer after the
/// other, each in the smallest gap that it fits in between those placed before that live at the same time. No order is
/// the best for every model, so a few are tried, and the smallest block wins. More than a few thousand buffers are placed by
/// [`sweep`] alone, in a time that hardly grows faster than their number.
/// Ties go to the earlier buffer and the earlier order, so that the plan is the same every time.
pub fn assign(buffers: &[Buffer]) -> (Vec<usize>, usize) {
    let bytes = |b: &Buffer| align(b.bytes) as u128;
    let life = |b: &Buffer| (b.last - b.first + 1) as u128;
    let keys: [&dyn Fn(&Buffer) -> u128; 3] = [&bytes, &|b| bytes(b) * life(b), &life];
    let least = most_alive(buffers);
    let mut best: Option<(Vec<usize>, usize)> = None;
    if buffers.iter().filter(|b| b.bytes > 0).count() > FEW {
        return sweep::assign(buffers, least);
    }
    for key in keys {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(key(&buffers[*i])), buffers[*i].first, *i));
        let found = place(buffers, &order);
        if best.as_ref().is_none_or(|(_, total)| found.1 < *total) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|(_, total)| *total == least) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Gives every buffer a place of its own after `start`; returns the offsets, and where the last one ends.
pub fn in_a_row(buffers: &[Buffer], start: usize) -> (Vec<usize>, usize) {
    let mut at = start;
    let offsets = buffers
        .iter()
        .map(|b| {
            let offset = at;
            at += align(b.bytes);
            offset
        })
        .collect();
    (offsets, at)
}

/// The buffers placed one after the other, in `order`.
fn place(buffers: &[Buffer], order: &[usize]) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; buffers.len()];
    // Placed buffers by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(buffers.len());
    let mut total = 0;
    for &i in order {
        let need = align(buffers[i].bytes);
        if need == 0 {
            // Most operations need no workspace, and so no place.
            continue;
        }
        let mut best: Option<(usize, usize)> = None;
        let mut end_of_last = 0;
        for p in &placed {
            let (a, b) = (&buffers[*p], &buffers[i]);
            if a.last < b.first || b.last < a.first {
                continue;
            }
            if offsets[*p] >= end_of_last {
                let gap = offsets[*p] - end_of_last;
                if gap >= need && best.is_none_or(|(g, _)| gap < g) {
                    best = Some((gap, end_of_last));
                }
            }
            end_of_last = end_of_last.max(offsets[*p] + align(a.bytes));
        }
        let offset = best.map_or(end_of_last, |(_, o)| o);
        offsets[i] = offset;
        total = total.max(offset + need);
        let at = placed.partition_point(|p| offsets[*p] <= offset);
        placed.insert(at, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::super::ALIGN;
    use super::super::lifetime::Class;
    use super::*;
    use proptest::prelude::*;

    fn overlap(a: (usize, usize), b: (usize, usize)) -> bool {
        a.0 < b.0 + b.1 && b.0 < a.0 + a.1
    }

    proptest! {
        #[test]
        fn live_buffers_never_overlap(list in prop::collection::vec((0usize..40, 0usize..20, 1usize..5000), 0..80)) {
            let buffers: Vec<Buffer> = list
                .iter()
                .map(|(first, len, bytes)| Buffer { first: *first, last: first + len, bytes: *bytes, class: Class::Activation })
                .collect();
            let (offsets, total) = assign(&buffers);
            for (i, a) in buffers.iter().enumerate() {
                prop_assert_eq!(offsets[i] % ALIGN, 0);
                prop_assert!(offsets[i] + a.bytes <= total);
                for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    prop_assert!(!together || !overlap((offsets[i], a.bytes), (offsets[j], b.bytes)));
                }
            }
        }
    }

    /// Chains of short-lived buffers of all sizes among long-lived ones, for which the order by size leaves gaps.
    #[test]
    fn no_order_is_the_best_for_all() {
        let mut draw = crate::random::Stream::new(1, crate::random::Purpose::Synthetic, 0, 0);
        let (mut by_size, mut best) = (0, 0);
        for _ in 0..50 {
            let buffers: Vec<Buffer> = (0..40)
                .map(|first| {
                    let last = first + draw.below(12) as usize;
                    let bytes = 64 << draw.below(8);
                    Buffer { first, last, bytes, class: Class::Activation }
                })
                .collect();
            let mut order: Vec<usize> = (0..buffers.len()).collect();
            order.sort_by_key(|i| (std::cmp::Reverse(buffers[*i].bytes), buffers[*i].first, *i));
            by_size += place(&buffers, &order).1;
            let total = assign(&buffers).1;
            assert!(total >= most_alive(&buffers));
            best += total;
        }
        assert!(best < by_size, "{best} {by_size}");
    }

    #[test]
    fn memory_is_reused() {
        let buffer = |first, last| Buffer { first, last, bytes: 1024, class: Class::Activation };
        let (_, total) = assign(&[buffer(0, 1), buffer(1, 2), buffer(2, 3), buffer(3, 4)]);
        assert_eq!(total, 2048);
    }
}
