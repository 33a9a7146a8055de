//! The CUDA backend as a whole: on the emulated driver, or on a GPU with `RUNNER_TEST_GPU=1`.

mod closer_look;
mod convolutions;
#[cfg(feature = "cust")]
mod cust;
#[path = "../../support/emulator/mod.rs"]
mod emulator;
mod engine;
mod forms;
mod gradients;
mod harness;
mod libraries;
mod limits;
mod models;
mod nccl_strictness;
mod plans;
mod precision;
mod ranks;
#[path = "../../support/root.rs"]
mod root;
mod scaling;
mod strictness;
mod trace;
