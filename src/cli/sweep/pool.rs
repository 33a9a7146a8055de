//! Trials at work, so many at a time, each a process of its own. Which trial is next, and how far it goes, comes from what all of
//! them have written down; so does what becomes of each.

use super::super::args::SweepArgs;
use super::checked::{Checked, Read, words};
use super::child::{Child, End, Event, INTERRUPTED};
use super::table::formatted;
use super::trial::Trial;
use crate::api::failure::Failure;
use crate::checkpoint;
use crate::config::language::sections::{Length, Method, StopRule};
use crate::sweep::course::Better;
use crate::sweep::record::Record;
use crate::sweep::{Verdict, halving, median};
use crate::terminal::{Bar, say};
use crate::train::files::folder::is_at_work;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often it is looked whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

/// How long after a trial a signal for both may be noticed here.
const SOON: Duration = Duration::from_secs(2);

/// Trials, and what is at work on them.
pub struct Pool<'a> {
    /// The sweep.
    pub read: &'a Read,
    /// Its trials, before any was run.
    pub checked: &'a [Checked],
    /// What was asked for.
    pub args: &'a SweepArgs,
    /// The sweep's folder.
    pub folder: PathBuf,
    /// How many are trained at a time.
    pub jobs: usize,
    /// Compute threads of each.
    pub threads: usize,
    /// What is known of them.
    pub trials: Vec<Trial>,
    /// What is kept of them.
    pub record: Record,
    at_work: BTreeMap<usize, (Child, u64)>,
    /// Those that were asked to stop.
    stopped: BTreeSet<usize>,
    /// Warnings that were shown, and need not be once more.
    pub warned: BTreeSet<String>,
    events: (Sender<Event>, Receiver<Event>),
    bar: Option<Bar>,
}

