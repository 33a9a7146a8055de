//! What kernels run on: threads, operands in planned memory, work split into tasks.

pub mod frame;
pub mod memory;
pub mod numbers;
pub(crate) mod parallel;
pub mod per_thread;
pub mod threads;
pub mod widths;
