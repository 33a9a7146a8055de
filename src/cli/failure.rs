//! How commands fail: what is printed, and with which exit code.

use crate::api::failure::Failure;
use crate::checkpoint::{CheckpointError, Reason};
use crate::config;
use crate::config::text::diagnostics::{render, to_json};
use crate::terminal::{self, Stream, masked, say, say_styled};
use serde_json::{Value, json};
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
                let errors = || diagnostics.iter().filter(|d| d.severity == config::Severity::Error);
                // The configuration is right.
                let missing = errors().all(|error| error.missing);
                if !(json && printed(&json!({ "errors": to_json(sources, diagnostics) }))) {
                    say_styled(render(sources, diagnostics, terminal::color(Stream::Err)).trim_end());
                    let n = errors().count();
                    if !missing {
                        say(&format!("\n{n} error{} in the configuration", if n == 1 { "" } else { "s" }));
                    }
                }
                return if missing { ExitCode::FAILURE } else { ExitCode::from(WRONG) };
            }
            Failure::Usage(text) => text.clone(),
            Failure::Device(e) => e.to_string(),
            Failure::Other(e) => format!("{e:#}"),
        };
        if !(json && printed(&as_json(&[masked(&text)]))) {
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
    let plain = text.to_string();
    let message = plain.trim_end().strip_prefix("error: ").unwrap_or(&plain);
    if !(mistake && json && printed(&as_json(&[message.to_owned()]))) {
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

/// Errors as a JSON object.
pub(super) fn as_json(messages: &[String]) -> Value {
    let error = |message| json!({ "severity": "error", "message": message });
    json!({ "errors": messages.iter().map(error).collect::<Vec<_>>() })
}

/// Prints errors as JSON; false where standard output takes nothing.
fn printed(errors: &Value) -> bool {
    super::print_json(errors).is_ok()
}
