//! The loop, and the messages at its end.

use super::super::failure::Failure;
use super::request::{Asked, Request, Resume};
use super::words::quoted;
use crate::checkpoint::{Best, CheckpointError, Reason};
use crate::config::Experiment;
use crate::config::experiment::Validation;
use crate::runs::figure::is_share;
use crate::terminal::{figure, percent};
use crate::train::files::folder::file;
use crate::train::files::state::RunState;
use crate::train::run::unusable::Unusable;
use crate::train::run::{Outcome, Run, is_done, stopped_early};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What has become of a run that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// How it ended; `None`: there was nothing to do.
    pub outcome: Option<Outcome>,
    /// Its folder.
    pub folder: PathBuf,
    /// Epochs that are done, in all.
    pub epochs: u64,
    /// Updates that are done, in all.
    pub steps: u64,
    /// The best value of the figure that it watches.
    pub best: Option<Best>,
}

impl Trained {
    /// What has become of `run`, which has ended so.
    pub fn of(run: &Run, outcome: Option<Outcome>) -> Trained {
        let (epochs, steps, best) = (run.state.epoch, run.state.step, run.state.best.clone());
        Trained { outcome, folder: run.folder.path.clone(), epochs, steps, best }
    }
}

/// Trains until the end, if it has not come yet.
///
/// # Errors
/// As [`Run::run`]; standard output could not be written to.
pub fn train(run: &mut Run, request: &Request, resumed: bool) -> Result<Trained, Failure> {
    if let Some(why) = nothing_to_do(run.experiment, &run.state) {
        run.reporter.info(&format!("nothing to do: {why}"));
        return Ok(Trained::of(run, None));
    }
    let interrupt = (request.interrupt)(true)?;
    let outcome = run.run(&interrupt).map_err(|e| {
        let line = run.metrics.failed(&format!("{e:#}"));
        run.reporter.record(&line);
        with_way_on(e, request, &run.folder.path)
    })?;
    run.reporter.end_curves();
    if let Some(text) = run.unreadable_in_all() {
        run.reporter.warn(&text);
    }
    let place = run.folder.path.display();
    let step = run.state.step;
    match outcome {
        Outcome::Finished => {
            let best = best(run);
            let s = if step == 1 { "" } else { "s" };
            run.reporter.info(&format!("done: {step} step{s}{best}; the run is in `{place}`"));
        }
        Outcome::EarlyStopped => {
            let (after, best) = (after(&run.state), best(run));
            run.reporter.info(&format!("stopped early after {after}{best}; the run is in `{place}`"));
        }
        Outcome::MaxSteps => {
            let more = if resumed { "; to go on, raise it, or take it out with `--unset train.max_steps`" } else { "" };
            run.reporter.info(&format!("stopped at step {step}, as `max_steps` says; the run is in `{place}`{more}"));
        }
        Outcome::Paused => {
            run.reporter.info(&format!(
                "stopped after epoch {}, as `--pause-after` says; saved in `{place}`; go on with: {}",
                run.state.epoch,
                resume_command(request, &run.folder.path)
            ));
        }
        Outcome::Interrupted => {
            run.reporter.info(&format!(
                "interrupted at step {step}; saved in `{place}`; go on with: {}",
                resume_command(request, &run.folder.path)
            ));
            return Ok(Trained::of(run, Some(outcome)));
        }
    }
    match run.reporter.output_error() {
        Some(e) => Err(Failure::Other(anyhow::Error::new(e).context("cannot write to standard output"))),
        None => Ok(Trained::of(run, Some(outcome))),
    }
}

/// The best figure, and on which samples that is, for a message.
fn best(run: &Run) -> String {
    let Some(best) = &run.state.best else { return String::new() };
    let value = if is_share(&best.monitor) { percent(best.value) } else { figure(best.value, 5, 12) };
    let shown = format!("; best {} {value}", best.monitor);
    let validation = run.experiment.validation();
    match run.experiment.checkpoint.monitor().of_validation() {
        true if validation == Validation::TestSet => {
            format!("{shown}, chosen on {} (`data.validation_split` holds samples out for that)", validation.name())
        }
        true => format!("{shown}, chosen on {}", validation.name()),
        false => shown,
    }
}

/// Why a run that is to go on has ended already, and what to do about it.
pub fn nothing_to_do(experiment: &Experiment, state: &RunState) -> Option<String> {
    let length = experiment.train.length();
    if is_done(experiment, state) {
        return Some(format!("all {length} are done; raise `{}` to go on", length.key()));
    }
    let after = after(state);
    stopped_early(experiment, state)
        .then(|| format!("the run stopped early after {after}; raise `train.early_stopping.patience` to go on"))
}

