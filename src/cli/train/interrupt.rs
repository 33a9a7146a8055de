//! How a run is asked to stop: by Ctrl-C and its like, or by the end of standard input.

use super::super::signals::{on_stop, on_warning};
use crate::api::failure::Failure;
use crate::terminal::say;
use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// A flag that Ctrl-C sets, and SIGUSR1; a second Ctrl-C ends the process at once.
pub fn on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    asked_to_stop(|| say("interrupted: saving after this step (once more to stop at once)"))
}

/// As [`on_interrupt`], with what is to be done when Ctrl-C comes first.
pub fn asked_to_stop(first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    on_stop(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        first();
    })?;
    on_warning(&flag)?;
    Ok(flag)
}

/// Sets the flag when standard input ends, whatever comes before that.
///
/// # Errors
/// There is no thread for it.
pub fn watch_stdin(flag: Arc<AtomicBool>) -> anyhow::Result<()> {
    let watch = move || {
        // An input that cannot be read has ended, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(watch)
        .context("cannot start a thread for standard input")?;
    Ok(())
}
