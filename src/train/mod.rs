//! Training: programs, the session that holds their state, the loop around it.

pub mod folder;
pub mod metrics;
pub mod metrics_file;
pub mod programs;
pub mod schedule;
pub mod session;
