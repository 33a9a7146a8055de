//! `runner train`: a new run, or one that goes on.

mod asked;
mod dry_run;
mod outcome;
pub(super) mod ranks;
mod resumed;

use super::args::TrainArgs;
use super::failure::Failure;
use super::memory::{Planned, resolve_batch};
use super::model::{build_run, describe_data, load_config, read_weights, say_notes};
use super::samples;
use crate::backend::Backend;
use crate::checkpoint::Meta;
use crate::config::experiment::Validation;
use crate::config::{self, Experiment, Loaded};
use crate::data::{DataSpec, Footprint};
use crate::files::durable;
use crate::graph::op::Figure;
use crate::passes::PassOptions;
use crate::terminal::{figure, say};
use crate::train::files::folder::{Folder, InUse, Taken, file};
use crate::train::files::metrics_file::{MetricsFile, note_line};
use crate::train::files::provenance;
use crate::train::files::sample::Sample;
use crate::train::files::state::{RunState, Started, device_choices, restore};
use crate::train::files::tensorboard::EventFile;
use crate::train::files::weights::Weights;
use crate::train::run::Run;
use crate::train::run::events::begin as begin_events;
use crate::train::run::pending::Pending;
use crate::train::run::report::{Reporter, Verbosity};
use crate::train::run::waiting::Waiting;
use crate::train::setup::balance::balance;
use crate::train::setup::device::{Selected, Wanted, select};
use crate::train::setup::input::{self, Samples, Take};
use crate::train::setup::memory::{MemoryPlan, Needs, Use};
use crate::train::setup::photos::{Keeping, PhotoPlan};
use crate::train::setup::precision;
use crate::train::setup::programs::Programs;
use crate::train::setup::schedule::Schedule;
use crate::train::setup::session::Session;
use anyhow::Context;
use asked::Asked;
pub(super) use outcome::{INTERRUPTED, on_interrupt};
use ranks::spread;
pub(super) use ranks::{RENDEZVOUS, SECRET, Team, run};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Trains, alone or as the first of several ranks.
pub(super) fn run_on(args: &TrainArgs, team: Team) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let reporter = Reporter::new(verbosity(args));
    let reporter = if args.plot { reporter.with_curves() } else { reporter };
    let mut begun = begin(args, &reporter)?;
    let team = spread(&mut begun.loaded.experiment, team, args.dry_run)?;
    let Selected { backend, note } = select(&Wanted::of(&begun.loaded.experiment, args.threads))?;
    let others = ranks::Others::new(&begun.loaded.experiment, team, args.threads, backend.as_ref())?;
    let backend: &dyn Backend = match &others {
        Some(others) => others.leader(),
        None => backend.as_ref(),
    };
    let precision_note = precision::note(begun.loaded.experiment.precision, backend);
    let notes = [note.filter(|_| !args.quiet), precision_note.as_ref().map(|note| format!("note: {note}"))];
    notes.iter().flatten().for_each(|note| say(note));
    // Before anything is planned, for which the device chooses.
    let choices = begun.from.as_ref().and_then(|(_, meta)| device_choices(meta));
    let other_choices = choices.as_deref().and_then(|said| backend.take_choices(said));
    // Mistakes in the model come before the data is read, which may take a download.
    let described = describe_data(&begun.loaded)?;
    let passes = PassOptions { without: begun.without.clone(), stop_after: None };
    if begun.from.is_none()
        && let Some(note) = resolve_batch(&mut begun.loaded, &described, backend, &passes)?.filter(|_| !args.quiet)
    {
        say(&note);
    }
    let Begun { loaded, started, from, take, folder, .. } = begun;
    let experiment = &loaded.experiment;
    let effective = effective(&loaded)?;
    let programs = build_run(&loaded, &described, backend, &passes, &[])?;
    // Before the data is read, too.
    let weights = if from.is_some() { None } else { read_weights(&loaded, &programs.plan.variables, &described)? };
    let require = |loaded: &Loaded, data: &DataSpec, programs: &Programs, footprint: Footprint| {
        let needs = Needs::of_run(&loaded.experiment, data, footprint, from.is_none());
        let (plan, what) = (&programs.plan, Use::Training);
        Planned { loaded, data, plan, backend, what, needs, passes: &passes }.require()
    };
    // Nor is anything read or written that there is no memory for.
    let photos = PhotoPlan::new(experiment, &described, true);
    require(&loaded, &described, &programs, photos.with(input::footprint(experiment)))?;
    // Gone when this function ends, however it does.
    let temporary = if args.dry_run { Some(dry_run::folder()?) } else { None };
    let mut folder = match (folder, &temporary) {
        (Some(folder), _) => folder,
        (None, Some(temporary)) => {
            Folder::require_free(args.out.as_deref(), replaces(args)).map_err(in_folder)?;
            Folder::new(Some(&temporary.path().join("run")), &experiment.name, false).map_err(in_folder)?
        }
        (None, None) => new_folder(args, &experiment.name, &reporter)?,
    };
    let mut samples = load_samples(&loaded, &take, from.is_some(), &reporter)?;
    samples.keep_photos(&loaded.experiment, if args.dry_run { Keeping::Rehearsal } else { Keeping::Training })?;
    if let Some(trouble) = samples.cache.as_ref().and_then(|cache| cache.trouble()) {
        reporter.warn(&trouble);
    }
    if let Some(others) = &others {
        others.read_data(&effective, &passes.without, &samples)?;
    }
    let mut loaded = loaded;
    let balanced = balance_classes(&mut loaded, &samples, &reporter)?;
    let experiment = &loaded.experiment;
    let effective = if balanced { self::effective(&loaded)? } else { effective };
    // The files may hold another number of samples than the set is known to have.
    let programs = match !balanced && (samples.spec.train, samples.spec.val) == (described.train, described.val) {
        true => programs,
        false => build_run(&loaded, &samples.spec, backend, &passes, &programs.warnings)?,
    };
    let planned = require(&loaded, &samples.spec, &programs, photos.with(samples.footprint()))?;
    if let Some(others) = &others {
        others.require(&planned)?;
    }
    let (session, mut state) = session(programs, backend, experiment, from.as_ref(), weights)?;
    if !args.quiet {
        say_notes(backend);
    }
    let other_data = provenance::difference(&state.extra, &samples).map(|what| {
        format!("the data has changed since the checkpoint was written: {what} differ; the run goes on with what is there now, and no longer as it would have")
    });
    let other_draw = provenance::other_draw(&state.extra, experiment);
    state.extra.draw = provenance::DRAW;
    state.extra.data_fingerprint = Some(samples.fingerprint.to_string());
    state.extra.data_note.clone_from(&samples.note);
    state.extra.sample = Some(Sample::of(&samples.spec));
    state.extra.device_choices = backend.choices();
    let restarted = std::mem::replace(&mut state.extra.started, started) != state.extra.started;
    if from.is_none() {
        folder.claim(replaces(args)).map_err(in_folder)?;
    }
    tell_lock(&mut folder, &reporter);
    announce(&loaded, &session.programs, &samples, &planned, backend, (&folder, args.dry_run), &reporter);
    if from.is_some() {
        go_back(&folder, &state, experiment, &reporter)?;
    }
    let config_file = with_note(&effective, samples.note.as_deref());
    if from.is_none() {
        write_config(&folder, &config_file)?;
    }
    let metrics = MetricsFile::open(&folder.file(file::METRICS), state.extra.metrics_bytes)?;
    let events = match experiment.log.tensorboard {
        true => {
            let mut events = EventFile::create(&folder.file(file::TENSORBOARD), state.step)?;
            begin_events(&mut events, state.step, &effective, experiment, &session.programs)?;
            Some(events)
        }
        false => None,
    };
    let metrics = metrics.with(&folder.file(file::CSV), &figures(&loaded, &session.programs.asked), events)?;
    let lost = metrics.lost().map(String::from);
    let mut run = Run {
        experiment,
        config: &effective,
        backend,
        samples: &samples,
        session,
        state,
        schedule: Schedule::new(experiment, samples.train.len()),
        folder,
        metrics,
        reporter,
        pending: Pending::default(),
        waiting: Waiting::default(),
        pause_after: args.pause_after,
        evaluated: None,
        empty: None,
        told: None,
    };
    if let Some(temporary) = temporary {
        let known = run.session.programs.warnings.clone();
        let programs = || build_run(&loaded, &samples.spec, backend, &passes, &known);
        let done = dry_run::rehearse(run, &programs, args, began.elapsed());
        dry_run::remove(temporary);
        return done;
    }
    match &from {
        None => {
            [&samples.note, &precision_note].into_iter().flatten().try_for_each(|note| note_down(&mut run, note))?
        }
        Some((path, meta)) => {
            if let Some(lost) = &lost {
                run.reporter.warn(&format!("{lost}; the run goes on"));
                note_down(&mut run, lost)?;
            }
            let others = [&other_data, &other_draw, &other_choices];
            for other in others.into_iter().flatten() {
                run.reporter.warn(other);
                note_down(&mut run, other)?;
            }
            // What is different from now on is kept before anything is done with it.
            let others = others.into_iter().any(Option::is_some);
            let changed = restarted || lost.is_some() || others || meta.config != effective;
            if changed || *path != run.folder.file(file::LAST) {
                run.save_last()?;
            }
            run.folder.remove_provisional_best()?;
            write_config(&run.folder, &config_file)?;
        }
    }
    match &others {
        Some(others) => others.train(&mut run, (&loaded, &samples, &passes), args, from.is_some()),
        None => outcome::train(&mut run, args, from.is_some()),
    }
}

