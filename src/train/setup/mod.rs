//! From an experiment to a session that can take its first step.

pub mod averages;
pub mod balance;
pub mod class_report;
pub mod device;
pub mod error_report;
pub mod figures;
pub mod gradients;
pub mod input;
pub mod kind;
pub mod lints;
pub mod memory;
pub mod muon;
mod oversights;
pub mod patterns;
pub mod photos;
pub mod precision;
pub mod programs;
pub mod recompute;
pub mod schedule;
pub mod scores;
pub mod session;
pub mod shards;
pub mod slots;
pub mod synthetic_batch;
pub mod together;
pub mod trained;
pub mod transfer;
