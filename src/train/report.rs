//! What people see of a run: a bar where there is a terminal, a clean log where there is none, a table of epochs.

use super::metrics::Figures;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::{IsTerminal, Write};
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
}

/// Writes a line to standard output; a reader that has gone away is no reason to stop training.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

impl Reporter {
    /// A reporter on this process's streams.
    pub fn new(verbosity: Verbosity) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Reporter { verbosity, terminal, bar: None, last_log: Instant::now(), header_shown: false }
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
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Starts a stretch of `samples` samples of which `done` are done already.
    pub fn begin(&mut self, what: &str, samples: u64, done: u64) {
        self.last_log = Instant::now();
        if self.verbosity != Verbosity::Normal || !self.terminal {
            return;
        }
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} {per_sec:>14} {eta:>4} left");
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
                bar.set_message(format!("loss {loss:.4}"));
                self.last_log = Instant::now();
            }
        } else if self.verbosity == Verbosity::Normal && !self.terminal && self.last_log.elapsed() > LOG_EVERY {
            self.last_log = Instant::now();
            let left = if rate > 0.0 { (samples - done) as f64 / rate } else { 0.0 };
            let left = HumanDuration(Duration::from_secs_f64(left.min(1e9)));
            let loss = loss.map_or(String::new(), |l| format!(", loss {l:.4}"));
            eprintln!("{what}: {done}/{samples}{loss}, {rate:.0} samples/s, {left} left");
        }
    }

    /// Ends the stretch.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// A line of `metrics.jsonl`.
    pub fn record(&self, line: &Value) {
        if self.verbosity == Verbosity::Json {
            print_line(&line.to_string());
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
            print_line(&columns.iter().map(|(name, _)| format!("{name:>14}")).collect::<String>());
        }
        print_line(&columns.iter().map(|(_, value)| format!("{value:>14}")).collect::<String>());
    }
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
        out.push((String::new(), if self.best { "  best".into() } else { String::new() }));
        out
    }
}
