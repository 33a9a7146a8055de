//! What the folders of runs say: which there are, in which state, what was trained and what came of it.
//!
//! - [`find`]: the runs below a folder, and those that are named.
//! - [`folder`]: a [`Run`], read from its files; [`lines`]: its `metrics.jsonl`.
//! - [`datum`]: what a run can be chosen and sorted by; [`choose`]: how that is done.
//! - [`difference`]: where configurations differ; [`curves`]: figures over the course of runs; [`figure`]: what is
//!   known of them by their names.

pub mod choose;
pub mod curves;
pub mod datum;
pub mod difference;
pub mod figure;
pub mod find;
pub mod folder;
pub mod lines;
pub mod verify;

pub use folder::{Run, State};
