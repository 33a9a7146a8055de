//! Everything of a run before its first step: from what is asked for to a loop that can begin.

use super::super::failure::Failure;
use super::super::memory::{Planned, resolve_batch};
use super::super::model::{base_of, build_run, describe_data, load_config, read_weights, say_notes};
use super::super::samples;
use super::announce::{announce, room, writing_to};
use super::best::settle_best;
use super::data::{balance_classes, load_samples};
use super::folder::{self, go_back, in_folder, new_folder, report_lock, with_note, write_config};
use super::outcome::nothing_to_do;
use super::past::Past;
use super::ranks::{Others, spread};
use super::request::{Asked, Request, Resume};
use super::resumed;
use crate::backend::Backend;
use crate::checkpoint::{Meta, Tensor};
use crate::config::{self, Experiment, Loaded};
use crate::data::{DataSpec, Footprint};
use crate::passes::PassOptions;
use crate::terminal::{say, thousands};
use crate::train::files::folder::{Folder, Replaces, file};
use crate::train::files::metrics_file::{MetricsFile, note_line};
use crate::train::files::provenance;
use crate::train::files::sample::Sample;
use crate::train::files::state::{RunState, Started, device_choices, restore};
use crate::train::files::tensorboard::EventFile;
use crate::train::files::weights::{self, Weights};
use crate::train::run::Run;
use crate::train::run::events::begin as begin_events;
use crate::train::run::pending::Pending;
use crate::train::run::report::Reporter;
use crate::train::run::texts::Texts;
use crate::train::run::waiting::Waiting;
use crate::train::setup::device::{Selected, Wanted, select};
use crate::train::setup::figures::OF_NAIVE;
use crate::train::setup::input::{self, Take};
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::photos::{Keeping, PhotoPlan};
use crate::train::setup::precision;
use crate::train::setup::programs::{HeadOf, Programs};
use crate::train::setup::schedule::{Schedule, batches};
use crate::train::setup::session::Session;
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Makes the programs of a run anew, for a device.
pub type Build<'a> = &'a dyn Fn(&dyn Backend) -> Result<Programs, Failure>;

/// A run whose loop can begin.
pub struct Ready<'a> {
    /// It.
    pub run: Run<'a>,
    /// Its programs, once more.
    pub programs: Build<'a>,
    /// The other ranks, if there are some.
    pub others: Option<&'a Others>,
    /// Whether it goes on.
    pub resumed: bool,
}

