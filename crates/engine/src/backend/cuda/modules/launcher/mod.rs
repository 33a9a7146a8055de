//! Who loads kernels and starts them: one small interface, and what implements it.
//!
//! Memory, events and graphs are always [`cudarc`]'s. Modules, functions and launches may also be those of the crate `cust`,
//! with the feature of that name; the stream that kernels run on is then `cust`'s, and all other code borrows its handle.

mod by_cudarc;
#[cfg(feature = "cust")]
mod cust;
mod interface;

pub use interface::{Image, Launcher, LoadedFunction, LoadedModule, Refused};

use crate::backend::cuda::driver::{Context, CudaError};
use crate::backend::cuda::settings::Bindings;
use std::sync::Arc;

/// What loads and launches kernels through `bindings` on the device of `context`.
///
/// # Errors
/// The driver failed.
pub fn launcher(bindings: Bindings, context: &Arc<Context>) -> Result<Box<dyn Launcher>, CudaError> {
    Ok(match bindings {
        Bindings::Cudarc => Box::new(by_cudarc::Cudarc::new(context)),
        #[cfg(feature = "cust")]
        Bindings::Cust => Box::new(cust::Cust::new(context)?),
    })
}
