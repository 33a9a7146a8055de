//! What people see of a run: a bar where there is a terminal, a clean log where there is none, a table of epochs.

use super::live::Live;
use super::pace::{Horizon, Pace, Place};
use super::table::{Row, Table};
use crate::config::language::sections::Monitor;
use crate::data::Unread;
use crate::graph::op::{Figure, Task};
use crate::terminal::{self, Bar, Stream, can_redraw, duration, figure, panel, percent};
use crate::train::setup::programs::HeadOf;
use serde_json::Value;
use std::io;
use std::time::{Duration, Instant};

use crate::terminal::say;

/// How much is shown, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Bars or log on standard error, the table on standard output.
    Normal,
    /// Nothing but warnings.
    Quiet,
    /// Nothing at all: another one says the same.
    Silent,
    /// The lines of `metrics.jsonl` on standard output, nothing else there.
    Json,
    /// For a [`crate::terminal::Listener`]: the same lines, and a log.
    Heard,
}

/// Time between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Time between two updates of the figures after the bar.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Shows a run.
pub struct Reporter {
    verbosity: Verbosity,
    /// Time between two reports of progress; `None`: there are none.
    every: Option<Duration>,
    horizon: Option<Horizon>,
    table: Option<(Table, bool)>,
    pace: Pace,
    stretch: Option<Stretch>,
    /// When the training of an epoch ended, and how long was evaluated since.
    ended: Option<(Instant, Duration)>,
    output_error: Option<io::Error>,
    /// How many unreadable samples it has reported: of those to train on, and to validate on.
    reported: [usize; 2],
    /// What has been warned of once.
    warned: Vec<String>,
    /// Which of several trainings this is, as `seed` and its number.
    member: Option<(&'static str, usize)>,
    /// Curves, if they are to be drawn.
    live: Option<Live>,
    /// The monitored figure of the last evaluation, in words.
    watched: Option<String>,
}

/// What is going on.
struct Stretch {
    what: String,
    bar: Option<Bar>,
    samples: u64,
    /// Samples done before.
    first: u64,
    at: Place,
    start: Instant,
    /// What the pace was before.
    before: Pace,
    /// When something was shown last; `None`: it is time to show something.
    last_shown: Option<Instant>,
    accuracy: Option<f64>,
}

impl Reporter {
    /// A reporter on this process's streams.
    pub fn new(verbosity: Verbosity) -> Self {
        let every = if can_redraw() { BAR_EVERY } else { LOG_EVERY };
        Reporter {
            verbosity,
            every: matches!(verbosity, Verbosity::Normal | Verbosity::Heard).then_some(every),
            horizon: None,
            table: None,
            pace: Pace::default(),
            stretch: None,
            ended: None,
            output_error: None,
            reported: [0; 2],
            warned: Vec::new(),
            member: None,
            live: None,
            watched: None,
        }
    }

    /// The same, with curves of the losses: below the table where lines can be drawn over, else when all is done.
    pub fn with_curves(self) -> Self {
        Reporter { live: Some(Live::default()), ..self }
    }

