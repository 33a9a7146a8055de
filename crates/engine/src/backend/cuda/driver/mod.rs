//! The driver: its functions, and what it gives, each with an owner that gives it back: a context, streams, events, graphs and
//! memory. Every call is checked.

mod code;
mod context;
mod device;
mod error;
pub(super) mod memory;
pub(super) mod stream;
pub(super) mod sys;

pub use code::Code;
pub use context::Context;
pub(super) use context::MEMORY_HELP;
pub use device::{DeviceInfo, OLDEST_DRIVER, Unavailable, release, start, version};
pub use error::CudaError;
pub(super) use error::check;
