//! The binary's allocator: the system's, with an end in plain words where there is no more memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Blocks from this size on go back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;

/// Has large blocks given back to the system when they are freed. Otherwise glibc takes the first that is freed as a sign
/// that such blocks come often, and keeps up to 64 MiB of them: memory that is in no plan.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets numbers of the allocator. If it does not take them, it works as before.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// The system's allocator. Where that has nothing left, the process ends with exit code 3 and says so, instead of being
/// aborted: its files are whole at any instant, and no code could go on without the block.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every block comes from `System` and goes back to it with the layout that it came with.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `System` asks for.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[inline]
fn given(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        out_of_memory(bytes);
    }
    block
}

/// How long a thread waits for the end that another one is at.
const PATIENCE: Duration = Duration::from_secs(5);

thread_local! {
    /// Its address identifies a thread, without an allocation.
    static HERE: u8 = const { 0 };
}

#[cold]
fn out_of_memory(bytes: usize) {
    static ENDED_BY: AtomicUsize = AtomicUsize::new(0);
    let here = HERE.try_with(|here| std::ptr::from_ref(here).addr()).unwrap_or(usize::MAX);
    match ENDED_BY.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {}
        // Not even the end can be had.
        Err(by) if by == here => at_once(),
        // Several threads lack memory at a time. This one may hold a lock that the end waits for, so it does not wait for ever.
        Err(_) => {
            std::thread::sleep(PATIENCE);
            at_once();
        }
    }
    // Without an allocation.
    let mut text = [0; 200];
    let mut rest = &mut text[..];
    // Longer than its place it cannot be.
    let _ = write!(
        rest,
        "error: out of memory: {bytes} more bytes are not to be had\nhelp: `runner check` tells what a configuration needs; a \
         smaller `batch_size` needs less\n"
    );
    let left = rest.len();
    crate::terminal::last_words(&text[..text.len() - left]);
    std::process::exit(i32::from(super::failure::DEVICE));
}

/// Ends the process without asking for memory.
fn at_once() -> ! {
    #[cfg(unix)]
    // SAFETY: ends the process, and nothing of it is run any more.
    unsafe {
        libc::_exit(i32::from(super::failure::DEVICE))
    }
    #[cfg(not(unix))]
    std::process::abort()
}