fn verbosity(args: &TrainArgs) -> Verbosity {
    match (args.output.json, args.quiet) {
        (true, _) if args.dry_run => Verbosity::Quiet,
        (true, _) => Verbosity::Json,
        (false, true) => Verbosity::Quiet,
        (false, false) => Verbosity::Normal,
    }
}

/// What there is at the beginning of a run.
struct Begun {
    loaded: Loaded,
    started: Started,
    without: Vec<String>,
    /// The checkpoint that a run goes on from.
    from: Option<(PathBuf, Meta)>,
    take: Take,
    /// That of a run that goes on.
    folder: Option<Folder>,
}

fn begin(args: &TrainArgs, reporter: &Reporter) -> Result<Begun, Failure> {
    match Asked::of(args)? {
        Asked::New(config) => {
            let sets = args.overrides.sets();
            let loaded = load_config(&config, &sets)?;
            if let Some(sweep) = &loaded.experiment.sweep {
                reporter.info(&format!(
                    "the configuration is trained as it is; `runner sweep` runs the {} trials of `[sweep]`",
                    sweep.count()
                ));
            }
            let without: Vec<String> = args.passes.names().into_iter().map(String::from).collect();
            let sets = resumed::in_force(&[], &sets, &loaded);
            Ok(Begun {
                started: Started { name: loaded.experiment.name.clone(), sets, without },
                without: args.passes.without.clone(),
                take: samples::as_configured(&loaded.experiment),
                loaded,
                from: None,
                folder: None,
            })
        }
        Asked::Resume(asked) => {
            let found = resumed::find(args, &asked, reporter)?;
            let without = found.without();
            let take = match found.stands_in {
                true => Take::Digits,
                false => samples::as_asked(&found.loaded.experiment, &args.overrides, args.allow_download),
            };
            let resumed::Resumed { folder, path, meta, loaded, started, .. } = found;
            Ok(Begun { loaded, started, without, from: Some((path, meta)), take, folder: Some(folder) })
        }
    }
}

