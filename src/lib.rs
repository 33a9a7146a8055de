//! `runner` trains standard neural networks from a TOML file.
//!
//! A configuration becomes an `Experiment` (plain data), the experiment a [`graph::Graph`], the graph a
//! planned [`plan::Program`], and a [`backend`] runs the program for every batch. `ARCHITECTURE.md` has the map.

#[cfg(target_endian = "big")]
compile_error!("checkpoints and data sets are read and written in place, as little-endian memory");

pub use runner_engine::{backend, bulk, collective, files, graph, passes, plan, random, shards, system};

pub mod api;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod data;
pub mod model;
pub mod onnx;
pub mod runs;
pub mod serve;
pub mod sweep;
pub mod terminal;
pub mod train;
