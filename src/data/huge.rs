//! Large vectors in large pages: a system that hands out memory 4 KiB at a time takes as long for that as a table's numbers take to be read.

/// From so many bytes on, huge pages are asked for.
#[cfg(target_os = "linux")]
const LEAST: usize = 4 << 20;

/// So many zeros, which take memory when they are first touched.
pub fn zeros<T: Zero>(count: usize) -> Vec<T> {
    let zeros = vec![T::default(); count];
    #[cfg(target_os = "linux")]
    if size_of_val(&zeros[..]) >= LEAST {
        // Whole pages that are the vector's alone.
        const PAGE: usize = 4096;
        let range = zeros.as_ptr_range();
        let (begin, end) = (range.start.addr().next_multiple_of(PAGE), range.end.addr() / PAGE * PAGE);
        // SAFETY: the range is a part of the vector, and the advice changes nothing of what is there. A system that does not take it has ordinary pages.
        unsafe { libc::madvise(range.start.cast_mut().with_addr(begin).cast(), end - begin, libc::MADV_HUGEPAGE) };
    }
    zeros
}

/// Numbers whose zero is nothing but zero bits.
pub trait Zero: Copy + Default {}

impl Zero for f32 {}
impl Zero for f64 {}