/// Makes a run ready and hands it to `work`. With `dry` it is a run of one of everything, whose folder is a temporary one and gone afterwards.
///
/// # Errors
/// All that is wrong with what is asked for, or is not there; `work` fails.
pub fn with_run<T>(request: &Request, dry: bool, work: impl FnOnce(Ready) -> Result<T, Failure>) -> Result<T, Failure> {
    let reporter = Reporter::new(request.verbosity).of_member(request.member);
    let reporter = if request.plot { reporter.with_curves() } else { reporter };
    request.expect_valid()?;
    let mut begun = begin(request, &reporter)?;
    if !dry && begun.from.is_none() {
        expect_one_training(&begun.loaded.experiment)?;
    }
    let team = spread(&mut begun.loaded.experiment, request.team.clone(), dry)?;
    let Selected { backend, note } = select(&Wanted::of(&begun.loaded.experiment, request.threads))?;
    let others = Others::new(&begun.loaded.experiment, team, request.threads, backend.as_ref())?;
    let backend: &dyn Backend = match &others {
        Some(others) => others.leader(),
        None => backend.as_ref(),
    };
    let precision_note = precision::note(begun.loaded.experiment.precision, backend);
    let notes = [note.filter(|_| !request.quiet), precision_note.as_ref().map(|note| format!("note: {note}"))];
    notes.iter().flatten().for_each(|note| say(note));
    // Before anything is planned, for which the device chooses.
    let choices = begun.from.as_ref().and_then(|(_, meta)| device_choices(meta));
    let other_choices = choices.as_deref().and_then(|said| backend.take_choices(said));
    // Mistakes in the model come before the data is read, which may take a download.
    let described = describe_data(&begun.loaded)?;
    let passes = PassOptions { without: begun.without.clone(), stop_after: None };
    if begun.from.is_none()
        && let Some(note) = resolve_batch(&mut begun.loaded, &described, backend, &passes)?.filter(|_| !request.quiet)
    {
        say(&note);
    }
    let Begun { loaded, started, from, take, folder, past, .. } = begun;
    let experiment = &loaded.experiment;
    let effective = effective(&loaded)?;
    let programs = build_run(&loaded, &described, backend, &passes, &[])?;
    // Before the data is read, too.
    let (weights, base) = match &from {
        None => (read_weights(&loaded, &programs.plan.variables, &described)?, None),
        Some((path, meta)) => (None, base_of(&loaded, path, meta)?),
    };
    let require = |loaded: &Loaded, data: &DataSpec, programs: &Programs, footprint: Footprint| {
        let needs = Needs::of_run(&loaded.experiment, data, footprint, from.is_none());
        let (plan, what) = (&programs.plan, Use::Training);
        Planned { loaded, data, plan, backend, what, needs, passes: &passes }.require()
    };
    // Nor is anything read or written that there is no memory for.
    let photos = PhotoPlan::new(experiment, &described, true);
    require(&loaded, &described, &programs, photos.with(input::footprint(experiment)))?;
    folder::expect_not_read(request, &loaded)?;
    // Gone when this function ends, however it does.
    let temporary = if dry { Some(folder::temporary()?) } else { None };
    let mut folder = match (folder, &temporary) {
        (Some(folder), _) => folder,
        (None, Some(temporary)) => {
            Folder::require_free(request.out.as_deref(), folder::replaces(request)).map_err(in_folder)?;
            Folder::new(Some(&temporary.path().join("run")), &experiment.name, Replaces::Nothing).map_err(in_folder)?
        }
        (None, None) => new_folder(request, &experiment.name, &reporter)?,
    };
    let mut samples = load_samples(&loaded, &take, from.is_some(), &reporter)?;
    samples.keep_photos(&loaded.experiment, if dry { Keeping::Rehearsal } else { Keeping::Training })?;
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
    let (session, mut state) = session(programs, backend, experiment, from.as_ref(), (weights, base))?;
    // Before anything of the run is changed.
    expect_place(&state, experiment, batches(experiment, samples.train.len()))?;
    let idle = from.is_some() && past.is_none() && nothing_to_do(experiment, &state).is_some();
    // What a process that was killed has left is finished all the same, where the run was to end here.
    let asked = |(_, meta): &(PathBuf, Meta)| meta.config != effective || names_checkpoint(request);
    let untouched = idle && from.as_ref().is_some_and(asked);
    let texts = Texts::new(experiment, &samples.spec, &session, backend)?;
    if !request.quiet {
        say_notes(backend);
    }
    let other_data = provenance::difference(&state.extra, &samples).map(|what| {
        let held_out = provenance::held_out_anew(&loaded.experiment);
        format!("the data has changed since the checkpoint was written: {what} differ; the run goes on with what is there now, and no longer as it would have{held_out}")
    });
    let other_draw = provenance::other_draw(&state.extra, experiment);
    state.extra.draw = provenance::DRAW;
    state.extra.data_fingerprint = Some(samples.fingerprint.to_string());
    state.extra.data_note.clone_from(&samples.note);
    state.extra.sample = Some(Sample::of(&samples.spec));
    state.extra.device_choices = backend.choices();
    let restarted = std::mem::replace(&mut state.extra.started, started) != state.extra.started;
    if from.is_none() || !folder.path.is_dir() {
        folder.claim(request.replace).map_err(in_folder)?;
    }
    report_lock(&mut folder, &reporter);
    let place = match dry {
        true => room(&session.programs.plan.variables, state.extra.base.as_ref()),
        false => writing_to(&folder),
    };
    announce(&loaded, &session.programs, &samples, &planned, backend, &place, &reporter);
    if let Some(past) = &past {
        past.copy(&folder, &state)?;
    }
    if from.is_some() && !untouched {
        go_back(&folder, &state, experiment, &reporter)?;
    }
    let config_file = with_note(&effective, samples.note.as_deref());
    // First: a folder with metrics is known as one of a run, also where the start breaks off here.
    let metrics = match untouched {
        true => MetricsFile::untouched(&folder.file(file::METRICS))?,
        false => MetricsFile::open(&folder.file(file::METRICS), state.extra.metrics_bytes)?,
    };
    if from.is_none() {
        write_config(&folder, &config_file)?;
    }
    // With the same configuration the run comes to the same best again, if it goes on as far as it has in that folder before.
    if past.is_some() || !untouched && from.as_ref().is_some_and(|(_, meta)| meta.config != effective) {
        settle_best(&folder, &mut state, experiment.checkpoint.monitor(), &reporter)?;
    }
    let events = match experiment.log.tensorboard && !idle {
        true => {
            let mut events = EventFile::create(&folder.file(file::TENSORBOARD), state.step)?;
            begin_events(&mut events, state.step, &effective, experiment, &session.programs)?;
            Some(events)
        }
        false => None,
    };
    let metrics = match untouched {
        true => metrics,
        false => metrics.with(&folder.file(file::CSV), &figures(&loaded, &session.programs), events)?,
    };
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
        pause_after: request.pause_after,
        evaluated: None,
        empty: None,
        texts,
        any_stopped: None,
    };
    let known = run.session.programs.warnings.clone();
    let programs = |backend: &dyn Backend| build_run(&loaded, &samples.spec, backend, &passes, &known);
    if let Some(temporary) = temporary {
        let done = work(Ready { run, programs: &programs, others: None, resumed: false });
        folder::remove(temporary);
        return done;
    }
    match &from {
        None => {
            [&samples.note, &precision_note].into_iter().flatten().try_for_each(|note| note_down(&mut run, note))?
        }
        Some(_) if untouched => {}
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
    work(Ready { run, programs: &programs, others: others.as_ref(), resumed: from.is_some() })
}

