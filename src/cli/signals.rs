//! Signals that ask for an end: of Ctrl-C, of a closed terminal, of batch systems. One that was ignored when the program was started, as
//! `nohup` and shells have it for what outlives them, stays ignored.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit code of what was interrupted, as that of a shell after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Calls `asked`, on a thread of its own, for each SIGINT (which is Ctrl-C), SIGTERM and SIGHUP.
///
/// # Errors
/// The system refuses it, or has no thread for it.
pub fn on_stop(asked: impl FnMut() + Send + 'static) -> Result<()> {
    #[cfg(unix)]
    let ignored = unix::ignored()?;
    ctrlc::set_handler(asked).context("cannot watch for Ctrl-C: no thread could be started for it")?;
    #[cfg(unix)]
    ignored.into_iter().try_for_each(unix::ignore)?;
    Ok(())
}

/// Has the signals that end the process remove what it is writing under another name, first. What asks for these signals later takes them over.
pub fn clean_up() {
    #[cfg(unix)]
    unix::clean_up();
}

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

/// Has SIGUSR1 do what the other signals do, until [`on_warning`] asks for it.
pub fn warnings_are_stops() {
    #[cfg(unix)]
    unix::warnings_are_stops();
}

/// Lets the signals come that `hold` has kept back from this process. Whether it has is noted before.
pub fn release(were_held: &AtomicBool) {
    #[cfg(unix)]
    unix::release(were_held);
    #[cfg(not(unix))]
    let _ = were_held;
}

#[cfg(unix)]
pub use unix::{heard, hold, ignored};

#[cfg(unix)]
mod unix {
    use super::INTERRUPTED;
    use crate::files::durable;
    use anyhow::{Context, Result, ensure};
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::sync::{Arc, OnceLock};

    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    /// What SIGUSR1 becomes.
    static STOP: AtomicI32 = AtomicI32::new(libc::SIGINT);

    extern "C" fn note(_: libc::c_int) {
        // Loads and stores alone, which may be done anywhere.
        if let Some(flag) = ASKED.get() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Those that ask for an end and do not come, because the program was started that way.
    pub fn ignored() -> Result<Vec<libc::c_int>> {
        let mut all = Vec::new();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            if is_ignored(signal)? {
                all.push(signal);
            }
        }
        Ok(all)
    }

    /// The first of Ctrl-C's signal and those like it that a process gets which is started now.
    pub fn heard() -> libc::c_int {
        let heard = |signal: &libc::c_int| is_ignored(*signal).is_ok_and(|ignored| !ignored);
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().find(heard).unwrap_or(libc::SIGINT)
    }

    fn is_ignored(signal: libc::c_int) -> Result<bool> {
        // SAFETY: all zero is a `sigaction`, into which the system writes what it has; nothing is changed.
        let (done, action) = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (libc::sigaction(signal, std::ptr::null(), &mut action), action)
        };
        if done != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot ask which signals are ignored");
        }
        Ok(action.sa_sigaction == libc::SIG_IGN)
    }

    extern "C" fn clean_up_and_end(signal: libc::c_int) {
        durable::remove_unfinished();
        if signal == libc::SIGINT {
            // The usual end, by which a shell knows that its script is to end, too; its code there is the same. The handler was taken away when it was
            // called, and the signal comes when it returns.
            // SAFETY: `raise` is among the calls that a handler may make.
            unsafe { libc::raise(signal) };
        } else {
            // SAFETY: so is `_exit`.
            unsafe { libc::_exit(i32::from(INTERRUPTED)) };
        }
    }

    pub fn clean_up() {
        // Where it cannot be asked what is ignored, all stays as it is.
        let Ok(ignored) = ignored() else { return };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().filter(|one| !ignored.contains(one)) {
            let handler: extern "C" fn(libc::c_int) = clean_up_and_end;
            // SAFETY: all zero is a `sigaction` with an empty mask; the handler does what handlers may.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }

    pub fn ignore(signal: libc::c_int) -> Result<()> {
        // SAFETY: a plain call; nothing else asks for this signal from here on.
        let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
        ensure!(before != libc::SIG_ERR, "cannot ignore signal {signal}: {}", std::io::Error::last_os_error());
        Ok(())
    }

    extern "C" fn stop(_: libc::c_int) {
        // SAFETY: `raise` is among the calls that a handler may make.
        unsafe { libc::raise(STOP.load(Ordering::Relaxed)) };
    }

    pub fn warnings_are_stops() {
        STOP.store(heard(), Ordering::Relaxed);
        // Where the system refuses it, SIGUSR1 ends the process, without a word.
        on_sigusr1(stop).ok();
    }

    pub fn on_warning(flag: &Arc<AtomicBool>) -> Result<()> {
        ASKED.get_or_init(|| flag.clone());
        on_sigusr1(note)
    }

    /// The signals that a training listens to.
    const LISTENED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1];

    fn listened() -> libc::sigset_t {
        // SAFETY: all zero is a set, which is made an empty one; the signals are known.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in LISTENED {
                libc::sigaddset(&mut set, signal);
            }
            set
        }
    }

    fn mask(how: libc::c_int) -> io::Result<()> {
        // SAFETY: a whole set, and none to be written.
        match unsafe { libc::pthread_sigmask(how, &listened(), std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Has the signals wait that a training listens to. A program that is started by this thread gets them when it calls [`release`](super::release).
    ///
    /// # Errors
    /// The system refuses it.
    pub fn hold() -> io::Result<()> {
        mask(libc::SIG_BLOCK)
    }

    /// Whether all of them wait.
    fn are_held() -> bool {
        // SAFETY: all zero is a set, into which the system writes the present one; nothing is changed.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now) == 0
                && LISTENED.into_iter().all(|signal| libc::sigismember(&now, signal) == 1)
        }
    }

    pub fn release(were_held: &AtomicBool) {
        if are_held() {
            were_held.store(true, Ordering::Relaxed);
            mask(libc::SIG_UNBLOCK).ok();
        }
    }

    fn on_sigusr1(handler: extern "C" fn(libc::c_int)) -> Result<()> {
        if is_ignored(libc::SIGUSR1)? {
            return Ok(());
        }
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
