//! How commands fail: what is printed, and with which exit code.

use crate::api::failure::Failure;
use crate::checkpoint::{CheckpointError, Reason};
use crate::config;
use crate::config::text::diagnostics::{render, to_json};
use crate::terminal::{self, Stream, masked, say, say_styled};
use serde_json::json;
use std::process::ExitCode;

/// Wrong usage or configuration.
const WRONG: u8 = 2;
/// The device is not there, or has not enough memory.
pub(super) const DEVICE: u8 = 3;

impl Failure {
    /// Whether what was written to was closed at its other end.
    pub fn is_closed_pipe(&self) -> bool {
        let closed = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
        let Failure::Other(e) = self else { return false };
        e.chain().any(|cause| match (cause.downcast_ref(), cause.downcast_ref::<CheckpointError>()) {
            (Some(e), _) => closed(e),
            (_, Some(CheckpointError { reason: Reason::Io(e), .. })) => closed(e),
            _ => false,
        })
    }

    /// Reports it to the user. Returns the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        let text = match self {
            Failure::Config { sources, diagnostics } => {
                if json {
                    print_error(&json!({ "errors": to_json(sources, diagnostics) }));
                } else {
                    say_styled(render(sources, diagnostics, terminal::color(Stream::Err)).trim_end());
                    let n = diagnostics.iter().filter(|d| d.severity == config::Severity::Error).count();
                    say(&format!("\n{n} error{} in the configuration", if n == 1 { "" } else { "s" }));
                }
                return ExitCode::from(WRONG);
            }
            Failure::Usage(text) => text.clone(),
            Failure::Device(e) => e.to_string(),
            Failure::Other(e) => format!("{e:#}"),
        };
        if json {
            print_error(&json!({ "errors": [{ "severity": "error", "message": masked(&text) }] }));
        } else {
            say(&format!("error: {text}"));
        }
        match self {
            Failure::Config { .. } | Failure::Usage(_) => ExitCode::from(WRONG),
            Failure::Device(_) => ExitCode::from(DEVICE),
            Failure::Other(_) => ExitCode::FAILURE,
        }
    }
}

/// Answers a command line that says no command: with help or the version where those were asked for, else with what is
/// wrong. `error` has colours in it, and nothing else that would steer a terminal.
pub fn refuse(error: clap::Error, json: bool) -> ExitCode {
    let mistake = error.use_stderr();
    let text = error.render();
    if mistake && json {
        let text = text.to_string();
        let message = text.trim_end().strip_prefix("error: ").unwrap_or(&text);
        print_error(&json!({ "errors": [{ "severity": "error", "message": message }] }));
    } else {
        let stream = if mistake { Stream::Err } else { Stream::Out };
        let text = if terminal::color(stream) { text.ansi().to_string() } else { text.to_string() };
        if mistake {
            say_styled(text.trim_end());
        } else if super::printed(terminal::print_styled(&text)).is_err() {
            say("error: cannot write to standard output");
            return ExitCode::FAILURE;
        }
    }
    if mistake { ExitCode::from(WRONG) } else { ExitCode::SUCCESS }
}

/// Prints errors as JSON, or, where standard output takes nothing, says them on standard error.
fn print_error(errors: &serde_json::Value) {
    if super::print_json(errors).is_err() {
        say(&format!("error: {errors}"));
    }
}
