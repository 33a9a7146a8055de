//! Whether the files of a run agree: checkpoints with their checksums and with one another, metrics, configuration.

use super::figure::higher_is_better;
use super::folder::flat;
use super::lines::{Line, Lines, Wanted, number, within};
use crate::checkpoint::{self, FileKind, Meta};
use crate::config;
use crate::config::load::paths::shown;
use crate::files;
use crate::train::files::folder::{file, is_at_work, takes_its_place, was_killed};
use crate::train::files::metrics_csv;
use crate::train::files::state::Extra;
use crate::train::files::tensors::Base;
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A configuration is at most as long as what a checkpoint carries of it, with a note before it.
const MOST_CONFIG: u64 = 64 << 20;
/// Disagreements of one kind that are listed one by one.
const MOST_LISTED: usize = 20;

/// What two files do not agree on, or what is wrong with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// The file that is wrong, as far as that is known.
    pub file: PathBuf,
    /// What is wrong.
    pub what: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// The files that are sound in themselves, and what they are.
    pub files: Vec<(PathBuf, String)>,
    /// What does not agree.
    pub disagreements: Vec<Disagreement>,
    /// What there is to know besides.
    pub notes: Vec<String>,
}

/// A checkpoint whose every byte is as it was written.
struct Sound {
    path: PathBuf,
    kind: FileKind,
    meta: Meta,
    shapes: BTreeMap<String, String>,
}

/// Looks at all files of the run in a folder.
pub fn verify(folder: &Path) -> Verified {
    let mut done = Verified::default();
    let (at_work, killed) = (is_at_work(folder), was_killed(folder));
    if at_work {
        done.notes.push("a process is at work in the folder: what it is writing may not agree yet".into());
    } else if killed {
        done.notes.push(
            "its last process was killed: what it wrote after its last checkpoint is taken away where the run goes on"
                .into(),
        );
    }
    // The files of two runs are there, some of them in their places.
    if let Some(new) = takes_its_place(folder) {
        for folder in [folder, &new] {
            let _ = done.checkpoints(folder);
        }
        done.notes.push(format!(
            "a new run, which `--force` has begun, was cut off while it took the place of the one before: `runner train --resume {}` finishes that. \
             Until then checkpoints alone are verified, each by itself",
            folder.display()
        ));
        return done;
    }
    let Some(checkpoints) = done.checkpoints(folder) else { return done };
    let last = checkpoints.iter().find(|sound| sound.kind == FileKind::Last);
    configuration(folder, last, !at_work && !killed, &mut done);
    if let Some(sound) = last.or(checkpoints.first()) {
        base(sound, &mut done);
    }
    let lines = metrics(folder, last, &mut done);
    let failed = lines.as_ref().is_some_and(|lines| lines.failed.is_some());
    let cut_off = at_work || killed || failed;
    if !files::is_there(&folder.join(file::LAST)) {
        let nothing = lines.as_ref().is_some_and(|lines| lines.epochs.is_empty()) && checkpoints.is_empty();
        match cut_off || nothing {
            true => done.notes.push(format!("it has ended before it could save `{}`", file::LAST)),
            false => done.wrong(&folder.join(file::LAST), "is not there: a run saves its newest state in it"),
        }
    }
    // It follows from lines that could be read.
    if lines.is_some() {
        let settled = !at_work && !killed && !last.is_some_and(|last| broke_off(folder, last));
        table(folder, settled, &mut done);
    }
    let Some(last) = last else { return done };
    // A run writes `last` after the others. One that was cut off in between goes on from `last`, and writes the others again.
    // A disk that is full may have no room for a line that says so.
    let may_be_ahead = |kind: &FileKind| cut_off || matches!(kind, FileKind::Step(_)) && broke_off(folder, last);
    let ahead = |other: &Sound| other.meta.step > last.meta.step && may_be_ahead(&other.kind);
    for other in checkpoints.iter().filter(|sound| sound.kind != FileKind::Last) {
        if ahead(other) {
            let (name, step) = (other.path.file_name().unwrap_or_default().display(), other.meta.step);
            done.notes.push(format!("`{name}` is of step {step}, and `{}` of step {}", file::LAST, last.meta.step));
        } else {
            of_one_run(other, last, &mut done);
        }
    }
    if !checkpoints.iter().any(|other| other.kind == FileKind::Best && ahead(other)) {
        best(folder, &checkpoints, last, lines.as_ref(), &mut done);
    }
    done
}

