//! Files that are being written under another name: a signal that ends the process has them removed.

#[cfg(not(unix))]
use std::path::Path;

/// A file that is listed as long as this lives.
pub struct Listed {
    #[cfg(unix)]
    slot: Option<usize>,
}

#[cfg(unix)]
mod unix {
    use super::Listed;
    use std::ffi::{CString, c_char};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// Files that may be listed at a time. More are written all the same, and stay if a signal ends the process.
    const MOST: usize = 32;

    /// Names that end with a zero, each made by `CString::into_raw`. The thread that swaps a name out owns it.
    static NAMES: [AtomicPtr<c_char>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];

    impl Listed {
        /// Lists a file.
        pub fn new(path: &Path) -> Listed {
            // A handler of a signal may find another current folder.
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let Ok(name) = CString::new(whole.as_os_str().as_bytes()) else { return Listed { slot: None } };
            let name = name.into_raw();
            let free = |slot: &AtomicPtr<c_char>| {
                slot.compare_exchange(null_mut(), name, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            let slot = NAMES.iter().position(free);
            if slot.is_none() {
                // SAFETY: it was made above, and no slot has it.
                drop(unsafe { CString::from_raw(name) });
            }
            Listed { slot }
        }
    }

    impl Drop for Listed {
        fn drop(&mut self) {
            let Some(slot) = self.slot else { return };
            let name = NAMES[slot].swap(null_mut(), Ordering::AcqRel);
            if !name.is_null() {
                // SAFETY: `new` made it, and the swap handed it to this thread alone.
                drop(unsafe { CString::from_raw(name) });
            }
        }
    }

    /// Removes all files that are listed. A handler of a signal may call it.
    pub fn remove_all() {
        for slot in &NAMES {
            let name = slot.swap(null_mut(), Ordering::AcqRel);
            if !name.is_null() {
                // SAFETY: the name ends with a zero, and the swap handed it to this call, which keeps it: memory is not given back in a handler. `unlink` is
                // among the calls that a handler may make.
                unsafe { libc::unlink(name) };
            }
        }
    }
}

#[cfg(unix)]
pub use unix::remove_all;

#[cfg(not(unix))]
impl Listed {
    /// Lists nothing.
    pub fn new(_: &Path) -> Listed {
        Listed {}
    }
}

/// Does nothing.
#[cfg(not(unix))]
pub fn remove_all() {}
