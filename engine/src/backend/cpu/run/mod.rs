//! What kernels run on: threads, operands in planned memory, work split into tasks.

pub mod frame;
pub mod memory;
pub mod parallel;
pub mod threads;
