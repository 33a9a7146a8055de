//! The engine of `runner`: what a training step is, and what runs it.
//!
//! [`graph`] has the operations, [`passes`] make a training step of a model's forward pass and join what a device can do at
//! once, [`plan`] says where every value lives, and a [`backend`] runs the program for every batch. The engine knows no
//! configuration file, no data set, no layer and no command line: those are the program's.

pub mod backend;
pub mod passes;

pub use runner_core::{bulk, collective, failure, files, graph, plan, random, shards, system};
