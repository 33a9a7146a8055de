//! The one place where text leaves the program: standard output and standard error.
//!
//! Much of the text comes from elsewhere: names of files and tensors, lines of configurations, addresses, a driver's
//! answers. Characters that could steer a terminal or are invisible are written out on their way through here, and
//! passwords in addresses are masked. A caller of the library may listen in place of the streams. No other code writes to them;
//! `tests/suites/architecture` checks that.

mod bar;
mod chart;
mod color;
mod columns;
mod listener;
mod numbers;
pub mod panel;
mod visible;

pub use bar::Bar;
pub use chart::{Look, Series, chart};
pub use color::{can_redraw, color, fitting, unicode, width};
pub use columns::{columns, fitted};
pub use listener::{Event, Listener, heard_by, listener};
pub use numbers::{counted, duration, figure, human_bytes, percent, thousands};
pub use visible::{Visible, is_hidden, masked, one_line, visible, visible_json};

use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use visible::{visible_styled, written_out};

/// One of the two ways out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output: results.
    Out,
    /// Standard error: everything else.
    Err,
}

impl Stream {
    /// Whether a person may be reading along.
    pub fn is_terminal(self) -> bool {
        match self {
            Stream::Out => io::stdout().is_terminal(),
            Stream::Err => io::stderr().is_terminal(),
        }
    }

    /// Writes all of `text` at once, so that no reader sees half of a line, and no bar is drawn into it. If this thread has a listener, that
    /// gets it instead.
    fn write(self, text: &str) -> io::Result<()> {
        if listener::send(Event::Said(text.strip_suffix('\n').unwrap_or(text))) {
            return Ok(());
        }
        panel::left_behind();
        bar::aside(|| match self {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().lock().write_all(text.as_bytes()),
        })
    }
}

/// Writes a line to standard error. Where that is closed or full there is nowhere left to complain, and that is no reason
/// to end what is being done (`eprintln!` would panic).
pub fn say(line: &str) {
    let _ = Stream::Err.write(&(visible(line) + "\n"));
}

/// The same for text with colours in it, which have passed [`color`]: what in it comes from elsewhere has been made
/// [`visible`] before the colours came in.
pub fn say_styled(line: &str) {
    let _ = Stream::Err.write(&(visible_styled(line) + "\n"));
}

/// Writes to standard error without asking for memory, for when there is none: bytes that steer a terminal become `?`.
pub fn last_words(text: &[u8]) {
    let mut out = io::stderr().lock();
    for piece in text.split_inclusive(|byte| byte.is_ascii_control() && *byte != b'\n') {
        // There may be no reader.
        let _ = match piece {
            [text @ .., last] if last.is_ascii_control() && *last != b'\n' => {
                out.write_all(text).and_then(|()| out.write_all(b"?"))
            }
            text => out.write_all(text),
        };
    }
}

/// Writes results to standard output, with a line's end if they have none. Passwords in addresses are masked only where
/// a person reads them: a program that does may need them.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let shown = match Stream::Out.is_terminal() {
        true => visible(text),
        false => written_out(text),
    };
    Stream::Out.write(&(shown + end))
}

/// Writes a piece of a text to standard output as it comes: no line's end is added, and a program that reads it gets every character as it is.
///
/// # Errors
/// As [`print()`].
pub fn print_piece(text: &str) -> io::Result<()> {
    if Stream::Out.is_terminal() { Stream::Out.write(&visible(text)) } else { Stream::Out.write(text) }
}

/// Writes a table for other programs to standard output: as it is, unless a person reads it there. Its names are those of files.
///
/// # Errors
/// As [`print()`].
pub fn print_table(text: &str) -> io::Result<()> {
    if Stream::Out.is_terminal() { print(text) } else { Stream::Out.write(text) }
}

/// [`print()`] for text with colours in it, as for [`say_styled`].
///
/// # Errors
/// As [`print()`].
pub fn print_styled(text: &str) -> io::Result<()> {
    Stream::Out.write(&visible_styled(text))
}

/// Writes a JSON value to standard output, on a line of its own.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &Value) -> io::Result<()> {
    if listener::send(Event::Record(value)) {
        return Ok(());
    }
    let text = json_line(value);
    Stream::Out.write(&(if Stream::Out.is_terminal() { masked(&text) } else { text } + "\n"))
}

/// Whether a person sees what is written to standard output.
pub fn shows_output() -> bool {
    Stream::Out.is_terminal()
}

/// Whether a person would have to type what comes through standard input.
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
}

/// A JSON value on one line, without any character that would steer a terminal; the value is the same.
pub fn json_line(value: &Value) -> String {
    visible_json(&value.to_string())
}

/// Reports a panic like everything else. A panic is a bug of this program, but its message may hold anything.
pub fn set_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let trace = match backtrace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        let text = format!("internal error: thread `{}` {info}{trace}", thread.name().unwrap_or("?"));
        // Not around a bar: it may be the bar that has panicked.
        let _ = io::stderr().lock().write_all((visible(&text) + "\n").as_bytes());
    }));
}

/// Puts on the screen what a bar has drawn, which has been made harmless.
fn draw(text: &str) -> io::Result<()> {
    io::stderr().lock().write_all(text.as_bytes())
}