    /// The same, whose lines for other programs say which of several trainings they are of.
    pub fn of_member(self, member: Option<(&'static str, usize)>) -> Self {
        Reporter { member, ..self }
    }

    /// Draws the curves at the end of a run, if they are not on the screen yet.
    pub fn end_curves(&mut self) {
        if let Some(live) = self.live.take().filter(|_| !panel::has_room()) {
            live.lines().iter().for_each(|line| terminal::say_styled(line));
        }
    }

    /// Says what the run is made of, before it begins: `asked` are the figures of validation besides those of the task.
    pub fn plan(&mut self, task: Task, asked: &[Figure], heads: &[HeadOf], horizon: Horizon) {
        let validation = if horizon.val_samples > 0 { [task.figures(), asked].concat() } else { Vec::new() };
        let table = Table::new(task, &validation, heads, horizon.counted, terminal::width(Stream::Out));
        self.table = Some((table, false));
        self.horizon = Some(horizon);
    }

    /// Writes a line to standard output. Training goes on if that fails: a reader that has gone away is a matter of
    /// course, anything else is reported once and kept for [`Reporter::output_error`].
    fn print_line(&mut self, print: impl FnOnce() -> io::Result<()>) {
        if self.output_error.is_some() {
            return;
        }
        if let Err(e) = print() {
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
        if matches!(self.verbosity, Verbosity::Normal | Verbosity::Heard) {
            say(text);
        }
    }

    /// Something that must not be missed, on standard error, however quiet.
    pub fn warn(&self, text: &str) {
        if self.verbosity != Verbosity::Silent {
            say(&format!("warning: {text}"));
        }
    }

    /// The same, unless it has been said already.
    pub fn warn_once(&mut self, text: &str) {
        if !self.warned.iter().any(|said| said == text) {
            self.warn(text);
            self.warned.push(text.to_owned());
        }
    }

    /// Warns of samples that cannot be read, of those to train on and to validate on, once for each.
    pub fn unreadable(&mut self, lists: [&Unread; 2]) {
        let words = [lists[0].in_words(self.reported[0]), lists[1].left_out_in_words(self.reported[1])];
        for text in words.into_iter().flatten().filter(|_| self.verbosity != Verbosity::Silent) {
            say(&format!("warning: {text}"));
        }
        self.reported = lists.map(|unread| unread.list().len());
    }

    /// Starts the training of an epoch, or its evaluation, at a place where `done` of `samples` samples are done already.
    pub fn begin(&mut self, what: &str, samples: u64, done: u64, at: Place) {
        self.stretch = None;
        let now = Instant::now();
        if at.evaluated.is_none()
            && let Some((ended, evaluated)) = self.ended.take()
        {
            self.pace.between = now.duration_since(ended).saturating_sub(evaluated).as_secs_f64();
        }
        let bar = self.every.and_then(|_| Bar::new(what, samples, done));
        let (what, before) = (what.to_string(), self.pace);
        // A bar has its figures from the first step on, a log its lines every so often.
        let last_shown = if bar.is_some() { None } else { Some(now) };
        self.stretch =
            Some(Stretch { what, bar, samples, first: done, at, start: now, before, last_shown, accuracy: None });
    }

    /// True when it is time for [`Reporter::progress`].
    pub fn due(&self) -> bool {
        match (&self.stretch, self.every) {
            (Some(stretch), Some(every)) => stretch.last_shown.is_none_or(|at| at.elapsed() >= every),
            _ => false,
        }
    }

    /// Notes the accuracy over the epoch so far; it is shown until there is a newer one.
    pub fn note_accuracy(&mut self, accuracy: Option<f64>) {
        if let Some(stretch) = &mut self.stretch {
            stretch.accuracy = accuracy;
        }
    }

    /// Notes the value that a monitored figure has now; it is shown until there is a newer one.
    pub fn note_watched(&mut self, monitor: &Monitor, value: f64) {
        let shown = if monitor.figure().is_share() { percent(value) } else { figure(value, 4, 8) };
        self.watched = Some(format!("{} {shown}", monitor.name()));
    }

    /// Reports how far the stretch is: samples done, updates done, the newest loss.
    pub fn progress(&mut self, done: u64, step: u64, loss: Option<f32>) {
        self.measure(done, step);
        let Some(stretch) = &mut self.stretch else { return };
        stretch.last_shown = Some(Instant::now());
        let seconds = stretch.start.elapsed().as_secs_f64();
        let state = State {
            done,
            samples: stretch.samples,
            loss: loss.map(f64::from),
            accuracy: stretch.accuracy,
            // An evaluation has figures of its own.
            watched: self.watched.as_deref().filter(|_| stretch.at.evaluated.is_none()),
            rate: if seconds > 0.0 { (done - stretch.first) as f64 / seconds } else { 0.0 },
            left: self.horizon.as_ref().and_then(|run| self.pace.left(run, &stretch.at)),
            at_most: self.horizon.is_some_and(|run| run.may_stop_early),
        };
        match &stretch.bar {
            Some(bar) => {
                bar.set(done);
                bar.show(&state.parts());
            }
            None => say(&format!("{}: {}", stretch.what, state.line())),
        }
    }

    /// Takes in how long the stretch has taken so far.
    fn measure(&mut self, done: u64, step: u64) {
        let Some(stretch) = &mut self.stretch else { return };
        let (samples, seconds) = (done.saturating_sub(stretch.first), stretch.start.elapsed().as_secs_f64());
        let add = |(n, s): (u64, f64)| (n + samples, s + seconds);
        match &mut stretch.at.evaluated {
            Some(evaluated) => {
                *evaluated = done;
                self.pace.evaluated = add(stretch.before.evaluated);
            }
            None => {
                (stretch.at.done, stretch.at.step) = (done, step);
                self.pace.trained = add(stretch.before.trained);
            }
        }
    }

    /// Ends the stretch, `done` samples being done; `None` if it is broken off.
    pub fn end(&mut self, done: Option<u64>) {
        if let (Some(done), Some(step)) = (done, self.stretch.as_ref().map(|s| s.at.step)) {
            self.measure(done, step);
        }
        let Some(stretch) = self.stretch.take() else { return };
        match (stretch.at.evaluated, &mut self.ended) {
            (None, ended) => *ended = Some((Instant::now(), Duration::ZERO)),
            (Some(_), Some((_, evaluated))) => *evaluated += stretch.start.elapsed(),
            (Some(_), None) => {}
        }
    }

    /// A line of `metrics.jsonl`.
    pub fn record(&mut self, line: &Value) {
        if let Some(live) = &mut self.live {
            live.take(line);
        }
        if matches!(self.verbosity, Verbosity::Json | Verbosity::Heard) {
            let mut line = line.clone();
            if let Some((one, number)) = self.member {
                line[one] = number.into();
            }
            self.print_line(|| terminal::print_json(&line));
        }
    }

    /// A line of the table.
    pub fn row(&mut self, row: &Row) {
        let Some((table, header_shown)) = self.table.as_mut().filter(|_| self.verbosity == Verbosity::Normal) else {
            return;
        };
        let mut lines = table.line(row);
        if !*header_shown {
            *header_shown = true;
            lines = format!("{}\n{lines}", table.header().join("\n"));
        }
        match self.live.as_ref().filter(|_| panel::has_room()).map(Live::lines) {
            Some(curves) => self.print_line(|| panel::print_above(&lines, &curves)),
            None => self.print_line(|| terminal::print(&lines)),
        }
    }
}

/// How far a stretch is.
struct State<'a> {
    done: u64,
    samples: u64,
    loss: Option<f64>,
    accuracy: Option<f64>,
    watched: Option<&'a str>,
    rate: f64,
    /// Seconds to the end of the run.
    left: Option<f64>,
    at_most: bool,
}

impl State<'_> {
    fn left(&self) -> Option<String> {
        let most = if self.at_most { "at most " } else { "" };
        self.left.map(|seconds| format!("{most}{} left", duration(seconds)))
    }

