//! Memory before the first step: the batch that `"auto"` stands for, and the refusal of a plan that the device has no room
//! for.

use super::failure::Failure;
use super::human_bytes;
use crate::backend::{Backend, DeviceError, DeviceMemory};
use crate::config::Loaded;
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::plan::{MemorySummary, Plan};
use crate::train::memory::{MemoryPlan, Use, auto_batch, available, largest_batch};

/// Puts a number in the place of `batch_size = "auto"`; what is to be said about it, if that was there.
///
/// # Errors
/// Not even one sample fits, or the device failed.
pub fn resolve_batch(
    loaded: &mut Loaded,
    data: &DataSpec,
    backend: &dyn Backend,
    passes: &PassOptions,
) -> Result<Option<String>, Failure> {
    if !loaded.experiment.data.auto_batch_size {
        return Ok(None);
    }
    let experiment = &loaded.experiment;
    let (batch, why) = match backend.memory()? {
        None => {
            let usual = experiment.data.loading.batch_size;
            (data.train.map_or(usual, |n| usual.min(n.max(1))), "the default on the CPU".to_string())
        }
        Some(device) => {
            let found = auto_batch(experiment, data, backend, passes, device);
            // Where there is none, the plan for one sample is refused with its figures.
            (found.unwrap_or(1), format!("for the {} that are free on the device", human_bytes(device.free)))
        }
    };
    loaded.experiment.set_batch_size(batch);
    Ok(Some(format!("batch_size = \"auto\" is {batch}, {why}")))
}

/// The memory of `plan`, which is for batches as the experiment has them and made with `passes`, with `slots` slots on
/// the host.
///
/// # Errors
/// The device has not enough: what is needed, what is free, and the largest batch that would fit.
pub fn require(
    loaded: &Loaded,
    data: &DataSpec,
    plan: &Plan,
    backend: &dyn Backend,
    what: Use,
    slots: usize,
    passes: &PassOptions,
) -> Result<MemoryPlan, Failure> {
    let memory = MemoryPlan::new(plan, backend, slots)?;
    if let Some(device) = memory.device
        && !memory.fits()
    {
        let largest = largest_batch(&loaded.experiment, data, backend, passes, what, available(device));
        return Err(refusal(loaded, &memory, device, backend, what, largest).into());
    }
    Ok(memory)
}

/// The moment at which the most memory is in use.
pub fn peak_place(m: &MemorySummary) -> String {
    let layer = if m.peak.layer.is_empty() { "the update".to_string() } else { format!("`{}`", m.peak.layer) };
    let side = if m.peak.backward { ", backward" } else { "" };
    format!("{layer} ({}{side}) of `{}`", m.peak.op, m.peak_program)
}

/// The classes of memory, one a line, and their total.
pub fn table(memory: &MemoryPlan) -> Vec<String> {
    let classes = memory.classes().into_iter().filter(|(_, bytes)| *bytes > 0);
    let mut lines: Vec<String> =
        classes.map(|(name, bytes)| format!("  {name:<12} {:>12}", human_bytes(bytes))).collect();
    let m = &memory.summary;
    lines.push(format!("  {:<12} {:>12}   peak at {}", "total", human_bytes(m.total), peak_place(m)));
    lines
}

fn refusal(
    loaded: &Loaded,
    memory: &MemoryPlan,
    device: DeviceMemory,
    backend: &dyn Backend,
    what: Use,
    largest: Option<usize>,
) -> DeviceError {
    let loading = &loaded.experiment.data.loading;
    let batch = match what {
        Use::Training => loading.batch_size,
        Use::Evaluation(_) => loading.eval_batch_size(),
    };
    let help = match largest {
        Some(n) => format!("the largest batch that fits is {n}: set `{}` to that with --set data.{0}={n}", what.key()),
        None if what == Use::Training && loading.eval_batch_size() > loading.batch_size => {
            format!("`eval_batch_size` is {}: lower it", loading.eval_batch_size())
        }
        None => "not even a batch of 1 fits: take a smaller model, or compute on the CPU with --device cpu".into(),
    };
    DeviceError(format!(
        "not enough memory on {}: {} are needed for a batch of {batch}, and {} of {} can be had ({} are free)\n{}\nhelp: {help}",
        backend.describe(),
        human_bytes(memory.summary.total),
        human_bytes(available(device)),
        human_bytes(device.total),
        human_bytes(device.free),
        table(memory).join("\n"),
    ))
}
