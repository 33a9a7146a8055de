//! What came of a sweep: a table with the best trial first.

use super::checked::{Checked, Read};
use super::trial::Trial;
use crate::cli::report::Lead;
use crate::cli::runs::grid::Grid;
use crate::config::language::sections::Method;
use crate::runs::figure::is_share;
use crate::sweep::Verdict;
use crate::sweep::course::{Better, ranked};
use crate::terminal::{duration, figure, percent};
use crate::train::files::folder::file;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A trial as it is shown.
pub struct Row {
    /// Its number, from 0.
    pub trial: usize,
    values: Vec<(String, Value, String)>,
    best: Option<(f64, u64)>,
    epochs: u64,
    /// Updates that are done, and those after which it was best, where the length is given in updates.
    steps: Option<(u64, Option<u64>)>,
    seconds: f64,
    state: &'static str,
    why: Option<String>,
    folder: String,
    checkpoint: Option<String>,
}

impl Row {
    /// The first line of why it has failed.
    fn first_reason(&self) -> &str {
        self.why.as_deref().unwrap_or_default().lines().next().unwrap_or_default()
    }
}

/// Whether there is a file.
///
/// # Errors
/// The system does not answer that.
pub fn is_there(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(meta) => Ok(meta.is_file()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("cannot look at `{}`", path.display())),
    }
}

/// The rows, the best first.
///
/// # Errors
/// It cannot be found out which checkpoints there are.
pub fn rows(
    read: &Read,
    checked: &[Checked],
    trials: &[Trial],
    verdicts: &[Verdict],
    better: Better,
) -> Result<Vec<Row>> {
    let counted = |i: usize| match verdicts[i] {
        Verdict::Out { after } => after,
        _ => u64::MAX,
    };
    let mut courses: Vec<_> = trials.iter().map(|trial| trial.course.clone()).collect();
    for (i, course) in courses.iter_mut().enumerate() {
        course.values.retain(|epoch, _| *epoch <= counted(i));
    }
    let order = ranked(&courses, &(0..trials.len()).collect::<Vec<_>>(), u64::MAX, better);
    let row = |i: usize| {
        let (trial, last) = (&trials[i], counted(i));
        let seconds = trial.seconds.range(..=last).map(|(_, seconds)| *seconds);
        let (state, why) = match (&trial.failed, verdicts[i]) {
            (Some(why), _) => ("failed", Some(why.clone())),
            (None, Verdict::Out { after }) => ("out", Some(out(read.sweep.method, after))),
            (None, Verdict::Done) => ("finished", trial.early.clone()),
            (None, _) if trial.course.epochs > 0 => ("stopped", None),
            (None, _) if checked[i].counts_steps() && trial.step > 0 => ("stopped", None),
            (None, _) => ("waiting", None),
        };
        let [best, newest] = [file::BEST, file::LAST].map(|name| trial.folder.join(name));
        let checkpoint = match is_there(&best)? {
            true => Some(best),
            false => is_there(&newest)?.then_some(newest),
        };
        let best = courses[i].best(u64::MAX, better).map(|(best, epoch)| (best.value, epoch));
        let best_step = best.and_then(|(_, epoch)| trial.best_steps.get(&epoch).copied());
        Ok(Row {
            trial: i,
            values: read.values[i].iter().map(|v| (v.key.clone(), v.value.clone(), v.toml.clone())).collect(),
            best,
            epochs: trial.course.epochs.min(last),
            steps: checked[i].counts_steps().then_some((trial.step, best_step)),
            // The sum of nothing is -0 in Rust.
            seconds: seconds.sum::<f64>() + 0.0,
            state,
            why,
            folder: trial.folder.display().to_string(),
            checkpoint: checkpoint.map(|path| path.display().to_string()),
        })
    };
    order.into_iter().map(row).collect()
}

fn out(method: Method, after: u64) -> String {
    match method {
        Method::Halving => format!("halved after epoch {after}"),
        _ => format!("below the median after epoch {after}"),
    }
}

/// A figure as tables show it.
pub fn formatted(monitor: &str, value: f64) -> String {
    if is_share(monitor) { percent(value) } else { figure(value, 5, 9) }
}

