//! The context of a device, in which everything else lives.

use super::device::{DeviceInfo, start};
use super::error::{CudaError, check};
use super::sys as cu;
use crate::backend::DeviceError;
use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// What to do where others have the GPU's memory.
pub const MEMORY_HELP: &str =
    "end other programs that use the GPU (`nvidia-smi` lists them), or compute on the CPU with --device cpu";

/// A device's primary context, kept for as long as something lives in it.
#[derive(Debug)]
pub struct Context {
    device: cu::CUdevice,
    raw: cu::CUcontext,
    /// The device.
    pub info: DeviceInfo,
    /// Bytes of its memory that were free when the context had just been made.
    pub free_at_start: usize,
    notes: Mutex<Vec<String>>,
}

// SAFETY: a context may be used from any thread; each call binds it to its thread first.
unsafe impl Send for Context {}
// SAFETY: as above; the driver's calls are thread-safe.
unsafe impl Sync for Context {}

impl Context {
    /// The context of device `ordinal`.
    ///
    /// # Errors
    /// No driver, no such device, or the driver failed: a [`DeviceError`].
    pub fn open(ordinal: usize) -> Result<Arc<Context>> {
        let (_, count) = start().map_err(|e| DeviceError(format!("no GPU can be used: {e}\nhelp: {}", e.help())))?;
        if ordinal >= count {
            let have = if count == 1 {
                "there is only `cuda:0`".into()
            } else {
                format!("there are cuda:0 to cuda:{}", count - 1)
            };
            return Err(DeviceError(format!(
                "there is no device `cuda:{ordinal}`: {have}\nhelp: `runner devices` lists them"
            ))
            .into());
        }
        let info = DeviceInfo::ask(ordinal)?;
        if info.capability < 75 {
            return Err(DeviceError(format!(
                "the GPU {} has compute capability {}, and 7.5 (Turing) is the oldest that the kernels are made for\nhelp: compute on the CPU with --device cpu",
                info.name,
                info.capability_text()
            ))
            .into());
        }
        let (mut device, mut raw) = (0, std::ptr::null_mut());
        // SAFETY: the driver is initialised and the device exists.
        let found = check("looking for the GPU", unsafe { cu::cuDeviceGet(&mut device, ordinal as i32) });
        // SAFETY: as above.
        let mut retain = || unsafe { cu::cuDevicePrimaryCtxRetain(&mut raw, device) };
        let made = found.and_then(|()| check("making a context on the GPU", retain()));
        let full = |e: CudaError| match e.is_out_of_memory() {
            true => {
                DeviceError(format!("not enough memory on cuda:{ordinal} ({}): {e}\nhelp: {MEMORY_HELP}", info.name))
                    .into()
            }
            false => anyhow::Error::from(e),
        };
        made.map_err(full)?;
        let mut context = Context { device, raw, info, free_at_start: 0, notes: Mutex::default() };
        context.bind()?;
        context.free_at_start = context.memory()?.0;
        Ok(Arc::new(context))
    }

    /// Keeps a note for [`Context::take_notes`], once if the same one comes again.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// The notes since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes it the current context of this thread.
    ///
    /// # Errors
    /// The driver failed.
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained for as long as `self` lives.
        check("selecting the GPU", unsafe { cu::cuCtxSetCurrent(self.raw) })
    }

    /// Bytes of the device's memory that are free, and all of them.
    ///
    /// # Errors
    /// The driver failed.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        check("asking for free memory", unsafe { cu::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; whatever lives in the context holds an `Arc` of it. A failure is of no use here.
        unsafe { cu::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
