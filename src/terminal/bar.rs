//! A progress bar that never takes more than its line.

use super::Stream;
use super::color::{can_redraw, width};
use super::visible::{visible, visible_styled};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bars there are, the one on the screen last. Lines that are written meanwhile go above it.
static ACTIVE: Mutex<Vec<(u64, ProgressBar)>> = Mutex::new(Vec::new());

/// Numbers of bars.
static NUMBER: AtomicU64 = AtomicU64::new(0);

fn active() -> MutexGuard<'static, Vec<(u64, ProgressBar)>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `write` with the bar out of the way.
pub(super) fn aside<T>(write: impl FnOnce() -> T) -> T {
    // The lock is not held while the bar draws, which comes back to this module.
    let bar = active().last().map(|(_, bar)| bar.clone());
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// A progress bar on standard error; none where lines cannot be drawn over. It goes away when it is dropped.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    number: u64,
    /// Columns of its name.
    name: usize,
}

/// Columns of the bar itself, at least.
const LEAST: usize = 8;

impl Bar {
    /// A bar called `name`, of which `done` of `total` are done.
    pub fn new(name: &str, total: u64, done: u64) -> Option<Bar> {
        Self::with(name, total, done, "{prefix}  {wide_bar}  {msg}")
    }

    /// The same for bytes that come from somewhere: it shows how many, how fast, and the time left, by itself.
    pub fn of_bytes(name: &str, total: u64, done: u64) -> Option<Bar> {
        Self::with(name, total, done, "{prefix}  {wide_bar}  {bytes}/{total_bytes}  {bytes_per_sec}  {eta}")
    }

    fn with(name: &str, total: u64, done: u64, template: &str) -> Option<Bar> {
        if !can_redraw() {
            return None;
        }
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let name = visible(name).replace(['\n', '\t'], " ");
        let columns = name.chars().count();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), 20);
        let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style).with_prefix(name);
        bar.set_position(done);
        bar.reset_eta();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        active().push((number, bar.clone()));
        Some(Bar { bar, number, name: columns })
    }

    /// Sets how much is done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Shows `parts` after the bar, those that fit; each has a rank, and the higher ones go first.
    pub fn show(&self, parts: &[(u8, String)]) {
        let columns = width(Stream::Err).saturating_sub(self.name + LEAST + 4);
        self.bar.set_message(fit(parts, columns));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        active().retain(|(number, _)| *number != self.number);
        self.bar.finish_and_clear();
    }
}

/// The parts that fit into so many columns, in their order; those with the highest ranks are left out first.
fn fit(parts: &[(u8, String)], columns: usize) -> String {
    let mut parts: Vec<(u8, String)> =
        parts.iter().map(|(rank, text)| (*rank, visible(text).replace(['\n', '\t'], " "))).collect();
    loop {
        let line = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("  ");
        let last = (0..parts.len()).max_by_key(|i| parts[*i].0);
        match last {
            Some(last) if line.chars().count() > columns => parts.remove(last),
            _ => return line,
        };
    }
}

/// Standard error as bars draw on it, a picture at a time.
#[derive(Debug, Default)]
struct Screen {
    picture: Mutex<String>,
}

impl Screen {
    fn push(&self, text: &str) -> io::Result<()> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    /// Moves the cursor by `n` in the direction that `letter` stands for.
    fn cursor(&self, n: usize, letter: char) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.push(&format!("\u{1b}[{n}{letter}")) }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        width(Stream::Err).try_into().unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.cursor(n, 'D')
    }

    // Our own styles pass, and nothing else that is not text.
    fn write_line(&self, s: &str) -> io::Result<()> {
        self.push(&(visible_styled(s) + "\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.push(&visible_styled(s))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let picture = std::mem::take(&mut *self.picture.lock().unwrap_or_else(PoisonError::into_inner));
        super::draw(&picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_least_goes_first() {
        let parts = [(3, "34 %"), (0, "loss 0.1234"), (2, "acc 97.12 %"), (1, "at most 3h 05m left"), (4, "17000/s")]
            .map(|(rank, text)| (rank, text.to_string()));
        assert_eq!(fit(&parts, 100), "34 %  loss 0.1234  acc 97.12 %  at most 3h 05m left  17000/s");
        assert_eq!(fit(&parts, 51), "34 %  loss 0.1234  acc 97.12 %  at most 3h 05m left");
        assert_eq!(fit(&parts, 50), "loss 0.1234  acc 97.12 %  at most 3h 05m left");
        assert_eq!(fit(&parts, 40), "loss 0.1234  at most 3h 05m left");
        assert_eq!(fit(&parts, 12), "loss 0.1234");
        assert_eq!(fit(&parts, 3), "");
        assert_eq!(fit(&[(0, "a\u{1b}[2J\nb".to_string())], 80), "a\\x1b[2J b");
    }
}
