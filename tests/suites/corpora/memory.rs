//! How much memory the current thread has asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::Mutex;

/// The system's allocator, counting.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What is looked at.
static SUBJECT: Mutex<String> = Mutex::new(String::new());

/// Says what is looked at: where there is no more memory, the process ends, and prints this before.
pub fn subject(name: String) {
    *SUBJECT.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = name;
}

fn report_no_memory(block: *mut u8) -> *mut u8 {
    if block.is_null()
        && let Ok(subject) = SUBJECT.try_lock()
    {
        // Not captured, as what `eprintln` prints would be.
        let _ = writeln!(std::io::stderr(), "no memory at {subject}");
    }
    block
}

fn count(change: isize) {
    // Not there while a thread ends.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: every call is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        report_no_memory(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        report_no_memory(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        report_no_memory(unsafe { System.realloc(ptr, layout, size) })
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Begins to count anew: what there is now.
pub fn restart() -> usize {
    MOST.set(NOW.get());
    NOW.get().max(0) as usize
}

/// The most that there was since.
pub fn peak() -> usize {
    MOST.get().max(0) as usize
}
