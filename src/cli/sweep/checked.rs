//! The trials of a sweep before the first is trained: all configurations are checked, and all their mistakes reported at once, at
//! their places in `[sweep]`.

use crate::api::failure::{Failure, warn};
use crate::api::memory::{Planned, resolve_batch};
use crate::api::model::{build, describe_data, device, refuse};
use crate::api::pretrained;
use crate::api::train::{Team, ranks};
use crate::api::what::expect_configuration;
use crate::backend::{Backend, DeviceError};
use crate::config::language::sections::{EvalEvery, Length, Method, Monitor, Sweep};
use crate::config::{self, Assigned, Diagnostic, Experiment, Loaded, Severity, SourceId, Sources, Trials};
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::random::hash_name;
use crate::runs::Run;
use crate::runs::folder::values;
use crate::runs::lines::Wanted;
use crate::sweep::{draw, incomparable};
use crate::terminal::Bar;
use crate::train::files::weights;
use crate::train::setup::input::{self, counts};
use crate::train::setup::lints;
use crate::train::setup::memory::{MemoryPlan, Needs, Use};
use crate::train::setup::photos::PhotoPlan;
use crate::train::setup::programs::Sizes;
use crate::train::setup::schedule::updates;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// Keys that are named of those that have changed.
const MOST_CHANGED: usize = 4;

/// A configuration with its sweep, read and not yet looked at trial by trial.
pub struct Read {
    path: PathBuf,
    sets: Vec<String>,
    trials: Trials,
    /// The configuration as it is without the values of a trial.
    pub base: Loaded,
    /// Its `[sweep]`.
    pub sweep: Sweep,
    /// The figure by which trials are compared.
    pub monitor: Monitor,
    /// What each trial assigns.
    pub values: Vec<Vec<Assigned>>,
}

/// A trial that can be trained.
pub struct Checked {
    /// A fingerprint of its configuration.
    pub fingerprint: String,
    /// How long it is.
    pub length: Length,
    /// Epochs that the whole run begins, at most.
    pub epochs: u64,
    /// Bytes that it takes on the host.
    pub host: usize,
    /// Bytes that it takes on the device, where that has memory of its own.
    pub device: Option<usize>,
}

impl Checked {
    /// Whether its length is given in steps.
    pub fn counts_steps(&self) -> bool {
        matches!(self.length, Length::Steps(_))
    }
}

/// A trial has one curve, also where a parameter of the sweep asks for several trainings.
fn expect_one_training(experiment: &Experiment) -> Result<(), Failure> {
    let folds = experiment.data.source.table().is_some_and(|table| table.folds.is_some() && table.fold.is_none());
    let several = if experiment.train.seeds.is_some() { "train.seeds" } else { "data.folds" };
    if !folds && experiment.train.seeds.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "a trial of a sweep is one training, and `{several}` asks for several\nhelp: leave it out of the parameters; `seed`, or `data.fold` with `data.folds`, may be among them"
    )))
}

impl Read {
    /// Reads a configuration with the options of a sweep.
    ///
    /// # Errors
    /// What is wrong in it without regard to the values of trials; there is no sweep in it.
    pub fn new(path: &Path, sets: &[String]) -> Result<Read, Failure> {
        expect_configuration(path)?;
        let (trials, base) = Trials::read(path, sets, &counts)?;
        let Some(sweep) = base.experiment.sweep.clone() else {
            return Err(Failure::Usage(format!(
                "there is nothing to try: `{}` has no section `[sweep]`\nhelp: name keys and values, as in `--sweep \
                 optimizer.lr=1e-4..1e-1:log`",
                path.display()
            )));
        };
        let monitor = sweep.monitor.clone().unwrap_or_else(|| base.experiment.checkpoint.monitor().clone());
        let values = draw::trials(&sweep, base.experiment.seed);
        Ok(Read { path: path.to_path_buf(), sets: sets.to_vec(), trials, base, sweep, monitor, values })
    }

    /// All that a trial has in the place of the configuration's own.
    fn assigned(&self, trial: usize) -> Vec<Assigned> {
        let mut all = self.values[trial].clone();
        if let (Some(monitor), Some(span)) = (&self.sweep.monitor, self.base.experiment.nearest_span("sweep.monitor")) {
            let word = monitor.name();
            let toml = toml::Value::String(word.into()).to_string();
            all.push(Assigned { key: "checkpoint.monitor".into(), value: word.into(), toml, key_span: span, span });
        }
        all
    }

    /// The values of a trial, number from 0, as `train` takes them with `--set`.
    pub fn sets_of(&self, trial: usize) -> Vec<String> {
        self.assigned(trial).iter().map(Assigned::set).collect()
    }

