//! Splitting results among tasks. Task boundaries depend on shapes alone, never on the number of threads.

use super::threads::{Parts, Pool, chunks};

/// Elements that a task of an operation bound by memory handles: 64 KiB of floats, so that what a task reads and writes
/// fits into a core's second-level cache.
pub const CHUNK: usize = 16 * 1024;

/// How many rows of `row` elements make about [`CHUNK`] elements.
pub fn rows_per_chunk(row: usize) -> usize {
    (CHUNK / row.max(1)).max(1)
}

/// Runs `f(first element, part)` for the parts of `chunk` elements of `out`.
pub fn for_chunks<T: Send>(pool: &Pool, out: &mut [T], chunk: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    let pieces = chunks(out.len(), chunk);
    let out = Parts::new(out);
    pool.run(pieces.count(), |task, _| {
        let r = pieces.range(task);
        // SAFETY: each task has its own range.
        f(r.start, unsafe { out.part(r) });
    });
}

/// Runs `f(i, a's part i, b's part i)`: the parts of `a` have `na` elements, those of `b` `nb`.
///
/// # Panics
/// If the two do not have the same number of parts.
pub fn for_chunks2<A: Send, B: Send>(
    pool: &Pool,
    (a, na): (&mut [A], usize),
    (b, nb): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let (ca, cb) = (chunks(a.len(), na), chunks(b.len(), nb));
    assert_eq!(ca.count(), cb.count());
    let (a, b) = (Parts::new(a), Parts::new(b));
    pool.run(ca.count(), |task, _| {
        // SAFETY: each task has its own ranges.
        let (pa, pb) = unsafe { (a.part(ca.range(task)), b.part(cb.range(task))) };
        f(task, pa, pb);
    });
}

/// Turns functions over vectors into functions over a level: `fn f<'a, S>(s, x: &'a [f32])` becomes
/// `fn f(level: SimdLevel, x: &[f32])`, whose body is compiled once for every level.
macro_rules! vectorised {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident<$life:lifetime, $S:ident>($s:ident $(, $arg:ident : $type:ty)* $(,)?) $(-> $out:ty)? $body:block
    )*) => { $(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "the arguments of an inner loop")]
        $vis fn $name<$life>(level: $crate::simd::SimdLevel $(, $arg: $type)*) $(-> $out)? {
            struct Job<$life> { $($arg: $type),* }
            #[allow(unused_parens, reason = "parentheses alone are the unit type")]
            impl<$life> $crate::simd::Kernel for Job<$life> {
                type Output = ($($out)?);
                #[inline(always)]
                fn run<$S: $crate::simd::Simd>(self, $s: $S) -> Self::Output {
                    let Job { $($arg),* } = self;
                    $body
                }
            }
            level.run(Job { $($arg),* })
        }
    )* };
}
pub(crate) use vectorised;
