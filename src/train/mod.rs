//! Training. Modules of one folder name only those of the folders above it:
//!
//! - `setup`: what is there before the first batch: device, programs, memory, samples, the session that holds the state.
//! - `files`: what a run writes and reads again: its folder, checkpoints, metrics, weights.
//! - `run`: the loop, evaluation, and the reports meanwhile.

pub mod files;
pub mod run;
pub mod setup;