    /// Whether the files still say of a trial what they said when it was checked.
    ///
    /// # Errors
    /// They cannot be read any more, or are wrong now.
    pub fn is_still(&self, trial: usize, checked: &Checked) -> Result<bool, Failure> {
        let (trials, _) = Trials::read(&self.path, &self.sets, &counts)?;
        let loaded = trials.load(&self.assigned(trial), &counts)?;
        Ok(fingerprint(&loaded) == checked.fingerprint)
    }

    /// What is another in a trial than in the run of it that is in `folder`, in words; `None` if that is not known.
    pub fn changed(&self, trial: usize, folder: &Path) -> Option<String> {
        let now = values(&config::to_toml(&self.trials.load(&self.assigned(trial), &counts).ok()?))?;
        let was: BTreeMap<String, Value> = Run::read(folder, Wanted::Epochs).ok()?.config.into_iter().collect();
        let keys: BTreeSet<&String> =
            was.keys().chain(now.keys()).filter(|key| was.get(*key) != now.get(*key)).collect();
        let shown = |value: Option<&Value>| value.map_or("not set".to_owned(), Value::to_string);
        let word = |key: &&String| format!("`{key}` was {}, and is {}", shown(was.get(*key)), shown(now.get(*key)));
        let words: Vec<String> = keys.iter().take(MOST_CHANGED).map(word).collect();
        let more = keys.len().saturating_sub(MOST_CHANGED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!was.is_empty() && !words.is_empty()).then(|| format!("{}{more}", words.join("; ")))
    }

    /// Refuses a trial whose figure is never measured, or not before `halving` compares it. `val` are its samples to validate on, if
    /// that is known, and `updates` those of an epoch.
    fn expect_values(&self, loaded: &Loaded, val: Option<usize>, updates: u64) -> Result<(), Diagnostic> {
        if !self.monitor.of_validation() {
            return Ok(());
        }
        let (base, train) = (&self.base.experiment, &loaded.experiment.train);
        if val == Some(0) {
            let message = format!("`{}`, by which trials are compared, never has a value", self.monitor.name());
            let help = "`validation_split` in `[data]` holds samples out; `monitor = \"train_loss\"` in `[sweep]` compares trials without";
            let places = [("sweep.monitor", "compares trials"), ("data.source", "has no samples to validate on")];
            return Err(lints::at(base, Diagnostic::error(message).help(help), &places));
        }
        let (first, key) = match train.eval_every() {
            EvalEvery::Epochs(every) => (every, "train.eval_every"),
            EvalEvery::Steps(every) => (every.div_ceil(updates), "train.eval_every_steps"),
        };
        let (least, last) = (self.sweep.min_epochs as u64, train.length().in_epochs().unwrap_or(u64::MAX));
        if self.sweep.method != Method::Halving || self.values.len() < 2 || least >= first.min(last) {
            return Ok(());
        }
        let first = first.min(last);
        let message = format!(
            "the first round of `halving` ends after epoch {least}, and nothing is validated until epoch {first}"
        );
        let help = match first < last {
            true => format!("write `min_epochs = {first}` in `[sweep]`, or validate more often"),
            false => "validate more often".into(),
        };
        let places = [("sweep.min_epochs", "ends the first round"), (key, "from one validation to the next")];
        Err(lints::at(base, Diagnostic::error(message).help(help), &places))
    }

