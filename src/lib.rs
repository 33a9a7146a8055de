//! `runner` trains standard neural networks from a TOML file.
//!
//! A configuration becomes an `Experiment` (plain data), the experiment a [`graph::Graph`], the graph a
//! planned [`plan::Program`], and a [`backend`] runs the program for every batch. `ARCHITECTURE.md` has the map.

pub mod backend;
pub mod data;
pub mod graph;
pub mod plan;
pub mod random;