/// Where a run has ended, in words.
fn after(state: &RunState) -> String {
    match state.batch {
        0 => format!("epoch {}", state.epoch),
        _ => format!("step {}", state.step),
    }
}

/// Adds to an error of a disk, or of samples that an evaluation could not read, how to go on.
fn with_way_on(error: anyhow::Error, request: &Request, folder: &Path) -> anyhow::Error {
    if error.is::<Unusable>() {
        let command = resume_command(request, folder);
        return anyhow::anyhow!("{error:#}\nhelp: what was trained is saved: mend the data, and go on with: {command}");
    }
    let saved = [file::LAST, file::BEST].iter().any(|name| folder.join(name).is_file());
    match io_kind(&error) {
        Some(kind) if saved => {
            let first = if is_full(kind) { "make room there" } else { "see to that" };
            let command = resume_command(request, folder);
            anyhow::anyhow!("{error:#}; what was saved before is whole: {first}, and go on with: {command}")
        }
        Some(kind) if is_full(kind) => {
            anyhow::anyhow!("{error:#}; nothing was saved before: make room there, and train again")
        }
        _ => error,
    }
}

/// The same for a disk that is full where a run that goes on has not begun its loop.
pub fn full_again(failure: Failure, request: &Request) -> Failure {
    match (failure, &request.run) {
        (Failure::Other(error), Asked::Resume(Resume { folder: Some(folder), .. }))
            if io_kind(&error).is_some_and(is_full) =>
        {
            with_way_on(error, request, folder).into()
        }
        (failure, _) => failure,
    }
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What the operating system answered, if that is what went wrong.
fn io_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(|e| match e.downcast_ref::<CheckpointError>() {
        Some(CheckpointError { reason: Reason::Io(e), .. }) => Some(e.kind()),
        _ => e.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
    })
}

/// The command that continues this run as it was begun: its checkpoint knows the rest.
fn resume_command(request: &Request, folder: &Path) -> String {
    let mut words = vec!["runner".to_string(), "train".into(), "--resume".into(), folder.display().to_string()];
    words.extend(request.threads.iter().flat_map(|n| ["--threads".into(), n.to_string()]));
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(threads: Option<usize>) -> Request {
        Request { threads, ..Request::new(Asked::New("c.toml".into())) }
    }

    #[cfg(unix)]
    #[test]
    fn errors_of_a_full_disk_name_the_way_on_if_something_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let full =
            || CheckpointError { path: "r/last.safetensors".into(), reason: Reason::Io(ErrorKind::StorageFull.into()) };
        let message = |e: anyhow::Error| with_way_on(e, &request(None), folder.path()).to_string();
        assert!(message(full().into()).ends_with("; nothing was saved before: make room there, and train again"));
        std::fs::write(folder.path().join(file::BEST), "").unwrap();
        for error in
            [anyhow::Error::new(full()), anyhow::Error::new(std::io::Error::from(ErrorKind::StorageFull)).context("r")]
        {
            let text = message(error);
            assert!(text.starts_with("r") && text.contains("make room"), "{text}");
            assert!(text.ends_with(&format!("runner train --resume {}", folder.path().display())), "{text}");
        }
        assert_eq!(message(anyhow::anyhow!("the loss is not finite")), "the loss is not finite");
        // Also where a run that goes on has not come to its loop; once is enough.
        let resumed = Request::resume(folder.path());
        let text = full_again(Failure::Other(full().into()), &resumed).in_words();
        assert!(text.contains("make room there, and go on with: runner train --resume"), "{text}");
        assert_eq!(full_again(Failure::Other(anyhow::anyhow!("{text}")), &resumed).in_words(), text);
        let new = full_again(Failure::Other(full().into()), &request(None)).in_words();
        assert!(!new.contains("make room"), "{new}");
    }

    #[test]
    fn the_command_to_go_on_with_has_all_that_matters() {
        let command = |threads, folder: &str| resume_command(&request(threads), Path::new(folder));
        assert_eq!(command(None, "runs/c/1"), "runner train --resume runs/c/1");
        assert_eq!(command(Some(2), "my runs/1"), "runner train --resume 'my runs/1' --threads 2");
        assert_eq!(quoted("a='b'"), "'a='\\''b'\\'''");
    }
}
