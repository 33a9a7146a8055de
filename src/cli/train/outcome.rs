//! The loop, and what is said when it has ended.

use super::super::args::TrainArgs;
use super::super::failure::Failure;
use super::super::signals::{on_stop, on_warning};
use super::quoted;
use crate::checkpoint::{CheckpointError, Reason};
use crate::config::experiment::Validation;
use crate::runs::figure::is_share;
use crate::terminal::{figure, percent, say};
use crate::train::files::folder::file;
use crate::train::run::{Outcome, Run};
use anyhow::Context;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Trains until the end, if it has not come yet.
pub fn train(run: &mut Run, args: &TrainArgs, resumed: bool) -> Result<ExitCode, Failure> {
    if let Some(why) = nothing_to_do(run) {
        run.reporter.info(&format!("nothing to do: {why}"));
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = on_interrupt()?;
    if args.watch_stdin {
        watch_stdin(interrupt.clone())?;
    }
    let outcome = run.run(&interrupt).map_err(|e| {
        run.metrics.failed(&format!("{e:#}"));
        with_way_on(e, args, &run.folder.path)
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
            let (after, best) = (after(run), best(run));
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
                resume_command(args, &run.folder.path)
            ));
        }
        Outcome::Interrupted => {
            run.reporter.info(&format!(
                "interrupted at step {step}; saved in `{place}`; go on with: {}",
                resume_command(args, &run.folder.path)
            ));
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    match run.reporter.output_error() {
        Some(e) => Err(Failure::Other(anyhow::Error::new(e).context("cannot write to standard output"))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The best figure, and on which samples that is, for a message.
fn best(run: &Run) -> String {
    let Some(best) = &run.state.best else { return String::new() };
    let value = if is_share(&best.monitor) { percent(best.value) } else { figure(best.value, 5, 12) };
    let told = format!("; best {} {value}", best.monitor);
    let validation = run.experiment.validation();
    match run.experiment.checkpoint.monitor().of_validation() {
        true if validation == Validation::TestSet => {
            format!("{told}, chosen on {} (`data.validation_split` holds samples out for that)", validation.name())
        }
        true => format!("{told}, chosen on {}", validation.name()),
        false => told,
    }
}

/// Why a run that is to go on has ended already, and what to do about it.
pub fn nothing_to_do(run: &Run) -> Option<String> {
    let length = run.experiment.train.length();
    if run.is_done() {
        return Some(format!("all {length} are done; raise `{}` to go on", length.key()));
    }
    run.stopped_early()
        .then(|| format!("the run stopped early after {}; raise `train.early_stopping.patience` to go on", after(run)))
}

/// Where a run has ended, in words.
fn after(run: &Run) -> String {
    match run.state.batch {
        0 => format!("epoch {}", run.state.epoch),
        _ => format!("step {}", run.state.step),
    }
}

/// Adds to an error of a disk how to go on, if the folder has something to go on from.
fn with_way_on(error: anyhow::Error, args: &TrainArgs, folder: &Path) -> anyhow::Error {
    let saved = [file::LAST, file::BEST].iter().any(|name| folder.join(name).is_file());
    let Some(kind) = io_kind(&error).filter(|_| saved) else { return error };
    let first = match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there",
        _ => "see to that",
    };
    let command = resume_command(args, folder);
    anyhow::anyhow!("{error:#}; what was saved before is whole: {first}, and go on with: {command}")
}

/// What the operating system answered, if that is what went wrong.
fn io_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(|e| match e.downcast_ref::<CheckpointError>() {
        Some(CheckpointError { reason: Reason::Io(e), .. }) => Some(e.kind()),
        _ => e.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
    })
}

/// The command that continues this run as it was begun: its checkpoint knows the rest.
fn resume_command(args: &TrainArgs, folder: &Path) -> String {
    let mut words = vec!["runner".to_string(), "train".into(), "--resume".into(), folder.display().to_string()];
    words.extend(args.threads.iter().flat_map(|n| ["--threads".into(), n.to_string()]));
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A flag that Ctrl-C sets, and SIGUSR1; a second Ctrl-C ends the process at once.
pub fn on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    asked_to_stop(|| say("interrupted: saving after this step (once more to stop at once)"))
}

/// As [`on_interrupt`], with what is to be done when Ctrl-C comes first.
pub fn asked_to_stop(first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    on_stop(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        first();
    })?;
    on_warning(&flag)?;
    Ok(flag)
}

/// Sets the flag when standard input ends, whatever comes before that.
fn watch_stdin(flag: Arc<AtomicBool>) -> anyhow::Result<()> {
    let watch = move || {
        // An input that cannot be read has ended, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(watch)
        .context("cannot start a thread for standard input")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn arguments(words: &str) -> TrainArgs {
        let words = ["runner", "train", "c.toml"].into_iter().chain(words.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        args
    }

    #[test]
    fn a_full_disk_is_told_with_the_way_on_if_something_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let full =
            || CheckpointError { path: "r/last.safetensors".into(), reason: Reason::Io(ErrorKind::StorageFull.into()) };
        let told = |e: anyhow::Error| with_way_on(e, &arguments(""), folder.path()).to_string();
        assert!(!told(full().into()).contains("--resume"));
        std::fs::write(folder.path().join(file::BEST), "").unwrap();
        for error in
            [anyhow::Error::new(full()), anyhow::Error::new(std::io::Error::from(ErrorKind::StorageFull)).context("r")]
        {
            let text = told(error);
            assert!(text.starts_with("r") && text.contains("make room"), "{text}");
            assert!(text.ends_with(&format!("runner train --resume {}", folder.path().display())), "{text}");
        }
        assert_eq!(told(anyhow::anyhow!("the loss is not finite")), "the loss is not finite");
    }

    #[test]
    fn the_command_to_go_on_with_has_all_that_matters() {
        let command = |words: &str, folder: &str| resume_command(&arguments(words), Path::new(folder));
        assert_eq!(command("--set train.epochs=3 --device cpu", "runs/c/1"), "runner train --resume runs/c/1");
        assert_eq!(command("--threads 2 -q", "my runs/1"), "runner train --resume 'my runs/1' --threads 2");
        assert_eq!(quoted("a='b'"), "'a='\\''b'\\'''");
    }
}
