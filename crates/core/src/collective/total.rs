//! The arithmetic of totals over ranks.

use super::{Division, Slots};
use crate::graph::DType;
use crate::shards::{Partial, part_of};
use std::ops::Range;

/// Elements that are summed at a time: few enough for the first cache.
const PIECE: usize = 512;

/// The elements that belong to `rank`, of each of `tensors`.
pub fn parts(tensors: &[Slots], division: Division, (rank, ranks): (usize, usize)) -> Vec<Range<usize>> {
    let part = |(at, tensor): (usize, &Slots)| match division {
        Division::Elements => part_of(tensor.len, (rank, ranks)),
        Division::Tensors(owners) if owners[at] == rank => 0..tensor.len,
        Division::Tensors(_) => 0..0,
    };
    tensors.iter().enumerate().map(part).collect()
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
/// The addresses are those of valid, aligned and initialised elements, as many as the part has. No other thread writes them, or reads those of the
/// slot that is written to.
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
            // SAFETY: inside the part, and no thread writes it now.
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
