//! The program from the outside: the real binary, its output, its files, its exit codes.

mod about;
mod adapters;
mod bags;
mod beams;
mod bench;
mod bf16;
mod carried_state;
mod checks;
mod class_names;
mod classes;
mod commands;
mod completions;
mod configs;
mod data;
mod determinism;
mod dry_run;
mod elsewhere;
mod embedded;
mod escapes;
mod explain;
mod failures;
mod fields;
mod figures;
mod finetune;
mod folds;
mod force;
mod given;
mod hashed_columns;
mod hostile_data;
mod hostile_files;
mod imported;
mod init;
mod large_tables;
mod library;
mod lr_find;
mod masks;
mod memory;
mod mlflow;
#[cfg(target_os = "linux")]
mod mpi;
mod network;
mod not_finite;
mod optimizers;
mod ordinal;
#[cfg(unix)]
mod outputs;
mod parquet;
mod photo_lists;
mod photos;
mod predict;
mod pretrained;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod pty;
mod quantiles;
mod ranks;
mod real_data;
mod recurrent;
mod report;
mod requeue;
mod resume;
mod resume_alone;
mod resume_changes;
mod resume_moments;
mod runs;
mod sample_weights;
mod seeds;
#[cfg(unix)]
mod serve;
mod show;
mod steps;
#[path = "../../support/command.rs"]
mod support;
mod sweep;
mod sync_batch_norm;
mod table_rows;
mod tables;
mod tensorboard;
mod text;
mod text_pairs;
mod text_tags;
mod text_to_text;
mod two_at_once;
mod weighted_samples;
mod wrong_data;
