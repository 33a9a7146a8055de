//! What kernels run on: threads, operands in planned memory, work split into tasks.

pub mod frame;
pub mod memory;
pub(crate) mod parallel;
pub mod threads;
