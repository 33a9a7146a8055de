//! Lines that stay below what is printed: drawn anew each time, where lines can be drawn over.

use super::bar::aside;
use super::visible::visible_styled;
use super::{Stream, can_redraw, visible};
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of the panel that are the last on the screen.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Whether there can be one: both streams go to the same terminal, as far as is known.
pub fn has_room() -> bool {
    can_redraw() && Stream::Out.is_terminal()
}

/// Something else has been written after the panel, which stays where it is.
pub(super) fn left_behind() {
    SHOWN.store(0, Ordering::Relaxed);
}

/// Prints `text` on standard output in the place of the panel, and the panel, with its colours, below.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print_above(text: &str, panel: &[String]) -> io::Result<()> {
    aside(|| {
        let before = SHOWN.swap(0, Ordering::Relaxed);
        let mut err = io::stderr().lock();
        // One line up, and that line emptied, as often as there are lines. There may be no reader.
        let _ = err.write_all("\u{1b}[1A\u{1b}[2K".repeat(before).as_bytes());
        let mut out = io::stdout().lock();
        out.write_all((visible(text) + "\n").as_bytes()).and_then(|()| out.flush())?;
        let lines: String = panel.iter().map(|line| visible_styled(line) + "\n").collect();
        if err.write_all(lines.as_bytes()).is_ok() {
            SHOWN.store(panel.len(), Ordering::Relaxed);
        }
        Ok(())
    })
}
