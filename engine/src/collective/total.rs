//! The arithmetic of totals over ranks.

use super::{Division, Slots};
use crate::graph::DType;
use crate::shards::Partial;
use std::ops::Range;

/// Elements that are summed at a time: few enough for the first cache.
const PIECE: usize = 512;

/// The elements that belong to `rank`, of each of `tensors`.
pub fn parts(tensors: &[Slots], division: Division, (rank, ranks): (usize, usize)) -> Vec<Range<usize>> {
    let lengths = || tensors.iter().map(|tensor| tensor.len);
    match division {
        Division::Elements => equal_parts(lengths().collect(), rank, ranks),
        Division::Tensors(owners) => {
            lengths().zip(owners).map(|(length, owner)| if *owner == rank { 0..length } else { 0..0 }).collect()
        }
    }
}

/// The elements of all tensors, one tensor behind the other, divided equally: `rank`'s part of each tensor.
fn equal_parts(lengths: Vec<usize>, rank: usize, ranks: usize) -> Vec<Range<usize>> {
    let total: usize = lengths.iter().sum();
    // Whole cache lines of the larger types.
    let bound =
        |rank: usize| if rank == ranks { total } else { (total / ranks * rank).next_multiple_of(16).min(total) };
    let (from, to) = (bound(rank), bound(rank + 1));
    let mut start = 0;
    let part = |length: usize| {
        let own = from.clamp(start, start + length) - start..to.clamp(start, start + length) - start;
        start += length;
        own
    };
    lengths.into_iter().map(part).collect()
}

/// A number that is summed over shards.
pub trait Number: Copy + Default {
    /// The sum, rounded as that type is.
    fn plus(self, other: Self) -> Self;
}

impl Number for f32 {
    fn plus(self, other: f32) -> f32 {
        self + other
    }
}

impl Number for f64 {
    fn plus(self, other: f64) -> f64 {
        self + other
    }
}

impl Number for i64 {
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
}

/// Writes the total of elements `part` of a tensor to the first slot of `to`. `from` says where these elements of a partial sum lie.
///
/// # Safety
/// The addresses are those of valid, aligned and initialised elements, as many as the part has, and nobody writes them, or reads those of the slot
/// that is written to.
pub unsafe fn total(order: &[Partial], from: impl Fn(&Partial) -> *const u8, to: &Slots, part: Range<usize>) {
    let from: Vec<*const u8> = order.iter().map(from).collect();
    // SAFETY: as is promised, for elements of that type.
    unsafe {
        match to.dtype {
            DType::F64 => of::<f64>(order, &from, to, part),
            DType::I64 => of::<i64>(order, &from, to, part),
            _ => of::<f32>(order, &from, to, part),
        }
    }
}

/// # Safety
/// As [`total`].
unsafe fn of<T: Number>(order: &[Partial], from: &[*const u8], to: &Slots, part: Range<usize>) {
    let depth = order.iter().map(|partial| partial.place.slot + 1).max().unwrap_or(1);
    let mut stack = vec![[T::default(); PIECE]; depth];
    let mut start = part.start;
    while start < part.end {
        let n = PIECE.min(part.end - start);
        for (partial, from) in order.iter().zip(from) {
            let slot = partial.place.slot;
            // SAFETY: inside the part, and nobody writes it.
            let given = unsafe { std::slice::from_raw_parts(from.cast::<T>().add(start - part.start), n) };
            let mut sum = [T::default(); PIECE];
            sum[..n].copy_from_slice(given);
            for before in stack[slot..slot + partial.place.merged].iter().rev() {
                sum[..n].iter_mut().zip(before).for_each(|(sum, before)| *sum = before.plus(*sum));
            }
            stack[slot] = sum;
        }
        // SAFETY: inside the slot; all that is read of these elements has been read.
        unsafe { std::slice::from_raw_parts_mut(to.slots[0].cast::<T>().add(start), n) }
            .copy_from_slice(&stack[0][..n]);
        start += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_elements_once() {
        for lengths in [vec![1], vec![5, 100, 3], vec![1000, 1, 1, 17, 4096], vec![0, 2]] {
            for ranks in 1..6 {
                let mut covered: Vec<Vec<u8>> = lengths.iter().map(|n| vec![0; *n]).collect();
                for rank in 0..ranks {
                    for (part, covered) in equal_parts(lengths.clone(), rank, ranks).into_iter().zip(&mut covered) {
                        covered[part].iter_mut().for_each(|n| *n += 1);
                    }
                }
                assert!(covered.iter().flatten().all(|n| *n == 1), "{lengths:?} {ranks}");
            }
        }
    }
}
