//! What a plan takes of a device's memory, and the largest batch that leaves it whole.

use super::programs::{self, Sizes};
use crate::backend::{Backend, DeviceMemory};
use crate::config::Experiment;
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::plan::{MemorySummary, Plan};
use anyhow::Result;

/// The most samples in a batch that are thought of where their number is not known.
const MOST: usize = 1 << 16;

/// The memory of a run on the device that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes by class, on the device: `batches` are the slots there.
    pub summary: MemorySummary,
    /// Bytes on the device for tables of addresses, and for losses on their way to the host.
    pub tables: usize,
    /// Bytes of page-locked host memory for batches, where the device has memory of its own.
    pub pinned: Option<usize>,
    /// What the device has, where it has memory of its own.
    pub device: Option<DeviceMemory>,
}

impl MemoryPlan {
    /// For `plan`, with `slots` batch slots on the host.
    ///
    /// # Errors
    /// The device failed.
    pub fn new(plan: &Plan, backend: &dyn Backend, slots: usize) -> Result<MemoryPlan> {
        let device = backend.memory()?;
        let summary = plan.memory(slots);
        if device.is_none() {
            return Ok(MemoryPlan { summary, tables: 0, pinned: None, device });
        }
        let demand = backend.demand(plan);
        let pinned = Some(summary.batches);
        let tables = demand.total - plan.device_bytes() - demand.batches;
        let summary = MemorySummary { batches: demand.batches, total: demand.total, ..summary };
        Ok(MemoryPlan { summary, tables, pinned, device })
    }

    /// Classes of device memory with their bytes, which make the total.
    pub fn classes(&self) -> [(&'static str, usize); 9] {
        let m = &self.summary;
        [
            ("parameters", m.parameters),
            ("gradients", m.gradients),
            ("optimizer", m.optimizer),
            ("buffers", m.buffers),
            ("activations", m.activations),
            ("workspace", m.workspace),
            ("unused", m.unused),
            ("batches", m.batches),
            ("tables", self.tables),
        ]
    }

    /// Whether the device has room for it.
    pub fn fits(&self) -> bool {
        self.device.is_none_or(|device| self.summary.total <= available(device))
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
}

impl Use {
    /// The key of the batch's size in `[data]`.
    pub fn key(self) -> &'static str {
        match self {
            Use::Training => "batch_size",
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
                Sizes { eval: Sizes::of(batch, Some(samples), false), ..Sizes::default() }
            }
        };
        (experiment, sizes)
    }

    /// More samples than this are in no batch.
    fn most(self, data: &DataSpec) -> usize {
        match self {
            Use::Training => data.train.unwrap_or(MOST).max(1),
            Use::Evaluation(samples) => samples,
        }
    }
}

/// The largest batch whose plan, made with `passes`, takes no more than `budget` bytes of the device; `None` if not even one sample does.
pub fn largest_batch(
    experiment: &Experiment,
    data: &DataSpec,
    backend: &dyn Backend,
    passes: &PassOptions,
    what: Use,
    budget: usize,
) -> Option<usize> {
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
        programs.is_ok_and(|p| backend.demand(&p.plan).total <= budget)
    };
    last_that(what.most(data), fits)
}

/// The largest number from 1 to `most` that `fits`, which those below it do, too. Few are tried, small ones first: they
/// are the quicker ones to try.
fn last_that(most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut good, mut bad) = (0, most + 1);
    let mut next = 1;
    while next < bad {
        if fits(next) {
            good = next;
            next = if next == most { bad } else { (2 * next).min(most) };
        } else {
            bad = next;
        }
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good)
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
    let largest = largest_batch(experiment, data, backend, passes, Use::Training, budget)?;
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
        for most in 1..70 {
            for limit in 0..75 {
                let tried = std::cell::Cell::new(0);
                let found = last_that(most, |n| {
                    assert!((1..=most).contains(&n));
                    tried.set(tried.get() + 1);
                    n <= limit
                });
                assert_eq!(found, (limit > 0).then_some(limit.min(most)), "{most} {limit}");
                assert!(tried.get() <= 2 * (most.ilog2() + 2), "{most} {limit}: {}", tried.get());
            }
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
