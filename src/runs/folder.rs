//! A run, as the files in its folder have it.

use super::figure::{higher_is_better, loss_beside};
use super::lines::{Line, Lines, Wanted, number, within};
use crate::checkpoint::{self, Meta};
use crate::files;
use crate::train::files::folder::{file, is_at_work, was_killed};
use crate::train::files::state::Extra;
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A configuration is at most as long as what a checkpoint carries of it, with a note before it.
const MOST_CONFIG: u64 = 64 << 20;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A process is at work in its folder.
    Running,
    /// All is done: all epochs or steps, `max_steps`, or early stopping has ended it.
    Finished,
    /// It was interrupted or killed before its end.
    Stopped,
    /// An error ended it.
    Failed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Running, State::Finished, State::Stopped, State::Failed];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Finished => "finished",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

/// The best value of the monitored figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The figure.
    pub monitor: String,
    /// Its value.
    pub value: f64,
    /// Where the run had it, if its line is there.
    pub at: Option<At>,
}

/// Where a run had a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The epoch, from 1.
    pub epoch: u64,
    /// The step within it; `None`: at its end.
    pub step: Option<u64>,
}

impl At {
    /// The place of a line.
    pub fn of(line: &Line) -> Option<At> {
        let number = |key: &str| line.get(key)?.as_u64();
        Some(At { epoch: number("epoch")?, step: if within(line) { number("step") } else { None } })
    }

    /// After a figure in a table.
    pub fn short(self) -> String {
        match self.step {
            Some(step) => format!("@step {step}"),
            None => format!("@{}", self.epoch),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}"),
            None => write!(f, "epoch {}", self.epoch),
        }
    }
}

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its folder.
    pub path: PathBuf,
    /// Where it stands.
    pub state: State,
    /// What there is to be said of that.
    pub why: Option<String>,
    /// The effective configuration: keys with their dots, and their values, in the order of the alphabet.
    pub config: Vec<(String, Value)>,
    /// Its text.
    pub config_text: String,
    /// What was written down of its course.
    pub lines: Lines,
    /// Epochs that are done.
    pub epochs: u64,
    /// Updates that are done.
    pub step: u64,
    /// The best so far.
    pub best: Option<Best>,
    /// Seconds of training, without evaluation.
    pub seconds: f64,
    /// Bytes of all files in the folder.
    pub bytes: u64,
    /// When something was last written down.
    pub modified: Option<SystemTime>,
    /// What cannot be read of it, besides lines of its metrics.
    pub problems: Vec<String>,
}

/// Whether a folder is that of a run: it has metrics, or a checkpoint to go on from.
pub fn is_run(path: &Path) -> bool {
    [file::METRICS, file::LAST].iter().any(|name| path.join(name).is_file())
}

impl Run {
    /// Reads the files of a folder. What cannot be read of them is among its problems.
    ///
    /// # Errors
    /// Its metrics cannot be read at all.
    pub fn read(path: &Path, wanted: Wanted) -> Result<Run> {
        // Before all else: what ends meanwhile has written its last line by then.
        let at_work = is_at_work(path);
        let metrics = path.join(file::METRICS);
        let lines = Lines::read(&metrics, wanted).context("the metrics of a run")?;
        let mut problems = Vec::new();
        let meta = meta(path, &mut problems);
        let config_text = config_text(path, meta.as_ref(), &mut problems);
        let parsed = |text: &str| toml::from_str::<Map<String, Value>>(text).map(|table| flat(&Value::Object(table)));
        let mut config = parsed(&config_text).unwrap_or_else(|e| {
            problems.push(format!("`{}`: {}", path.join(file::CONFIG).display(), e.message()));
            meta.as_ref().and_then(|meta| parsed(&meta.config).ok()).unwrap_or_default()
        });
        config.extend(meta.as_ref().map(parameters).unwrap_or_default());
        config.sort_by(|a, b| a.0.cmp(&b.0));
        let ended = || lines.epochs.iter().filter(|line| !within(line));
        let last_epoch = ended().filter_map(|line| line.get("epoch")?.as_u64()).max().unwrap_or(0);
        // An epoch that has begun shows by its last evaluation.
        let begun = lines.epochs.last().filter(|line| within(line));
        let seconds =
            ended().chain(begun).filter_map(|line| number(line, "seconds")).filter(|s| s.is_finite()).sum::<f64>()
                + 0.0;
        let mut run = Run {
            path: path.to_path_buf(),
            state: State::Stopped,
            why: None,
            epochs: meta.as_ref().map_or(last_epoch, |meta| meta.epoch),
            step: lines.step().max(meta.as_ref().map_or(0, |meta| meta.step)),
            best: None,
            seconds,
            bytes: size(path, 2, &mut problems),
            modified: fs::metadata(&metrics).and_then(|meta| meta.modified()).ok(),
            config,
            config_text,
            lines,
            problems,
        };
        run.best = run.best_of(meta.as_ref());
        (run.state, run.why) = run.standing(at_work, meta.as_ref());
        Ok(run)
    }

