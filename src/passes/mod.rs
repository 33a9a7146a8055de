//! What turns the graph of a model's forward pass into the graph of a whole training step.
//!
//! A pass is a function on a [`crate::graph::Graph`]; whoever builds a program decides which passes run, in which order.

pub mod fuse;
pub mod grad;
pub mod simplify;
