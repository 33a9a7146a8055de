//! A process, from its start to its end: what it prints, how long it takes, how much memory.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a process did.
pub struct Done {
    /// Its end was a good one, or it was ended on purpose.
    pub success: bool,
    /// What it printed.
    pub out: String,
    /// Most memory that it had at once, in MiB; that of its children is not counted.
    pub rss_mib: f64,
    /// From its start to its end.
    pub seconds: f64,
}

/// Runs `command`. `go_on` sees every line that it prints, with the seconds since the start, and says whether to let it
/// run.
///
/// # Errors
/// It does not start.
pub fn finish(command: &mut Command, mut go_on: impl FnMut(&str, f64) -> bool) -> Result<Done> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().context("no output")?;
    let (mut out, mut killed) = (String::new(), false);
    for line in BufReader::new(output).lines() {
        let line = line?;
        if !killed && !go_on(&line, start.elapsed().as_secs_f64()) {
            child.kill()?;
            killed = true;
        }
        out.push_str(&line);
        out.push('\n');
    }
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to places of the right types that outlive the call, and all zeros are a valid `rusage`.
    // The child has not been waited for, so the number is its own; nothing waits for it hereafter.
    let (found, usage) = unsafe {
        let found = libc::wait4(child.id() as libc::pid_t, &mut status, 0, usage.as_mut_ptr());
        (found, usage.assume_init())
    };
    ensure!(found == child.id() as libc::pid_t, "cannot wait for {command:?}");
    let unit = if cfg!(target_os = "macos") { 1.0 } else { 1024.0 };
    Ok(Done {
        success: killed || status == 0,
        out,
        rss_mib: usage.ru_maxrss as f64 * unit / (1024.0 * 1024.0),
        seconds: start.elapsed().as_secs_f64(),
    })
}
