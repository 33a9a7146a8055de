//! Operations on files that fail, one by one: what the disk does to a run, and what it does to the disk.
//!
//! `preload.c` stands between the program and the C library. A run without faults counts the operations; then every one of
//! them fails in every way that its kind of operation can. Nothing may be corrupt, nothing may differ, nothing may pass in
//! silence. `cargo test` takes a part of the cases, `RUNNER_FAULTS=all` all of them.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

mod archive;
mod disk;
mod faults;
mod fetch;
mod library;
mod limits;
mod operation;
mod optimizers;
mod place;
mod power_cut;
mod ranks;
mod readers;
mod run_state;
mod sweep;
mod train;
mod trials;