    /// Checks every trial: its configuration, its device, its programs, its weights, its memory; and the warnings that were shown, as trials say them again. `backend` is the
    /// device of those that name no other.
    ///
    /// # Errors
    /// All mistakes of all trials; one that the device has no memory for.
    pub fn check(
        &self,
        backend: &dyn Backend,
        threads: Option<usize>,
        passes: &PassOptions,
    ) -> Result<(Vec<Checked>, BTreeSet<String>), Failure> {
        let mut found = Diagnostics { sources: self.base.sources.clone(), ..Diagnostics::default() };
        found.known.clone_from(&self.base.warnings);
        found.new.extend(incomparable(&self.base.experiment));
        let mut checked = Vec::with_capacity(self.values.len());
        // The data of all trials is the same unless one of them says otherwise.
        let own_data = self.values.iter().flatten().any(|value| value.key.starts_with("data"));
        let mut described: Option<DataSpec> = None;
        let own_model = self
            .values
            .iter()
            .flatten()
            .any(|value| ["model", "params", "blocks"].contains(&value.key.split('.').next().unwrap_or_default()));
        let mut weights: HashSet<Option<PathBuf>> = HashSet::new();
        let bar = Bar::new("checking trials", self.values.len() as u64, 0);
        for number in 0..self.values.len() {
            let values = self.assigned(number);
            let one = self.trials.load(&values, &counts).map_err(Failure::from).and_then(|mut loaded| {
                let fingerprint = fingerprint(&loaded);
                expect_one_training(&loaded.experiment)?;
                ranks::spread(&mut loaded.experiment.clone(), Team::Threads(1), false)?;
                let own = match loaded.experiment.device == self.base.experiment.device {
                    true => None,
                    false => Some(device(&loaded.experiment, threads)?),
                };
                let backend = own.as_deref().unwrap_or(backend);
                let data = match &described {
                    Some(data) if !own_data => data.clone(),
                    _ => describe_data(&loaded)?,
                };
                resolve_batch(&mut loaded, &data, backend, passes)?;
                let experiment = &loaded.experiment;
                lints::require_a_batch(experiment, &data).map_err(|error| refuse(&loaded, error))?;
                let programs = build(&loaded, &data, &Sizes::of_run(experiment, &data), backend, passes)?;
                // Nothing is fetched to look at a file.
                let is_new = weights.insert(experiment.model.weights.clone());
                if pretrained::missing(experiment).is_none() && (is_new || own_model) {
                    weights::read(experiment, &programs.plan.variables, &data)
                        .map_err(|error| refuse(&loaded, error))?;
                }
                let photos = PhotoPlan::new(experiment, &data, true);
                let needs = Needs::of_run(experiment, &data, photos.with(input::footprint(experiment)), true);
                let (plan, what) = (&programs.plan, Use::Training);
                let planned = Planned { loaded: &loaded, data: &data, plan, backend, what, needs, passes };
                let MemoryPlan { summary, device, host, .. } = planned.require()?;
                let on_device = device.map(|_| summary.total);
                // An epoch has a step at least.
                let updates = data.train.map_or(1, |samples| updates(experiment, samples));
                let length = experiment.train.length();
                let epochs = length.epochs(updates);
                let steps = data.train.map_or(u64::MAX, |_| updates);
                self.expect_values(&loaded, data.val, steps).map_err(|error| refuse(&loaded, error))?;
                let warnings = [&loaded.warnings[..], &programs.warnings].concat();
                let checked = Checked { fingerprint, length, epochs, host: host.total, device: on_device };
                Ok((checked, loaded.sources.clone(), warnings, data))
            });
            match one {
                Ok((one, sources, mut warnings, data)) => {
                    self.trials.place(&values, &mut warnings);
                    found.take(&sources, warnings, number);
                    checked.push(one);
                    described = Some(data);
                }
                Err(Failure::Config { sources, mut diagnostics }) => {
                    self.trials.place(&values, &mut diagnostics);
                    found.take(&sources, diagnostics, number);
                }
                Err(Failure::Device(e)) => {
                    return Err(
                        DeviceError(format!("trial {}, {}: {e}", number + 1, words(&self.values[number]))).into()
                    );
                }
                Err(other) => return Err(other),
            }
            if let Some(bar) = &bar {
                bar.set(number as u64 + 1);
            }
        }
        drop(bar);
        if found.new.iter().any(|d| d.severity == Severity::Error) {
            return Err(Failure::Config { sources: found.sources, diagnostics: found.new });
        }
        warn(&found.sources, &found.new);
        let shown = found.known.iter().chain(&found.new).map(|warning| warning.message.clone()).collect();
        Ok((checked, shown))
    }
}

fn fingerprint(loaded: &Loaded) -> String {
    format!("{:016x}", hash_name(&config::to_toml(loaded)))
}

/// The values of a trial on one line.
pub fn words(values: &[Assigned]) -> String {
    values.iter().map(|value| format!("{} = {}", value.key, value.toml)).collect::<Vec<_>>().join(", ")
}

/// The diagnostics of all trials together. Of one that many trials have, the first.
#[derive(Default)]
struct Diagnostics {
    sources: Sources,
    known: Vec<Diagnostic>,
    new: Vec<Diagnostic>,
}

impl Diagnostics {
    fn take(&mut self, sources: &Sources, diagnostics: Vec<Diagnostic>, trial: usize) {
        let ids: Vec<SourceId> = sources.iter().map(|(_, source)| self.source(source)).collect();
        for mut diagnostic in diagnostics {
            diagnostic.labels.iter_mut().for_each(|label| label.span.source = ids[label.span.source.0]);
            let places = |d: &Diagnostic| d.labels.iter().map(|label| label.span).collect::<Vec<_>>();
            // The same of another value.
            let gist = |d: &Diagnostic| {
                d.message.chars().filter(|c| !c.is_ascii_digit() && !"e.-".contains(*c)).collect::<String>()
            };
            let same = |d: &Diagnostic| {
                d.severity == diagnostic.severity && gist(d) == gist(&diagnostic) && places(d) == places(&diagnostic)
            };
            if !self.known.iter().chain(&self.new).any(same) {
                self.new.push(diagnostic.note(format!("in trial {}", trial + 1)));
            }
        }
    }

    /// The number of a text among those of all trials.
    fn source(&mut self, source: &config::Source) -> SourceId {
        let same = |other: &config::Source| other.name == source.name && other.text == source.text;
        let found = self.sources.iter().find(|(_, other)| same(other)).map(|(id, _)| id);
        found.unwrap_or_else(|| self.sources.add(&source.name, &source.text, source.kind))
    }
}