impl Verified {
    fn wrong(&mut self, file: &Path, what: impl Into<String>) {
        self.disagreements.push(Disagreement { file: file.to_owned(), what: what.into() });
    }

    fn checkpoints(&mut self, folder: &Path) -> Option<Vec<Sound>> {
        checkpoints(folder, self).map_err(|error| self.wrong(folder, format!("{error:#}"))).ok()
    }
}

/// Reads every byte of every checkpoint.
fn checkpoints(folder: &Path, done: &mut Verified) -> Result<Vec<Sound>> {
    let cannot = || format!("cannot read the folder `{}`", folder.display());
    let mut found: Vec<(FileKind, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name();
        if let Some(kind) = name.to_str().and_then(FileKind::of) {
            found.push((kind, entry.path()));
        }
    }
    let place = |kind: &FileKind| match kind {
        FileKind::Last => (0, 0),
        FileKind::Best => (1, 0),
        FileKind::Step(n) => (2, *n),
    };
    found.sort_by_key(|(kind, _)| place(kind));
    let mut sound = Vec::new();
    for (kind, path) in found {
        let read = checkpoint::verify(&path).and_then(|meta| Ok((meta, checkpoint::read_header_of(&path)?)));
        match read {
            Err(error) => done.wrong(&path, error.reason.to_string()),
            Ok((meta, header)) => {
                let weights = header.iter().filter(|(name, _)| !checkpoint::is_optimizer_state(name));
                let shapes = weights.map(|(name, header)| (name.clone(), format!("{:?}", header.shape))).collect();
                done.files.push((path.clone(), format!("whole; step {}, {} tensors", meta.step, header.len())));
                if let FileKind::Step(step) = kind
                    && step != meta.step
                {
                    done.wrong(
                        &path,
                        format!("is called by step {step}, and holds the state after step {}", meta.step),
                    );
                }
                sound.push(Sound { path, kind, meta, shapes });
            }
        }
    }
    Ok(sound)
}

/// The weights that adapters are added to, in the file that checkpoints leave them to.
fn base(of: &Sound, done: &mut Verified) {
    let Some(base) = Base::of(&of.meta) else { return };
    // What is wrong with the configuration is reported where it is looked at.
    let Ok(loaded) = config::load_effective(&of.path.display().to_string(), &of.meta.config, &[]) else { return };
    let path = loaded.experiment.model.weights.as_deref().map(shown).unwrap_or_default();
    match base.read(&loaded.experiment, &of.path) {
        Ok(tensors) => done.files.push((path, format!("{} tensors that the adapters are added to", tensors.len()))),
        Err(error) => {
            done.wrong(&path, format!("{}; checkpoints of the run hold adapters for weights in it", error.message))
        }
    }
}

