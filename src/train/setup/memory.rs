//! The memory that a run takes of its device and of the host, and the largest batch that fits both.

use super::programs::{self, Sizes};
use super::transfer::{Transfer, in_checkpoint, in_state_dict};
use super::{scores, slots};
use crate::backend::{Backend, DeviceMemory};
use crate::config::Experiment;
use crate::data::{DataSpec, Footprint};
use crate::files::host_memory::{HostMemory, host_memory};
use crate::graph::op::Task;
use crate::graph::{Variable, Variables};
use crate::passes::PassOptions;
use crate::plan::{MemorySummary, Plan};
use anyhow::Result;

/// The largest batch that is tried where the number of samples is not known.
const MOST: usize = 1 << 16;

/// The program itself: code, threads, buffers of files, the configuration. Code that is not optimised is larger.
const PROCESS: usize = if cfg!(debug_assertions) { 49 << 20 } else { 25 << 20 };
/// A node of a program, with its values, places and kernel.
const NODE: usize = 3 << 10;
/// The number of a sample in a list.
const NUMBER: usize = size_of::<u32>();
/// A file that is being written.
const WRITING: usize = 1 << 20;

/// What a command holds in the host's memory besides a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Batch slots.
    pub slots: usize,
    /// The samples.
    pub data: Footprint,
    /// Bytes of the lists that say which samples are taken, and in which order.
    pub lists: usize,
    /// Whether the state is saved, or comes out of a checkpoint.
    pub saves: bool,
    /// Whether weights of another file are in memory until the state begins with them.
    pub weights: bool,
    /// How many samples an evaluation keeps the scores of until its end, and what they are; `None`: it keeps none.
    pub scored: Option<(usize, Task)>,
}

impl Needs {
    /// Those of a training run with its evaluations on data of that kind, with that memory: of a new run, as `check` sees
    /// it, or of one that goes on.
    pub fn of_run(experiment: &Experiment, spec: &DataSpec, data: Footprint, new: bool) -> Self {
        // Averaging has a pass over the training samples, where an evaluation would be; so has a batch whose gradients are looked at.
        let averages = experiment.optimizer.swa.is_some() || experiment.optimizer.rule.is_schedule_free();
        let later = match spec.val == Some(0) && !averages {
            true => usize::from(experiment.log.tensorboard),
            false => slots::evaluation(experiment),
        };
        let slots = slots::training(experiment) + later;
        let (scored, lists) = (scored(experiment, spec.val), lists(experiment, spec));
        Needs { slots, data, lists, saves: true, weights: new && experiment.model.weights.is_some(), scored }
    }

    /// Those of an evaluation alone, of so many samples, where that is known.
    pub fn of_evaluation(experiment: &Experiment, samples: Option<usize>, data: Footprint) -> Self {
        let (slots, scored) = (slots::evaluation(experiment), scored(experiment, samples));
        Needs { slots, data, lists: samples.unwrap_or(0).saturating_mul(NUMBER), saves: true, weights: false, scored }
    }

    /// Those of predictions, with so many batch slots.
    pub fn of_prediction(slots: usize, data: Footprint) -> Self {
        Needs { slots, data, lists: 0, saves: true, weights: false, scored: None }
    }
}

/// The lists of a run: the order of an epoch, for training and for evaluation; which samples each of both has, where the source's are divided; and what
/// brings samples of one length together.
fn lists(experiment: &Experiment, spec: &DataSpec) -> usize {
    let divided = if experiment.data.loading.validation_split.is_some() { NUMBER } else { 0 };
    let lengths = if spec.lengths.is_empty() { 0 } else { NUMBER + 1 };
    let samples = spec.train.unwrap_or(0).saturating_add(spec.val.unwrap_or(0));
    samples.saturating_mul(NUMBER + divided + lengths)
}

/// How many samples are kept the scores of, if a figure needs them.
fn scored(experiment: &Experiment, samples: Option<usize>) -> Option<(usize, Task)> {
    let samples = samples.filter(|_| experiment.asked_figures().iter().any(scores::ranks))?;
    Some((samples, experiment.loss.describe().task()))
}