/// Whether the run is to go on from a checkpoint that is named.
const fn names_checkpoint(request: &Request) -> bool {
    matches!(request.run, Asked::Resume(Resume { checkpoint: Some(_), .. }))
}

/// A run is one training.
fn expect_one_training(experiment: &Experiment) -> Result<(), Failure> {
    let table = experiment.data.source.table().filter(|table| table.fold.is_none());
    let (key, alone) = match (table.and_then(|table| table.folds), experiment.train.seeds) {
        (Some(_), _) => ("data.folds", "`data.fold=1` and so on"),
        (None, Some(_)) => ("train.seeds", "`--unset train.seeds` and `seed=N`, each with the same `data.seed`"),
        (None, None) => return Ok(()),
    };
    Err(Failure::Usage(format!(
        "a run is one training, and `{key}` asks for several\nhelp: `runner train` makes all of them; to make one, set {alone}"
    )))
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
    /// Where such a run has been until now, if it goes on elsewhere.
    past: Option<Past>,
}

fn begin(request: &Request, reporter: &Reporter) -> Result<Begun, Failure> {
    let new = |loaded: Loaded| {
        if let Some(sweep) = &loaded.experiment.sweep {
            reporter.info(&format!(
                "the configuration is trained as it is; `runner sweep` runs the {} trials of `[sweep]`",
                sweep.count()
            ));
        }
        let sets = resumed::in_force(&[], &request.sets, &loaded);
        Begun {
            started: Started { name: loaded.experiment.name.clone(), sets, without: request.left_out() },
            without: request.without.clone(),
            take: samples::as_configured(&loaded.experiment),
            loaded,
            from: None,
            folder: None,
            past: None,
        }
    };
    match &request.run {
        Asked::New(config) => Ok(new(load_config(config, &request.sets)?)),
        Asked::Copied(config, name) => {
            let mut loaded = load_config(config, &request.sets)?;
            loaded.experiment.name.clone_from(name);
            loaded.sources.are_effective();
            Ok(new(loaded))
        }
        Asked::Loaded(loaded) => Ok(new((**loaded).clone())),
        Asked::Resume(asked) => {
            let found = resumed::find(request, asked, reporter)?;
            let without = found.without();
            let take = match found.stands_in {
                true => Take::Digits,
                false => samples::as_asked(&found.loaded.experiment, &request.sets, request.allow_download),
            };
            let resumed::Resumed { folder, past, path, meta, loaded, started, .. } = found;
            Ok(Begun { loaded, started, without, from: Some((path, meta)), take, folder: Some(folder), past })
        }
    }
}

