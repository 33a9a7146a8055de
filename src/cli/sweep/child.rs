//! A trial as a process: `train` of this same program, which stops at the end of its standard input.

use crate::terminal::visible;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

/// Exit code of a trial that was asked to stop.
pub const INTERRUPTED: i32 = 130;

/// The last lines of its standard error that are kept.
const TAIL: usize = 20;

/// A message from a trial.
pub enum Event {
    /// A line of its `metrics.jsonl`.
    Line(usize, Value),
    /// A warning.
    Warning(usize, String),
    /// It has ended.
    Ended(usize, End),
}

/// How a trial's process ended.
pub struct End {
    /// With which code, or by which signal.
    pub status: ExitStatus,
    /// What it said was wrong.
    pub error: Option<String>,
}

impl End {
    /// Ctrl-C, or a signal like it, may have ended it, also before it could watch for that.
    pub fn is_interruption(&self) -> bool {
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&self.status);
        #[cfg(unix)]
        let by_signal = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(Some).contains(&signal);
        #[cfg(not(unix))]
        let by_signal = false;
        by_signal || self.status.code() == Some(INTERRUPTED)
    }
}

/// A trial that is at work. It stops, and saves, when this is dropped; so it does when this process is killed.
pub struct Child {
    stdin: Option<ChildStdin>,
}

impl Child {
    /// Starts `runner` with these words for trial `number`.
    ///
    /// # Errors
    /// There is no such process to be had.
    pub fn start(number: usize, words: &[String], events: &Sender<Event>) -> Result<Child> {
        let program = std::env::current_exe().context("it is not known where this program is")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot = || format!("cannot start trial {}", number + 1);
        let mut process = command.spawn().with_context(cannot)?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        // Both threads end with the process, which ends when its standard input does.
        let on_a_thread = || thread::Builder::new().name(format!("trial-{}", number + 1));
        let warnings = events.clone();
        let said = on_a_thread().spawn(move || tail(stderr, number, &warnings)).with_context(cannot)?;
        let events = events.clone();
        let listen = move || {
            let mut errors = None;
            for line in stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
                match value.get("errors").and_then(Value::as_array) {
                    Some(all) => errors = Some(messages(all)),
                    // The receiver may be gone.
                    None => _ = events.send(Event::Line(number, value)),
                }
            }
            let said = said.join().unwrap_or_default();
            // It is our child, and nothing else waits for it.
            let Ok(status) = process.wait() else { return };
            let _ = events.send(Event::Ended(number, End { status, error: errors.or(said) }));
        };
        on_a_thread().spawn(listen).with_context(cannot)?;
        Ok(Child { stdin })
    }

    /// Has it stop after the update that it is at.
    pub fn stop(&mut self) {
        self.stdin = None;
    }
}

fn messages(errors: &[Value]) -> String {
    let texts = errors.iter().filter_map(|error| error.get("message")?.as_str());
    texts.collect::<Vec<_>>().join("; ")
}

/// Hands on warnings; the last lines of the rest.
fn tail(stderr: Option<impl Read>, number: usize, events: &Sender<Event>) -> Option<String> {
    let mut last: Vec<String> = Vec::new();
    for line in stderr.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        if let Some(warning) = line.strip_prefix("warning: ") {
            let _ = events.send(Event::Warning(number, warning.to_owned()));
            continue;
        }
        last.push(visible(&line));
        if last.len() > TAIL {
            last.remove(0);
        }
    }
    (!last.is_empty()).then(|| last.join("\n"))
}
