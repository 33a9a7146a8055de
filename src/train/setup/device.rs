//! From the device that a configuration names to a backend.

use crate::backend::cpu::CpuBackend;
use crate::backend::cuda::settings::Settings;
use crate::backend::cuda::{CudaBackend, driver};
use crate::backend::{Backend, DeviceError};
use crate::collective::Collective;
use crate::config::Experiment;
use crate::config::language::values::{Device, Precision};
use anyhow::Result;
use std::sync::Arc;

/// Which device, and how it is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The device.
    pub device: Device,
    /// Compute threads of the CPU; all cores, if `None`.
    pub threads: Option<usize>,
    /// On a GPU: products of 32-bit floats may be rounded to TF32.
    pub tf32: bool,
    /// On the CPU: products are made in bf16, if it has a unit for that.
    pub bf16: bool,
    /// On a GPU: programs are captured into graphs.
    pub graph: bool,
}

impl Wanted {
    /// What an experiment asks for.
    pub fn of(experiment: &Experiment, threads: Option<usize>) -> Wanted {
        let tf32 = experiment.precision == Precision::Tf32;
        let bf16 = experiment.precision == Precision::Bf16;
        let first = experiment.devices.as_ref().map(|devices| Device::Cuda(devices.first()));
        Wanted { device: first.unwrap_or(experiment.device), threads, tf32, bf16, graph: experiment.graph }
    }

    /// `device` with everything else as it is by default.
    pub fn plain(device: Device, threads: Option<usize>) -> Wanted {
        Wanted { device, threads, tf32: false, bf16: false, graph: true }
    }
}

/// How many GPUs there are, at least one.
///
/// # Errors
/// There is none that could be used: a [`DeviceError`].
pub fn gpus() -> Result<usize> {
    let (_, count) =
        driver::start().map_err(|e| DeviceError(format!("no GPU can be used: {e}\nhelp: {}", e.help())))?;
    Ok(count)
}

/// GPU number `ordinal`, as that of a rank.
///
/// # Errors
/// As [`select`], and NCCL cannot be used.
pub fn gpu_of_rank(wanted: &Wanted, ordinal: usize, team: Arc<dyn Collective>) -> Result<Box<dyn Backend>> {
    Ok(Box::new(gpu_numbered(wanted, ordinal)?.in_team(team)?))
}

/// The same, to plan what the rank does.
///
/// # Errors
/// As [`select`].
pub fn planned_gpu_of_rank(wanted: &Wanted, ordinal: usize, team: Arc<dyn Collective>) -> Result<Box<dyn Backend>> {
    Ok(Box::new(gpu_numbered(wanted, ordinal)?.planning_for(team)))
}

fn gpu_numbered(wanted: &Wanted, ordinal: usize) -> Result<CudaBackend> {
    let wanted = Wanted { device: Device::Cuda(ordinal), ..*wanted };
    Ok(gpu(&wanted, ordinal, &Settings::from_env()?)?)
}

/// A device that was found.
pub struct Selected {
    /// The device.
    pub backend: Box<dyn Backend>,
    /// Why it is not the one that would have been taken first.
    pub note: Option<String>,
}

/// The backend that is wanted. CUDA is looked for only where it may be used: the CPU alone loads nothing of it.
///
/// # Errors
/// The device is not there ([`DeviceError`]), or a variable of the environment asks for something that there is not
/// ([`crate::backend::SettingError`]).
pub fn select(wanted: &Wanted) -> Result<Selected> {
    let cpu = || -> Result<Box<dyn Backend>> { Ok(Box::new(CpuBackend::new(wanted.threads)?.in_bf16(wanted.bf16))) };
    let note = match wanted.device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => return Ok(on_gpu(gpu(wanted, ordinal, &Settings::from_env()?)?)),
        Device::Auto => match gpu(wanted, 0, &Settings::from_env()?) {
            Ok(backend) => return Ok(on_gpu(backend)),
            Err(why) => Some(format!("no GPU: {}; computing on the CPU", why.reason)),
        },
    };
    Ok(Selected { backend: cpu()?, note })
}

fn on_gpu(backend: CudaBackend) -> Selected {
    Selected { backend: Box::new(backend), note: None }
}

/// Why a GPU cannot be had.
struct Refusal {
    device: Device,
    reason: String,
    help: String,
}

impl From<Refusal> for anyhow::Error {
    fn from(r: Refusal) -> Self {
        DeviceError(format!("the device `{}` is not available: {}\nhelp: {}", r.device, r.reason, r.help)).into()
    }
}

fn gpu(wanted: &Wanted, ordinal: usize, settings: &Settings) -> Result<CudaBackend, Refusal> {
    let refusal = |reason: String, help: &str| Refusal { device: wanted.device, reason, help: help.into() };
    driver::start().map_err(|e| refusal(e.to_string(), e.help()))?;
    let backend = CudaBackend::open(ordinal, settings).map_err(|e| {
        let text = format!("{e:#}");
        let (reason, help) = text.split_once("\nhelp: ").unwrap_or((&text, DEFAULT_HELP));
        refusal(reason.into(), help)
    })?;
    Ok(backend.with_tf32(wanted.tf32).with_graph(wanted.graph))
}

/// For failures that do not say themselves what to do.
const DEFAULT_HELP: &str = "see what `nvidia-smi` says, or compute on the CPU with `--device cpu`";