impl<'a> Pool<'a> {
    /// A pool in which nothing is at work yet.
    pub fn new(
        read: &'a Read,
        checked: &'a [Checked],
        args: &'a SweepArgs,
        folder: &Path,
        (jobs, threads): (usize, usize),
        trials: Vec<Trial>,
        record: Record,
    ) -> Pool<'a> {
        Pool {
            read,
            checked,
            args,
            folder: folder.to_path_buf(),
            jobs,
            threads,
            trials,
            record,
            at_work: BTreeMap::new(),
            stopped: BTreeSet::new(),
            warned: BTreeSet::new(),
            events: channel(),
            bar: None,
        }
    }

    /// Which values are better.
    pub fn better(&self) -> Better {
        if self.read.monitor.higher_is_better() { Better::Higher } else { Better::Lower }
    }

    /// What becomes of each trial, as far as that is known.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let courses: Vec<_> = self.trials.iter().map(|trial| trial.course.clone()).collect();
        let (sweep, better) = (&self.read.sweep, self.better());
        let least = sweep.min_epochs as u64;
        // They agree but where the number of epochs is one of the parameters.
        let epochs: Vec<u64> = self.checked.iter().map(|trial| trial.epochs).collect();
        if sweep.method == Method::Halving {
            let most = epochs.iter().copied().max().unwrap_or(1);
            let rounds = halving::rounds(courses.len(), least, sweep.reduction, most);
            return halving::verdicts(&courses, &rounds, better);
        }
        let rule = sweep.stop.map(|StopRule::Median| median::Rule { min_epochs: least, first: sweep.stop_after });
        median::verdicts(&courses, &epochs, rule, better)
    }

    /// Trains until nothing is left to do, or until `interrupt` is set; whether it is whole.
    ///
    /// # Errors
    /// A trial cannot be started, or what is known of it not be read or written.
    pub fn run(&mut self, interrupt: &AtomicBool) -> Result<bool, Failure> {
        self.bar = if self.args.quiet { None } else { Bar::new("trials", self.trials.len() as u64, 0) };
        self.draw_bar();
        let result = self.work(interrupt);
        self.bar = None;
        // Those that are at work stop and save, also after an error.
        self.at_work.values_mut().for_each(|(child, _)| child.stop());
        while !self.at_work.is_empty() {
            match self.events.1.recv() {
                Ok(Event::Ended(number, end)) => self.ended(number, &end, true)?,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        result
    }

    fn work(&mut self, interrupt: &AtomicBool) -> Result<bool, Failure> {
        loop {
            let asked = interrupt.load(Ordering::Relaxed);
            let verdicts = self.verdicts();
            for (number, (child, _)) in &mut self.at_work {
                if asked || matches!(verdicts[*number], Verdict::Out { .. }) {
                    child.stop();
                    self.stopped.insert(*number);
                }
            }
            if !asked {
                self.start_some(&verdicts, interrupt)?;
            }
            if self.at_work.is_empty() {
                return Ok(verdicts.iter().all(|v| matches!(v, Verdict::Done | Verdict::Out { .. })));
            }
            match self.events.1.recv_timeout(LOOK) {
                Ok(event) => self.take(event, interrupt)?,
                Err(RecvTimeoutError::Timeout) => {}
                // This holds one end itself.
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn start_some(&mut self, verdicts: &[Verdict], interrupt: &AtomicBool) -> Result<(), Failure> {
        for (number, verdict) in verdicts.iter().enumerate() {
            if self.at_work.len() >= self.jobs || interrupt.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Verdict::Train { until } = *verdict
                && !self.at_work.contains_key(&number)
            {
                self.start(number, until, interrupt)?;
            }
        }
        Ok(())
    }

    /// Starts a trial, or goes on with it, until so many epochs are done.
    fn start(&mut self, number: usize, until: u64, interrupt: &AtomicBool) -> Result<(), Failure> {
        if !self.read.is_still(number, &self.checked[number])? {
            return Err(Failure::Usage(format!(
                "`{}` has changed since the sweep began\nhelp: undo that and go on, or begin another sweep with --force or --out",
                self.args.config.display()
            )));
        }
        let folder = self.trials[number].folder.clone();
        // A sweep that was killed leaves trials that are about to stop.
        let mut announced = false;
        while is_at_work(&folder) && !interrupt.load(Ordering::Relaxed) {
            if !std::mem::replace(&mut announced, true) {
                say(&format!(
                    "trial {}: another process is at work in `{}`: waiting for it",
                    number + 1,
                    folder.display()
                ));
            }
            std::thread::sleep(LOOK);
        }
        let there = folder.is_dir() && checkpoint::newest_whole(&folder).is_ok_and(|newest| newest.found.is_some());
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = vec!["train".to_owned()];
        if there {
            words.extend(["--resume".into(), text(&folder)]);
        } else {
            words.extend([text(&self.args.config), "--out".into(), text(&folder), "--force".into()]);
            let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
            let overrides = &self.args.overrides;
            overrides.unset.iter().for_each(|key| option("--unset", key));
            option("--unset", "sweep");
            overrides.set.iter().filter(|set| !is_of_sweep(set)).for_each(|set| option("--set", set));
            if let Some(device) = &overrides.device {
                option("--device", device);
            }
            self.read.sets_of(number).iter().for_each(|set| option("--set", set));
            self.args.passes.names().iter().for_each(|pass| option("--without", pass));
        }
        let (threads, until_text) = (self.threads.to_string(), until.to_string());
        let more = ["--json", "--quiet", "--watch-stdin", "--threads", &threads, "--pause-after", &until_text];
        words.extend(more.map(str::to_owned));
        let child = Child::start(number, &words, &self.events.0)?;
        self.at_work.insert(number, (child, until));
        Ok(())
    }

    fn take(&mut self, event: Event, interrupt: &AtomicBool) -> Result<(), Failure> {
        match event {
            Event::Line(number, line) => {
                if let Some(line) = line
                    .as_object()
                    .filter(|line| line.get("kind").is_some_and(|kind| kind == "epoch" || kind == "eval"))
                {
                    self.trials[number].take(line, self.read.monitor.name());
                    self.draw_bar();
                }
            }
            Event::Warning(number, text) => {
                if self.warned.insert(text.clone()) {
                    say(&format!("warning: trial {}: {text}", number + 1));
                }
            }
            Event::Ended(number, end) => {
                let interrupted = end.is_interruption() && comes_soon(interrupt);
                self.ended(number, &end, interrupted)?;
            }
        }
        Ok(())
    }

    /// Takes in what a trial has come to.
    fn ended(&mut self, number: usize, end: &End, interrupted: bool) -> Result<(), Failure> {
        let Some((_, until)) = self.at_work.remove(&number) else { return Ok(()) };
        let asked_to_stop = self.stopped.remove(&number) || interrupted;
        let trial = &mut self.trials[number];
        trial.look(self.read.monitor.name(), self.checked[number].epochs)?;
        let why = match (end.status.code(), &end.error) {
            (Some(0), _) if trial.course.reached(until) || asked_to_stop => None,
            (Some(0), _) => Some("it ended before its time".into()),
            (Some(INTERRUPTED), _) if asked_to_stop => None,
            (Some(INTERRUPTED), _) => Some("it was interrupted".into()),
            (Some(_), Some(error)) => Some(error.clone()),
            (Some(code), None) => Some(format!("it ended with exit code {code}")),
            (None, _) if asked_to_stop => None,
            (None, _) => Some(format!("its process was killed ({})", end.status)),
        };
        // What the run itself has written down comes first: it is there when the sweep goes on, too.
        trial.failed = trial.failed.take().or(why);
        trial.course.ended |= trial.failed.is_some();
        if let Some(why) = &self.trials[number].failed {
            self.record.trials[number].failed = Some(why.clone());
            self.record.write(&self.folder)?;
        }
        self.say_of(number, asked_to_stop);
        self.draw_bar();
        Ok(())
    }

    /// A line about a trial that has ended, or has come as far as it was to.
    fn say_of(&self, number: usize, asked_to_stop: bool) {
        let trial = &self.trials[number];
        let of = format!("trial {} ({})", number + 1, words(&self.read.values[number]));
        if let Some(why) = &trial.failed {
            say(&format!("{of} failed: {}", why.lines().next().unwrap_or_default()));
            return;
        }
        if self.args.quiet {
            return;
        }
        let monitor = self.read.monitor.name();
        let best = trial.course.best(u64::MAX, self.better()).map(|(best, epoch)| {
            let at = match trial.best_steps.get(&epoch).filter(|_| self.checked[number].counts_steps()) {
                Some(step) => format!("step {step}"),
                None => format!("epoch {epoch}"),
            };
            format!(", {monitor} {} at {at}", formatted(monitor, best.value))
        });
        let stopped = if asked_to_stop { ", stopped" } else { "" };
        say(&format!("{of}: {}{}{stopped}", self.progress(number), best.unwrap_or_default()));
    }

    /// How much of a trial is done, in words.
    fn progress(&self, number: usize) -> String {
        let (trial, checked) = (&self.trials[number], &self.checked[number]);
        match checked.length {
            Length::Steps(all) => format!("{} of {all} steps", trial.step),
            Length::Epochs(_) => format!("{} of {} epochs", trial.course.epochs, checked.epochs),
        }
    }

    /// Draws the bar: trials that are done, and the best so far.
    fn draw_bar(&self) {
        let Some(bar) = &self.bar else { return };
        let verdicts = self.verdicts();
        let done = verdicts.iter().filter(|v| matches!(v, Verdict::Done | Verdict::Out { .. })).count();
        bar.set(done as u64);
        let best = |i: usize| self.trials[i].course.best(u64::MAX, self.better()).map(|(best, _)| best.value);
        let values = (0..self.trials.len()).filter_map(best);
        let best = values.reduce(|a, b| if self.better().is(b, a) { b } else { a });
        let monitor = self.read.monitor.name();
        let mut parts = vec![(1, format!("{done}/{}", self.trials.len()))];
        parts.extend(best.map(|value| (0, format!("best {monitor} {}", formatted(monitor, value)))));
        let place = |i: &usize| match self.checked[*i].length {
            Length::Steps(all) => format!("step {}/{all}", self.trials[*i].step),
            Length::Epochs(_) => format!("epoch {}/{}", self.trials[*i].course.epochs + 1, self.checked[*i].epochs),
        };
        let at_work: Vec<String> = self.at_work.keys().map(|i| format!("trial {} at {}", i + 1, place(i))).collect();
        parts.push((2, at_work.join(", ")));
        bar.show(&parts);
    }
}

/// Whether this process is interrupted, too: Ctrl-C goes to all processes of a terminal, and a trial may have ended before this one knows of it.
fn comes_soon(interrupt: &AtomicBool) -> bool {
    let asked = || interrupt.load(Ordering::Relaxed);
    let end = Instant::now() + SOON;
    while !asked() && Instant::now() < end {
        std::thread::sleep(LOOK / 10);
    }
    asked()
}

/// Whether `--set` names a key of `[sweep]`, which a trial has not got.
fn is_of_sweep(set: &str) -> bool {
    let key = set.split(['=', '.']).next().unwrap_or_default();
    key.trim().trim_matches(['"', '\'']) == "sweep"
}
