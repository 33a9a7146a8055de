//! What people see of a run: a bar where there is a terminal, a clean log where there is none, a table of epochs.

use super::metrics::Figures;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde_json::Value;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How much is shown, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Bars or log on standard error, the table on standard output.
    Normal,
    /// Nothing but warnings.
    Quiet,
    /// The lines of `metrics.jsonl` on standard output, nothing else there.
    Json,
}

/// Time between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Shows a run.
pub struct Reporter {
    verbosity: Verbosity,
    terminal: bool,
    bar: Option<ProgressBar>,
    last_log: Instant,
    header_shown: bool,
    output_error: Option<io::Error>,
}

/// Writes a line to standard error. Where that is closed or full there is nowhere left to complain, and that is no reason
/// to end what is being done (`eprintln!` would panic).
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

impl Reporter {
    /// A reporter on this process's streams.
    pub fn new(verbosity: Verbosity) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Reporter { verbosity, terminal, bar: None, last_log: Instant::now(), header_shown: false, output_error: None }
    }

    /// Writes a line to standard output. Training goes on if that fails: a reader that has gone away is a matter of
    /// course, anything else is told once and kept for [`Reporter::output_error`].
    fn print_line(&mut self, line: &str) {
        if self.output_error.is_some() {
            return;
        }
        // One write a line, so that no reader sees half of it.
        if let Err(e) = io::stdout().lock().write_all(format!("{line}\n").as_bytes()) {
            if e.kind() != io::ErrorKind::BrokenPipe {
                self.warn(&format!(
                    "cannot write to standard output: {e}; training goes on, and its files are written"
                ));
            }
            self.output_error = Some(e);
        }
    }

    /// Why some lines are missing on standard output, if that is more than a reader that has gone away.
    pub fn output_error(&mut self) -> Option<io::Error> {
        self.output_error.take().filter(|e| e.kind() != io::ErrorKind::BrokenPipe)
    }

    /// Something worth knowing, on standard error.
    pub fn info(&self, text: &str) {
        if self.verbosity == Verbosity::Normal {
            self.say(text);
        }
    }

    /// Something that must not be missed, on standard error, however quiet.
    pub fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Starts a stretch of `samples` samples of which `done` are done already.
    pub fn begin(&mut self, what: &str, samples: u64, done: u64) {
        self.last_log = Instant::now();
        if self.verbosity != Verbosity::Normal || !self.terminal {
            return;
        }
        let style = ProgressStyle::with_template(
            "{prefix}  {wide_bar}  {pos}/{len}  {msg}{rate} samples/s, {eta} left",
        )
        .map(|s| {
            s.with_key("rate", |s: &ProgressState, w: &mut dyn fmt::Write| {
                let _ = write!(w, "{:.0}", s.per_sec());
            })
        });
        let bar = ProgressBar::new(samples).with_prefix(what.to_string());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_position(done);
        bar.reset_eta();
        self.bar = Some(bar);
    }

    /// Tells how far the stretch is.
    pub fn progress(&mut self, what: &str, done: u64, samples: u64, loss: Option<f32>, rate: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            if let Some(loss) = loss
                && self.last_log.elapsed() > Duration::from_millis(100)
            {
                bar.set_message(format!("loss {loss:.4}, "));
                self.last_log = Instant::now();
            }
        } else if self.verbosity == Verbosity::Normal && !self.terminal && self.last_log.elapsed() > LOG_EVERY {
            self.last_log = Instant::now();
            let left = if rate > 0.0 { (samples - done) as f64 / rate } else { 0.0 };
            let left = HumanDuration(Duration::from_secs_f64(left.min(1e9)));
            let loss = loss.map_or(String::new(), |l| format!(", loss {l:.4}"));
            say(&format!("{what}: {done}/{samples}{loss}, {rate:.0} samples/s, {left} left"));
        }
    }

    /// Ends the stretch.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// A line of `metrics.jsonl`.
    pub fn record(&mut self, line: &Value) {
        if self.verbosity == Verbosity::Json {
            self.print_line(&line.to_string());
        }
    }

    /// A line of the table.
    pub fn epoch(&mut self, row: &EpochRow) {
        if self.verbosity != Verbosity::Normal {
            return;
        }
        let columns = row.columns();
        if !self.header_shown {
            self.header_shown = true;
            let names: Vec<String> = columns.iter().map(|(name, _)| format!("{name:>0$}", width(name))).collect();
            self.print_line(&names.join("  "));
        }
        let mut line: Vec<String> = columns.iter().map(|(name, value)| format!("{value:>0$}", width(name))).collect();
        if row.best {
            line.push("best".into());
        }
        self.print_line(&line.join("  "));
    }
}

/// Width of a table's column: its name's, or what its values need.
fn width(name: &str) -> usize {
    name.len().max(9)
}

/// The figures of an epoch.
#[derive(Debug, Clone)]
pub struct EpochRow {
    /// Number of the epoch, from 1, and how many there will be.
    pub epoch: (u64, usize),
    /// On the training batches.
    pub train: Option<Figures>,
    /// On the validation samples.
    pub val: Option<Figures>,
    /// Duration of the training part.
    pub seconds: f64,
    /// Training samples per second.
    pub samples_per_s: f64,
    /// The monitored figure is the best so far.
    pub best: bool,
}

impl EpochRow {
    fn columns(&self) -> Vec<(String, String)> {
        let mut out = vec![("epoch".to_string(), format!("{}/{}", self.epoch.0, self.epoch.1))];
        for (prefix, figures) in [("train", &self.train), ("val", &self.val)] {
            for (name, value) in figures.iter().flat_map(|f| f.list()) {
                let text = if name == "accuracy" { format!("{:.2} %", 100.0 * value) } else { format!("{value:.5}") };
                out.push((format!("{prefix} {name}"), text));
            }
        }
        out.push(("seconds".into(), format!("{:.1}", self.seconds)));
        out.push(("samples/s".into(), format!("{:.0}", self.samples_per_s)));
        out
    }
}
