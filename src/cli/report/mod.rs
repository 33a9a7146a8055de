//! `runner report`: a page about runs that needs nothing but itself.

mod details;
mod evaluation;
mod explanation;
mod html;
mod page;
mod pictures;
mod texts;

use super::args::ReportArgs;
use super::runs;
use crate::api::failure::Failure;
use crate::api::what::{expect_apart, expect_no_input, expect_no_run_file, output};
use crate::files::output::Output;
use crate::runs::Run;
use crate::runs::lines::Wanted;
use crate::terminal::say;
use crate::train::files::folder::file;
use anyhow::{Context, anyhow};
use details::{Model, Setting, Timing};
use evaluation::Evaluation;
use explanation::Explanation;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A part of a report that could not be made says why.
type Part<T> = Result<T, String>;

/// A run, and what was found out about it; `None` where that was not asked for.
struct Reported {
    run: Run,
    settings: Vec<Setting>,
    evaluation: Option<Part<Evaluation>>,
    explanation: Option<Explanation>,
    model: Part<Model>,
    timing: Option<Part<Timing>>,
}

/// A table before all else, for runs that belong together.
pub struct Lead {
    /// The title of its section.
    pub title: String,
    /// What it shows.
    pub caption: String,
    /// The names of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// Writes a report.
pub(super) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let (reported, out, bytes) = write(args, None)?;
    if args.output.json {
        let one = |reported: &Reported| {
            let mut json = runs::as_json(&reported.run);
            if let Some(Ok(evaluation)) = &reported.evaluation {
                json["evaluation"] =
                    evaluation.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            }
            if let Some(explanation) = &reported.explanation {
                json["explanation"] = explanation.as_json().into();
            }
            json
        };
        let out = out.path().to_string_lossy();
        super::print_json(
            &json!({ "report": out, "bytes": bytes, "runs": reported.iter().map(one).collect::<Vec<_>>() }),
        )?;
    } else if !out.is_standard_output() {
        let size = super::human_bytes(bytes);
        super::print(&format!("the report is in `{}` ({size}): open it in a browser", out.path().display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page about runs that belong together.
///
/// # Errors
/// A run cannot be read, or the page not written.
pub fn of_runs(args: &ReportArgs, lead: &Lead) -> Result<(), Failure> {
    write(args, Some(lead)).map(|_| ())
}

/// Where the page about `runs` is written.
fn place(args: &ReportArgs, runs: &[Run]) -> Result<Output, Failure> {
    let path = match (&args.out, runs) {
        (Some(out), _) => out.clone(),
        (None, [run]) => run.path.join(file::REPORT),
        (None, _) => PathBuf::from(file::REPORT),
    };
    let out = output(&path)?;
    let names = [file::CONFIG, file::METRICS, file::BEST, file::LAST];
    let read: Vec<PathBuf> = runs.iter().flat_map(|run| names.map(|name| run.path.join(name))).collect();
    expect_no_input(&out, read.iter().map(PathBuf::as_path))?;
    expect_no_run_file(&out)?;
    Ok(out)
}

/// Writes the page; what is on it, where it is, and its bytes.
fn write(args: &ReportArgs, lead: Option<&Lead>) -> Result<(Vec<Reported>, Output, usize), Failure> {
    let is_page = |out: &Path| {
        out.extension().is_some_and(|suffix| suffix == "html") || Output::at(out).is_ok_and(|out| out.is_stream())
    };
    if let Some(out) = args.out.as_deref().filter(|out| !is_page(out)) {
        return Err(Failure::Usage(format!("cannot write `{}`: the format is .html", out.display())));
    }
    let runs = runs::read(&args.runs, Wanted::All)?;
    let out = place(args, &runs)?;
    expect_apart(&out, "--out", args.output.json)?;
    if let Some(first) = runs.first() {
        details::expect_device(first, args)?;
    }
    // A run that cannot be explained is refused before anything else takes time.
    let explained = |run: &Run| args.explain.then(|| explanation::explanation(run, args)).transpose();
    let explanations = runs.iter().map(explained).collect::<Result<Vec<_>, Failure>>()?;
    let mut reported = Vec::new();
    for (run, explanation) in runs.into_iter().zip(explanations) {
        let name = run.path.display().to_string();
        let evaluation = (!args.no_evaluation).then(|| {
            let checkpoint = run.checkpoint().ok_or_else(|| Failure::Other(anyhow!("the run has no checkpoint yet")));
            part(&name, "the evaluation", checkpoint.and_then(|path| evaluation::evaluation(&path, args)))
        });
        let model = part(&name, "layers and memory", details::model(&run, args));
        let timing = (!args.no_timing).then(|| part(&name, "the timing", details::timing(&run, args)));
        reported.push(Reported { settings: details::settings(&run), evaluation, explanation, model, timing, run });
    }
    let text = page::page(&reported, lead);
    let written = out.put(text.as_bytes());
    match out.is_standard_output() {
        true => super::printed(written)?,
        false => written.with_context(|| format!("cannot write `{}`", out.path().display()))?,
    }
    Ok((reported, out, text.len()))
}

/// A part of a report, or why it is missing, with a warning of that.
fn part<T>(run: &str, what: &str, made: Result<T, Failure>) -> Part<T> {
    made.map_err(|failure| {
        let why = failure.in_words();
        say(&format!("warning: the report of `{run}` is without {what}: {why}"));
        why
    })
}
