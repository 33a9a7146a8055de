//! Training: programs, the session that holds their state, the loop around it.

pub mod device;
pub mod evaluate;
pub mod folder;
pub mod host_memory;
pub mod input;
pub mod lints;
pub mod made_up;
pub mod memory;
pub mod metrics;
pub mod metrics_file;
pub mod pace;
pub mod pending;
pub mod precision;
pub mod programs;
pub mod provenance;
pub mod report;
pub mod resume;
pub mod run;
pub mod sample;
pub mod schedule;
pub mod session;
pub mod state;
pub mod table;
pub mod transfer;
pub mod weights;
