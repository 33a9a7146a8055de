//! `runner launch`: a command on several ranks of this machine.

use super::args::{Command as Asked, LaunchArgs};
use super::failure;
use super::parse;
use super::signals::{on_stop, on_warning};
use super::train;
use crate::api::failure::Failure;
use crate::api::train::Team;
use crate::api::train::ranks::{RENDEZVOUS, SECRET};
use crate::collective::tcp::Secret;
use crate::terminal::say;
use anyhow::Context;
use std::ffi::OsString;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// For ranks to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(10);

/// Between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the command.
pub(super) fn run(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    let words: Vec<OsString> = std::iter::once("runner".into()).chain(args.command.iter().cloned()).collect();
    let cli = match parse(&words) {
        Ok(cli) => cli,
        Err(error) => return Ok(failure::refuse(error, args.command.iter().any(|word| word == "--json"))),
    };
    let ranks = usize::from(args.ranks);
    match cli.command {
        Asked::Train(train) if train.dry_run => Err(Failure::Usage(
            "a dry run is that of one rank\nhelp: `runner train --dry-run` does it, without `launch`".into(),
        )),
        Asked::Train(_) if args.processes && ranks > 1 => processes(args),
        Asked::Train(train) => train::run_on(&train, Team::Threads(ranks)),
        _ => Err(Failure::Usage(
            "`launch` runs `train` alone\nhelp: as in `runner launch --ranks 2 -- train configs/mnist_cnn.toml`".into(),
        )),
    }
}

/// Processes of which each is a rank.
struct Ranks(Vec<Rank>);

struct Rank {
    child: Child,
    status: Option<ExitStatus>,
    /// This process has killed it.
    killed: bool,
}

/// Runs each rank in a process of its own; the exit code is that of the first one.
fn processes(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("runner-ranks-");
    // Other users are not to see where ranks meet, nor to come there.
    #[cfg(unix)]
    folder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    let place = folder.tempdir().context("cannot make a folder for the ranks to meet")?;
    let secret = Secret::draw();
    let program = std::env::current_exe().context("cannot find the program")?;
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let note = move || {
        seen.fetch_add(1, Ordering::Relaxed);
    };
    on_stop(note)?;
    let warned = Arc::new(AtomicBool::new(false));
    on_warning(&warned)?;
    let mut ranks = Ranks(Vec::new());
    for rank in 0..args.ranks {
        let mut command = Command::new(&program);
        command.args(&args.command).env(RENDEZVOUS, place.path().join("rank-0")).env(SECRET, &secret);
        for name in ["RANK", "LOCAL_RANK"] {
            command.env(name, rank.to_string());
        }
        for name in ["WORLD_SIZE", "LOCAL_WORLD_SIZE"] {
            command.env(name, args.ranks.to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        apart(&mut command);
        let child = command.spawn().with_context(|| format!("cannot start rank {rank}"))?;
        ranks.0.push(Rank { child, status: None, killed: false });
    }
    let mut passed_on = 0;
    let mut failed: Option<Instant> = None;
    while ranks.look()? {
        // A rank that was interrupted by itself before the first step has ended: the others would wait for it.
        let alone = ranks.0.iter().any(|rank| rank.status.is_some_and(is_interrupted));
        if (warned.swap(false, Ordering::Relaxed) || alone) && passed_on == 0 {
            asked.fetch_add(1, Ordering::Relaxed);
        }
        while passed_on < asked.load(Ordering::Relaxed) {
            passed_on += 1;
            ranks.interrupt();
        }
        if failed.is_none() && ranks.0.iter().any(|rank| rank.status.is_some_and(|status| !is_well(status))) {
            failed = Some(Instant::now());
        }
        if failed.is_some_and(|since| since.elapsed() > GRACE) {
            ranks.kill();
        }
        std::thread::sleep(PAUSE);
    }
    let mut code = None;
    for (rank, Rank { status, killed, .. }) in ranks.0.iter().enumerate() {
        let Some(status) = *status else { continue };
        if *killed {
            let seconds = GRACE.as_secs();
            say(&format!(
                "error: rank {rank} was killed by `launch`: another rank had failed, and it did not end within {seconds} s"
            ));
        } else if status.code().is_none() {
            say(&format!("error: rank {rank} was ended: {status}"));
        }
        if code.is_none() || rank > 0 && !is_well(status) && code == Some(0) {
            code = Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
    }
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Not a failure: done, or interrupted.
fn is_well(status: ExitStatus) -> bool {
    status.success() || is_interrupted(status)
}

fn is_interrupted(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(train::INTERRUPTED))
}

/// Ctrl-C in the terminal is passed on once, and not by the terminal, too. It waits until a rank listens to it. Ranks end if this process is killed.
#[allow(clippy::missing_const_for_fn, reason = "elsewhere it does nothing")]
fn apart(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(unix)]
    // SAFETY: between fork and exec it makes system calls, which allocate nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            #[cfg(target_os = "linux")]
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            super::signals::hold()
        });
    }
    #[cfg(not(unix))]
    let _ = command;
}

impl Ranks {
    /// Whether some are still running.
    fn look(&mut self) -> Result<bool, Failure> {
        let mut running = false;
        for Rank { child, status, .. } in &mut self.0 {
            if status.is_none() {
                *status = child.try_wait().context("cannot wait for a rank")?;
            }
            running |= status.is_none();
        }
        Ok(running)
    }

    /// Passes Ctrl-C on, by a signal that the ranks do not ignore.
    fn interrupt(&self) {
        #[cfg(unix)]
        let signal = super::signals::heard();
        #[cfg(unix)]
        for Rank { child, .. } in self.0.iter().filter(|rank| rank.status.is_none()) {
            // SAFETY: a child that was not waited for, so the number is still its own.
            unsafe {
                libc::kill(child.id() as libc::pid_t, signal);
            }
        }
    }

    fn kill(&mut self) {
        for rank in self.0.iter_mut().filter(|rank| rank.status.is_none()) {
            // A rank that has just ended needs no end.
            rank.killed = rank.child.kill().is_ok();
        }
    }
}

impl Drop for Ranks {
    /// None is left behind when another cannot be started.
    fn drop(&mut self) {
        self.kill();
    }
}