/// The model on the device, in the state of the checkpoint or in its first one.
fn session(
    programs: Programs,
    backend: &dyn Backend,
    experiment: &Experiment,
    from: Option<&(PathBuf, Meta)>,
    weights: Option<Weights>,
) -> Result<(Session, RunState), Failure> {
    let task = crate::model::task(experiment);
    if let Some((path, meta)) = from {
        let mut session = Session::unset(programs, backend, task)?;
        let state = restore(&mut session, meta, path)?;
        return Ok((session, state));
    }
    let mut session = Session::new(programs, backend, task, experiment.seed)?;
    if let Some(weights) = weights {
        weights.put(&mut session)?;
    }
    Ok((session, RunState::default()))
}

/// The effective configuration, which checkpoints carry.
fn effective(loaded: &Loaded) -> Result<String, Failure> {
    let text = config::to_toml(loaded);
    if text.len() > config::MAX_EFFECTIVE {
        return Err(Failure::Usage(format!(
            "with all blocks and repeats written out the configuration has {} bytes, and a checkpoint carries at most {}",
            super::thousands(text.len() as u64),
            super::thousands(config::MAX_EFFECTIVE as u64)
        )));
    }
    Ok(text)
}

/// What is wrong with a run's folder: another's being there is a matter of the command line.
pub(super) fn in_folder(error: anyhow::Error) -> Failure {
    if error.is::<InUse>() || error.is::<Taken>() { Failure::Usage(error.to_string()) } else { error.into() }
}