/// The configuration in its file, and the one that the newest checkpoint carries.
fn configuration(folder: &Path, last: Option<&Sound>, settled: bool, done: &mut Verified) {
    let path = folder.join(file::CONFIG);
    let read = files::read(&path, MOST_CONFIG).map_err(|error| error.problem.to_string());
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "is no text in UTF-8".to_owned()));
    let keys = |text: &str| toml::from_str::<Map<String, Value>>(text).map(|table| flat(&Value::Object(table)));
    let own = match text.and_then(|text| keys(&text).map_err(|error| format!("is no TOML: {}", error.message()))) {
        Ok(own) => own,
        Err(what) => return done.wrong(&path, what),
    };
    done.files.push((path.clone(), format!("{} keys", own.len())));
    let Some(last) = last else { return };
    let Ok(carried) = keys(&last.meta.config) else {
        return done.wrong(&last.path, "carries a configuration that is no TOML");
    };
    let mut differing = 0;
    let get =
        |list: &[(String, Value)], key: &str| list.iter().find(|(name, _)| name == key).map(|(_, v)| v.to_string());
    let names = own.iter().chain(carried.iter().filter(|(name, _)| get(&own, name).is_none())).map(|(name, _)| name);
    for name in names {
        let (here, there) = (get(&own, name), get(&carried, name));
        if here == there {
            continue;
        }
        differing += 1;
        let say = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
        if differing <= MOST_LISTED {
            let what = format!("`{name}` is {}, and {} in `{}`", say(here), say(there), file::LAST);
            match settled {
                true => done.wrong(&path, what),
                // It is written before the first checkpoint of a run that goes on with other values.
                false => done.notes.push(format!("`{}`: {what}", path.display())),
            }
        }
    }
    if differing > MOST_LISTED {
        done.wrong(&path, format!("{} more keys differ from those in `{}`", differing - MOST_LISTED, file::LAST));
    }
    let seed = own.iter().find(|(name, _)| name == "seed").and_then(|(_, value)| value.as_u64());
    if seed.is_some_and(|seed| seed != last.meta.seed) {
        done.wrong(
            &last.path,
            format!("was made with the seed {}, and `{}` has another", last.meta.seed, file::CONFIG),
        );
    }
}

/// The lines of the metrics: each by itself, their order, and how far the newest checkpoint counts on them.
fn metrics(folder: &Path, last: Option<&Sound>, done: &mut Verified) -> Option<Lines> {
    let path = folder.join(file::METRICS);
    if !files::is_there(&path) {
        done.wrong(&path, "is not there");
        return None;
    }
    let lines = match Lines::read(&path, Wanted::All) {
        Ok(lines) => lines,
        Err(error) => {
            done.wrong(&path, error.problem.to_string());
            return None;
        }
    };
    for (number, why) in lines.broken.iter().take(MOST_LISTED) {
        done.wrong(&path, format!("line {number} cannot be read: {why}"));
    }
    if lines.broken.len() > MOST_LISTED {
        done.wrong(&path, format!("{} more lines cannot be read", lines.broken.len() - MOST_LISTED));
    }
    done.files
        .push((path.clone(), format!("{} updates, {} epochs and evaluations", lines.steps.len(), lines.epochs.len())));
    let step = |line: &Line| line.get("step").and_then(Value::as_u64).unwrap_or(0);
    for kind in [&lines.steps, &lines.epochs] {
        if let Some(pair) = kind.windows(2).find(|pair| step(&pair[1]) < step(&pair[0])) {
            done.wrong(&path, format!("a line of step {} stands after one of step {}", step(&pair[1]), step(&pair[0])));
        }
    }
    let Some(last) = last else { return Some(lines) };
    let settled = is_settled(folder, last);
    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let counted = Extra::of(&last.meta).map_or(0, |extra| extra.metrics_bytes);
    if bytes < counted {
        done.wrong(&path, format!("has {bytes} bytes, and {counted} when `{}` was saved: lines are lost", file::LAST));
    } else if settled && bytes > counted && lines.failed.is_none() {
        done.wrong(&path, format!("has {} bytes more than when the run ended", bytes - counted));
    } else if broke_off(folder, last) && lines.failed.is_none() {
        done.notes.push(format!(
            "its last process ended before it could save: what it wrote after step {} is taken away where the run goes on",
            last.meta.step
        ));
    }
    // A note may report lines that were lost before; then there is nothing to count.
    let whole = lines.broken.is_empty() && lines.notes.is_empty() && bytes >= counted;
    let ended = lines.epochs.iter().filter(|line| !within(line)).filter_map(|line| line.get("epoch")?.as_u64());
    let ended: Vec<u64> = ended.collect();
    if whole && settled {
        let expected = last.meta.epoch;
        if ended.last().copied().unwrap_or(0) != expected {
            let has = ended.last().map_or_else(|| "none".to_owned(), u64::to_string);
            done.wrong(&path, format!("its last epoch is {has}, and {expected} in `{}`", file::LAST));
        } else if let Some(gap) = ended.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            done.wrong(&path, format!("epoch {} stands after epoch {}", gap[1], gap[0]));
        }
        if lines.step() > last.meta.step {
            done.wrong(
                &path,
                format!("goes on to step {}, and `{}` to step {}", lines.step(), file::LAST, last.meta.step),
            );
        }
    }
    Some(lines)
}