/// Memory of the host besides what the plan has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// The samples.
    pub data: usize,
    /// Photos that are kept once they are decoded.
    pub cache: usize,
    /// Photos that are decoded at a time.
    pub decoding: usize,
    /// What reading the samples takes in addition to the memory of the steps.
    pub reading: usize,
    /// The buffers through which a checkpoint is written or read.
    pub saving: usize,
    /// The scores of all samples of an evaluation, for figures that need them at once.
    pub scores: usize,
    /// The program.
    pub process: usize,
    /// Everything on the host: with the plan, where that is there.
    pub total: usize,
    /// What the process may have of the host's memory, where that is known.
    pub memory: Option<HostMemory>,
}

/// The memory of a run on the device that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes by class, on the device: `batches` are the slots there. Where the device's memory is the host's, its total
    /// has what is in `host`, too.
    pub summary: MemorySummary,
    /// Bytes on the device for tables of addresses, and for losses on their way to the host.
    pub tables: usize,
    /// Bytes of page-locked host memory for batches, where the device has memory of its own.
    pub pinned: Option<usize>,
    /// What the device has, where it has memory of its own.
    pub device: Option<DeviceMemory>,
    /// The host's memory.
    pub host: HostPlan,
    /// Bytes of messages to other ranks, where this is one of several processes.
    pub messages: usize,
}

/// Messages that a rank holds for the others: one that they read, and the next one (`collective/tcp/memory.rs` of the engine).
const MESSAGES: usize = 2;

impl MemoryPlan {
    /// For `plan`, with what else is needed.
    ///
    /// # Errors
    /// The device failed.
    pub fn new(plan: &Plan, backend: &dyn Backend, needs: &Needs) -> Result<MemoryPlan> {
        let device = backend.memory()?;
        let mut summary = plan.memory(needs.slots);
        let pinned = device.map(|_| summary.batches);
        let mut tables = 0;
        if device.is_some() {
            let demand = backend.demand(plan);
            tables = demand.total - plan.device_bytes() - demand.batches;
            summary = MemorySummary { batches: demand.batches, total: demand.total, ..summary };
        }
        let mut host = HostPlan::new(plan, needs, pinned.unwrap_or(summary.total));
        host.memory = host_memory();
        if device.is_none() {
            summary.total = host.total;
        }
        // Gradients of GPUs are given by NCCL.
        let messages = if device.is_none() { MESSAGES * plan.message_bytes() } else { 0 };
        Ok(MemoryPlan { summary, tables, pinned, device, host, messages })
    }

    /// Bytes of the host for so many ranks on one machine, of which this is one: processes, or threads, which share the samples and the program.
    pub fn of_ranks(&self, ranks: usize, threads: bool) -> usize {
        let shared = self.host.data + self.host.cache + self.host.process;
        let (first, each) = match threads {
            true => (self.host.total, self.host.total.saturating_sub(shared)),
            false => [self.host.total.saturating_add(self.messages); 2].into(),
        };
        first.saturating_add(ranks.saturating_sub(1).saturating_mul(each))
    }

    /// Classes of the device's memory with their bytes, which make its total.
    pub fn classes(&self) -> Vec<(&'static str, usize)> {
        let m = &self.summary;
        let mut list = vec![
            ("parameters", m.parameters),
            ("gradients", m.gradients),
            ("optimizer", m.optimizer),
            ("buffers", m.buffers),
            ("activations", m.activations),
            ("workspace", m.workspace),
            ("unused", m.unused),
            ("batches", m.batches),
            ("tables", self.tables),
        ];
        if self.device.is_none() {
            list.extend(self.host.classes());
        }
        list
    }

    /// Classes of the host's memory with their bytes, which make its total, where the device has memory of its own.
    pub fn host_classes(&self) -> Vec<(&'static str, usize)> {
        let batches = [("batches", self.pinned.unwrap_or(0))];
        batches.into_iter().chain(self.host.classes()).collect()
    }

    /// Whether device and host have room for it.
    pub fn fits(&self) -> bool {
        self.fits_device() && self.fits_host()
    }

    /// Whether the device has room for it, if it has memory of its own.
    pub fn fits_device(&self) -> bool {
        self.device.is_none_or(|device| self.summary.total <= available(device))
    }

    /// Whether the host has room for it, as far as that is known.
    pub fn fits_host(&self) -> bool {
        self.host.memory.as_ref().is_none_or(|m| self.host.total <= m.available)
    }
}

