//! The engine of `runner`: what a training step is, and what runs it.
//!
//! [`graph`] has the operations, [`passes`] make a training step of a model's forward pass and join what a device can do at
//! once, [`plan`] says where every value lives, and a [`backend`] runs the program for every batch. The engine knows no
//! configuration file, no data set, no layer and no command line: those are the program's.

#[cfg(target_endian = "big")]
compile_error!("parameters and batches are read and written in place, as little-endian memory");

pub mod backend;
pub mod collective;
pub mod files;
pub mod graph;
pub mod passes;
pub mod plan;
pub mod random;
pub mod shards;
