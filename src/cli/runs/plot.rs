//! `runner plot`: curves in the terminal.

use super::{name, read};
use crate::api::failure::Failure;
use crate::cli::args::PlotArgs;
use crate::runs::Run;
use crate::runs::curves::{Curve, curves};
use crate::runs::lines::Wanted;
use crate::terminal::{self, Look, Series, Stream, chart, visible};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lines of the curves.
const HEIGHT: usize = 16;

/// Draws a figure of runs.
pub fn run(args: &PlotArgs) -> Result<ExitCode, Failure> {
    let runs = read(&args.runs, Wanted::All)?;
    let found = curves(&runs, &args.metric).map_err(Failure::Usage)?;
    if args.output.json {
        crate::cli::print_json(&json!({ "curves": as_json(&runs, &found) }))?;
    } else {
        draw(&runs, &found, args.log)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints curves, as wide as the terminal.
pub fn draw(runs: &[Run], found: &[Curve], log: bool) -> Result<(), Failure> {
    let look = Look {
        width: terminal::width(Stream::Out),
        height: HEIGHT,
        unicode: terminal::unicode(),
        color: terminal::color(Stream::Out),
        log,
    };
    let series: Vec<Series> = found
        .iter()
        .map(|curve| {
            let name = match runs.len() {
                1 => curve.figure.clone(),
                _ => format!("{} {}", name(&runs[curve.run]), curve.figure),
            };
            Series { name: visible(&name).replace('\n', " "), points: curve.points.clone() }
        })
        .collect();
    let text = chart(&series, &look).join("\n") + "\n";
    crate::cli::printed(match look.color {
        true => terminal::print_styled(&text),
        false => terminal::print(&text),
    })
}

/// Curves as JSON: a number that is none is null.
pub fn as_json(runs: &[Run], found: &[Curve]) -> Value {
    let one = |curve: &Curve| {
        let points: Vec<Value> = curve.points.iter().map(|(step, value)| json!([*step as u64, value])).collect();
        json!({ "run": name(&runs[curve.run]), "figure": curve.figure, "points": points })
    };
    found.iter().map(one).collect()
}
