//! The position of a run, and how it is written into a checkpoint and read again.

use super::sample::Sample;
use super::tensors::Base;
use crate::bulk;
use crate::checkpoint::{self, Best, Header, Meta, Tensor, TensorInfo};
use crate::config::language::sections::Fitted;
use crate::data::{Classes, Unread};
use crate::graph::op::{METRIC_SLOTS, metric_slot};
use crate::graph::{DType, VarKind, Variable};
use crate::model::{Mode, metric_sums};
use crate::train::setup::schedule::PlateauState;
use crate::train::setup::session::Session;
use crate::train::setup::transfer::in_checkpoint;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The place of a run in its course. Together with the tensors it determines everything that follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunState {
    /// Whole epochs done.
    pub epoch: u64,
    /// Batches of the current epoch done; all of them: only the evaluation is missing.
    pub batch: u64,
    /// Updates done.
    pub step: u64,
    /// The best value of the monitored figure.
    pub best: Option<Best>,
    /// What else is kept.
    pub extra: Extra,
}

/// The parts of a [`RunState`] that only `runner` itself reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// Batches done in the whole run: keys the random draws.
    pub micro_step: u64,
    /// Length of the metrics file.
    pub metrics_bytes: u64,
    /// The epoch's running metric sums, as bits, so that they come back exactly.
    pub train_sums: Vec<u64>,
    /// The loss of the evaluation that the best checkpoint was chosen by: it decides where the figure is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_loss: Option<f64>,
    /// Updates done at the first evaluation that the best one was chosen among: more than none where the run went on with another monitor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub best_from: u64,
    /// The best value that early stopping has seen.
    pub early_best: Option<f64>,
    /// Evaluations since then.
    pub early_waited: usize,
    /// Updates done at the last evaluation that counts: which one is next follows from it.
    #[serde(default)]
    pub evaluated: u64,
    /// What a schedule that watches a figure knows of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub plateau: PlateauState,
    /// How many models are in the mean of weights over epochs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub averaged: Averaged,
    /// Training seconds of the current epoch so far.
    pub epoch_seconds: f64,
    /// The samples are not what was asked for: why.
    pub data_note: Option<String>,
    /// Identifies the data.
    #[serde(default)]
    pub data_fingerprint: Option<String>,
    /// How samples were drawn from the data: [`super::provenance::DRAW`].
    #[serde(default)]
    pub draw: u32,
    /// The options that the run was started with, so that it goes on with the same.
    #[serde(default)]
    pub started: Started,
    /// What a sample looks like, so that a model can be used without its data.
    #[serde(default)]
    pub sample: Option<Sample>,
    /// Training samples that could not be read so far.
    #[serde(default, skip_serializing_if = "Unread::is_empty")]
    pub unreadable: Unread,
    /// Samples of the validation that could not be read so far.
    #[serde(default, skip_serializing_if = "Unread::is_empty")]
    pub val_unreadable: Unread,
    /// The choices that the device made by measuring, so that the run goes on with the same: [`crate::backend::Backend::choices`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_choices: Option<String>,
    /// The weights that adapters are added to, which the checkpoint leaves to the file that the training started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

impl Extra {
    /// That of a checkpoint, if it can be read.
    pub fn of(meta: &Meta) -> Option<Extra> {
        serde_json::from_value(meta.extra.clone()).ok()
    }

    /// What the training has found on its data, to which data that is read besides is held: nothing where the bundled digits stood in
    /// for the data, or where the checkpoint is of a version that did not keep it.
    pub fn fitted(&self) -> Option<Fitted> {
        let spec = self.sample.as_ref().filter(|_| self.data_note.is_none())?.spec()?;
        let source = spec.fitted.clone();
        let numbers = source.as_ref().and(spec.target()).map(|(_, field)| Classes::of(field.shape.len()));
        let Classes { number, exact, names } = spec.classes().cloned().or(numbers)?;
        Some(Fitted { classes: number, exact, class_names: names.filter(|names| names.len() == number), source })
    }
}

/// What is in the mean of weights over epochs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Averaged {
    /// The number of models.
    pub models: u64,
    /// The epoch, from 1, at whose end the last of them was.
    pub epoch: u64,
}

fn is_default<T: Default + PartialEq>(state: &T) -> bool {
    *state == T::default()
}

/// True if a variable is the average of another one.
fn is_average(var: &Variable) -> bool {
    checkpoint::averaged_weight(&var.name).is_some()
}

