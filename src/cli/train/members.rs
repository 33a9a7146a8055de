//! Several trainings one after the other: one for each fold of the samples, or one for each of several seeds.

use super::super::args::TrainArgs;
use super::super::print;
use super::super::runs::grid::Grid;
use super::place::{self, Place};
use super::{INTERRUPTED, asked, request};
use crate::api::failure::Failure;
use crate::api::members::{Members, difference};
use crate::api::memory::resolve_batch;
use crate::api::model::{build_run, describe_data, load_config};
use crate::api::samples::SaidOnce;
use crate::api::train::{Asked, Request, Resume, Team, in_folder, start};
use crate::checkpoint::newest_whole;
use crate::config::{self, Counts, Experiment, UNSET_OPTION};
use crate::data::{DataSpec, FieldKind};
use crate::files::durable;
use crate::passes::PassOptions;
use crate::runs::figure::is_share;
use crate::runs::folder::{Run, State, is_run};
use crate::runs::lines::{Wanted, number};
use crate::terminal::{figure, json_line, percent, say};
use crate::train::files::folder::{Folder, Replaces, file};
use crate::train::files::state::{Extra, Started};
use crate::train::run::Outcome;
use crate::train::setup::device::{self, Selected, select};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which trainings.
pub enum Wish {
    /// Those of the configuration in this file, anew.
    New(PathBuf, Members),
    /// Those in this folder go on.
    Resume(PathBuf, Members),
}

/// The folds or seeds that the command line asks for; `None`: one run.
///
/// # Errors
/// A folder's file cannot be read.
pub fn of(args: &TrainArgs) -> Result<Option<Wish>, Failure> {
    if args.dry_run {
        return Ok(None);
    }
    let config = args.config.as_deref();
    if let Some(from) = &args.resume {
        // The folder may be named by each of the three.
        let named = from.as_deref().filter(|from| from.as_os_str() != asked::AUTO);
        for folder in [named, args.out.as_deref(), config].into_iter().flatten() {
            if let Some(members) = Members::of(folder)? {
                return Ok(Some(Wish::Resume(folder.to_owned(), members)));
            }
        }
        let auto = from.as_deref().is_some_and(|from| from.as_os_str() == asked::AUTO);
        // Without a name it is the newest.
        if let (true, Some(config), None) = (auto || from.is_none(), config, &args.out)
            && let Ok(newest) = Folder::existing(None, &config::name_of(config))
            && let Some(members) = Members::of(&newest.path)?
        {
            return Ok(Some(Wish::Resume(newest.path.clone(), members)));
        }
        if !auto {
            return Ok(None);
        }
    }
    let Some(config) = config else { return Ok(None) };
    let Some(experiment) = glance(config, &args.overrides.sets()) else { return Ok(None) };
    let table = experiment.data.source.table();
    let folds = table.filter(|table| table.fold.is_none()).and_then(|table| table.folds).map(Members::Folds);
    let seeds = experiment.train.seeds.map(Members::Seeds);
    Ok(folds.or(seeds).map(|members| Wish::New(config.to_owned(), members)))
}

/// A configuration without a word about it: neither the data nor the number of its classes is looked at. What is wrong is reported when it is loaded to be
/// trained.
fn glance(config: &Path, sets: &[String]) -> Option<Experiment> {
    let ask = |experiment: &Experiment| {
        let heads = experiment.heads.iter().map(|head| (head.name().to_owned(), 2)).collect();
        Ok(Counts { classes: Some(2), vocabulary: Some(2), heads })
    };
    config::load_asking(config, sets, &ask).ok().map(|loaded| loaded.experiment)
}