/// Refuses to go on within an epoch at a batch that it does not have any more.
fn expect_place(state: &RunState, experiment: &Experiment, batches: usize) -> Result<(), Failure> {
    if state.batch <= batches as u64 {
        return Ok(());
    }
    let [batch, batches] = [state.batch, batches as u64].map(|n| experiment.batches_of(n));
    Err(anyhow!(
        "the checkpoint is after batch {batch} of an epoch, and an epoch of the data has {batches} batches: the data or `batch_size` are others than in training\n\
         help: go on with the data and the `batch_size` of the run, which is left as it was"
    )
    .into())
}

/// The model on the device, in the state of the checkpoint or in its first one.
fn session(
    programs: Programs,
    backend: &dyn Backend,
    experiment: &Experiment,
    from: Option<&(PathBuf, Meta)>,
    (weights, base): (Option<Weights>, Option<BTreeMap<String, Tensor>>),
) -> Result<(Session, RunState), Failure> {
    if let Some((path, meta)) = from {
        let mut session = Session::unset(programs, backend, crate::model::task(experiment))?;
        let state = restore(&mut session, meta, path, base)?;
        return Ok((session, state));
    }
    let mut state = RunState::default();
    state.extra.base = weights.as_ref().and_then(|weights| weights.base(experiment, &programs.plan.variables));
    Ok((weights::session(weights, programs, backend, experiment)?, state))
}

/// The effective configuration, which checkpoints carry.
fn effective(loaded: &Loaded) -> Result<String, Failure> {
    let text = config::to_toml(loaded);
    if text.len() > config::MAX_EFFECTIVE {
        return Err(Failure::Usage(format!(
            "with all blocks and repeats written out the configuration has {} bytes, and a checkpoint carries at most {}",
            thousands(text.len() as u64),
            thousands(config::MAX_EFFECTIVE as u64)
        )));
    }
    Ok(text)
}

/// Writes a note among the run's metrics.
fn note_down(run: &mut Run, note: &str) -> Result<(), Failure> {
    let line = note_line(note);
    run.metrics.write(&line)?;
    run.reporter.record(&line);
    Ok(())
}

/// The figures that a run writes down of its epochs.
fn figures(loaded: &Loaded, programs: &Programs) -> Vec<String> {
    let own = crate::model::task(&loaded.experiment).figures();
    let train = own.iter().map(|figure| format!("train_{}", figure.name()));
    let val = own.iter().chain(&programs.asked).map(|figure| format!("val_{}", figure.name()));
    let of_naive = OF_NAIVE.iter().filter(|_| programs.forecasts_numbers).map(|name| format!("val_{name}"));
    let of_heads = HeadOf::all(&loaded.experiment).into_iter().flat_map(|head| {
        let figures = head.task().figures().iter().map(move |figure| format!("{}_{}", head.name, figure.name()));
        figures.flat_map(|figure| ["train", "val"].map(|of| format!("{of}_{figure}")))
    });
    train.chain(val).chain(of_naive).chain(of_heads).collect()
}