/// The choices of the device that wrote the checkpoint whose state is `meta`. [`restore`] reports what cannot be read.
pub fn device_choices(meta: &Meta) -> Option<String> {
    Some(meta.extra.get("device_choices")?.as_str()?.to_owned())
}

/// How a run was started, apart from its configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The experiment's name.
    pub name: String,
    /// Overrides of the configuration's values, in the form of `--set`.
    pub sets: Vec<String>,
    /// Passes over the graph that are left out.
    pub without: Vec<String>,
}

/// More epochs, steps or batches than any run has: at one a microsecond, 285 years.
const MOST_COUNTED: u64 = 1 << 53;

/// A state that is not saved, because it is no number: going on from it would lead nowhere.
#[derive(Debug)]
pub struct NotFinite {
    /// The first variable in which that shows.
    pub variable: String,
}

impl std::fmt::Display for NotFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` has values that are not finite", self.variable)
    }
}

impl std::error::Error for NotFinite {}

/// Whether what is written of a variable is sound. The state of an optimizer may have an infinite square of a gradient, after which it goes
/// on.
fn is_sound(kind: &VarKind, dtype: DType, piece: &[u8]) -> bool {
    let sound = || if *kind == VarKind::Optimizer { !bulk::have_nan(piece) } else { bulk::are_finite(piece) };
    dtype != DType::F32 || sound()
}

/// Writes checkpoints of the session at `state` to all of `paths`. `config` is the effective configuration. The state goes
/// from the device to the file in pieces.
///
/// # Errors
/// The disk is full, or the like; [`NotFinite`]. The old files are whole then.
pub fn save(session: &mut Session, state: &mut RunState, config: &str, seed: u64, paths: &[&Path]) -> Result<()> {
    let plan = session.programs.plan.clone();
    state.extra.train_sums.clear();
    for id in metric_sums(&plan.variables, Mode::Train) {
        let sums = session.save(|v| v.name == plan.variables[id].name)?;
        let sums = sums.iter().flat_map(|s| s.bytes.as_chunks().0).map(|b| f64::from_ne_bytes(*b).to_bits());
        state.extra.train_sums.extend(sums);
    }
    let is_saved = |v: &Variable| {
        let of_base = state.extra.base.as_ref().is_some_and(|base| base.has(&v.name));
        in_checkpoint(v) && !of_base && !(session.waits_for_average() && is_average(v))
    };
    let (ids, tensors): (Vec<_>, Vec<TensorInfo>) = plan
        .variables
        .iter()
        .filter(|(_, v)| is_saved(v))
        .map(|(id, v)| (id, TensorInfo { name: &v.name, dtype: v.dtype, shape: v.storage.outside.dims() }))
        .unzip();
    let mut meta = Meta::new(config, seed);
    meta.epoch = state.epoch;
    meta.step = state.step;
    meta.batch = state.batch;
    meta.best = state.best.clone();
    meta.extra = serde_json::to_value(&state.extra).context("the run's state cannot be written as JSON")?;
    checkpoint::write_streamed(paths, &tensors, &meta, &mut |i, put| {
        let variable = &plan.variables[ids[i]];
        session.read(ids[i], &mut |piece| match is_sound(&variable.kind, variable.dtype, piece) {
            true => put(piece),
            false => Err(NotFinite { variable: variable.name.clone() }.into()),
        })
    })?;
    session.has_all()
}

/// Puts everything from the checkpoint at `path`, whose state is `meta`, into the session, and what it leaves to another file, `base`; where
/// the run stood. Each tensor goes to the device as it is read. All variables have their values then, also where none had been given before.
///
/// # Errors
/// The checkpoint is of another model or optimizer, or no longer the one that `meta` is of.
pub fn restore(
    session: &mut Session,
    meta: &Meta,
    path: &Path,
    base: Option<BTreeMap<String, Tensor>>,
) -> Result<RunState> {
    let extra: Extra = serde_json::from_value(meta.extra.clone())
        .with_context(|| format!("the run's state in `{}` cannot be read", path.display()))?;
    // They are counted on from here, and a checksum does not say who wrote them.
    for (what, n) in [("epochs", meta.epoch), ("steps", meta.step), ("batches", extra.micro_step.max(meta.batch))] {
        ensure!(n <= MOST_COUNTED, "`{}` claims {n} {what}, more than a run can have", path.display());
    }
    session.set_averaged(extra.averaged.models > 0);
    let waits = session.waits_for_average();
    load_checkpoint(session, meta, path, base, |v| in_checkpoint(v) && !(waits && is_average(v)))?;
    let plan = session.programs.plan.clone();
    let of_training = metric_sums(&plan.variables, Mode::Train);
    let (n, wanted) = (extra.train_sums.len(), METRIC_SLOTS * of_training.len());
    ensure!(n == wanted || wanted == 0, "`{}` holds {n} metric sums, not {wanted}", path.display());
    for (id, sums) in of_training.into_iter().zip(extra.train_sums.chunks_exact(METRIC_SLOTS)) {
        let mut sums: Vec<f64> = sums.iter().map(|b| f64::from_bits(*b)).collect();
        // Files from before items were counted by themselves: all samples counted, and weighed the same.
        if sums[metric_slot::ITEMS] == 0.0 {
            sums[metric_slot::ITEMS] = sums[metric_slot::WEIGHT];
        }
        let bytes: Vec<u8> = sums.iter().flat_map(|s| s.to_ne_bytes()).collect();
        session.restore(id, &bytes)?;
    }
    Ok(RunState { epoch: meta.epoch, batch: meta.batch, step: meta.step, best: meta.best.clone(), extra })
}

/// Gives the variables that are `wanted` the values that they have in the checkpoint at `path`, whose state is `meta`, or in `base`, and
/// all others their initial ones. What else is in the checkpoint must be state of the optimizer.
///
/// # Errors
/// The checkpoint is of another model, or no longer the one that `meta` is of; weights alone may be newer ones of its run.
pub fn load_checkpoint(
    session: &mut Session,
    meta: &Meta,
    path: &Path,
    base: Option<BTreeMap<String, Tensor>>,
    wanted: impl Fn(&Variable) -> bool,
) -> Result<()> {
    let plan = session.programs.plan.clone();
    let mut have = checkpoint::read_header_of(path)?;
    let base = base.unwrap_or_default();
    have.extend(base.iter().map(|(name, t)| (name.clone(), Header { dtype: t.dtype, shape: t.shape.clone() })));
    let to_go_on = plan.variables.iter().any(|(_, v)| v.kind == VarKind::Optimizer && wanted(v));
    // A caller that does not go on training takes the moving averages of weights, where there are some.
    let mut averages = HashSet::new();
    if !to_go_on {
        averages.extend(have.keys().filter_map(|name| checkpoint::averaged_weight(name)).map(str::to_owned));
        have.retain(|name, _| !checkpoint::is_optimizer_state(name));
    }
    let names =
        plan.variables.iter().filter(|(_, v)| wanted(v)).map(|(_, v)| (v.name.as_str(), v.storage.outside.dims()));
    if let Err(m) = checkpoint::match_shapes(names, &have, |h| &h.shape, true) {
        bail!("the tensors of `{}` do not fit the model\n{m}", path.display());
    }
    session.initialize(meta.seed, |v| !(wanted(v) && have.contains_key(&v.name)))?;
    let read = checkpoint::read_streamed(path, &mut |name, header, bytes| {
        let name = match checkpoint::averaged_weight(name).filter(|weight| averages.contains(*weight)) {
            Some(weight) => weight,
            None if averages.contains(name) => return Ok(()),
            None => name,
        };
        let Some(id) = plan.variables.find(name).filter(|id| wanted(&plan.variables[*id])) else { return Ok(()) };
        let var = &plan.variables[id];
        let place = || format!("`{name}` of `{}`", path.display());
        if header.dtype == var.dtype {
            return session.restore_from(id, bytes).with_context(place);
        }
        let mut data = Vec::new();
        bytes.read_to_end(&mut data).with_context(place)?;
        let tensor = Tensor { dtype: header.dtype, shape: header.shape.clone(), data };
        session.restore(id, &tensor.cast(var.dtype).with_context(place)?.data)
    })?;
    for (name, tensor) in base {
        if let Some(id) = plan.variables.find(&name).filter(|id| wanted(&plan.variables[*id])) {
            session.restore(id, &tensor.cast(plan.variables[id].dtype)?.data)?;
        }
    }
    // A run that is still at work may have saved anew. Its weights are as good, if they are of the same model; but where it
    // goes on from, everything must be of one moment.
    let same = if to_go_on { read == *meta } else { read.config == meta.config };
    ensure!(same, "`{}` was replaced while it was read: try again", path.display());
    Ok(())
}