    /// What the configuration has under a key.
    pub fn key(&self, key: &str) -> Option<&Value> {
        self.config.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The figure that `best` is chosen by.
    pub fn monitor(&self) -> Option<&str> {
        self.key("checkpoint.monitor")?.as_str()
    }

    /// Epochs that the run is to have, if its length is given in epochs.
    pub fn all_epochs(&self) -> Option<u64> {
        self.key("train.epochs")?.as_u64()
    }

    /// Steps that the run is to have, if its length is given in steps.
    pub fn all_steps(&self) -> Option<u64> {
        self.key("train.steps")?.as_u64()
    }

    /// Epochs done, of how many; or whole epochs, and steps of how many.
    pub fn progress(&self) -> String {
        match (self.all_epochs(), self.all_steps()) {
            (Some(all), _) => format!("{}/{all}", self.epochs),
            (None, Some(all)) => format!("{} ({}/{all} steps)", self.epochs, self.step),
            (None, None) => self.epochs.to_string(),
        }
    }

    /// The last line of an epoch or an evaluation.
    pub fn last(&self) -> Option<&Line> {
        self.lines.epochs.last()
    }

    /// The best value that a figure has had at an epoch's end or an evaluation, and where.
    pub fn best_figure(&self, name: &str) -> Option<(f64, At)> {
        self.best_among(name, |_, _| true)
    }

    /// The line with that value.
    pub fn best_line(&self, name: &str) -> Option<&Line> {
        self.best_line_among(name, |_, _| true).map(|(_, line)| line)
    }

    /// The same among the lines of which that holds, by their steps and values.
    fn best_among(&self, name: &str, counts: impl Fn(u64, f64) -> bool) -> Option<(f64, At)> {
        let (value, line) = self.best_line_among(name, counts)?;
        Some((value, At::of(line)?))
    }

    /// Of equal ones it is that with the least loss, and the first of those, as the run itself has it.
    fn best_line_among(&self, name: &str, counts: impl Fn(u64, f64) -> bool) -> Option<(f64, &Line)> {
        let (higher, beside) = (higher_is_better(name), loss_beside(name));
        let values = self.lines.epochs.iter().filter_map(|line| {
            let (value, step) = (number(line, name)?, line.get("step").and_then(Value::as_u64).unwrap_or(0));
            let loss = beside.as_ref().and_then(|beside| number(line, beside)).filter(|loss| loss.is_finite());
            (value.is_finite() && counts(step, value) && At::of(line).is_some()).then_some((value, loss, line))
        });
        let best = values.reduce(|best, next| {
            let less = next.1.zip(best.1).is_some_and(|(loss, least)| loss < least);
            let better = if higher { next.0 > best.0 } else { next.0 < best.0 };
            if better || next.0 == best.0 && less { next } else { best }
        });
        best.map(|(value, _, line)| (value, line))
    }

    /// The best checkpoint, where there is one; else the newest.
    pub fn checkpoint(&self) -> Option<PathBuf> {
        [file::BEST, file::LAST].into_iter().map(|name| self.path.join(name)).find(|path| path.is_file())
    }

    fn best_of(&self, meta: Option<&Meta>) -> Option<Best> {
        // A run that has gone on with another figure, or from a checkpoint before its best, has chosen anew: its best, and those after it.
        let known = meta.and_then(|meta| meta.best.as_ref());
        let from = meta.and_then(Extra::of).map_or(0, |extra| extra.best_from);
        let of_lines = self.monitor().and_then(|monitor| {
            let known = known.filter(|best| best.monitor == monitor).map(|best| best.value);
            let (value, at) = self.best_among(monitor, |step, value| step >= from || Some(value) == known)?;
            Some(Best { monitor: monitor.to_owned(), value, at: Some(at) })
        });
        // Lines may be lost that the checkpoint knows of.
        of_lines.or_else(|| {
            let best = meta?.best.clone()?;
            Some(Best { monitor: best.monitor, value: best.value, at: None })
        })
    }

    fn standing(&self, at_work: bool, meta: Option<&Meta>) -> (State, Option<String>) {
        if at_work {
            return (State::Running, None);
        }
        if let Some(why) = &self.lines.failed {
            return (State::Failed, Some(why.clone()));
        }
        let number = |key: &str| self.key(key).and_then(Value::as_u64);
        if self.all_epochs().is_some_and(|all| self.epochs >= all) {
            return (State::Finished, None);
        }
        // Its end is an evaluation, which may be still to come.
        let evaluated = meta.and_then(|meta| meta.extra.get("evaluated")?.as_u64()).unwrap_or(0);
        if self.all_steps().is_some_and(|all| evaluated >= all) {
            return (State::Finished, None);
        }
        if let Some(most) = number("train.max_steps").filter(|most| self.step >= *most) {
            return (State::Finished, Some(format!("`max_steps` is {most}")));
        }
        let waited = meta.and_then(|meta| meta.extra.get("early_waited")?.as_u64());
        if let (Some(waited), Some(patience)) = (waited, number("train.early_stopping.patience"))
            && waited >= patience
        {
            return (State::Finished, Some("stopped early".into()));
        }
        let why = if was_killed(&self.path) { "its process was killed" } else { "interrupted" };
        (State::Stopped, Some(why.into()))
    }
}

/// The state in the newest checkpoint; its header alone is read.
fn meta(path: &Path, problems: &mut Vec<String>) -> Option<Meta> {
    let last = path.join(file::LAST);
    if !files::is_there(&last) {
        return None;
    }
    checkpoint::peek(&last).map_err(|e| problems.push(e.to_string())).ok()
}

/// The parameters that a run was given, of which its configuration has what came of them.
fn parameters(meta: &Meta) -> Vec<(String, Value)> {
    let sets = Extra::of(meta).map(|extra| extra.started.sets).unwrap_or_default();
    let given = sets.iter().filter_map(|set| set.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
    let value = |text: &str| {
        let table = toml::from_str::<Map<String, Value>>(&format!("value = {text}"));
        table.ok().and_then(|mut table| table.remove("value")).unwrap_or_else(|| text.into())
    };
    let of = given.filter(|(key, _)| key.starts_with("params."));
    of.map(|(key, text)| (key.to_owned(), value(text))).collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn config_text(path: &Path, meta: Option<&Meta>, problems: &mut Vec<String>) -> String {
    let own = path.join(file::CONFIG);
    let text = files::read(&own, MOST_CONFIG).map_err(|e| e.to_string());
    match text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| format!("`{}` is no text", own.display()))) {
        Ok(text) => text,
        Err(problem) => match meta {
            Some(meta) => meta.config.clone(),
            None => {
                problems.push(problem);
                String::new()
            }
        },
    }
}

/// The values of a configuration's text under their keys; `None`: it is none.
pub fn values(config: &str) -> Option<BTreeMap<String, Value>> {
    let table: Map<String, Value> = toml::from_str(config).ok()?;
    Some(flat(&Value::Object(table)).into_iter().collect())
}

/// The values of a configuration under their keys: `data.batch_size`, `model.layers[3].type`. A list of plain values is one value.
pub fn flat(value: &Value) -> Vec<(String, Value)> {
    fn add(key: &str, value: &Value, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (name, value) in entries {
                    add(&if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, value, out);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                items.iter().enumerate().for_each(|(i, item)| add(&format!("{key}[{i}]"), item, out));
            }
            value if !key.is_empty() => out.push((key.to_owned(), value.clone())),
            _ => {}
        }
    }
    let mut out = Vec::new();
    add("", value, &mut out);
    out
}

/// Bytes of the files in a folder and, down to `depth`, in folders inside. Errors go to `problems`. A file that has gone in the meantime, as
/// files of a run that is at work do, counts for nothing.
fn size(path: &Path, depth: usize, problems: &mut Vec<String>) -> u64 {
    let mut bytes = 0;
    let mut add = || -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() && depth > 0 => bytes += size(&entry.path(), depth - 1, problems),
                Ok(meta) if meta.is_file() => bytes += meta.len(),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    };
    match add() {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            problems.push(format!("the size of `{}` is not known as a whole: {e}", path.display()));
        }
        _ => {}
    }
    bytes
}

#[cfg(test)]
mod tests;