/// Whether what a new run finds in its folder may be replaced.
fn replaces(args: &TrainArgs) -> bool {
    // There it has saved nothing, or it would have been gone on with.
    args.force || args.resume.iter().flatten().any(|from| from.as_os_str() == asked::AUTO)
}

/// The folder of a new run, which must not hold another one unless that may be replaced.
fn new_folder(args: &TrainArgs, name: &str, reporter: &Reporter) -> Result<Folder, Failure> {
    let mut folder = Folder::new(args.out.as_deref(), name, replaces(args)).map_err(in_folder)?;
    tell_lock(&mut folder, reporter);
    Ok(folder)
}

fn tell_lock(folder: &mut Folder, reporter: &Reporter) {
    if let Some(warning) = folder.unlocked() {
        reporter.warn(&warning);
    }
}

/// Puts numbers in the place of the loss's `weight = "balanced"`; whether it was there.
fn balance_classes(loaded: &mut Loaded, samples: &Samples, reporter: &Reporter) -> Result<bool, Failure> {
    let Some(weights) = balanced(loaded, samples)? else { return Ok(false) };
    let told = |of: fn(f64, f64) -> f64| weights.iter().copied().reduce(of).unwrap_or(1.0);
    let (least, most) = (told(f64::min), told(f64::max));
    reporter.info(&format!(
        "weight = \"balanced\": the classes weigh from {} to {}",
        figure(least, 3, 9),
        figure(most, 3, 9)
    ));
    Ok(true)
}

/// The weights of classes that are put in the place of `weight = "balanced"`, if it is there.
fn balanced(loaded: &mut Loaded, samples: &Samples) -> Result<Option<Vec<f64>>, Failure> {
    if !loaded.experiment.loss.is_to_be_balanced() {
        return Ok(None);
    }
    let weights = balance(&mut loaded.experiment, &samples.train, &samples.spec);
    let weights = weights.ok_or_else(|| anyhow::anyhow!("the classes cannot be counted: `weight` must be numbers"))?;
    Ok(Some(weights.to_vec()))
}

fn load_samples(loaded: &Loaded, take: &Take, resumed: bool, reporter: &Reporter) -> Result<Samples, Failure> {
    let experiment = &loaded.experiment;
    let samples = match resumed {
        false => samples::load(experiment, take)?,
        true => samples::load(experiment, take)
            .map_err(|e| samples::missing(e, experiment, "the run goes on with the data that it was begun with"))?,
    };
    if let Some(note) = &samples.note {
        reporter.warn(note);
    }
    if resumed && samples.note.is_some() && *take != Take::Digits {
        return Err(Failure::Other(anyhow::anyhow!(
            "the run was trained on other samples than there are now: the data asked for was there then, and is not now"
        )));
    }
    Ok(samples)
}

