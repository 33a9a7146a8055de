//! The interface through which kernels are loaded and launched. Each of the bindings implements it.

use crate::backend::cuda::driver::CudaError;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::gpu::launch::LaunchConfig;
use std::ffi::{CStr, c_void};
use std::fmt::Debug;
use std::sync::Arc;

/// What a module is loaded from.
#[derive(Debug, Clone, Copy)]
pub enum Image<'a> {
    /// PTX, which the driver compiles.
    Ptx(&'a CStr),
    /// Machine code of one architecture.
    Cubin(&'a [u8]),
}

/// The driver does not take a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its answer.
    pub error: CudaError,
    /// What its compiler says; often nothing.
    pub log: String,
}

impl From<CudaError> for Refused {
    fn from(error: CudaError) -> Refused {
        Refused { error, log: String::new() }
    }
}

/// Loads modules, and makes the streams that their kernels can be put on.
pub trait Launcher: Send {
    /// A new stream for launches of this launcher's functions.
    ///
    /// # Errors
    /// The driver failed.
    fn stream(&self) -> Result<Stream, CudaError>;

    /// Loads a module.
    ///
    /// # Errors
    /// The driver does not take it.
    fn load(&self, image: Image) -> Result<Box<dyn LoadedModule>, Refused>;
}

/// A module on the device, unloaded when it and all its functions are gone.
pub trait LoadedModule: Send {
    /// The kernel `name`.
    ///
    /// # Errors
    /// There is none of that name.
    fn function(&self, name: &CStr) -> Result<Arc<dyn LoadedFunction>, CudaError>;
}

/// A kernel on the device; it keeps its module. The context is current in all calls.
pub trait LoadedFunction: Send + Sync + Debug {
    /// Allows launches with up to `bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// The device has not as much.
    fn allow_shared(&self, bytes: u32) -> Result<(), CudaError>;

    /// Registers of a thread.
    ///
    /// # Errors
    /// The driver failed.
    fn registers(&self) -> Result<i32, CudaError>;

    /// Enqueues a launch on a stream of the same launcher; `arguments` point to the kernel's arguments, which are copied.
    ///
    /// # Errors
    /// The driver refuses it, or the stream is another launcher's.
    ///
    /// # Safety
    /// The arguments are those of the kernel's parameter list, and all memory that they point to lives until it has run.
    unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError>;
}
