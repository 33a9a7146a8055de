//! From the device that a configuration names to a backend.

use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DeviceError};
use crate::config::values::Device;
use anyhow::Result;

/// The backend for `device`; on the CPU with `threads` compute threads (all cores, if `None`).
///
/// # Errors
/// The device is not there ([`DeviceError`]), or `RUNNER_SIMD` asks for instructions that there are not.
pub fn select(device: Device, threads: Option<usize>) -> Result<Box<dyn Backend>> {
    match device {
        Device::Auto | Device::Cpu => Ok(Box::new(CpuBackend::new(threads)?)),
        Device::Cuda(_) => Err(DeviceError(format!(
            "the device `{device}` is not available: this version of runner trains on the CPU\nhelp: set `device = \"auto\"`, or give \
             --device cpu"
        ))
        .into()),
    }
}
