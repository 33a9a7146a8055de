//! Splitting results among tasks. Task boundaries depend on shapes alone, never on the number of threads.

use super::frame::View;
use super::threads::Pool;
use std::ops::Range;

/// Elements that a task of an operation bound by memory handles: 64 KiB of floats, so that what a task reads and writes
/// fits into a core's second-level cache.
pub const CHUNK: usize = 16 * 1024;

/// How many pieces of at most `piece` make up `total`.
pub fn pieces(total: usize, piece: usize) -> usize {
    total.div_ceil(piece)
}

/// Piece `i` of `total` cut into pieces of `piece`.
pub fn piece(i: usize, piece: usize, total: usize) -> Range<usize> {
    i * piece..((i + 1) * piece).min(total)
}

/// A slice whose disjoint parts are written by different tasks.
pub struct Parts<'a, T>(View<'a, T>);

impl<'a, T: Send> Parts<'a, T> {
    /// Parts of `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Parts(View::of(slice))
    }

    /// Elements `range`.
    ///
    /// # Safety
    /// No two parts that live at one time overlap.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        // SAFETY: by the caller's promise.
        unsafe { self.0.part(range) }
    }
}

/// Runs `f(first element, part)` for the parts of `chunk` elements of `out`.
pub fn for_chunks<T: Send>(pool: &Pool, out: &mut [T], chunk: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let total = out.len();
    let out = Parts::new(out);
    pool.run(pieces(total, chunk), |task, _| {
        let r = piece(task, chunk, total);
        // SAFETY: each task has its own range.
        f(r.start, unsafe { out.part(r) });
    });
}

/// Runs `f(i, a's part i, b's part i)`: the parts of `a` have `na` elements, those of `b` `nb`.
pub fn for_chunks2<A: Send, B: Send>(
    pool: &Pool,
    (a, na): (&mut [A], usize),
    (b, nb): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let (ta, tb) = (a.len(), b.len());
    let n = pieces(ta, na);
    assert_eq!(n, pieces(tb, nb));
    let (a, b) = (Parts::new(a), Parts::new(b));
    pool.run(n, |task, _| {
        // SAFETY: each task has its own ranges.
        let (pa, pb) = unsafe { (a.part(piece(task, na, ta)), b.part(piece(task, nb, tb))) };
        f(task, pa, pb);
    });
}
