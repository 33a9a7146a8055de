//! From the device that a configuration names to a backend.

use crate::backend::cpu::CpuBackend;
use crate::backend::cuda::launcher::Bindings;
use crate::backend::cuda::{CudaBackend, driver};
use crate::backend::{Backend, DeviceError};
use crate::config::Experiment;
use crate::config::values::{Device, Precision};
use anyhow::Result;

/// Which device, and how it is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The device.
    pub device: Device,
    /// Compute threads of the CPU; all cores, if `None`.
    pub threads: Option<usize>,
    /// On a GPU: products of 32-bit floats may be rounded to TF32.
    pub tf32: bool,
    /// On a GPU: programs are captured into graphs.
    pub graph: bool,
}

impl Wanted {
    /// What an experiment asks for.
    pub fn of(experiment: &Experiment, threads: Option<usize>) -> Wanted {
        let tf32 = experiment.precision == Precision::Tf32;
        Wanted { device: experiment.device, threads, tf32, graph: experiment.graph }
    }

    /// `device` with everything else as it is by default.
    pub fn plain(device: Device, threads: Option<usize>) -> Wanted {
        Wanted { device, threads, tf32: false, graph: true }
    }
}

/// A device that was found.
pub struct Selected {
    /// The device.
    pub backend: Box<dyn Backend>,
    /// Why it is not the one that would have been taken first, or what it computes without.
    pub note: Option<String>,
}

/// The backend that is wanted. CUDA is looked for only where it may be used: the CPU alone loads nothing of it.
///
/// # Errors
/// The device is not there ([`DeviceError`]), `RUNNER_SIMD` asks for instructions that there are not, or `RUNNER_CUDA_LAUNCHER`
/// for bindings of CUDA that there are not.
pub fn select(wanted: &Wanted) -> Result<Selected> {
    let cpu = || -> Result<Box<dyn Backend>> { Ok(Box::new(CpuBackend::new(wanted.threads)?)) };
    let note = match wanted.device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => return Ok(on_gpu(gpu(wanted, ordinal, Bindings::from_env()?)?)),
        Device::Auto => match gpu(wanted, 0, Bindings::from_env()?) {
            Ok(backend) => return Ok(on_gpu(backend)),
            Err(why) => Some(format!("no GPU: {}; computing on the CPU", why.reason)),
        },
    };
    Ok(Selected { backend: cpu()?, note })
}

/// The GPU, with a note if libraries that were found cannot be used.
fn on_gpu(backend: CudaBackend) -> Selected {
    let problems = &backend.libraries().problems;
    let note = (!problems.is_empty()).then(|| problems.join("; "));
    Selected { backend: Box::new(backend), note }
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

fn gpu(wanted: &Wanted, ordinal: usize, bindings: Bindings) -> Result<CudaBackend, Refusal> {
    let refusal = |reason: String, help: &str| Refusal { device: wanted.device, reason, help: help.into() };
    driver::start().map_err(|e| refusal(e.to_string(), e.help()))?;
    let backend = CudaBackend::new(ordinal).map_err(|e| {
        let text = format!("{e:#}");
        let (reason, help) = text.split_once("\nhelp: ").unwrap_or((&text, DEFAULT_HELP));
        refusal(reason.into(), help)
    })?;
    Ok(backend.with_tf32(wanted.tf32).with_graph(wanted.graph).with_bindings(bindings))
}

/// For failures that do not say themselves what to do.
const DEFAULT_HELP: &str = "see what `nvidia-smi` says, or compute on the CPU with `--device cpu`";
