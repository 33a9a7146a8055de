//! Memory before the first step: the batch that `"auto"` stands for, and the refusal of a plan that the device has no room
//! for.

use super::failure::Failure;
use crate::backend::{Backend, DeviceError};
use crate::config::Loaded;
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::plan::{MemorySummary, Plan};
use crate::terminal::human_bytes;
use crate::train::setup::memory::{MemoryPlan, Needs, Use, auto_batch, available, largest_batch};
use serde_json::{Map, Value, json};

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

/// A plan for batches as an experiment has them, and what it was made of.
pub struct Planned<'a> {
    /// The experiment.
    pub loaded: &'a Loaded,
    /// Its data.
    pub data: &'a DataSpec,
    /// The plan.
    pub plan: &'a Plan,
    /// The device.
    pub backend: &'a dyn Backend,
    /// What the batches are for.
    pub what: Use,
    /// What is needed besides.
    pub needs: Needs,
    /// What the plan was made with.
    pub passes: &'a PassOptions,
}

impl Planned<'_> {
    /// The memory that it takes.
    ///
    /// # Errors
    /// The device failed.
    pub fn memory(&self) -> Result<MemoryPlan, Failure> {
        Ok(MemoryPlan::new(self.plan, self.backend, &self.needs)?)
    }

    /// The memory that it takes, which is there.
    ///
    /// # Errors
    /// There is not enough: what is needed, what is free, and the largest batch that would fit.
    pub fn require(&self) -> Result<MemoryPlan, Failure> {
        let memory = self.memory()?;
        match self.refusal(&memory) {
            Some((what, help)) => {
                Err(DeviceError(format!("{what}\n{}\nhelp: {help}", table(&memory).join("\n"))).into())
            }
            None => Ok(memory),
        }
    }

    /// What is lacking, and what to do; `None` if there is enough.
    pub fn refusal(&self, memory: &MemoryPlan) -> Option<(String, String)> {
        if memory.fits() {
            return None;
        }
        Some((self.lacking(memory), self.help(memory, self.largest())))
    }

    /// The samples of the largest batch that there is memory for, if there is for any. There may be no more samples than these.
    pub fn largest(&self) -> Option<usize> {
        let fits = |plan: &Plan| MemoryPlan::new(plan, self.backend, &self.needs).is_ok_and(|m| m.fits());
        largest_batch(&self.loaded.experiment, self.data, self.backend, self.passes, self.what, &fits)
    }

    fn lacking(&self, memory: &MemoryPlan) -> String {
        let loading = &self.loaded.experiment.data.loading;
        let batch = match self.what {
            Use::Training => loading.batch_size,
            Use::Evaluation(_) => loading.eval_batch_size(),
            Use::Prediction => 1,
        };
        match (memory.device, &memory.host.memory) {
            (Some(device), _) if !memory.fits_device() => format!(
                "not enough memory on {}: {} are needed for a batch of {batch}, and {} of {} can be had ({} are free)",
                self.backend.describe(),
                human_bytes(memory.summary.total),
                human_bytes(available(device)),
                human_bytes(device.total),
                human_bytes(device.free),
            ),
            (device, host) => {
                let place = if device.is_some() { "the host".to_string() } else { self.backend.describe() };
                let (had, because) = host.as_ref().map_or((0, ""), |m| (m.available, m.because.as_str()));
                format!(
                    "not enough memory on {place}: {} are needed with a batch of {batch}, and {} can be had: {because}",
                    human_bytes(memory.host.total),
                    human_bytes(had),
                )
            }
        }
    }

    fn help(&self, memory: &MemoryPlan, largest: Option<usize>) -> String {
        let loading = &self.loaded.experiment.data.loading;
        match largest {
            Some(n) => {
                format!("the largest batch that fits is {n}: set `{}` to that with --set data.{0}={n}", self.what.key())
            }
            None if self.what == Use::Training && loading.eval_batch_size() > loading.batch_size => {
                format!("`eval_batch_size` is {}: lower it", loading.eval_batch_size())
            }
            None if memory.fits_device() => {
                "not even the smallest batch fits: take a smaller model or data set, or give the process more memory"
                    .into()
            }
            None => {
                "not even the smallest batch fits: take a smaller model, or compute on the CPU with --device cpu".into()
            }
        }
    }
}

/// The moment at which the most memory is in use.
pub fn peak_place(m: &MemorySummary) -> String {
    let layer = if m.peak.layer.is_empty() { "the update".to_string() } else { format!("`{}`", m.peak.layer) };
    let side = if m.peak.backward { ", backward" } else { "" };
    format!("{layer} ({}{side}) of `{}`", m.peak.op, m.peak_program)
}

/// A line of a table of memory.
fn line(name: &str, bytes: usize, more: &str) -> String {
    let space = if more.is_empty() { "" } else { "   " };
    format!("  {name:<12} {:>12}{space}{more}", human_bytes(bytes))
}

fn lines(classes: Vec<(&'static str, usize)>) -> impl Iterator<Item = String> {
    classes.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| line(name, bytes, ""))
}

/// The classes of the device's memory, one a line, their total, and what there is; where the device has memory of its own
/// also those of the host's.
pub fn table(memory: &MemoryPlan) -> Vec<String> {
    let mut out: Vec<String> = lines(memory.classes()).collect();
    let m = &memory.summary;
    out.push(line("total", m.total, &format!("peak at {}", peak_place(m))));
    if let Some(device) = memory.device {
        out.push(line("free", device.free, &format!("of {}", human_bytes(device.total))));
        out.push("memory on the host".into());
        out.extend(lines(memory.host_classes()));
        out.push(line("total", memory.host.total, ""));
    }
    if let Some(host) = &memory.host.memory {
        out.push(line("available", host.available, &host.because));
    }
    out
}

/// The memory as JSON.
pub fn as_json(memory: &MemoryPlan) -> Value {
    let m = &memory.summary;
    let of = |classes: Vec<(&'static str, usize)>| -> Map<String, Value> {
        classes.into_iter().map(|(name, bytes)| (name.to_string(), json!(bytes))).collect()
    };
    let mut out = of(memory.classes());
    out.insert("total".into(), json!(m.total));
    out.insert(
        "peak".into(),
        json!({ "program": m.peak_program, "layer": m.peak.layer, "op": m.peak.op, "backward": m.peak.backward }),
    );
    let mut host = Map::new();
    if let (Some(device), Some(pinned)) = (memory.device, memory.pinned) {
        out.insert("free".into(), json!(device.free));
        out.insert("pinned".into(), json!(pinned));
        host = of(memory.host_classes());
    }
    host.insert("total".into(), json!(memory.host.total));
    if let Some(m) = &memory.host.memory {
        host.insert("available".into(), json!(m.available));
        host.insert("because".into(), json!(m.because));
    }
    out.insert("host".into(), host.into());
    out.insert("fits".into(), json!(memory.fits()));
    out.into()
}
