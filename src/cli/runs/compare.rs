//! `runner compare`: what differs between runs, and what came of it.

use super::grid::Grid;
use super::{as_json, best_text, formatted, name, plot, read};
use crate::api::failure::Failure;
use crate::cli::args::CompareArgs;
use crate::runs::Run;
use crate::runs::curves::curves;
use crate::runs::datum::figures;
use crate::runs::difference::{Difference, differences, shown};
use crate::runs::lines::{Wanted, number};
use crate::terminal::{columns, duration, fitted};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Keys that are shown in a table; the JSON has all.
const MOST_KEYS: usize = 40;
/// Columns of a value.
const MOST_WIDE: usize = 40;

/// Compares runs.
pub fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let runs = read(&args.runs, Wanted::All)?;
    let different = differences(&runs);
    let mut names: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(figures) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let figure = match (&args.metric, runs.iter().find_map(Run::monitor)) {
        (Some(asked), _) => asked,
        (None, Some(monitor)) => monitor,
        (None, None) => "val_loss",
    };
    // What was asked for must be there.
    let found = match curves(&runs, figure) {
        Err(e) if args.metric.is_some() => return Err(Failure::Usage(e)),
        found => found.ok(),
    };
    if args.output.json {
        let different = different.iter().map(|d| json!({ "key": d.key, "values": d.values }));
        let out = json!({
            "runs": runs.iter().map(as_json).collect::<Vec<_>>(),
            "differences": different.collect::<Vec<_>>(),
            "figures": names.iter().map(|name| figure_json(&runs, name)).collect::<Vec<_>>(),
            "curves": found.map(|found| plot::as_json(&runs, &found)),
        });
        crate::cli::print_json(&out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    text += &keys(&runs, &different);
    text += "\n";
    text += &outcome(&runs, &names);
    crate::cli::print(&text)?;
    if let Some(found) = found {
        crate::cli::print(&format!("\n{figure}"))?;
        plot::draw(&runs, &found, args.log)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn figure_json(runs: &[Run], figure: &str) -> Value {
    let best: Vec<Value> = runs
        .iter()
        .map(|run| {
            run.best_figure(figure)
                .map_or(Value::Null, |(value, at)| json!({ "value": value, "epoch": at.epoch, "step": at.step }))
        })
        .collect();
    let last: Vec<Value> = runs.iter().map(|run| json!(run.last().and_then(|line| number(line, figure)))).collect();
    json!({ "figure": figure, "best": best, "last": last })
}

fn head(runs: &[Run], first: &str) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(runs.iter().map(name)).collect()
}

fn keys(runs: &[Run], different: &[Difference]) -> String {
    if different.is_empty() {
        return "the configurations are the same\n".into();
    }
    let mut grid = Grid::new(head(runs, "configuration"), runs.len() + 1);
    for found in different.iter().take(MOST_KEYS) {
        let cell = |value: &Option<Value>| {
            let text = shown(value.as_ref());
            if columns(&text) > MOST_WIDE { fitted(&text, MOST_WIDE) } else { text }
        };
        grid.row(std::iter::once(found.key.clone()).chain(found.values.iter().map(cell)).collect());
    }
    let more = different.len().saturating_sub(MOST_KEYS);
    let rest = if more > 0 { format!("and {more} more, which --json has\n") } else { String::new() };
    grid.text() + &rest
}

fn outcome(runs: &[Run], names: &[String]) -> String {
    let mut grid = Grid::new(head(runs, "outcome"), runs.len() + 1);
    let mut row = |first: String, of: &dyn Fn(&Run) -> String| {
        grid.row(std::iter::once(first).chain(runs.iter().map(of)).collect());
    };
    row("state".into(), &|run| run.state.name().into());
    row("epochs".into(), &Run::progress);
    row("time".into(), &|run| duration(run.seconds));
    row("best".into(), &best_text);
    for name in names {
        row(format!("{name}, best"), &|run| {
            run.best_figure(name).map_or("-".into(), |(value, at)| format!("{} {}", formatted(name, value), at.short()))
        });
        row(format!("{name}, last"), &|run| {
            run.last().and_then(|line| number(line, name)).map_or("-".into(), |value| formatted(name, value))
        });
    }
    grid.text()
}
