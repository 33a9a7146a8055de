//! Passes: functions from graph to graph.

pub mod update;