/// Whether no line of the metrics came after the newest checkpoint.
fn is_settled(folder: &Path, last: &Sound) -> bool {
    !is_at_work(folder) && !was_killed(folder) && !ends_within(last) && !broke_off(folder, last)
}

/// Whether `max_steps` has ended the run. Where that is within an epoch, the figures there come after the checkpoint, and a run that goes on takes them
/// away.
fn ends_within(last: &Sound) -> bool {
    key(&last.meta.config, "train.max_steps").is_some_and(|most| last.meta.step >= most)
}

/// Whether the run ended after its newest checkpoint and before its end, as on a full disk: it has written lines that no checkpoint counts on.
fn broke_off(folder: &Path, last: &Sound) -> bool {
    let config = &last.meta.config;
    let ended = key(config, "train.epochs").is_some_and(|epochs| last.meta.epoch >= epochs)
        || key(config, "train.steps").is_some_and(|steps| last.meta.step >= steps);
    let bytes = fs::metadata(folder.join(file::METRICS)).map_or(0, |metadata| metadata.len());
    !ended && !ends_within(last) && Extra::of(&last.meta).is_some_and(|extra| bytes > extra.metrics_bytes)
}

/// A number of a configuration.
fn key(config: &str, name: &str) -> Option<u64> {
    let table: Map<String, Value> = toml::from_str(config).ok()?;
    flat(&Value::Object(table)).into_iter().find(|(key, _)| key == name)?.1.as_u64()
}

/// The table that follows from the metrics.
fn table(folder: &Path, settled: bool, done: &mut Verified) {
    let (path, metrics) = (folder.join(file::CSV), folder.join(file::METRICS));
    if !files::is_there(&metrics) {
        return;
    }
    if !files::is_there(&path) {
        return done.wrong(&path, "is not there");
    }
    match metrics_csv::difference(&path, &metrics, settled) {
        Ok(None) => done.files.push((path, format!("as `{}`", file::METRICS))),
        Ok(Some((line, what))) => {
            done.wrong(&path, format!("line {line} is not as `{}` has it: {what}", file::METRICS))
        }
        Err(error) => done.wrong(&path, format!("{error:#}")),
    }
}

/// Two checkpoints must be of one run: of one seed, with weights of the same names and shapes, and `last` the newest.
fn of_one_run(other: &Sound, last: &Sound, done: &mut Verified) {
    let path = &other.path;
    if other.meta.seed != last.meta.seed {
        done.wrong(
            path,
            format!("was made with the seed {}, and `{}` with {}", other.meta.seed, file::LAST, last.meta.seed),
        );
    }
    if other.meta.step > last.meta.step {
        done.wrong(
            path,
            format!(
                "is of step {}, and `{}` of step {}, which should be the newest",
                other.meta.step,
                file::LAST,
                last.meta.step
            ),
        );
    }
    let names = other.shapes.keys().chain(last.shapes.keys().filter(|name| !other.shapes.contains_key(*name)));
    let differs = |name: &&String| other.shapes.get(*name) != last.shapes.get(*name);
    let differing: Vec<&String> = names.filter(differs).collect();
    if let Some(name) = differing.first() {
        let say =
            |shapes: &BTreeMap<String, String>| shapes.get(*name).cloned().unwrap_or_else(|| "not there".to_owned());
        let more =
            if differing.len() > 1 { format!(", and {} others differ", differing.len() - 1) } else { String::new() };
        done.wrong(
            path,
            format!(
                "its weights are not those of `{}`: `{name}` is {}, and {} there{more}",
                file::LAST,
                say(&other.shapes),
                say(&last.shapes)
            ),
        );
    }
}

