//! `runner runs`, and what all commands over runs have in common.

pub mod compare;
pub mod grid;
mod mlflow;
pub mod plot;

use super::args::RunsArgs;
use crate::api::failure::Failure;
use crate::runs::choose::{best, keep, sort};
use crate::runs::datum::{Datum, datum, is_figure};
use crate::runs::figure::is_share;
use crate::runs::find::{RUNS, below, named};
use crate::runs::lines::{Wanted, number};
use crate::runs::{Run, State};
use crate::terminal::{Stream, duration, figure, human_bytes, one_line, percent, say, shows_output, width};
use crate::train::files::folder::file;
use grid::Grid;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Lines of a file that are reported one by one.
const MOST_LISTED: usize = 3;

/// Lists runs.
pub(super) fn run(args: &RunsArgs) -> Result<ExitCode, Failure> {
    let root = args.folder.as_deref().unwrap_or(Path::new(RUNS));
    if !root.is_dir() {
        return Err(Failure::Usage(match &args.folder {
            Some(folder) if folder.exists() => format!("`{}` is not a folder", folder.display()),
            Some(folder) => format!("there is no folder `{}`", folder.display()),
            None => format!(
                "there is no folder `{RUNS}` here, where `runner train` puts runs\nhelp: name the folder that yours are in"
            ),
        }));
    }
    let mut runs = Vec::new();
    // A list needs no line of every update.
    let wanted = if args.mlflow.is_some() { Wanted::All } else { Wanted::Epochs };
    for path in below(root)? {
        match Run::read(&path, wanted) {
            Ok(run) => {
                warn(&run);
                runs.push(run);
            }
            Err(e) => say(&format!("warning: `{}` is left out: {e:#}", path.display())),
        }
    }
    let all = runs.len();
    keep(&mut runs, &args.filter).map_err(Failure::Usage)?;
    if let Some(key) = &args.sort {
        sort(&mut runs, key).map_err(Failure::Usage)?;
    }
    if args.reverse {
        runs.reverse();
    }
    if args.best && !runs.is_empty() {
        let chosen =
            if args.sort.is_some() { runs[0].clone() } else { best(runs.iter()).map_err(Failure::Usage)?.clone() };
        runs = vec![chosen];
    }
    if let Some(url) = &args.mlflow {
        let server = mlflow::Server::at(url);
        for run in &runs {
            let id = server.send(run)?;
            say(&format!("sent `{}` as {id}", one_line(&run.path.to_string_lossy())));
        }
    }
    if args.output.json {
        super::print_json(&runs.iter().map(as_json).collect())?;
    } else if runs.is_empty() {
        let nothing = if all == 0 { "there are no runs" } else { "no run meets the conditions" };
        super::print(&format!("{nothing} below `{}`", root.display()))?;
    } else {
        super::print(&as_text(&runs, args.sort.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the runs that are named on the command line, each once.
///
/// # Errors
/// One of them is none.
pub fn read(words: &[PathBuf], wanted: Wanted) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    for word in words {
        let path = named(word).map_err(Failure::Usage)?;
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if runs.iter().any(|run| whole(&run.path) == whole(&path)) {
            return Err(Failure::Usage(format!("the run `{}` is named twice", path.display())));
        }
        let run = Run::read(&path, wanted)?;
        warn(&run);
        runs.push(run);
    }
    Ok(runs)
}

/// Says what cannot be read of a run.
fn warn(run: &Run) {
    for problem in &run.problems {
        say(&format!("warning: {problem}"));
    }
    let path = run.path.join(file::METRICS);
    for (line, why) in run.lines.broken.iter().take(MOST_LISTED) {
        say(&format!("warning: `{}`, line {line}, {why}: it is left out", path.display()));
    }
    let more = run.lines.broken.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        say(&format!("warning: `{}` has {more} more lines that cannot be read", path.display()));
    }
}

/// What a run is called in tables: its folder.
fn name(run: &Run) -> String {
    run.path.to_string_lossy().into_owned()
}

/// A figure as tables show it.
fn formatted(name: &str, value: f64) -> String {
    if is_share(name) { percent(value) } else { figure(value, 5, 9) }
}

fn best_text(run: &Run) -> String {
    run.best.as_ref().map_or("-".into(), |best| {
        let at = best.at.map_or(String::new(), |at| format!(" {}", at.short()));
        format!("{} {}{at}", best.monitor, formatted(&best.monitor, best.value))
    })
}

/// The figure of a run besides its losses: the one it is watched by or, where that is a loss, the usual one of its task.
fn own_figure(run: &Run) -> Option<&str> {
    let line = run.last()?;
    let monitored = run.monitor().filter(|name| !name.ends_with("_loss"));
    monitored.into_iter().chain(["val_accuracy", "val_rmse"]).find(|name| line.contains_key(*name))
}

/// The column of the table that shows what a key of `--sort` stands for, if it has one in any case.
fn column_of(key: &str) -> &str {
    match key {
        "name" => "run",
        "seconds" => "time",
        key => key,
    }
}

/// What a run has under a key, as tables show it.
fn shown(run: &Run, key: &str) -> String {
    match datum(run, key) {
        None => "-".into(),
        Some(Datum::Text(text)) => text,
        Some(Datum::Number(_)) if key == "modified" => {
            let age = run.modified.and_then(|time| time.elapsed().ok()).unwrap_or_default();
            format!("{} ago", duration(age.as_secs_f64()))
        }
        Some(Datum::Number(value)) if is_figure(run, key) => formatted(key.strip_prefix("best.").unwrap_or(key), value),
        Some(Datum::Number(value)) => value.to_string(),
    }
}

/// The table. It has a column for the key that it is sorted by, and on a terminal no more than there is room for.
fn as_text(runs: &[Run], sort: Option<&str>) -> String {
    // The last of what most runs have; more is in the JSON.
    let last: Vec<&str> = ["train_loss", "val_loss"]
        .into_iter()
        .filter(|name| runs.iter().any(|run| run.last().is_some_and(|line| line.contains_key(*name))))
        .collect();
    let mut figures: Vec<&str> = runs.iter().filter_map(own_figure).collect();
    figures.dedup();
    // Runs of several tasks have a name beside each figure.
    let own = match figures[..] {
        [] => None,
        [one] => Some(one),
        _ => Some("figure"),
    };
    let mut head: Vec<&str> = ["run", "state", "epochs", "best"].into_iter().chain(last.iter().copied()).collect();
    head.extend(own.into_iter().chain(["time", "size"]));
    let sort = sort.map(column_of);
    let more = sort.filter(|key| !head.contains(key));
    head.extend(more);
    let mut grid = Grid::new(head.into_iter().map(str::to_owned).collect(), 2);
    grid.left(3);
    for run in runs {
        let figure =
            |key: &&str| run.last().and_then(|line| number(line, key)).map_or("-".into(), |v| formatted(key, v));
        let mut cells = vec![name(run), run.state.name().into(), run.progress(), best_text(run)];
        cells.extend(last.iter().map(figure));
        cells.extend(own.map(|head| match own_figure(run) {
            Some(name) if name != head => format!("{name} {}", figure(&name)),
            Some(name) => figure(&name),
            None => "-".into(),
        }));
        cells.extend([duration(run.seconds), human_bytes(usize::try_from(run.bytes).unwrap_or(usize::MAX))]);
        cells.extend(more.map(|key| shown(run, key)));
        grid.row(cells);
    }
    if shows_output() {
        // What is left out is in the JSON.
        let mut spare = vec!["train_loss", "size", "val_loss", own.unwrap_or_default(), "time"];
        spare.retain(|name| Some(*name) != sort);
        grid.narrow(width(Stream::Out), &spare);
    }
    let mut text = grid.text();
    for run in runs.iter().filter(|run| run.state == State::Failed) {
        let why = run.why.as_deref().unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        text.push_str(&format!("`{}` failed: {why}\n", name(run)));
    }
    text
}

/// A run as JSON.
pub fn as_json(run: &Run) -> Value {
    let figures = |line: &Map<String, Value>| {
        let kept = line.iter().filter(|(key, _)| *key != "kind");
        kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
    };
    let modified = run.modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let broken = run.lines.broken.iter().map(|(line, why)| json!({ "line": line, "why": why }));
    json!({
        "run": name(run),
        "state": run.state.name(),
        "why": run.why,
        "epochs": run.epochs,
        "all_epochs": run.all_epochs(),
        "all_steps": run.all_steps(),
        "step": run.step,
        "monitor": run.monitor(),
        "best": run.best.as_ref().map(|best| {
            let (epoch, step) = (best.at.map(|at| at.epoch), best.at.and_then(|at| at.step));
            json!({ "figure": best.monitor, "value": best.value, "epoch": epoch, "step": step })
        }),
        "last": run.last().map(figures),
        "seconds": (run.seconds * 1e3).round() / 1e3,
        "bytes": run.bytes,
        "modified": modified.map(|time| time.as_secs()),
        "checkpoint": run.checkpoint().map(|path| path.to_string_lossy().into_owned()),
        "notes": run.lines.notes,
        "problems": run.problems,
        "broken_lines": broken.collect::<Vec<_>>(),
    })
}