fn bytes_of(variables: &Variables, wanted: impl Fn(&Variable) -> bool) -> usize {
    variables.iter().filter(|(_, v)| wanted(v)).map(|(_, v)| v.bytes_here()).sum()
}

impl HostPlan {
    /// In addition to `planned` bytes of a plan and its batches on the host. What the host has is filled in later.
    fn new(plan: &Plan, needs: &Needs, planned: usize) -> HostPlan {
        let nodes: usize = plan.programs.iter().map(|p| p.graph.nodes.len()).sum();
        let process = PROCESS + NODE * nodes;
        let variables = &plan.variables;
        let saving = if needs.saves { WRITING + Transfer::bytes(variables, in_checkpoint) } else { 0 };
        let scores = needs.scored.map_or(0, |(samples, task)| scores::bytes(plan, task, samples));
        let weights = if needs.weights { bytes_of(variables, in_state_dict) } else { 0 };
        // The variables are allocated when the samples have been read, the rest of the plan with the first step.
        let start = weights.saturating_add(needs.data.reading.max(plan.persistent_bytes));
        let steady = planned.saturating_add(saving);
        let reading = start.saturating_sub(steady);
        let Footprint { held, cache, decoding, .. } = needs.data;
        let data = held.saturating_add(needs.lists);
        let total =
            [data, cache, decoding, reading, steady, scores, process].into_iter().fold(0, usize::saturating_add);
        HostPlan { data, cache, decoding, reading, saving, scores, process, total, memory: None }
    }

    fn classes(&self) -> [(&'static str, usize); 7] {
        [
            ("data", self.data),
            ("cache", self.cache),
            ("decoding", self.decoding),
            ("reading", self.reading),
            ("saving", self.saving),
            ("scores", self.scores),
            ("process", self.process),
        ]
    }
}

/// Bytes that a plan may take: what is free, less what the driver needs for kernels and graphs. That is a part of the
/// memory, up to an amount that does not grow with it.
pub fn available(device: DeviceMemory) -> usize {
    device.free.saturating_sub((device.total / 64).min(256 << 20))
}

/// What the batches are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Training with its evaluations: `batch_size` is looked for.
    Training,
    /// The evaluation of so many samples: `eval_batch_size` is looked for.
    Evaluation(usize),
    /// Predictions, for one sample at a time where there is no room for more.
    Prediction,
}

impl Use {
    /// The key of the batch's size in `[data]`.
    pub fn key(self) -> &'static str {
        match self {
            Use::Training | Use::Prediction => "batch_size",
            Use::Evaluation(_) => "eval_batch_size",
        }
    }

    /// The experiment with batches of `batch`, and the sizes that then occur.
    fn with(self, experiment: &Experiment, data: &DataSpec, batch: usize) -> (Experiment, Sizes) {
        let mut experiment = experiment.clone();
        let sizes = match self {
            Use::Training => {
                experiment.set_batch_size(batch);
                Sizes::of_run(&experiment, data)
            }
            Use::Evaluation(samples) => {
                experiment.data.loading.eval_batch_size = Some(batch);
                let sizes = Sizes::of(batch, Some(samples), false);
                Sizes { eval: Sizes::of_lengths(sizes, &data.lengths), ..Sizes::default() }
            }
            Use::Prediction => Sizes { predict: vec![batch.into()], ..Sizes::default() },
        };
        (experiment, sizes)
    }

    /// More samples than this are in no batch.
    fn most(self, data: &DataSpec) -> usize {
        match self {
            Use::Training => data.train.unwrap_or(MOST).max(1),
            Use::Evaluation(samples) => samples,
            Use::Prediction => 1,
        }
    }
}