/// Trains them, one after the other, and shows what came of them.
///
/// # Errors
/// As for training each; the folder cannot be written.
pub fn run(args: &TrainArgs, team: &Team, wish: Wish) -> Result<ExitCode, Failure> {
    let (Wish::New(_, members) | Wish::Resume(_, members)) = &wish;
    let (members, one) = (*members, members.one());
    if !matches!(team, Team::Threads(1)) {
        let alone = match members {
            Members::Folds(_) => "`--set data.fold=1` and so on",
            Members::Seeds(_) => "`--unset train.seeds --set seed=N`, each with the same `--set data.seed`",
        };
        return Err(Failure::Usage(format!(
            "{one}s are trained by one process\nhelp: train each by itself, with {alone}"
        )));
    }
    let name = match &wish {
        Wish::New(config, _) => config::name_of(config),
        Wish::Resume(folder, _) => {
            let first = members.folders(folder).first().and_then(|first| started(first));
            first.map_or(one.to_owned(), |started| started.name)
        }
    };
    let (mut place, begun) = match wish {
        Wish::Resume(folder, _) => (Place::there(Folder::existing(Some(&folder), "").map_err(in_folder)?), true),
        Wish::New(config, _) => (begin(args, &config, members)?, false),
    };
    let top = place.path();
    // The seeds are those of the configuration that all share.
    let path = top.join(file::CONFIG);
    let shared = glance(&path, &[]).with_context(|| format!("`{}` is no configuration any more", path.display()))?;
    let all = members.number();
    let mut runs = Vec::with_capacity(all);
    let _once = SaidOnce::begin();
    for (number, path) in (1usize..).zip(members.folders(&top)) {
        let own = |number: usize| match members {
            Members::Folds(_) => vec![format!("data.fold={number}")],
            Members::Seeds(_) => of_seed(&shared, number),
        };
        // The first of them knows what was said when they went on; an interruption has kept that from others.
        let mut sets = match begun && number > 1 {
            true => lacking(&members.folders(&top)[0], &path, &own(1)),
            false => Vec::new(),
        };
        sets.extend(args.overrides.sets());
        let finished = |path: &Path| Run::read(path, Wanted::Epochs).is_ok_and(|run| run.state == State::Finished);
        if !(begun && sets.is_empty() && finished(&path)) {
            if !args.quiet && !args.output.json {
                say(&format!("{one} {number} of {all}"));
            }
            let mut request = of_member(args, (&top, &path, &name), (all, own(number)), sets, begun)?;
            request.member = Some((one, number));
            let before = place.first(&path);
            let ended = start(&request);
            if ended.is_ok() || place.first(&path) != before {
                place.keep()?;
            }
            if ended?.outcome == Some(Outcome::Interrupted) {
                say(&format!(
                    "interrupted in {one} {number} of {all}; go on with: runner train --resume {}",
                    top.display()
                ));
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
        runs.push(Run::read(&path, Wanted::Epochs)?);
    }
    if let Some(what) = difference(members, &members.folders(&top)) {
        say(&format!("warning: the {one}s are not of one training: {what}"));
    }
    let figures = figures(&runs);
    if args.output.json {
        print(&(json_line(&as_json(&figures, one, &top)) + "\n"))?;
    } else if !args.quiet {
        print(&as_text(&figures, one))?;
        say(&format!("the {one}s are in `{}`: `runner predict` takes that folder", top.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// How a training that has saved something was started.
fn started(path: &Path) -> Option<Started> {
    let (_, meta) = newest_whole(path).ok()?.found?;
    Some(Extra::of(&meta)?.started)
}

/// What the first training was given when it went on, and this one was not; `own` is what makes it the first.
fn lacking(first: &Path, path: &Path, own: &[String]) -> Vec<String> {
    let given = |path: &Path| started(path).map(|started| started.sets).unwrap_or_default();
    let (known, mut sets) = (given(path), given(first));
    sets.retain(|set| !own.contains(set) && !known.contains(set));
    sets
}

/// What a run of a seed sets: its own seed, and that of all for the data, so that all train and validate on the same samples.
fn of_seed(shared: &Experiment, number: usize) -> Vec<String> {
    let own = shared.seed.wrapping_add(number as u64 - 1);
    vec![format!("{UNSET_OPTION}train.seeds"), format!("seed={own}"), format!("data.seed={}", shared.data_seed())]
}

/// Refuses seeds for samples that have a class at each of several positions: what several models say of those has no mean here.
fn expect_one_answer(data: &DataSpec) -> Result<(), Failure> {
    let Some((_, target)) = data.target() else { return Ok(()) };
    let is_class = !matches!(target.kind, FieldKind::Number | FieldKind::Labels(_));
    if is_class && target.shape.rank() > 0 {
        return Err(Failure::Usage(
            "`seeds` is for models that say one thing of a sample, and these samples have a class at each position\nhelp: leave `seeds` out, and train \
             with another `seed` each time"
                .into(),
        ));
    }
    Ok(())
}

/// Makes the folder of new runs.
fn begin(args: &TrainArgs, config: &Path, members: Members) -> Result<Place, Failure> {
    args.out.as_deref().map_or(Ok(()), |out| place::settle(out, args.force))?;
    let loaded = load_config(config, &args.overrides.sets())?;
    let data = describe_data(&loaded)?;
    if matches!(members, Members::Seeds(_)) {
        expect_one_answer(&data)?;
    }
    // Mistakes and warnings are shown here, once for all members, with places in the user's own file.
    let Selected { backend, .. } = select(&device::Wanted::of(&loaded.experiment, args.threads))?;
    let (mut sized, passes) = (loaded.clone(), PassOptions::default());
    resolve_batch(&mut sized, &data, backend.as_ref(), &passes)?;
    build_run(&sized, &data, backend.as_ref(), &passes, &[])?;
    let (out, one) = (args.out.as_deref(), members.one());
    let mut there = None;
    if let Some(out) = out {
        let place = out.display();
        if is_run(out) {
            return Err(Failure::Usage(format!(
                "`{place}` holds a run, and {one}s do not take its place\nhelp: choose another folder with --out"
            )));
        }
        there = Members::of(out)?;
        if let Some(there) = there.filter(|_| !args.force) {
            let what = there.one();
            return Err(Failure::Usage(format!(
                "`{place}` already holds {what}s\nhelp: continue them with `runner train --resume {place}`, start anew in their place with \
                 --force, or choose another folder with --out"
            )));
        }
    }
    let replaces = if there.is_some() { Replaces::Runs } else { Replaces::Nothing };
    let folder = Folder::new(out, &loaded.experiment.name, replaces).map_err(in_folder)?;
    let mut place = Place::new(folder, there.is_some())?;
    place.folder.claim(false).map_err(in_folder)?;
    place.has_claimed();
    let path = place.folder.file(file::CONFIG);
    durable::write(&path, config::to_toml(&loaded).as_bytes())
        .with_context(|| format!("cannot write `{}`", path.display()))?;
    members.write(&place.folder.path)?;
    Ok(place)
}

/// One of the trainings, which sets what is its `own`: a new one, or one that is there and goes on with `sets`.
fn of_member(
    args: &TrainArgs,
    (top, path, name): (&Path, &Path, &str),
    (number, own): (usize, Vec<String>),
    sets: Vec<String>,
    begun: bool,
) -> Result<Request, Failure> {
    let saved = begun && path.is_dir() && newest_whole(path).is_ok_and(|newest| newest.found.is_some());
    let asked = match saved {
        true => Asked::Resume(Resume { folder: Some(path.to_owned()), ..Resume::default() }),
        false => Asked::Copied(top.join(file::CONFIG), name.to_owned()),
    };
    let mut made = request(args, asked, Team::Threads(1));
    made.out = Some(path.to_owned());
    made.sets = sets;
    // The same command begins them and goes on with them. How many there are is of all: each knows its own seed alone.
    let same = format!("train.seeds={number}");
    if saved {
        made.sets.retain(|set| set.split_whitespace().collect::<String>() != same);
    } else {
        // The configuration of all has what the command line asked for when they began.
        if !begun {
            made.sets.clear();
        }
        made.sets.extend(own);
        // What is there has saved nothing, or is to be replaced.
        made.replace = begun || args.force;
    }
    Ok(made)
}

/// A figure of all runs.
struct Column {
    name: String,
    values: Vec<Option<f64>>,
}

impl Column {
    /// The mean over the runs, and the standard deviation of one.
    fn summary(&self) -> Option<[f64; 2]> {
        let values: Vec<f64> = self.values.iter().copied().collect::<Option<_>>()?;
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some([mean, (squares / (n - 1.0)).sqrt()])
    }

    fn formatted(&self, value: f64) -> String {
        if is_share(&self.name) { percent(value) } else { figure(value, 5, 9) }
    }
}

/// The figures of validation of each run, where it was best by the figure that it watches.
fn figures(runs: &[Run]) -> Vec<Column> {
    let best = |run: &Run| run.best_line(run.best.as_ref().map_or("val_loss", |best| &best.monitor)).cloned();
    let lines: Vec<Option<Map<String, Value>>> = runs.iter().map(best).collect();
    let names = lines.iter().flatten().next().map(|line| line.keys().filter(|key| key.starts_with("val_")).cloned());
    let column = |name: String| {
        let values = lines.iter().map(|line| line.as_ref().and_then(|line| number(line, &name))).collect();
        Column { name, values }
    };
    names.into_iter().flatten().map(column).collect()
}

fn as_text(figures: &[Column], one: &str) -> String {
    let head = std::iter::once(one.to_owned()).chain(figures.iter().map(|column| column.name.clone()));
    let mut grid = Grid::new(head.collect(), 1);
    let all = figures.first().map_or(0, |column| column.values.len());
    let mut row = |name: String, of: &dyn Fn(&Column) -> Option<f64>| {
        let cell = |column: &Column| of(column).map_or("-".to_owned(), |value| column.formatted(value));
        grid.row(std::iter::once(name).chain(figures.iter().map(cell)).collect());
    };
    for at in 0..all {
        row((at + 1).to_string(), &|column| column.values[at]);
    }
    row("mean".to_owned(), &|column| column.summary().map(|[mean, _]| mean));
    row("deviation".to_owned(), &|column| column.summary().map(|[_, deviation]| deviation));
    grid.text()
}

fn as_json(figures: &[Column], one: &str, folder: &Path) -> Value {
    let of = |column: &Column| {
        let [mean, deviation] = column.summary().map_or([None; 2], |both| both.map(Some));
        (column.name.clone(), json!({ format!("{one}s"): column.values, "mean": mean, "deviation": deviation }))
    };
    json!({ "kind": format!("{one}s"), "folder": folder.display().to_string(), "figures": figures.iter().map(of).collect::<Map<String, Value>>() })
}
