//! `runner lr-find`: a learning rate that rises from step to step, and what becomes of the loss.

use super::args::LrFindArgs;
use crate::api::failure::{Failure, refused};
use crate::api::memory::{Planned, resolve_batch};
use crate::api::model::{build_run, describe_data, load_config, read_weights, say_notes, training_device};
use crate::api::samples;
use crate::data::{DataSpec, Footprint};
use crate::plan::Plan;
use crate::terminal::{Bar, say};
use crate::train::files::weights;
use crate::train::run::sweep::{Sweep, Tried, steepest, sweep};
use crate::train::setup::balance::balance;
use crate::train::setup::input;
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::photos::{Keeping, PhotoPlan};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// Columns and rows of the plot, its axes not counted.
const COLUMNS: usize = 60;
const ROWS: usize = 14;

/// Tries the learning rates, and shows the losses with a suggestion.
pub(super) fn run(args: &LrFindArgs) -> Result<ExitCode, Failure> {
    if args.to <= args.from {
        return Err(Failure::Usage(format!(
            "the learning rates go from {} to {}: the last must be above the first",
            args.from, args.to
        )));
    }
    let mut loaded = load_config(&args.config, &args.overrides.sets())?;
    // The rate that is reported is the one that is used.
    loaded.experiment.optimizer.rule.without_warmup();
    let backend = training_device(&loaded.experiment, args.threads)?;
    let described = describe_data(&loaded)?;
    let passes = args.passes.options();
    if let Some(note) = resolve_batch(&mut loaded, &described, backend.as_ref(), &passes)? {
        say(&note);
    }
    let programs = build_run(&loaded, &described, backend.as_ref(), &passes, &[])?;
    let weights = read_weights(&loaded, &programs.plan.variables, &described)?;
    let photos = PhotoPlan::new(&loaded.experiment, &described, true);
    let require = |data: &DataSpec, plan: &Plan, footprint: Footprint| {
        let needs = Needs::of_run(&loaded.experiment, data, footprint, true);
        Planned { loaded: &loaded, data, plan, backend: backend.as_ref(), what: Use::Training, needs, passes: &passes }
            .require()
    };
    require(&described, &programs.plan, photos.with(input::footprint(&loaded.experiment)))?;
    let mut samples = samples::load(&loaded.experiment, &samples::as_configured(&loaded.experiment))
        .map_err(|error| refused(&loaded, error))?;
    if let Some(note) = &samples.note {
        say(&format!("warning: {note}"));
    }
    samples.keep_photos(&loaded.experiment, Keeping::Training)?;
    let mut balanced = loaded.clone();
    balance(&mut balanced.experiment, &samples.train, &samples.spec);
    // The files may hold another number of samples than the set is known to have.
    let programs = build_run(&balanced, &samples.spec, backend.as_ref(), &passes, &programs.warnings)?;
    require(&samples.spec, &programs.plan, photos.with(samples.footprint()))?;
    let experiment = &balanced.experiment;
    let mut session = weights::session(weights, programs, backend.as_ref(), experiment)?;
    say_notes(backend.as_ref());

    let range = Sweep { from: args.from, to: args.to, steps: args.tries as usize };
    let bar = Bar::new("learning rates", range.steps as u64, 0);
    let tried = sweep(&mut session, backend.as_ref(), experiment, &samples.train, range, |tried| {
        if let (Some(bar), Some(last)) = (&bar, tried.last()) {
            bar.set(tried.len() as u64);
            bar.show(&[(0, format!("lr {:.1e}", last.lr)), (1, format!("loss {:.4}", last.smooth))]);
        }
    })?;
    drop(bar);
    let best = steepest(&tried);
    let lowest = tried.iter().min_by(|a, b| a.smooth.total_cmp(&b.smooth)).copied();
    if args.output.json {
        let point = |t: &Tried| json!({ "lr": t.lr, "loss": t.loss, "smoothed": t.smooth });
        super::print_json(&json!({
            "config": args.config,
            "device": backend.describe(),
            "suggestion": best.map(|t| rounded(t.lr)),
            "lowest": lowest.as_ref().map(point),
            "tried": tried.iter().map(point).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print(&report(&tried, best, lowest, range))?;
    Ok(ExitCode::SUCCESS)
}

/// The report on the rates.
fn report(tried: &[Tried], best: Option<Tried>, lowest: Option<Tried>, range: Sweep) -> String {
    let (Some(lowest), Some(last)) = (lowest, tried.last()) else {
        return format!("the loss is not finite at the first learning rate, {:.1e}\n", range.from);
    };
    let mut text = plot(tried);
    if tried.len() < range.steps {
        let _ = writeln!(text, "the loss grows out of bounds at a learning rate of {:.1e}", last.lr);
    }
    let _ = writeln!(text, "lowest smoothed loss: {:.4}, at {:.1e}", lowest.smooth, lowest.lr);
    let _ = match best {
        Some(best) => {
            writeln!(text, "steepest descent: at {lr:e}\nsuggestion: --set optimizer.lr={lr:e}", lr = rounded(best.lr))
        }
        None => writeln!(text, "no suggestion: the loss falls nowhere; try other rates by --from and --to"),
    };
    text
}

/// With two digits: the sweep is not more precise.
fn rounded(lr: f64) -> f64 {
    format!("{lr:.1e}").parse().unwrap_or(lr)
}

/// The smoothed loss over the logarithm of the rate.
fn plot(tried: &[Tried]) -> String {
    let ends = tried.first().zip(tried.last()).map(|(first, last)| (first.lr.ln(), last.lr.ln(), first.smooth));
    let Some((from, to, start)) = ends else { return String::new() };
    let low = tried.iter().fold(f64::INFINITY, |low, t| low.min(t.smooth));
    // What lies far above where it began is of no interest, and would flatten the rest.
    let limit = start + 0.3 * (start - low).max(1e-6);
    let high = tried.iter().fold(low, |high, t| high.max(t.smooth.min(limit)));
    let mut cells = vec![[false; COLUMNS]; ROWS];
    for t in tried {
        let share =
            |x: f64, from: f64, to: f64| if to > from { ((x - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 };
        let column = (share(t.lr.ln(), from, to) * (COLUMNS - 1) as f64).round() as usize;
        let row = ((1.0 - share(t.smooth, low, high)) * (ROWS - 1) as f64).round() as usize;
        cells[row][column] = true;
    }
    let mut text = String::from("smoothed loss\n");
    for (i, row) in cells.iter().enumerate() {
        let label = match i {
            0 => format!("{high:.3}"),
            i if i == ROWS - 1 => format!("{low:.3}"),
            _ => String::new(),
        };
        let line: String = row.iter().map(|set| if *set { '•' } else { ' ' }).collect();
        let _ = writeln!(text, "{label:>9} │{}", line.trim_end());
    }
    let _ = writeln!(text, "{:>9} └{}", "", "─".repeat(COLUMNS));
    let (from, to) = (format!("{:.1e}", from.exp()), format!("{:.1e}", to.exp()));
    let gap = COLUMNS.saturating_sub(from.len() + to.len());
    let _ = writeln!(text, "{:>11}{from}{}{to}", "", " ".repeat(gap));
    let _ = writeln!(text, "{:>11}{:^COLUMNS$}", "", "learning rate");
    text.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_has_the_curve() {
        let point = |i: i32| Tried { lr: 10f64.powi(i), loss: 0.0, smooth: f64::from((i + 2).abs()) };
        let tried: Vec<Tried> = (-5..=0).map(point).collect();
        let text = plot(&tried);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), ROWS + 4, "{text}");
        assert!(rows[1].starts_with("    3.000 │•") && rows[ROWS].starts_with("    0.000 │"), "{text}");
        // The lowest point is three fifths along the axis.
        let column = rows[ROWS].chars().position(|c| c == '•').unwrap() - 11;
        assert_eq!(column, (0.6 * (COLUMNS - 1) as f64).round() as usize, "{text}");
        assert!(text.contains("1.0e-5") && text.contains("1.0e0"), "{text}");
        assert_eq!(rounded(0.00123456), 1.2e-3);
    }
}
