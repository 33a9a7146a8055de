//! The program from the outside: the real binary, its output, its files, its exit codes.

mod bench;
mod commands;
mod configs;
mod data;
mod determinism;
mod failures;
mod memory;
mod not_finite;
mod predict;
mod real_data;
mod resume;
mod resume_changes;
mod resume_moments;
mod support;
