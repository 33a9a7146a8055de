//! How a run is asked to stop: by Ctrl-C and its like, or by the end of standard input.

use super::super::signals::{self, on_stop, on_warning};
use crate::api::failure::Failure;
use crate::files::durable;
use crate::terminal::say;
use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub use super::super::signals::INTERRUPTED;

/// A flag that Ctrl-C sets, and SIGUSR1; a second Ctrl-C ends the process at once.
pub fn on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    asked_to_stop(|| say("interrupted: saving after this step (once more to stop at once)"))
}

/// What is done when Ctrl-C comes first; `None`: nothing has begun that could be saved.
type First = Option<Box<dyn Fn() + Send>>;

static FIRST: Mutex<First> = Mutex::new(None);
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// `launch` has started this process: it interrupts all ranks.
static LAUNCHED: AtomicBool = AtomicBool::new(false);

/// For `launch` to see that a rank was interrupted, and to interrupt this one.
const A_MOMENT: Duration = Duration::from_millis(500);

fn first() -> MutexGuard<'static, First> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches for Ctrl-C and its like from now on, in rank `rank`: until [`asked_to_stop`] they end the process at once, with a word and the usual exit code.
///
/// # Errors
/// The system refuses it.
pub fn watch(rank: usize) -> Result<&'static Arc<AtomicBool>, Failure> {
    if let Some(flag) = FLAG.get() {
        return Ok(flag);
    }
    let flag: Arc<AtomicBool> = Arc::default();
    let seen = flag.clone();
    let watched = on_stop(move || {
        match &*first() {
            Some(first) if !seen.swap(true, Ordering::Relaxed) => return first(),
            Some(_) => {}
            None if rank == 0 => say("interrupted before the first step: nothing is saved"),
            // The first rank says it.
            None if is_launched() => {}
            None => say(&format!("rank {rank}: interrupted before the first step")),
        }
        durable::remove_unfinished();
        std::process::exit(i32::from(INTERRUPTED));
    });
    signals::warnings_are_stops();
    signals::release(&LAUNCHED);
    watched?;
    Ok(FLAG.get_or_init(|| flag))
}

/// Whether `launch` has started this process.
pub fn is_launched() -> bool {
    LAUNCHED.load(Ordering::Relaxed)
}

/// Waits a moment where another rank has gone before the first step. If that one was interrupted, `launch` interrupts this one, too, and there is no
/// error to report.
pub fn await_interrupt() {
    if is_launched() && first().is_none() {
        std::thread::sleep(A_MOMENT);
    }
}

/// As [`on_interrupt`], with what is to be done when Ctrl-C comes first.
pub fn asked_to_stop(first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    *self::first() = Some(Box::new(first));
    let flag = watch(0)?;
    on_warning(flag)?;
    Ok(flag.clone())
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