fn step(line: &Line) -> Option<u64> {
    line.get("step").and_then(Value::as_u64)
}

/// A `best` that does not know what it is the best of: the state at which `max_steps` ended the run within an epoch, where no epoch had been evaluated.
fn unchosen(path: &Path, best: &Sound, last: &Sound, lines: &Lines, done: &mut Verified) {
    let of = best.meta.step;
    let measured = lines.epochs.iter().find(|line| step(line) == Some(of));
    match (measured, &last.meta.best) {
        (None, _) if of != last.meta.step => {
            done.wrong(path, format!("is of step {of}, after which nothing was evaluated"));
        }
        (Some(line), Some(known)) => {
            let value = number(line, &known.monitor).unwrap_or(f64::NAN);
            let as_good = if higher_is_better(&known.monitor) { value >= known.value } else { value <= known.value };
            if !as_good {
                let what =
                    format!("is of step {of}, where `{}` is {value}, and the best is {}", known.monitor, known.value);
                done.wrong(path, what);
            }
        }
        _ => {}
    }
}

/// `best` must be the state at the line that has the best value of the monitored figure.
fn best(folder: &Path, all: &[Sound], last: &Sound, lines: Option<&Lines>, done: &mut Verified) {
    let path = folder.join(file::BEST);
    let file_of_best = all.iter().find(|sound| sound.kind == FileKind::Best);
    let sound_lines = lines.filter(|lines| lines.broken.is_empty() && lines.notes.is_empty());
    if let (Some(best), Some(lines)) = (file_of_best.filter(|best| best.meta.best.is_none()), sound_lines) {
        unchosen(&path, best, last, lines, done);
    }
    let Some(known) = &last.meta.best else { return };
    let Some(best) = file_of_best else {
        if !files::is_there(&path) {
            let what =
                format!("is not there, and `{}` knows of a best `{}` of {}", file::LAST, known.monitor, known.value);
            done.wrong(&path, what);
        }
        return;
    };
    let Some(own) = &best.meta.best else { return };
    // A run that goes on with another figure keeps the file, and judges it by that.
    if own != known && own.monitor == known.monitor {
        done.wrong(
            &path,
            format!(
                "has `{}` {}, and the best is `{}` {} by `{}`",
                own.monitor,
                own.value,
                known.monitor,
                known.value,
                file::LAST
            ),
        );
        return;
    }
    let Some(lines) = sound_lines else { return };
    let at = lines.epochs.iter().find(|line| step(line) == Some(best.meta.step));
    let has = at.and_then(|line| number(line, &known.monitor));
    if has != Some(known.value) {
        let has = has.map_or_else(|| "none".to_owned(), |value| value.to_string());
        let kept = if own == known { file::BEST } else { file::LAST };
        let what = format!("`{}` at step {} is {has}, and {} in `{kept}`", known.monitor, best.meta.step, known.value);
        return done.wrong(&folder.join(file::METRICS), what);
    }
    // Figures before did not count: another one was monitored. Those after the checkpoint do not count yet.
    let from = Extra::of(&last.meta).map_or(0, |extra| extra.best_from);
    let until = last.meta.step + u64::from(is_settled(folder, last));
    let higher = higher_is_better(&known.monitor);
    let counted = lines.epochs.iter().filter_map(|line| Some((step(line)?, number(line, &known.monitor)?)));
    let mut better = counted
        .filter(|(step, _)| (from..until).contains(step))
        .filter(|(_, value)| if higher { *value > known.value } else { *value < known.value });
    if let Some((step, value)) = better.next() {
        let what = format!(
            "`{}` at step {step} is {value}, better than the {} of step {} in `{}`",
            known.monitor,
            known.value,
            best.meta.step,
            file::BEST
        );
        done.wrong(&folder.join(file::METRICS), what);
    }
}
