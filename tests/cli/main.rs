//! The program from the outside: the real binary, its output, its files, its exit codes.

mod bench;
mod checks;
mod commands;
mod completions;
mod configs;
mod data;
mod determinism;
mod elsewhere;
mod embedded;
mod escapes;
mod failures;
mod fields;
mod figures;
mod finetune;
mod force;
mod hostile_files;
mod lr_find;
mod memory;
mod not_finite;
mod photo_lists;
mod photos;
mod predict;
#[cfg(target_os = "linux")]
mod pty;
mod real_data;
mod report;
mod resume;
mod resume_alone;
mod resume_changes;
mod resume_moments;
mod runs;
mod show;
mod support;
mod sweep;
mod two_at_once;
mod wrong_data;
