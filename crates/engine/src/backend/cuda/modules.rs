//! Kernels: loaded from what travels in the binary, found by name, launched.
//!
//! [`ptx`] and [`cubin`] have the kernels as they travel in the binary, `jit_cache` looks whether the driver can keep what it
//! compiles, and `launcher` is what kernels are loaded and launched through.

mod jit_cache;
mod launcher;

pub use runner_kernels::{cubin, ptx};

use super::driver::stream::Stream;
use super::driver::{Code, Context, CudaError};
use super::settings::Bindings;
use crate::backend::gpu::launch::{LaunchConfig, Module};
use anyhow::{Context as _, Error, Result};
use launcher::{Image, Launcher, LoadedFunction, LoadedModule, Refused, launcher};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::sync::Arc;

/// Bytes of dynamic shared memory that a kernel may have without an opt-in.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// A kernel on the device.
pub type Function = Arc<dyn LoadedFunction>;

/// The modules loaded on a device.
pub struct Modules {
    context: Arc<Context>,
    functions: HashMap<(Module, String), (Function, u32)>,
    loaded: HashMap<Module, Box<dyn LoadedModule>>,
    launcher: Box<dyn Launcher>,
    /// The driver takes machine code, as far as is known.
    machine_code: bool,
}

impl Modules {
    /// None yet; they will be loaded through `bindings`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>, bindings: Bindings) -> Result<Modules, CudaError> {
        // With this variable the driver compiles PTX and takes nothing else.
        let forced = std::env::var_os("CUDA_FORCE_PTX_JIT").is_some_and(|v| !v.is_empty() && v != "0");
        Ok(Modules {
            context: context.clone(),
            functions: HashMap::new(),
            loaded: HashMap::new(),
            launcher: launcher(bindings, context)?,
            machine_code: !forced,
        })
    }

    /// A new stream for kernels.
    ///
    /// # Errors
    /// The driver failed.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        self.launcher.stream()
    }

    /// The kernel `name` of `module`, which is loaded if it is not yet, allowed to use `shared_bytes`.
    ///
    /// # Errors
    /// The driver does not take the module, or it has no such kernel.
    pub fn function(&mut self, module: Module, name: &str, shared_bytes: u32) -> Result<Function> {
        let key = (module, name.to_owned());
        if let Some((found, allowed)) = self.functions.get(&key)
            && shared_bytes <= *allowed
        {
            return Ok(found.clone());
        }
        self.context.bind()?;
        let c_name = CString::new(name).context("a kernel's name")?;
        let function = self
            .module(module)?
            .function(&c_name)
            .with_context(|| format!("kernel `{name}` of module `{}`", module.name()))?;
        if shared_bytes > USUAL_SHARED_BYTES {
            function
                .allow_shared(shared_bytes)
                .with_context(|| format!("kernel `{name}` needs {shared_bytes} bytes of shared memory"))?;
        }
        // Drivers load kernels lazily, which a stream capture does not allow: asking for an attribute loads them now.
        function.registers()?;
        self.functions.insert(key, (function.clone(), shared_bytes.max(USUAL_SHARED_BYTES)));
        Ok(function)
    }

    fn module(&mut self, module: Module) -> Result<&dyn LoadedModule> {
        if !self.loaded.contains_key(&module) {
            let loaded = self.load(module)?;
            self.loaded.insert(module, loaded);
        }
        Ok(&*self.loaded[&module])
    }

    /// Loads a module: as machine code if there is some for this GPU, else, or if the driver does not take it, as PTX.
    fn load(&mut self, module: Module) -> Result<Box<dyn LoadedModule>> {
        let not_loaded = |Refused { error, log }| NotLoaded { module, error, log };
        let capability = self.context.info.capability;
        if self.machine_code
            && let Some(code) = cubin::image(module, capability)?
        {
            match self.launcher.load(Image::Cubin(&code)) {
                Ok(loaded) => return Ok(loaded),
                // Neither is the fault of the machine code.
                Err(refused) if refused.error.is_out_of_memory() || refused.error.earlier => {
                    return Err(not_loaded(refused).into());
                }
                Err(refused) => {
                    self.machine_code = false;
                    let why = refused.error;
                    self.context.note(format!(
                        "note: the kernels are compiled from PTX, as their machine code is not taken: {why}"
                    ));
                }
            }
        }
        if let Some(why) = jit_cache::problem() {
            let gpu = self.context.info.capability_text();
            self.context.note(format!(
                "note: at every start the driver compiles the kernels for compute capability {gpu}: {why}"
            ));
        }
        let image = ptx::image(module, capability)?;
        let text = CStr::from_bytes_with_nul(&image)
            .with_context(|| format!("the kernels `{}` in this program are damaged", module.name()))?;
        Ok(self.launcher.load(Image::Ptx(text)).map_err(not_loaded)?)
    }
}

/// The driver does not take a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotLoaded {
    module: Module,
    /// Its answer.
    error: CudaError,
    /// What its compiler says; often nothing.
    log: String,
}

impl NotLoaded {
    /// What can be done about it.
    fn help(&self) -> &'static str {
        use cudarc::driver::sys::CUresult as Answer;
        let is = |answer: Answer| self.error.code == Code::from(answer);
        if is(Answer::CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
            "the driver's compiler (libnvidia-ptxjitcompiler) is missing: install all of the driver, and give a container \
             NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        } else if is(Answer::CUDA_ERROR_JIT_COMPILATION_DISABLED) {
            "unset CUDA_DISABLE_PTX_JIT, for this GPU's kernels must be compiled by the driver"
        } else {
            "a newer driver may take them"
        }
    }
}

impl fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the driver does not take the kernels `{}`: {}", self.module.name(), self.error)?;
        for line in self.log.lines().filter(|line| !line.trim().is_empty()) {
            write!(f, "\n  {line}")?;
        }
        write!(f, "\nhelp: {}", self.help())
    }
}

impl std::error::Error for NotLoaded {}

/// The driver's error that is the cause of `error`, if there is one.
pub fn driver_error(error: &Error) -> Option<&CudaError> {
    error.chain().find_map(|cause| match cause.downcast_ref::<NotLoaded>() {
        Some(not_loaded) => Some(&not_loaded.error),
        None => cause.downcast_ref::<CudaError>(),
    })
}

/// Enqueues a launch. Every argument lies at the front of an 8-byte cell.
///
/// # Errors
/// The driver refuses it.
///
/// # Safety
/// The arguments are those of the kernel's parameter list, and all memory that they point to lives until it has run.
pub unsafe fn launch(
    stream: &Stream,
    function: &Function,
    config: LaunchConfig,
    cells: &[u64],
) -> Result<(), CudaError> {
    const MOST: usize = 64;
    assert!(cells.len() <= MOST, "a kernel with {} parameters", cells.len());
    let mut pointers = [std::ptr::null_mut::<c_void>(); MOST];
    for (p, cell) in pointers.iter_mut().zip(cells) {
        *p = std::ptr::from_ref(cell).cast_mut().cast();
    }
    // SAFETY: the caller's word; the cells are there until the call returns, and hold an argument each.
    unsafe { function.launch(stream, config, &mut pointers[..cells.len()]) }
}
