//! Signals besides those of Ctrl-C and of an end that somebody asks for.

use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Sets the flag when the process gets SIGUSR1, as batch systems send it some time before they end a job. Of several flags the
/// first one counts.
///
/// # Errors
/// The system refuses it.
pub fn on_warning(flag: &Arc<AtomicBool>) -> Result<()> {
    #[cfg(unix)]
    return unix::on_warning(flag);
    #[cfg(not(unix))]
    {
        let _ = flag;
        Ok(())
    }
}

#[cfg(unix)]
mod unix {
    use anyhow::{Context, Result};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, OnceLock};

    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

    extern "C" fn note(_: libc::c_int) {
        // Loads and stores alone, which may be done anywhere.
        if let Some(flag) = ASKED.get() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    pub fn on_warning(flag: &Arc<AtomicBool>) -> Result<()> {
        ASKED.get_or_init(|| flag.clone());
        let handler: extern "C" fn(libc::c_int) = note;
        // SAFETY: all zero is a `sigaction` without flags and with an empty mask; the handler does what handlers may.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            // Reads and writes that it comes between go on.
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot watch for SIGUSR1");
        }
        Ok(())
    }
}
