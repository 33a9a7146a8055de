//! What kernels run on: threads, operands in planned memory, work split into tasks.

pub(crate) mod frame;
pub(crate) mod memory;
pub(crate) mod parallel;
pub mod threads;