/// The largest batch whose plan, made with `passes`, `fits`; `None` if not even the smallest that the model takes does.
pub fn largest_batch(
    experiment: &Experiment,
    data: &DataSpec,
    backend: &dyn Backend,
    passes: &PassOptions,
    what: Use,
    fits: &dyn Fn(&Plan) -> bool,
) -> Option<usize> {
    let _estimating = Estimating::new(backend);
    let fits = |batch: usize| {
        let (experiment, sizes) = what.with(experiment, data, batch);
        // Some sizes leave a last batch that the model does not take, which is no matter of memory.
        let whole = Sizes {
            train: sizes.train.iter().copied().take(1).collect(),
            eval: sizes.eval.iter().copied().take(1).collect(),
            ..Sizes::default()
        };
        let plan = |sizes| programs::build(&experiment, data, sizes, backend, passes);
        let programs = plan(&sizes).or_else(|_| plan(&whole));
        programs.ok().map(|p| fits(&p.plan))
    };
    // A batch of training is cut into shards of whole samples.
    let unit = if what == Use::Training { experiment.shards() } else { 1 };
    last_that(what.most(data) / unit, |n| fits(n * unit)).map(|n| n * unit)
}

/// As long as this lives, the backend does not measure which kernels are fastest: that is not worth it for sizes that are only
/// tried.
struct Estimating<'a>(&'a dyn Backend);

impl<'a> Estimating<'a> {
    fn new(backend: &'a dyn Backend) -> Self {
        backend.estimate(true);
        Estimating(backend)
    }
}

impl Drop for Estimating<'_> {
    fn drop(&mut self) {
        self.0.estimate(false);
    }
}

/// The largest number from 1 to `most` that `fits`, which those below it do, too. Batch normalisation takes no batch of
/// one value: small numbers for which there is no answer are passed over. Few are tried, small ones first: they are the
/// quicker ones to try.
fn last_that(most: usize, fits: impl Fn(usize) -> Option<bool>) -> Option<usize> {
    let (mut good, mut bad) = (None, most + 1);
    let mut next = 1;
    while next < bad {
        match fits(next) {
            Some(true) => good = Some(next),
            None if good.is_none() => {}
            Some(false) | None => {
                bad = next;
                break;
            }
        }
        next = if next == most { bad } else { (2 * next).min(most) };
    }
    let mut good = good?;
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) == Some(true) { good = middle } else { bad = middle }
    }
    Some(good)
}

/// The batch that `batch_size = "auto"` stands for on a device with memory of its own: the largest for which a tenth of
/// the free memory stays free; a multiple of 32, or below that a power of two, unless it is all samples.
pub fn auto_batch(
    experiment: &Experiment,
    data: &DataSpec,
    backend: &dyn Backend,
    passes: &PassOptions,
    device: DeviceMemory,
) -> Option<usize> {
    let budget = available(device).saturating_sub(device.free / 10);
    let fits = |plan: &Plan| backend.demand(plan).total <= budget;
    let largest = largest_batch(experiment, data, backend, passes, Use::Training, &fits)?;
    Some(if data.train == Some(largest) { largest } else { round(largest) })
}

fn round(batch: usize) -> usize {
    match batch {
        0 => 0,
        1..32 => 1 << batch.ilog2(),
        _ => batch / 32 * 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_fits_is_found_for_every_limit() {
        for (first, most, limit) in (1..4).flat_map(|f| (f..70).flat_map(move |m| (0..75).map(move |l| (f, m, l)))) {
            let tried = std::cell::Cell::new(0);
            let found = last_that(most, |n| {
                assert!((1..=most).contains(&n));
                tried.set(tried.get() + 1);
                (n >= first).then_some(n <= limit)
            });
            // Between the first that has an answer and the next that is tried, none may be found.
            let tried_first = first.next_power_of_two().min(most);
            assert_eq!(found, (limit >= tried_first).then_some(limit.min(most)), "{first} {most} {limit}");
            assert!(tried.get() <= 2 * (most.ilog2() + 2), "{first} {most} {limit}: {}", tried.get());
        }
    }

    #[test]
    fn batches_are_rounded_down() {
        assert_eq!([1, 3, 31, 32, 33, 100, 1000].map(round), [1, 2, 16, 32, 32, 96, 992]);
    }

    #[test]
    fn a_part_of_the_memory_is_left_to_the_driver() {
        assert_eq!(available(DeviceMemory { free: 64 << 20, total: 64 << 20 }), 63 << 20);
        assert_eq!(available(DeviceMemory { free: 100 << 30, total: 140 << 30 }), (100 << 30) - (256 << 20));
        assert_eq!(available(DeviceMemory { free: 1, total: 140 << 30 }), 0);
    }
}
