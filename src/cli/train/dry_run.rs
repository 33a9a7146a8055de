//! `runner train --dry-run`: one of everything that a run does, in a folder that is gone afterwards.

use super::super::args::TrainArgs;
use super::super::time::took;
use super::interrupt::{INTERRUPTED, asked_to_stop};
use crate::api::failure::Failure;
use crate::api::train::{Ready, Request, rehearse};
use crate::checkpoint;
use crate::terminal::{figure, human_bytes, percent, say};
use crate::train::files::folder::file;
use crate::train::files::state::restore;
use crate::train::run::Run;
use crate::train::run::rehearsal::Made;
use crate::train::setup::figures::Figures;
use crate::train::setup::session::Session;
use anyhow::Context;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The stages that were done, as they are reported.
struct Report {
    json: bool,
    quiet: bool,
    stages: Vec<Value>,
}

impl Report {
    /// Takes in that `stage` is done: `words` say to people what it was, and the entries of `facts` say it to programs.
    fn done(&mut self, stage: &str, time: Duration, words: &str, mut facts: Value) -> Result<(), Failure> {
        let seconds = time.as_secs_f64();
        let name = match facts["step"].as_u64() {
            Some(step) => format!("{stage} {step}"),
            None => stage.to_owned(),
        };
        facts["stage"] = stage.into();
        facts["seconds"] = ((seconds * 1e4).round() / 1e4).into();
        self.stages.push(facts);
        if self.json || self.quiet {
            return Ok(());
        }
        crate::cli::print(&format!("{name:<10} {:>9}  {words}", took(seconds)))
    }
}

/// Does one of everything, and reports the time of each.
///
/// # Errors
/// Whatever a run would fail with.
pub fn run(request: &Request, args: &TrainArgs) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    // From before it has a folder of its own, which is removed at the end.
    let interrupt = asked_to_stop(|| say("interrupted: stopping after this step; a dry run saves nothing"))?;
    rehearse(request, |ready| each(ready, args, began.elapsed(), &interrupt))
}

/// The same with a run that is ready; `prepared` is what everything before has taken.
fn each(ready: Ready, args: &TrainArgs, prepared: Duration, interrupt: &AtomicBool) -> Result<ExitCode, Failure> {
    let Ready { mut run, programs, .. } = ready;
    let mut report = Report { json: args.output.json, quiet: args.quiet, stages: Vec::new() };
    let (train, val) = (run.samples.train.len(), run.samples.val.len());
    let words = format!("configuration, model and data: {train} training and {val} validation samples");
    report.done("prepare", prepared, &words, json!({ "train_samples": train, "val_samples": val }))?;
    let stopped = || interrupt.load(Ordering::Relaxed);

    if stopped() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let began = Instant::now();
    let made = run.one_update().context("the first step of a dry run")?;
    report_update(&mut report, "step", began, made)?;

    if stopped() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let began = Instant::now();
    match run.evaluate_one_batch().context("the evaluation of a dry run")? {
        Some((samples, figures)) => {
            let words = format!("a batch of {samples}: {}", in_words(&figures));
            report.done("evaluation", began.elapsed(), &words, json!({ "samples": samples, "figures": figures }))?;
        }
        None => report.done("evaluation", began.elapsed(), "there is nothing to validate on", json!({}))?,
    }

    if stopped() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let began = Instant::now();
    run.save_last().with_context(|| {
        let place = std::env::temp_dir();
        format!("the checkpoint of a dry run, which needs room in `{}` (TMPDIR names another place)", place.display())
    })?;
    let path = run.folder.file(file::LAST);
    let bytes = std::fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?.len();
    let words = format!("a checkpoint of {} written", human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX)));
    report.done("save", began.elapsed(), &words, json!({ "bytes": bytes }))?;

    if stopped() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let began = Instant::now();
    let Run { experiment, config, backend, samples, session, state, schedule, .. } = run;
    let Run { folder, metrics, reporter, pending, waiting, pause_after, evaluated, empty, texts, .. } = run;
    // There may be no room for two.
    drop(session);
    let mut session = Session::unset(programs(backend)?, backend, crate::model::task(experiment))?;
    let meta = checkpoint::verify(&path).map_err(anyhow::Error::new)?;
    let base = state.extra.base.as_ref().map(|base| base.read(experiment, &path)).transpose();
    let base = base.map_err(|error| anyhow::anyhow!(error.message))?;
    let restored = restore(&mut session, &meta, &path, base).context("the checkpoint of a dry run")?;
    if restored != state {
        return Err(anyhow::anyhow!("the checkpoint of a dry run does not hold the state that was saved").into());
    }
    let state = restored;
    let mut run = Run {
        experiment,
        config,
        backend,
        samples,
        session,
        state,
        schedule,
        folder,
        metrics,
        reporter,
        pending,
        waiting,
        pause_after,
        evaluated,
        empty,
        texts,
        any_stopped: None,
    };
    report.done("restore", began.elapsed(), "read again, and the run goes on from there", json!({}))?;

    if stopped() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let began = Instant::now();
    let made = run.one_update().context("the step after the checkpoint of a dry run")?;
    report_update(&mut report, "step", began, made)?;
    if run.metrics.events().is_some() {
        if stopped() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let began = Instant::now();
        run.write_histograms().context("the event files of a dry run")?;
        let words = "histograms of weights and gradients";
        report.done("events", began.elapsed(), words, json!({}))?;
    }
    if report.json {
        let device = run.backend.describe();
        super::super::print_json(&json!({ "dry_run": report.stages, "device": device }))?;
    } else if !report.quiet {
        super::super::print("all of it works; nothing of it is kept")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report_update(report: &mut Report, stage: &str, began: Instant, made: Made) -> Result<(), Failure> {
    let Made { step, samples, loss, lr } = made;
    let words = format!("{samples} samples, loss {}, learning rate {lr:.3e}", figure(f64::from(loss), 4, 8));
    report.done(stage, began.elapsed(), &words, json!({ "step": step, "samples": samples, "loss": loss, "lr": lr }))
}

fn in_words(figures: &Figures) -> String {
    let shown = figures.named().map(|(name, f, value)| {
        let value = if f.is_share() { percent(value) } else { figure(value, 4, 8) };
        format!("{name} {value}")
    });
    shown.collect::<Vec<_>>().join(", ")
}