/// Takes the folder of a run back to where its state is.
fn go_back(folder: &Folder, state: &RunState, experiment: &Experiment, reporter: &Reporter) -> Result<(), Failure> {
    folder.remove_unfinished()?;
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
    Ok(())
}

/// The text of `config.toml`: a note on the samples before the configuration.
fn with_note(effective: &str, note: Option<&str>) -> String {
    let header = note.iter().flat_map(|n| n.lines()).map(|l| format!("# {l}\n")).collect::<String>();
    format!("{header}{effective}")
}

fn write_config(folder: &Folder, text: &str) -> Result<(), Failure> {
    let path = folder.file(file::CONFIG);
    durable::write(&path, text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(())
}

/// Writes a note among the run's metrics.
fn note_down(run: &mut Run, note: &str) -> Result<(), Failure> {
    let line = note_line(note);
    run.metrics.write(&line)?;
    run.reporter.record(&line);
    Ok(())
}

fn announce(
    loaded: &Loaded,
    programs: &Programs,
    samples: &Samples,
    planned: &MemoryPlan,
    backend: &dyn Backend,
    (folder, dry): (&Folder, bool),
    reporter: &Reporter,
) {
    let (trainable, all) = programs.parameters();
    let thawed = super::thousands(programs.thawed as u64);
    let frozen = match loaded.experiment.model.thaw_after {
        Some(1) => format!(" ({thawed} frozen in the first epoch)"),
        Some(after) => format!(" ({thawed} frozen in the first {after} epochs)"),
        None if trainable < all => format!(" ({} frozen)", super::thousands((all - trainable) as u64)),
        None => String::new(),
    };
    let pinned = planned.pinned.map_or(String::new(), |b| format!(" and {} on the host", super::human_bytes(b)));
    let instead = if folder.keeps_another() { ", whose run stays until this one has saved a checkpoint" } else { "" };
    let place = match dry {
        true => dry_run::room(&programs.plan.variables),
        false => format!("writing to `{}`{instead}", folder.path.display()),
    };
    let e = &loaded.experiment;
    let on_test = e.validation() == Validation::TestSet && !samples.val.is_empty();
    let on_ranks = match backend.team().map_or(1, |team| team.ranks()) {
        1 => String::new(),
        ranks if planned.device.is_some() => format!(", as one of {ranks} GPUs"),
        ranks => format!(" for each of {ranks} ranks"),
    };
    let of_test = if on_test { " (the test set)" } else { "" };
    reporter.info(&format!(
        "{}: {} parameters{frozen}, {} training and {} validation samples{of_test}, {} of memory planned{pinned}, on {}{on_ranks}; {place}",
        e.name,
        super::thousands(all as u64),
        super::thousands(samples.train.len() as u64),
        super::thousands(samples.val.len() as u64),
        super::human_bytes(planned.summary.total),
        backend.describe(),
    ));
    if let Some(ema) = &e.optimizer.ema {
        reporter.info(&format!(
            "validation is of the moving average of the weights (`ema`, decay {}), and so is what is made of checkpoints",
            ema.decay
        ));
    }
    if e.optimizer.rule.is_schedule_free() {
        reporter.info("validation is of the optimizer's average of the weights, and so is what is made of checkpoints");
    }
    if let Some(swa) = &e.optimizer.swa {
        reporter.info(&format!(
            "from epoch {} on validation is of the mean of the weights at the ends of epochs (`swa`), and so is what is made of checkpoints",
            swa.start + 1
        ));
    }
}

/// The figures that a run writes down of its epochs.
fn figures(loaded: &Loaded, asked: &[Figure]) -> Vec<String> {
    let own = crate::model::task(&loaded.experiment).figures();
    let train = own.iter().map(|figure| format!("train_{}", figure.name()));
    train.chain(own.iter().chain(asked).map(|figure| format!("val_{}", figure.name()))).collect()
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
