//! Who loads kernels and starts them: one small interface, and what implements it.
//!
//! Memory, events and graphs are always [`cudarc`]'s. Modules, functions and launches may also be those of the crate `cust`,
//! with the feature of that name; the stream that kernels run on is then `cust`'s, and everybody else borrows its handle.

mod by_cudarc;
#[cfg(feature = "cust")]
mod cust;

use super::driver::{Context, CudaError};
use super::stream::Stream;
use crate::backend::SettingError;
use std::ffi::{CStr, c_void};
use std::fmt::Debug;
use std::sync::Arc;

/// The environment variable that chooses the [`Bindings`].
pub const VARIABLE: &str = "RUNNER_CUDA_LAUNCHER";

/// The bindings of the driver through which kernels are loaded and launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bindings {
    /// The crate `cudarc`, as for everything else.
    #[default]
    Cudarc,
    /// The crate `cust`.
    #[cfg(feature = "cust")]
    Cust,
}

impl Bindings {
    /// What [`VARIABLE`] asks for: `cudarc` or `cust`; `cudarc` if it is empty.
    ///
    /// # Errors
    /// It is neither, or this program was built without `cust`.
    pub fn parse(name: &str) -> Result<Bindings, SettingError> {
        match name {
            "" | "cudarc" => Ok(Bindings::Cudarc),
            #[cfg(feature = "cust")]
            "cust" => Ok(Bindings::Cust),
            #[cfg(not(feature = "cust"))]
            "cust" => Err(SettingError(format!(
                "{VARIABLE} is `cust`, but this program was built without it\nhelp: build it with the feature `cust`"
            ))),
            _ => Err(SettingError(format!("{VARIABLE} is `{name}`\nhelp: it may be `cudarc` or `cust`"))),
        }
    }

    /// What loads and launches through these bindings on the device of `context`.
    ///
    /// # Errors
    /// The driver failed.
    pub(super) fn launcher(self, context: &Arc<Context>) -> Result<Box<dyn Launcher>, CudaError> {
        Ok(match self {
            Bindings::Cudarc => Box::new(by_cudarc::Cudarc::new(context)),
            #[cfg(feature = "cust")]
            Bindings::Cust => Box::new(cust::Cust::new(context)?),
        })
    }
}

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// What a module is loaded from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Image<'a> {
    /// PTX, which the driver compiles.
    Ptx(&'a CStr),
    /// Machine code of one architecture.
    Cubin(&'a [u8]),
}

/// The driver does not take a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
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
pub(super) trait Launcher: Send {
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
pub(super) trait LoadedModule: Send {
    /// The kernel `name`.
    ///
    /// # Errors
    /// There is none of that name.
    fn function(&self, name: &CStr) -> Result<Arc<dyn LoadedFunction>, CudaError>;
}

/// A kernel on the device; it keeps its module. The context is current in all calls.
pub(super) trait LoadedFunction: Send + Sync + Debug {
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
    unsafe fn launch(&self, stream: &Stream, size: Size, arguments: &mut [*mut c_void]) -> Result<(), CudaError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_the_bindings() {
        assert_eq!(Bindings::parse("").unwrap(), Bindings::Cudarc);
        assert_eq!(Bindings::parse("cudarc").unwrap(), Bindings::Cudarc);
        assert!(Bindings::parse("Cust").unwrap_err().to_string().contains("may be `cudarc` or `cust`"));
        match Bindings::parse("cust") {
            Ok(bindings) => assert_ne!(bindings, Bindings::Cudarc),
            Err(e) => assert!(!cfg!(feature = "cust") && e.to_string().contains("feature `cust`"), "{e}"),
        }
    }
}
