//! `runner train`.

use super::args::TrainArgs;
use super::failure::Failure;
use super::memory::{Planned, resolve_batch};
use super::model::{build, describe_data, load_config, load_weights};
use crate::backend::Backend;
use crate::checkpoint::{self, Meta};
use crate::config::sections::Metric;
use crate::config::{self, Loaded};
use crate::train::device::{Selected, Wanted, select};
use crate::train::folder::{Folder, file};
use crate::train::input::{self, Samples};
use crate::train::memory::{MemoryPlan, Needs, Use};
use crate::train::metrics_file::{MetricsFile, note_line};
use crate::train::pending::Pending;
use crate::train::precision;
use crate::train::programs::{Programs, Sizes};
use crate::train::report::{Reporter, Verbosity, say};
use crate::train::resume::{Effect, changes};
use crate::train::run::{Outcome, Run};
use crate::train::schedule::Schedule;
use crate::train::session::Session;
use crate::train::state::{RunState, restore};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Trains.
pub(super) fn run(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let verbosity = match (args.output.json, args.quiet) {
        (true, _) => Verbosity::Json,
        (false, true) => Verbosity::Quiet,
        (false, false) => Verbosity::Normal,
    };
    let mut reporter = Reporter::new(verbosity);
    let mut loaded = load_config(&args.config, &args.overrides.sets())?;
    let Selected { backend, note } = select(&Wanted::of(&loaded.experiment, args.threads))?;
    if let Some(note) = note.filter(|_| !args.quiet) {
        say(&note);
    }
    if let Some(note) = precision::note(loaded.experiment.precision, backend.as_ref()) {
        say(&format!("note: {note}"));
    }
    // Mistakes in the model come before the data is read, which may take a download.
    let described = describe_data(&loaded)?;
    let passes = args.passes.options();
    let name = loaded.experiment.name.clone();
    let found = match &args.resume {
        Some(from) => Some(find_checkpoint(&name, args.out.as_deref(), from.as_deref(), &reporter)?),
        None => None,
    };
    if let Some((found, old)) = &found
        && loaded.experiment.data.auto_batch_size
    {
        let batch = old.experiment.data.loading.batch_size;
        loaded.experiment.set_batch_size(batch);
        reporter.info(&format!("batch_size = \"auto\" is {batch}, as in `{}`", found.1.display()));
    } else if let Some(note) =
        resolve_batch(&mut loaded, &described, backend.as_ref(), &passes)?.filter(|_| !args.quiet)
    {
        say(&note);
    }
    let experiment = &loaded.experiment;
    let programs = build(&loaded, &described, &Sizes::of_run(experiment, &described), backend.as_ref(), &passes)?;
    // Before anything is read, or downloaded, or written.
    let planned = Planned {
        loaded: &loaded,
        data: &described,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Training,
        needs: Needs::of_run(experiment, described.val != Some(0), input::footprint(experiment)),
        passes: &passes,
    };
    planned.require()?;
    let resumed = match found {
        Some((found, old)) => {
            tell_changes(&loaded, &old, &found, &reporter)?;
            Some(found)
        }
        None => None,
    };
    let mut folder = match &resumed {
        Some((folder, _, _)) => folder.clone(),
        None => new_folder(args, &experiment.name)?,
    };
    let samples = load_samples(&loaded, &reporter)?;
    // The files may hold another number of samples than the set is known to have.
    let programs = match (samples.spec.train, samples.spec.val) == (described.train, described.val) {
        true => programs,
        false => build(&loaded, &samples.spec, &Sizes::of_run(experiment, &samples.spec), backend.as_ref(), &passes)?,
    };
    let validates = samples.spec.val != Some(0);
    let needs = Needs::of_run(experiment, validates, samples.footprint());
    let planned = Planned {
        loaded: &loaded,
        data: &samples.spec,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Training,
        needs,
        passes: &passes,
    };
    let planned = planned.require()?;
    let task = crate::build::task(experiment);
    let (session, mut state) = match &resumed {
        Some((_, path, meta)) => {
            let mut session = Session::unset(programs, backend.as_ref(), task)?;
            let state = restore(&mut session, meta, path)?;
            (session, state)
        }
        None => {
            let mut session = Session::new(programs, backend.as_ref(), task, experiment.seed)?;
            load_weights(&mut session, experiment)?;
            (session, RunState::default())
        }
    };
    // The note tells a reason, too, which may be another one each time; whether there is a note is what matters.
    let note_before = state.extra.data_note.take();
    state.extra.data_note.clone_from(&samples.note);
    if resumed.is_some() && note_before.is_some() != samples.note.is_some() {
        return Err(Failure::Other(anyhow::anyhow!(
            "the run was trained on other samples than there are now: the data asked for was {}",
            if note_before.is_none() { "there then, and is not now" } else { "not there then, and is now" }
        )));
    }
    match &resumed {
        Some(_) => folder.remove_unfinished()?,
        None => folder.claim()?,
    }
    announce(&loaded, &session.programs, &samples, &planned, backend.as_ref(), &folder, &reporter);
    if resumed.is_some() {
        let removed = folder.remove_later(state.epoch, state.batch)?;
        if !removed.is_empty() {
            reporter.warn(&format!("removed what the run had saved later: {}", removed.join(", ")));
        }
        if experiment.checkpoint.every_steps.is_some() {
            // The run may have been killed between writing one and removing another.
            folder.prune(experiment.checkpoint.keep)?;
        }
        let at = format!("epoch {}, batch {}, step {}", state.epoch + 1, state.batch, state.step);
        reporter.info(&format!("resumed at {at}"));
    }
    let effective = config::to_toml(&loaded);
    let header = samples.note.iter().flat_map(|n| n.lines()).map(|l| format!("# {l}\n")).collect::<String>();
    let config_path = folder.file(file::CONFIG);
    std::fs::write(&config_path, format!("{header}{effective}"))
        .with_context(|| format!("cannot write `{}`", config_path.display()))?;
    let mut metrics = MetricsFile::open(&folder.file(file::METRICS), state.extra.metrics_bytes)?;
    let notes = [samples.note.clone(), precision::note(experiment.precision, backend.as_ref())];
    for note in notes.iter().flatten().filter(|_| resumed.is_none()) {
        let line = note_line(note);
        metrics.write(&line)?;
        reporter.record(&line);
    }

    let schedule = Schedule::new(experiment, samples.train.len());
    let mut run = Run {
        experiment,
        config: &effective,
        backend: backend.as_ref(),
        samples: &samples,
        session,
        state,
        schedule,
        folder,
        metrics,
        reporter,
        pending: Pending::default(),
    };
    if resumed.as_ref().is_some_and(|(_, path, _)| *path != run.folder.file(file::LAST)) {
        run.save_last()?;
    }
    if run.state.epoch >= experiment.train.epochs as u64 {
        run.reporter.info(&format!(
            "nothing to do: all {} epochs are done; raise `train.epochs` to go on",
            experiment.train.epochs
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if run.stopped_early() {
        run.reporter.info(&format!(
            "nothing to do: the run stopped early after epoch {}; raise `train.early_stopping.patience` to go on",
            run.state.epoch
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = on_interrupt()?;
    let outcome = run.run(&interrupt)?;
    let place = run.folder.path.display();
    let step = run.state.step;
    match outcome {
        Outcome::Finished => {
            let best =
                run.state.best.as_ref().map_or(String::new(), |b| format!("; best {} {:.5}", b.monitor, b.value));
            let s = if step == 1 { "" } else { "s" };
            run.reporter.info(&format!("done: {step} step{s}{best}; the run is in `{place}`"));
        }
        Outcome::EarlyStopped => {
            run.reporter.info(&format!("stopped early after epoch {}; the run is in `{place}`", run.state.epoch));
        }
        Outcome::MaxSteps => run.reporter.info(&format!("stopped at step {step}; the run is in `{place}`")),
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

/// The command that continues this run as it was begun.
fn resume_command(args: &TrainArgs, folder: &Path) -> String {
    let mut words = vec!["runner".to_string(), "train".into(), args.config.display().to_string()];
    let options = args.overrides.set.iter().map(|s| ("--set", s.clone()));
    let options = options.chain(args.overrides.device.iter().map(|d| ("--device", d.clone())));
    let options = options.chain(args.passes.names().into_iter().map(|p| ("--without", p.to_string())));
    let options = options.chain(args.threads.map(|n| ("--threads", n.to_string())));
    for (option, value) in options {
        words.extend([option.to_string(), value]);
    }
    words.extend(["--resume".into(), "--out".into(), folder.display().to_string()]);
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The folder of a new run, which must not hold another one unless that may be removed.
fn new_folder(args: &TrainArgs, name: &str) -> Result<Folder, Failure> {
    let folder = Folder::new(args.out.as_deref(), name)?;
    if !args.force && folder.holds_run()? {
        return Err(Failure::Usage(format!(
            "`{}` already holds a run\nhelp: continue it with --resume, start anew in its place with --force, or choose another \
             folder with --out",
            folder.path.display()
        )));
    }
    Ok(folder)
}

fn load_samples(loaded: &Loaded, reporter: &Reporter) -> Result<Samples, Failure> {
    let mut progress = super::data::Progress::new();
    let samples = input::load(&loaded.experiment, &mut |e| progress.show(e))?;
    if let Some(note) = &samples.note {
        reporter.warn(note);
    }
    if let Some(stopping) = &loaded.experiment.train.early_stopping
        && samples.val.is_empty()
        && stopping.monitor != Metric::TrainLoss
    {
        reporter.warn(
            "`early_stopping` has no effect: there are no samples to validate on (`validation_split` holds some out)",
        );
    }
    let loading = &loaded.experiment.data.loading;
    if loading.drop_last && samples.train.len() < loading.batch_size {
        return Err(Failure::Usage(format!(
            "there are {} training samples, fewer than a batch of {}, and `drop_last` leaves them all out",
            samples.train.len(),
            loading.batch_size
        )));
    }
    Ok(samples)
}

fn announce(
    loaded: &Loaded,
    programs: &Programs,
    samples: &Samples,
    planned: &MemoryPlan,
    backend: &dyn Backend,
    folder: &Folder,
    reporter: &Reporter,
) {
    let (trainable, all) = programs.parameters();
    let frozen = if trainable < all {
        format!(" ({} frozen)", super::thousands((all - trainable) as u64))
    } else {
        String::new()
    };
    let pinned = planned.pinned.map_or(String::new(), |b| format!(" and {} on the host", super::human_bytes(b)));
    let e = &loaded.experiment;
    reporter.info(&format!(
        "{}: {} parameters{frozen}, {} training and {} validation samples, {} of memory planned{pinned}, on {}; writing to `{}`",
        e.name,
        super::thousands(all as u64),
        super::thousands(samples.train.len() as u64),
        super::thousands(samples.val.len() as u64),
        super::human_bytes(planned.summary.total),
        backend.describe(),
        folder.path.display(),
    ));
}

/// A run's folder with the checkpoint to go on from.
type Resumed = (Folder, PathBuf, Meta);

/// The checkpoint to go on from, with the configuration that it carries.
fn find_checkpoint(
    name: &str,
    out: Option<&Path>,
    from: Option<&Path>,
    reporter: &Reporter,
) -> Result<(Resumed, Loaded), Failure> {
    let folder = Folder::existing(out, from, name)?;
    let (path, meta) = match from {
        Some(path) => (path.to_path_buf(), checkpoint::verify(path).map_err(anyhow::Error::new)?),
        None => {
            let newest = checkpoint::newest_whole(&folder.path)
                .with_context(|| format!("cannot read the folder `{}`", folder.path.display()))?;
            for refused in &newest.refused {
                reporter.warn(&format!("{refused}; looking for an older one"));
            }
            newest.found.with_context(|| {
                format!("there is no whole checkpoint in `{}`\nhelp: start anew with --force", folder.path.display())
            })?
        }
    };
    let old = config::load_str(&format!("the configuration in {}", path.display()), &meta.config, &[])?;
    Ok(((folder, path, meta), old))
}

/// Tells what has changed in the configuration since a checkpoint was written with `old`; refused if the run cannot go on.
fn tell_changes(
    loaded: &Loaded,
    old: &Loaded,
    (folder, path, _): &Resumed,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let changes = changes(&old.experiment, &loaded.experiment);
    let list = |effect: Effect| -> Vec<String> {
        changes.iter().filter(|c| c.effect == effect).map(|c| format!("  {c}")).collect()
    };
    let breaks = list(Effect::Breaks);
    if !breaks.is_empty() {
        return Err(Failure::Usage(format!(
            "the run in `{}` cannot go on with this configuration; what changed:\n{}\nhelp: undo this, or start a new run from the \
             weights with `--set model.weights={}`",
            folder.path.display(),
            breaks.join("\n"),
            path.display(),
        )));
    }
    let differs = list(Effect::Differs);
    if !differs.is_empty() {
        reporter.warn(&format!(
            "the configuration has changed; the run goes on, but no longer as it would have without that:\n{}",
            differs.join("\n")
        ));
    }
    let harmless = list(Effect::Harmless);
    if !harmless.is_empty() {
        reporter.info(&format!(
            "the configuration has changed, without an effect on the numbers:\n{}",
            harmless.join("\n")
        ));
    }
    Ok(())
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the process at once.
fn on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        say("interrupted: saving after this step (once more to stop at once)");
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_command_to_go_on_with_has_all_that_matters() {
        let words = ["runner", "train", "my c.toml", "--set", "train.epochs=3", "--set", "data.transforms=[]", "-q"];
        let words =
            words.iter().chain(&["--threads", "2", "--device", "cpu", "--set", "loss.type='mse'", "--without", "pool"]);
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        assert_eq!(
            resume_command(&args, Path::new("runs/c/1")),
            "runner train 'my c.toml' --set train.epochs=3 --set 'data.transforms=[]' --set 'loss.type='\\''mse'\\''' \
             --device cpu --without pool --threads 2 --resume --out runs/c/1"
        );
    }
}
