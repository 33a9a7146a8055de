//! Scratch memory of the threads.

use super::frame::Scratch;
use super::threads::Parts;
use crate::plan::ALIGN;

/// Floats before the memory of each thread: a page. A processor fetches the lines that follow in the page before they are asked for. Where these
/// belong to another thread, which writes them, they go to and fro between the caches of the two.
const DISTANCE: usize = 1024;

/// Floats in a cache line, at whose multiples the memory of each thread begins.
const LINE: usize = ALIGN / 4;

/// Memory for floats that a thread writes and reads alone.
#[derive(Clone, Copy)]
pub struct PerThread<'a> {
    all: Parts<'a, f32>,
    floats: usize,
}

impl<'a> PerThread<'a> {
    /// Floats for all threads, each of which gets `floats`.
    pub const fn size(threads: usize, floats: usize) -> usize {
        threads * Self::step(floats)
    }

    /// Shares out `all`, which begins at a cache line.
    pub fn new(all: Parts<'a, f32>, floats: usize) -> Self {
        PerThread { all, floats }
    }

    /// The same of the next piece of a node's scratch memory.
    pub fn take(scratch: &mut Scratch<'a>, threads: usize, floats: usize) -> Self {
        Self::new(Parts::new(scratch.take(Self::size(threads, floats))), floats)
    }

    /// The memory of a thread.
    ///
    /// # Safety
    /// Only this thread uses it.
    ///
    /// # Panics
    /// There is less memory than [`PerThread::size`] says.
    #[allow(clippy::mut_from_ref, reason = "as `Parts::part`")]
    pub unsafe fn of(&self, thread: usize) -> &'a mut [f32] {
        let start = (thread + 1) * Self::step(self.floats) - self.floats.next_multiple_of(LINE);
        // SAFETY: the caller's promise, and the memory of two threads does not overlap.
        unsafe { self.all.part(start..start + self.floats) }
    }

    const fn step(floats: usize) -> usize {
        if floats == 0 { 0 } else { DISTANCE + floats.next_multiple_of(LINE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_pages_of_their_own() {
        for floats in [1, 16, 100, 1024, 5000] {
            let mut memory = vec![0.0; PerThread::size(3, floats)];
            let own = PerThread::new(Parts::new(&mut memory), floats);
            // SAFETY: each once.
            let all: Vec<_> = (0..3).map(|thread| unsafe { own.of(thread) }).collect();
            for pair in all.windows(2) {
                let end = pair[0].as_ptr_range().end.addr();
                assert!(pair[0].len() == floats && pair[1].as_ptr().addr() >= end + 4096, "{floats} floats");
            }
        }
        assert_eq!(PerThread::size(3, 0), 0);
    }
}