fn cells(row: &Row, monitor: &str) -> Vec<String> {
    let (at, done) = match row.steps {
        Some((steps, best)) => (best, steps),
        None => (row.best.map(|(_, epoch)| epoch), row.epochs),
    };
    let best = [row.best.map(|(value, _)| formatted(monitor, value)), at.map(|at| at.to_string())];
    let best = best.map(|cell| cell.unwrap_or("-".into()));
    let state = match (&row.why, row.state) {
        (Some(why), "out" | "finished") => format!("{}: {why}", row.state),
        _ => row.state.to_owned(),
    };
    let values = row.values.iter().map(|(.., toml)| toml.clone());
    let mut cells = vec![(row.trial + 1).to_string()];
    cells.extend(values.chain(best).chain([done.to_string(), duration(row.seconds), state]));
    cells
}

fn head(rows: &[Row], monitor: &str) -> Vec<String> {
    let keys = rows.first().into_iter().flat_map(|row| row.values.iter().map(|(key, ..)| key.clone()));
    // Every trial assigns the same keys, so all lengths have the same unit.
    let [at, done] = match rows.first().and_then(|row| row.steps) {
        Some(_) => ["at step", "steps"],
        None => ["at epoch", "epochs"],
    };
    let more = [monitor, at, done, "time", "state"].map(str::to_owned);
    std::iter::once("trial".to_owned()).chain(keys).chain(more).collect()
}

/// The table for people.
pub fn as_text(rows: &[Row], monitor: &str) -> String {
    let head = head(rows, monitor);
    let last = head.len() - 1;
    let mut grid = Grid::new(head, 0);
    grid.left(last);
    rows.iter().for_each(|row| grid.row(cells(row, monitor)));
    let mut text = grid.text();
    for row in rows.iter().filter(|row| row.state == "failed") {
        text += &format!("trial {} failed: {}\n", row.trial + 1, row.first_reason());
    }
    if let Some((best, checkpoint)) =
        rows.first().filter(|row| row.best.is_some()).and_then(|row| Some((row, row.checkpoint.as_ref()?)))
    {
        let of_best = Path::new(checkpoint).file_name().is_some_and(|name| name == file::BEST);
        let note =
            if of_best { "" } else { ", the newest, and not that of this figure: its `best.safetensors` is gone" };
        text += &format!("the best is trial {}: `{checkpoint}`{note}\n", best.trial + 1);
    }
    text
}

/// The same at the head of a report.
pub fn lead(rows: &[Row], monitor: &str, method: Method) -> Lead {
    let with_reason = |row: &Row| {
        let mut cells = cells(row, monitor);
        let last = cells.last_mut().filter(|_| row.state == "failed");
        last.into_iter().for_each(|state| *state = format!("{state}: {}", row.first_reason()));
        cells
    };
    Lead {
        title: "Sweep".into(),
        caption: format!("{} trials ({}), the best first", rows.len(), method.name()),
        head: head(rows, monitor),
        rows: rows.iter().map(with_reason).collect(),
    }
}

/// The table for programs.
pub fn as_json(rows: &[Row], read: &Read, folder: &Path, report: Option<&Path>) -> Value {
    let finite = |value: f64| value.is_finite().then_some(value);
    let one = |(rank, row): (usize, &Row)| {
        let values: Map<String, Value> =
            row.values.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        json!({
            "rank": rank + 1,
            "trial": row.trial + 1,
            "values": values,
            "value": row.best.and_then(|(value, _)| finite(value)),
            "best_epoch": row.best.map(|(_, epoch)| epoch),
            "epochs": row.epochs,
            "best_step": row.steps.and_then(|(_, best)| best),
            "steps": row.steps.map(|(steps, _)| steps),
            "seconds": (row.seconds * 1e3).round() / 1e3,
            "state": row.state,
            "why": row.why,
            "run": row.folder,
            "checkpoint": row.checkpoint,
        })
    };
    let trials: Vec<Value> = rows.iter().enumerate().map(one).collect();
    json!({
        "sweep": folder.to_string_lossy(),
        "method": read.sweep.method.name(),
        "monitor": read.monitor.name(),
        "best": rows.first().filter(|row| row.best.is_some()).map(|_| trials[0].clone()),
        "trials": trials,
        "report": report.map(|path| path.to_string_lossy()),
    })
}
