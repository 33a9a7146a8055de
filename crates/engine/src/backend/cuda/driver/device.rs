//! Whether there is a driver, and which devices it shows.

use super::code::Code;
use super::error::{CudaError, check};
use super::sys::{self, self as cu, CUdevice_attribute as Attribute};
use std::ffi::CStr;
use std::fmt;

/// Oldest driver that reads the kernels' PTX (ISA 8.1): that of CUDA 12.1, release 530.
pub const OLDEST_DRIVER: i32 = 12010;

/// The file with the driver's functions.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda" };

/// Why there is no GPU to compute on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// No libcuda: no driver is installed.
    NoDriver,
    /// The libcuda that was found is the toolkit's stub, made for linking alone.
    Stub,
    /// The driver's CUDA version, below [`OLDEST_DRIVER`].
    TooOld(i32),
    /// The driver sees no GPU.
    NoDevice,
    /// The libcuda that was found has no function of this name.
    Incomplete(&'static str),
    /// The driver does not start: its answer.
    Broken(String),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::NoDriver => write!(f, "no NVIDIA driver is installed ({LIBRARY} was not found)"),
            Unavailable::Stub => write!(f, "the {LIBRARY} that was found is a stub for linking, not a driver"),
            Unavailable::TooOld(v) => write!(
                f,
                "the NVIDIA driver is too old: it knows CUDA {}, and {} is needed",
                version(*v),
                version(OLDEST_DRIVER)
            ),
            Unavailable::NoDevice => match std::env::var("CUDA_VISIBLE_DEVICES") {
                Ok(v) => write!(f, "the driver shows no GPU (CUDA_VISIBLE_DEVICES is `{v}`)"),
                Err(_) => f.write_str("the driver finds no GPU"),
            },
            Unavailable::Incomplete(name) => write!(f, "the {LIBRARY} that was found has no function `{name}`"),
            Unavailable::Broken(why) => write!(f, "the NVIDIA driver does not start: {why}"),
        }
    }
}

impl Unavailable {
    /// What can be done about it.
    pub fn help(&self) -> &'static str {
        match self {
            Unavailable::NoDriver => "install NVIDIA's driver, or compute on the CPU with `--device cpu`",
            Unavailable::Stub => "take the toolkit's `stubs` folder out of LD_LIBRARY_PATH, or install NVIDIA's driver",
            Unavailable::TooOld(_) => "install driver release 530 or newer, or compute on the CPU with `--device cpu`",
            Unavailable::NoDevice => {
                "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or compute on the CPU with `--device cpu`"
            }
            Unavailable::Incomplete(_) => {
                "install driver release 530 or newer, and look for another libcuda in LD_LIBRARY_PATH; or compute on the CPU with `--device cpu`"
            }
            Unavailable::Broken(_) => "see what `nvidia-smi` says, or compute on the CPU with `--device cpu`",
        }
    }
}

/// A CUDA version for people: `12.1` for 12010.
pub fn version(v: i32) -> String {
    format!("{}.{}", v / 1000, v % 1000 / 10)
}

/// Starts the driver; its CUDA version (12010 for 12.1) and the number of devices, at least one.
///
/// # Errors
/// There is nothing to compute on.
pub fn start() -> Result<(i32, usize), Unavailable> {
    match sys::load() {
        Ok(()) => {}
        Err(sys::Missing::Library) => return Err(Unavailable::NoDriver),
        Err(sys::Missing::Function(name)) => return Err(Unavailable::Incomplete(name)),
    }
    // SAFETY: the library is there.
    match unsafe { cu::cuInit(0) } {
        Code::SUCCESS => {}
        Code::STUB_LIBRARY => return Err(Unavailable::Stub),
        Code::NO_DEVICE => return Err(Unavailable::NoDevice),
        code => return Err(Unavailable::Broken(CudaError::new("starting the driver", code).to_string())),
    }
    let mut driver = 0;
    // SAFETY: the driver is initialised.
    check("asking for the driver's version", unsafe { cu::cuDriverGetVersion(&mut driver) })
        .map_err(|e| Unavailable::Broken(e.to_string()))?;
    if driver < OLDEST_DRIVER {
        return Err(Unavailable::TooOld(driver));
    }
    let mut count = 0;
    // SAFETY: the driver is initialised.
    check("counting the GPUs", unsafe { cu::cuDeviceGetCount(&mut count) })
        .map_err(|e| Unavailable::Broken(e.to_string()))?;
    match count {
        1.. => Ok((driver, count as usize)),
        _ => Err(Unavailable::NoDevice),
    }
}

/// The release of the driver that the kernel has loaded (`580.65.06`), where the kernel reports it.
pub fn release() -> Option<String> {
    release_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn release_in(text: &str) -> Option<String> {
    let number = |word: &&str| word.contains('.') && word.split('.').all(|n| n.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(number).map(str::to_owned)
}

/// What is known of a device without making a context on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number among those that `CUDA_VISIBLE_DEVICES` shows.
    pub ordinal: usize,
    /// `NVIDIA H200`.
    pub name: String,
    /// 80 for compute capability 8.0.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub total_bytes: usize,
}

impl DeviceInfo {
    /// Asks about device `ordinal`. The driver has been started.
    ///
    /// # Errors
    /// There is no such device, or the driver failed.
    pub fn ask(ordinal: usize) -> Result<DeviceInfo, CudaError> {
        let mut device = 0;
        // SAFETY: the driver is initialised; all pointers are to locals of the right type and size.
        unsafe {
            check("looking for the GPU", cu::cuDeviceGet(&mut device, ordinal as i32))?;
            let mut name = [0; 256];
            check("asking for the GPU's name", cu::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
            let mut total_bytes = 0;
            check("asking for the GPU's memory", cu::cuDeviceTotalMem_v2(&mut total_bytes, device))?;
            let ask = |attribute| {
                let mut v = 0;
                check("asking what the GPU can do", cu::cuDeviceGetAttribute(&mut v, attribute, device))?;
                Ok(v as u32)
            };
            let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            Ok(DeviceInfo {
                ordinal,
                name: CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(),
                capability: 10 * major + minor,
                multiprocessors: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
                total_bytes,
            })
        }
    }

    /// `9.0`
    pub fn capability_text(&self) -> String {
        format!("{}.{}", self.capability / 10, self.capability % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_both_kinds_of_kernel_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: gcc 12.3.0";
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)";
        assert_eq!(release_in(closed).as_deref(), Some("535.129.03"));
        assert_eq!(release_in(open).as_deref(), Some("580.65.06"));
        assert_eq!(release_in(""), None);
    }
}