    fn rate(&self) -> String {
        format!("{} samples/s", figure(self.rate, usize::from(self.rate < 10.0), 9))
    }

    /// The text after the bar, with ranks: what matters most has the lowest.
    fn parts(&self) -> Vec<(u8, String)> {
        let share = 100 * self.done / self.samples.max(1);
        let parts = [
            Some((5, format!("{share} %"))),
            self.loss.map(|loss| (0, format!("loss {}", figure(loss, 4, 8)))),
            self.accuracy.map(|accuracy| (2, format!("acc {}", percent(accuracy)))),
            self.watched.map(|watched| (3, watched.to_owned())),
            Some((4, self.rate())),
            self.left().map(|left| (1, left)),
        ];
        parts.into_iter().flatten().collect()
    }

    /// The same for a log.
    fn line(&self) -> String {
        let parts = [
            Some(format!("{}/{}", self.done, self.samples)),
            self.loss.map(|loss| format!("loss {}", figure(loss, 4, 8))),
            self.accuracy.map(|accuracy| format!("accuracy {}", percent(accuracy))),
            self.watched.map(str::to_owned),
            Some(self.rate()),
            self.left(),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::language::sections::EvalEvery;
    use crate::config::language::sections::Metric;

    #[test]
    fn progress_in_words() {
        let mut state = State {
            done: 1234,
            samples: 5000,
            loss: Some(0.123456),
            accuracy: Some(0.9712),
            watched: None,
            rate: 17000.4,
            left: Some(11_100.0),
            at_most: true,
        };
        assert_eq!(state.line(), "1234/5000, loss 0.1235, accuracy 97.12 %, 17000 samples/s, at most 3h 05m left");
        let parts: Vec<String> = state.parts().into_iter().map(|(_, text)| text).collect();
        assert_eq!(parts.join(" | "), "24 % | loss 0.1235 | acc 97.12 % | 17000 samples/s | at most 3h 05m left");
        let mut reporter = Reporter::new(Verbosity::Quiet);
        reporter.note_watched(&Metric::ValAccuracy.into(), 0.5);
        reporter.note_watched(&Metric::ValLoss.into(), 0.25);
        assert_eq!(reporter.watched.as_deref(), Some("val_loss 0.2500"));
        reporter.note_watched(&Metric::ValAccuracy.into(), 0.5);
        state.watched = reporter.watched.as_deref();
        assert_eq!(
            state.line(),
            "1234/5000, loss 0.1235, accuracy 97.12 %, val_accuracy 50.00 %, 17000 samples/s, at most 3h 05m left"
        );
        assert!(state.parts().contains(&(3, "val_accuracy 50.00 %".into())));
        state = State {
            watched: None,
            loss: Some(3.4e38),
            accuracy: None,
            rate: 0.25,
            left: Some(9.0),
            at_most: false,
            ..state
        };
        assert_eq!(state.line(), "1234/5000, loss 3.40e38, 0.2 samples/s, 9s left");
        state = State { loss: None, left: None, ..state };
        assert_eq!(state.line(), "1234/5000, 0.2 samples/s");
    }

    #[test]
    fn the_time_left_is_known_after_the_first_look() {
        let horizon = Horizon {
            epochs: 2,
            counted: ("epoch", 2),
            samples: 10,
            val_samples: 4,
            eval_every: EvalEvery::Epochs(1),
            steps: 20,
            step_samples: 1,
            may_stop_early: false,
        };
        let mut reporter = Reporter::new(Verbosity::Quiet);
        reporter.plan(Task::Classification, &[], &[], horizon);
        reporter.begin("epoch 1/2", 10, 2, Place { epoch: 0, done: 2, step: 2, evaluated: None });
        assert!(!reporter.due(), "nothing is shown");
        reporter.measure(5, 5);
        assert_eq!(reporter.pace.trained.0, 3, "what was done before is not of this pace");
        reporter.measure(9, 9);
        assert_eq!(reporter.pace.trained.0, 7);
        reporter.end(Some(10));
        assert_eq!(reporter.pace.trained.0, 8);
        reporter.begin("evaluation", 4, 0, Place { epoch: 0, done: 10, step: 10, evaluated: Some(0) });
        reporter.end(Some(4));
        assert_eq!((reporter.pace.trained.0, reporter.pace.evaluated.0), (8, 4));
        reporter.begin("epoch 2/2", 10, 0, Place { epoch: 1, done: 0, step: 10, evaluated: None });
        reporter.end(None);
        assert_eq!(reporter.pace.trained.0, 8, "broken off before anything was done");
    }
}
